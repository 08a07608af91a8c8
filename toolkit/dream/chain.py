"""The chain of experience: recorded, composed, analogous, and then an honest "I cannot tell".

The recording of this very call in this very state comes first. What code makes of the state and of the
mined tool models comes next, at its calibrated support; below the threshold the dream abstains. Everything
is mined from the tenant's own recordings when the first call of the run is asked, once.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from dreamgym_kit.dream.faults import FaultKind, fault_kind, took_effect
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.advance import TOLD, forget
from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.curve import CurvePoint
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider, follow
from dreamgym_kit.dream.state.history import recordings, step_of
from dreamgym_kit.dream.state.observed import answer_of
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.volatile import Renaming
from dreamgym_kit.dream.state.worlds import start
from dreamgym_kit.plain import is_exact
from dreamgym_kit.ports import Situation
from dreamgym_kit.vocabulary import Answer, Call, Provenance, Transition

AllRecordings = Callable[[str], Iterable[Transition]]
"""Gives every transition recorded for one tenant, in the order recorded."""

_MOST_EPISODES = 4_096  # whose states are kept; a forgotten one is followed again from its history


class ChainedExperience:
    """Implements `ports.ExperienceModel`: recorded, then state and rules, then abstain.

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
        self._recorded, self._all, self._threshold = recorded, all_recordings, threshold
        self._stated = stated
        self._knowledge: dict[str, Knowledge] = {}
        self._episodes: OrderedDict[tuple[str, str], _Followed] = OrderedDict()
        self._lock = threading.Lock()

    async def answer(self, call: Call, situation: Situation) -> Answer:
        """See `ExperienceModel.answer`."""
        exact = await self._recorded.answer(call, situation)
        if not exact.abstained or not is_exact(dict(call.args)):
            return exact
        with self._lock:
            knowledge = self._known(situation.tenant)
            followed = self._follow(knowledge, situation)
            args = followed.renaming.symbolic(dict(call.args))
            told, _ = consider(knowledge, followed.state, _world(situation), call.tool, args)
            if not told or told[0].support < self._threshold:
                return _abstained(told, self._threshold, exact)
            return _answered(call, situation, told[0], followed)

    def curve(self, tenant: str) -> tuple[CurvePoint, ...]:
        """What each threshold gave on held-out recordings; empty where nothing was mined, or too little."""
        knowledge = self._knowledge.get(tenant)
        return knowledge.curve if knowledge is not None else ()

    def _known(self, tenant: str) -> Knowledge:
        if tenant not in self._knowledge:
            self._knowledge[tenant] = learn(recordings(self._all(tenant)), stated=self._stated)
        return self._knowledge[tenant]

    def _follow(self, knowledge: Knowledge, situation: Situation) -> "_Followed":
        """The state after the episode's history, from where it was followed to last time."""
        key = (situation.tenant, situation.episode)
        history = situation.history
        followed = self._episodes.get(key)
        if followed is None or not followed.precedes(history):
            followed = _Followed(
                start(knowledge.pool, knowledge.models, _world(situation)),
                Renaming(knowledge.models.fresh),
            )
        for entry in list(history)[len(followed.entries) :]:
            followed.take(knowledge, entry)
        self._episodes[key] = followed
        self._episodes.move_to_end(key)
        while len(self._episodes) > _MOST_EPISODES:
            self._episodes.popitem(last=False)
        return followed


class _Followed:
    """An episode as far as it was followed."""

    def __init__(self, state: State, renaming: Renaming) -> None:
        self.state, self.renaming = state, renaming
        self.entries: list[tuple[str, int, Answer]] = []

    def precedes(self, history: Sequence[Transition]) -> bool:
        """Whether this is an earlier point of that history."""
        return len(self.entries) <= len(history) and all(
            entry == _mark(later) for entry, later in zip(self.entries, history, strict=False)
        )

    def take(self, knowledge: Knowledge, entry: Transition) -> None:
        """Go on by one answered call."""
        self.entries.append(_mark(entry))
        if entry.effect.runs_in_dream:
            return
        if entry.answer.abstained:
            if entry.effect.changes_world:
                self.state = forget(knowledge.models, self.state, entry.call.tool)
            return
        if fault_kind(entry.answer) not in (None, FaultKind.SLOW):
            # what a fault says is no fact; a write that went through under it has changed something unseen
            if entry.effect.changes_world and took_effect(entry.answer):
                self.state = forget(knowledge.models, self.state, entry.call.tool)
            return
        step = self.renaming.step(step_of(entry))
        real = entry.answer.provenance in (Provenance.REAL, Provenance.RECORDED)
        confidence = TOLD if real else entry.answer.support
        self.state = follow(knowledge, self.state, step, confidence=confidence)


def _mark(entry: Transition) -> tuple[str, int, Answer]:
    """Tells the calls of one episode apart, and an episode that is run again from its first run."""
    return entry.call.key, entry.step, entry.answer


def _world(situation: Situation) -> str:
    return f"{situation.tenant}/{situation.world}"


def _answered(call: Call, situation: Situation, told: Told, followed: _Followed) -> Answer:
    seed = f"{situation.world} {situation.after} {call.key}"
    like = Answer(provenance=told.provenance, support=round(told.support, 4), why=told.why)
    return answer_of(followed.renaming.concrete(told.seen, seed), like)


def _abstained(told: Sequence[Told], threshold: float, exact: Answer) -> Answer:
    why = exact.why
    if told:
        why = f"{why}; the best guess has support {told[0].support:.2f}, below {threshold:g}"
    return Answer(provenance=Provenance.ABSTAINED, support=0.0, why=why)
