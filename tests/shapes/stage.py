"""A shape: one way in which people build tools and agents, ready to be run under the gate."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage

from dreamgym_kit.interfaces import Situation
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Answer, Call, Effect, Source, ToolSpec

DREAMT = "42"
HELLO = {"messages": [HumanMessage("hi")]}


@dataclass(frozen=True)
class Runs:
    """One built shape: how it is run, and what its result must look like when it was dreamt."""

    sync: Callable[[], Any] | None = None
    anync: Callable[[], Awaitable[Any]] | None = None
    looks: Callable[[Any], bool] = lambda _: True


@dataclass(frozen=True)
class Shape:
    """A way to build tools or agents. `build` makes it anew; `dreamt` calls are answered in one run."""

    name: str
    build: Callable[[], Runs]
    dreamt: int = 1
    control: frozenset[str] = frozenset()
    may_run: tuple[str, ...] = ()  # bodies that may run: their tools were declared control
    captured: bool = False  # functions under tools have to be hooked before the run, as `simulate` does


class ScriptedExperienceDouble:
    """Answers every call with the same text, or with what a function makes of the call."""

    waits = False

    def __init__(self, answer: Callable[[Call], Answer | str] | str = DREAMT) -> None:
        self._answer = answer
        self.asked: list[Call] = []

    async def answer(self, call: Call, situation: Situation) -> Answer:
        self.asked.append(call)
        made = self._answer if isinstance(self._answer, str) else self._answer(call)
        return Answer(made, Source.SCRIPTED) if isinstance(made, str) else made


def dream(
    experience: Any = None, *, control: frozenset[str] | tuple[str, ...] = (), **settings: Any
) -> Session:
    """A dreaming session in which only the tools of `control` run for real."""
    specs = {name: ToolSpec(name, Effect.CONTROL) for name in control}
    structured = settings.pop("structured", frozenset())
    return Session(
        CallRouter(Mode.DREAM, specs, structured=structured),
        experience=experience or ScriptedExperienceDouble(),
        **settings,
    )


def tool_messages(result: Any) -> list[ToolMessage]:
    """The tool messages of a graph's final state."""
    return [message for message in result["messages"] if isinstance(message, ToolMessage)]


def all_dreamt(result: Any) -> bool:
    """Whether every tool message carries the dream's answer."""
    return all(message.content == DREAMT for message in tool_messages(result))


@dataclass
class Catalogue:
    """Shapes by name, in the order they were declared."""

    shapes: list[Shape] = field(default_factory=list)

    def add(
        self,
        name: str,
        *,
        dreamt: int = 1,
        control: tuple[str, ...] = (),
        may_run: tuple[str, ...] = (),
        captured: bool = False,
    ) -> Callable[[Callable[[], Runs]], Callable[[], Runs]]:
        """Declare the decorated builder as a shape."""

        def keep(build: Callable[[], Runs]) -> Callable[[], Runs]:
            self.shapes.append(Shape(name, build, dreamt, frozenset(control), may_run, captured))
            return build

        return keep
