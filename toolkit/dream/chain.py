"""The chain of experience: recorded, composed, analogous, and then an honest "I cannot tell".

The recording of this very call in this very state comes first. What code makes of the state and of the
mined tool models comes next, at its calibrated support; below the threshold the dream abstains. Everything
is mined from the tenant's own recordings when the first call of the run is asked, once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.curve import CurvePoint
from dreamgym_kit.dream.state.dreaming import Told, consider
from dreamgym_kit.dream.state.observed import answer_of
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.dream.state_tracker import AllRecordings, StateTracker, TrackedEpisode, environment_of
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import escaped_args, is_exact
from dreamgym_kit.types import Answer, Call


class ChainedExperience:
    """Implements `interfaces.ExperienceModel`: recorded, then state and rules, then abstain.

    Args:
        recorded: what repeats recordings.
        all_recordings: what tool models are mined from.
        threshold: 0..1, the calibrated support below which the dream does not answer.
        stated: what a person declared or a model drafted of tools, by tool.
    """

    waits = False

    def __init__(
        self,
        recorded: RecordedExperience,
        all_recordings: AllRecordings,
        *,
        threshold: float = 0.5,
        stated: Mapping[str, StatedModel] | None = None,
    ) -> None:
        self._recorded, self._threshold = recorded, threshold
        self.following = StateTracker(all_recordings, stated=stated)

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        exact = await self._recorded.answer(call, situation)
        if exact.final or not exact.unanswered or not is_exact(dict(call.args)):
            return exact
        with self.following.lock:
            knowledge = self.following.knowledge(situation.tenant)
            if call.tool in self.following.asking(situation.tenant):
                return replace(exact, final=True)
            followed = self.following.follow(situation)
            args = followed.renaming.symbolic(escaped_args(call.args))
            told, _ = consider(knowledge, followed.state, environment_of(situation), call.tool, args)
            if not told or told[0].support < self._threshold:
                return _abstained(told, self._threshold, exact)
            return _answered(call, situation, told[0], followed)

    def curve(self, tenant: str) -> tuple[CurvePoint, ...]:
        """What each threshold gave on held-out recordings; empty where nothing was mined, or too little."""
        return self.following.curve(tenant)


def _answered(call: Call, situation: Situation, told: Told, followed: TrackedEpisode) -> Answer:
    seed = f"{situation.environment} {situation.after} {call.key}"
    like = Answer(source=told.provenance, confidence=round(told.support, 4), why=told.why)
    return answer_of(followed.renaming.concrete(told.seen, seed), like)


def _abstained(told: Sequence[Told], threshold: float, exact: Answer) -> Answer:
    why = exact.why
    if told:
        why = f"{why}; confidence {told[0].support:.2f}, required {threshold:.2f}"
    return replace(exact, why=why)
