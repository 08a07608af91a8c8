"""Where each episode stands: knowledge mined from the tenant's recordings, and the state after a history.

Whoever answers calls asks here: the chain, which answers from the state, and the model behind it, whose
answers have to fit it. An episode is followed on from where it was followed to last time. What is told of
a call is taken into the state whoever told it, so that an answer is known to all that come later.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dreamgym_kit.dream.faults import FaultKind, fault_kind, took_effect
from dreamgym_kit.dream.state.advance import TOLD, forget
from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.claims import Claim, Known, claimed, claims_of, known_after
from dreamgym_kit.dream.state.dreaming import Knowledge, follow
from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.history import HistoryStep, RecordedEpisode, recordings, step_of
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.dream.state.values import is_key, spell
from dreamgym_kit.dream.state.views import State
from dreamgym_kit.dream.state.volatile import Renaming
from dreamgym_kit.dream.state.worlds import start
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Source, Transition

AllRecordings = Callable[[str], Iterable[Transition]]
"""Gives every transition recorded for one tenant, in the order recorded."""

_MIN_WORLDS = 2  # in which a failure is seen that is no denial
_MAX_EPISODES = 4_096  # whose states are kept; a forgotten one is followed again from its history
_REAL = (Source.REAL, Source.RECORDED)


class StateTracker:
    """States of episodes over one mining of the recordings. Hold `lock` while asking.

    Args:
        all_recordings: what tool models are mined from, once per tenant.
        stated: what a person declared or a model drafted of tools, by tool.
        calibrated: whether worlds are held out to learn what support is worth; costs most of the mining.
    """

    def __init__(
        self,
        all_recordings: AllRecordings,
        *,
        stated: Mapping[str, StatedModel] | None = None,
        calibrated: bool = True,
    ) -> None:
        self._all, self._stated, self._calibrated = all_recordings, stated, calibrated
        self._knowledge: dict[str, Knowledge] = {}
        self._no_denials: dict[str, frozenset[tuple[str, str]]] = {}
        self._episodes: OrderedDict[tuple[str, str, str], TrackedEpisode] = OrderedDict()
        self._keeps_known = False
        self.lock = threading.Lock()

    def keep_known(self) -> None:
        """Keep also what no view shows (`claims.Known`): what a model says is held against it."""
        self._keeps_known = True

    def knowledge(self, tenant: str) -> Knowledge:
        """What was mined for a tenant."""
        if tenant not in self._knowledge:
            rows = list(self._all(tenant))
            self._knowledge[tenant] = learn(
                recordings(rows), stated=self._stated, calibrated=self._calibrated
            )
        return self._knowledge[tenant]

    def no_denials(self, tenant: str) -> frozenset[tuple[str, str]]:
        """Failures of reads that recordings show of things that are there."""
        if tenant not in self._no_denials:
            knowledge = self.knowledge(tenant)
            episodes = (one for recorded in knowledge.pool.episodes.values() for one in recorded)
            self._no_denials[tenant] = no_denials(knowledge.models, episodes)
        return self._no_denials[tenant]

    def follow(self, situation: Situation) -> "TrackedEpisode":
        """The state after the episode's history, from where it was followed to last time."""
        knowledge = self.knowledge(situation.tenant)
        # an episode's name may come again elsewhere
        key = (situation.tenant, str(situation.environment), situation.episode)
        history = situation.history
        followed = self._episodes.get(key)
        if followed is None or not followed.precedes(history):
            followed = TrackedEpisode(
                start(knowledge.pool, knowledge.models, environment_of(situation)),
                Renaming(knowledge.models.fresh),
                keeps_known=self._keeps_known,
            )
        for entry in list(history)[len(followed.entries) :]:
            followed.take(knowledge, entry)
        followed.state = replace(followed.state, spoken=situation.spoken)
        self._episodes[key] = followed
        self._episodes.move_to_end(key)
        while len(self._episodes) > _MAX_EPISODES:
            self._episodes.popitem(last=False)
        return followed


class TrackedEpisode:
    """An episode as far as it was followed."""

    def __init__(self, state: State, renaming: Renaming, *, keeps_known: bool = False) -> None:
        self.state, self.renaming = state, renaming
        self.known = Known()
        self._keeps_known = keeps_known
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
        if entry.answer.unanswered:
            if entry.effect.changes_environment:
                self._done_unseen(knowledge, entry, ())
            return
        if fault_kind(entry.answer) not in (None, FaultKind.SLOW):
            # what a fault says is no fact; a write that went through under it has changed something unseen
            if entry.effect.changes_environment and took_effect(entry.answer):
                self._done_unseen(knowledge, entry, self.claims(entry.answer.changes))
            return
        step = self.renaming.step(step_of(entry))
        confidence = TOLD if entry.answer.source in _REAL else entry.answer.confidence
        before = self.state
        self.state = follow(knowledge, before, step, confidence=confidence)
        claims = self.claims(entry.answer.changes)
        if entry.answer.source is Source.MODEL and knowledge.models.advances(step):
            self.state = claimed(knowledge.models, before, self.state, step, claims, confidence)
        self._take_known(knowledge, before, step, claims)

    def _take_known(
        self, knowledge: Knowledge, before: State, step: HistoryStep, claims: tuple[Claim, ...]
    ) -> None:
        if self._keeps_known:
            self.known = known_after(self.known, knowledge.models, before, step, claims)

    def claims(self, changes: Iterable[Mapping[str, JsonValue]]) -> tuple[Claim, ...]:
        """Told changes in the state's own names of made-up ids."""
        return tuple(
            Claim(
                str(self.renaming.symbolic(claim.entity)),
                claim.field,
                self.renaming.symbolic(claim.value),
            )
            for claim in claims_of(changes)
        )

    def concrete(self, value: JsonValue, situation: Situation, call: Call) -> JsonValue:
        """A value with made-up ids as the agent is told them: the same ones for a call in a state."""
        return self.renaming.concrete(value, f"{situation.environment} {situation.after} {call.key}")

    def _done_unseen(self, knowledge: Knowledge, entry: Transition, claims: tuple[Claim, ...]) -> None:
        """A write was done whose answer nobody saw."""
        before = self.state
        step: HistoryStep = self.renaming.step(step_of(entry))._replace(seen=None, failed=False)
        self.state = forget(knowledge.models, before, step)
        if claims:
            self.state = claimed(knowledge.models, before, self.state, step, claims, entry.answer.confidence)
        self._take_known(knowledge, before, step, claims)


def environment_of(situation: Situation) -> str:
    """A situation's world, as recordings name it."""
    return f"{situation.tenant}/{situation.environment}"


def _mark(entry: Transition) -> tuple[str, int, Answer]:
    """Tells the calls of one episode apart, and an episode that is run again from its first run."""
    return entry.call.key, entry.step, entry.answer


def no_denials(models: ToolModels, episodes: Iterable[RecordedEpisode]) -> frozenset[tuple[str, str]]:
    """By read and form of its failure, those that recordings show of things that were there.

    A read may fail about a thing that is there ("not sent yet"): the same episode had told of
    the thing before, with no write between, in at least two worlds.
    """
    worlds: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in episodes:
        told: set[tuple[str, str]] = set()
        for step in episode.steps:
            if step.writes:
                told.clear()  # one that deletes a thing may take others with it
            elif step.failed:
                about = {(str(value), name) for name, value in step.args.items() if is_key(value)}
                if any(one[0] in spell(step.seen) for one in about & told):
                    worlds[step.tool, models.form(step)].add(episode.world)
            else:
                told.update((record.entity, record.named) for record in records(step.seen, step.args))
    return frozenset(failure for failure, where in worlds.items() if len(where) >= _MIN_WORLDS)
