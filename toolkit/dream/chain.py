"""What answers a call: recorded, composed, analogous, then "I cannot tell"; and the models behind that.

The recording of this very call in this very state comes first. What a person declared of the tool comes
next, then the tool's program, and where that says nothing with enough confidence, what follows from the state
of the world; below the threshold the dream abstains. Everything is mined from the tenant's own recordings
when the first call that needs it is asked, once.

A dream without a part (`simulate.disable`) shows what that part is worth; its answers become abstentions:

    history     each call is answered by itself: what this episode asked, was told and wrote is not known
    state       only recordings of this very call in this very state answer; nothing is composed
    retrieval   only what was recorded in the call's own world answers; a model is shown no examples
    reasoning   no model decides what recordings and rules leave open; or one that was taught without reasons
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.dream.programs.rules_files import ToolRules
from dreamgym_kit.dream.recorded import RecordedExperience, abstention
from dreamgym_kit.dream.state.dreaming import consider
from dreamgym_kit.dream.state.observed import answer_of
from dreamgym_kit.dream.state.stated import DECLARED, StatedModel
from dreamgym_kit.dream.state_tracker import AllRecordings, StateTracker, environment_of
from dreamgym_kit.interfaces import ExperienceModel, Situation
from dreamgym_kit.serialization import escaped_args, is_exact
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
    """Implements `interfaces.ExperienceModel`: recorded, then state and rules, then abstain.

    Args:
        recorded: what repeats recordings.
        all_recordings: what tool models are mined from.
        threshold: 0..1, the calibrated support below which the dream does not answer.
        stated: what a person declared or a model drafted of tools, by tool.
        specs: the agent's tools: the defaults of their arguments.
        rules: programs that a person wrote, by tool.
    """

    waits = False

    def __init__(
        self,
        recorded: RecordedExperience,
        all_recordings: AllRecordings,
        *,
        threshold: float = 0.5,
        stated: Mapping[str, StatedModel] | None = None,
        specs: Mapping[str, ToolSpec] | None = None,
        rules: Mapping[str, ToolRules] | None = None,
    ) -> None:
        self.recorded, self._threshold, self._models = recorded, threshold, stated or {}
        self.following = StateTracker(all_recordings, stated=stated)
        self.programs = ProgramTracker(all_recordings, specs or {}, rules=rules)

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
            program, is_outdated = None, False
            if unknown is None:
                program, is_outdated = self.programs.consider(call, situation)
        if unknown is not None:  # only a person can say what it answers to a secret that nobody recorded
            why = f"{call.tool} was not recorded with this secret in '{unknown}'"
            exact = replace(exact, why=why, final=True)
        sure = program is not None and program.confidence >= self._threshold
        # older knowledge is not asked where a program is sure, or where it is no more than that
        only_declared = unknown is not None or (not self._models and (sure or is_outdated))
        derived, is_declared = self._of_state(call, situation, only_declared=only_declared)
        if program is not None and not is_declared and program.confidence >= derived.confidence:
            why = f"program of {call.tool}: {program.why}"
            like = Answer(source=Source.DERIVED, confidence=round(program.confidence, 4), why=why)
            derived = answer_of(program.wrap(program.out), like)
        if derived.unanswered:
            return exact
        if derived.confidence < self._threshold:
            why = f"{exact.why}; confidence {derived.confidence:.2f}, required {self._threshold:.2f}"
            return replace(exact, why=why)
        return derived

    def prepare(self, tenant: str) -> None:
        """Mine a tenant's recordings now: it takes long, and the first call of a run would wait."""
        with self.programs.lock:
            self.programs.programs(tenant)
        with self.following.lock:
            self.following.knowledge(tenant)

    def _of_state(self, call: Call, situation: Situation, *, only_declared: bool) -> tuple[Answer, bool]:
        """What the state and the models of tools say, and whether a person declared it of this very tool."""
        if only_declared and call.tool not in self._models:
            return abstention("no declared model"), False
        with self.following.lock:
            followed = self.following.follow(situation)
            args = followed.renaming.symbolic(escaped_args(call.args))
            knowledge, world = self.following.knowledge(situation.tenant), environment_of(situation)
            told, _ = consider(knowledge, followed.state, world, call.tool, args)
            best = next((one for one in told if one.basis == DECLARED or not only_declared), None)
            if best is None:
                return abstention("no model says anything"), False
            like = Answer(source=best.provenance, confidence=round(best.support, 4), why=best.why)
            answer = answer_of(followed.concrete(best.seen, situation, call), like)
            return answer, best.basis == DECLARED


def chain_over(
    rows: Sequence[Transition],
    *,
    threshold: float,
    stated: Mapping[str, StatedModel] | None = None,
    specs: Mapping[str, ToolSpec] | None = None,
) -> ChainedExperience:
    """The chain over these recordings alone."""

    def of_world(environment: Environment, tenant: str) -> list[Transition]:
        return [row for row in of_tenant(tenant) if row.environment == environment]

    def of_tenant(tenant: str) -> list[Transition]:
        return [row for row in rows if row.tenant == tenant]

    recorded = RecordedExperience(of_world)
    return ChainedExperience(recorded, of_tenant, threshold=threshold, stated=stated, specs=specs)


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
        self._dropped = {said: part for part in sorted(parts) for said in _DROPPED.get(part, ())}
        self.waits = model.waits

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        if self._forgets:
            situation = replace(situation, history=(), after=_NOTHING_WRITTEN, seen=0)
        told = await self._model.answer(call, situation)
        part = self._dropped.get(told.source)
        if part is None:
            return told
        return abstention(f"{told.source} answers are left out (simulate.disable: {part})")
