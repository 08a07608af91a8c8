"""One episode on the way to the real tools: who answers each of its calls, by its stage and by what it did.

In shadow a read after a would-be write is answered by the dream: the real world does not know of that write.
What a reading tool's own body calls may not change the world, whatever the stage.
"""

from contextvars import ContextVar

from dreamgym_kit.dream.ledger import Place
from dreamgym_kit.gate.policy import Route, Stage
from dreamgym_kit.gate.session import Session
from dreamgym_kit.vocabulary import Call, Effect, ToolSpec

reading: ContextVar[str] = ContextVar("dreamgym_reading", default="")
"""The reading tool whose real body is running in this context; "": none is."""


class OverseenSession(Session):
    """A session whose real calls go by its overseer."""

    def admit(self, call: Call, called: object = None) -> tuple[Route, Place]:
        """See `Session.admit`.

        Raises:
            GateRefused: a tool that reads was about to change the world, or nobody ever described the tool.
        """
        spec, inside = self.policy.spec(call.tool, called), reading.get()
        if inside and spec.effect.changes_world:
            self.refuse(
                f"{call.tool} ({spec.effect}) was about to run inside {inside}, which reads; it did not run"
            )
        if call.tool not in self.policy.specs:
            self.refuse(f"{call.tool} is a tool that nobody described; it did not run")
        route, place = super().admit(call, called)
        if route is Route.OVERSEEN and self.policy.stage is Stage.SHADOW and self.ledger.after(place):
            return Route.DREAM, place
        return route, place


def effect_of(spec: ToolSpec) -> Effect:
    """What a tool does to its world; a guess is not taken for harmless."""
    if spec.source == "guessed" and not spec.effect.runs_in_dream:
        return Effect.DESTRUCTIVE
    return spec.effect
