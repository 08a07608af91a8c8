"""What answers a call: recorded, composed, analogous, then "I cannot tell"; and the models behind that.

The recording of this very call in this very state comes first, then the tool's program, mined or written by a
person; below the threshold the dream abstains. Programs are mined from the tenant's own recordings when the
first call that needs them is asked, once.

A dream without a part (`simulate.disable`) shows what that part is worth; its answers become abstentions:

    history     each call is answered by itself: what this episode asked, was told and wrote is not known
    state       only recordings of this very call in this very state answer; no program does
    retrieval   only what was recorded in the call's own world answers; a model is shown no examples
    reasoning   no model decides what these leave open; or one that was taught without reasons
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dreamgym_kit.dream.observed import answer_of
from dreamgym_kit.dream.programs.dreaming import EVERYWHERE
from dreamgym_kit.dream.programs.experience import AllRecordings, KeptPrograms, ProgramTracker
from dreamgym_kit.dream.programs.rules_files import ToolRules
from dreamgym_kit.dream.recorded import RecordedExperience, abstention
from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.serialization import is_exact
from dreamgym_kit.types import Answer, Call, Environment, Source, ToolSpec, Transition, history_digest

SURE = 0.9
"""Confidence from which on a derived write is given without a second opinion."""
_DROPPED = {
    "state": frozenset({Source.DERIVED, Source.ANALOGOUS}),
    "retrieval": frozenset({Source.ANALOGOUS}),
    "reasoning": frozenset({Source.MODEL}),
}
_NOTHING_WRITTEN = history_digest(())


class ChainedExperience:
    """Implements `interfaces.ExperienceModel`: recorded, then programs, then abstain.

    Args:
        recorded: what repeats recordings.
        all_recordings: what programs are mined from.
        threshold: 0..1, the confidence below which the dream does not answer.
        specs: the agent's tools: the defaults of their arguments.
        rules: programs that a person wrote, by tool.
        program_store: where mined programs are stored between runs; None: they are mined anew.
    """

    waits = False

    def __init__(
        self,
        recorded: RecordedExperience,
        all_recordings: AllRecordings,
        *,
        threshold: float = 0.5,
        specs: Mapping[str, ToolSpec] | None = None,
        rules: Mapping[str, ToolRules] | None = None,
        program_store: KeptPrograms | None = None,
    ) -> None:
        self.recorded, self._threshold = recorded, threshold
        self.programs = ProgramTracker(all_recordings, specs or {}, rules=rules, program_store=program_store)

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        exact = await self.recorded.answer(call, situation)
        if exact.final or not exact.unanswered or not is_exact(dict(call.args)):
            return exact
        with self.programs.lock:
            programs = self.programs.programs(situation.tenant)
            if call.tool in programs.asking:
                return replace(exact, final=True)
            ignored = self.recorded.match.ignored(call.tool)
            unknown = programs.secrets.unknown(call, ignored, situation.history)
            if unknown is not None:  # only a person can say what it answers to a secret that nobody recorded
                why = f"{call.tool} was not recorded with this secret in '{unknown}'"
                return replace(exact, why=why, final=True)
            program = self.programs.consider(call, situation)
        if program is None:
            return exact
        if program.confidence < self._threshold:
            why = f"{exact.why}; confidence {program.confidence:.2f}, required {self._threshold:.2f}"
            return replace(exact, why=why)
        why = f"program of {call.tool}: {program.why}"
        source = Source.ANALOGOUS if program.kind == EVERYWHERE else Source.DERIVED
        like = Answer(source=source, confidence=round(program.confidence, 4), why=why)
        return answer_of(program.wrap(program.out), like)

    def prepare(self, tenant: str) -> None:
        """Mine a tenant's recordings now: it takes long, and the first call of a run would wait."""
        with self.programs.lock:
            self.programs.programs(tenant)


def chain_over(
    rows: Sequence[Transition], *, threshold: float, specs: Mapping[str, ToolSpec] | None = None
) -> ChainedExperience:
    """The chain over these recordings alone."""

    def of_world(environment: Environment, tenant: str) -> list[Transition]:
        return [row for row in of_tenant(tenant) if row.environment == environment]

    def of_tenant(tenant: str) -> list[Transition]:
        return [row for row in rows if row.tenant == tenant]

    return ChainedExperience(RecordedExperience(of_world), of_tenant, threshold=threshold, specs=specs)


class FallbackChain:
    """Implements `interfaces.ExperienceModel`.

    Args:
        first: is always asked.
        then: is asked where `first` leaves the call unanswered and no other source may be asked.
        second_opinion: ask `then` also about a write that `first` derived with a confidence below `SURE`, and
            give the more confident of both answers.
    """

    waits = True

    def __init__(
        self, first: ExperienceModel, then: ExperienceModel, *, second_opinion: bool = False
    ) -> None:
        self.first, self.then, self._second_opinion = first, then, second_opinion

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`. An unanswered call keeps the first model's nearest recording."""
        answer = await self.first.answer(call, situation)
        if answer.final or not (answer.unanswered or self._doubts(answer, situation)):
            return answer
        other = await self.then.answer(call, situation)
        if other.unanswered:
            why = "; ".join(filter(None, (answer.why, other.why)))
            nearest = other.nearest or answer.nearest
            return replace(other, nearest=nearest, why=why) if answer.unanswered else answer
        return other if answer.unanswered or other.confidence > answer.confidence else answer

    def _doubts(self, answer: Answer, situation: Situation) -> bool:
        derived = answer.source in (Source.DERIVED, Source.ANALOGOUS) and answer.confidence < SURE
        return self._second_opinion and derived and situation.tool.effect.changes_environment


def without(model: ExperienceModel, parts: Collection[str]) -> ExperienceModel:
    """The model without these parts; the very model where there are none."""
    return _Without(model, frozenset(parts)) if parts else model


class _Without:
    """Implements `interfaces.ExperienceModel`."""

    def __init__(self, model: ExperienceModel, parts: frozenset[str]) -> None:
        self._model, self._forgets = model, "history" in parts
        self._dropped = {source: part for part in sorted(parts) for source in _DROPPED.get(part, ())}
        self.waits = model.waits

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if self._forgets:
            situation = replace(situation, history=(), after=_NOTHING_WRITTEN, seen=0)
        answer = await self._model.answer(call, situation)
        part = self._dropped.get(answer.source)
        if part is None:
            return answer
        return abstention(f"{answer.source} answers are left out (simulate.disable: {part})")
