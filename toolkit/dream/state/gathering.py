"""Walks the recordings of one world and takes examples from it: pairs of reads around writes, calls, answers.

One world at a time and from nothing but that world, the vocabulary and the rules so far: so a world in which
nothing changed need not be walked again. While an episode is explained, what only it has seen is left out:
else its own answer would explain itself.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from dreamgym_kit.dream.state.absences import GivenValues
from dreamgym_kit.dream.state.advance import advance, names_after, with_keys
from dreamgym_kit.dream.state.answering import Told
from dreamgym_kit.dream.state.effects import Example, shared_things
from dreamgym_kit.dream.state.facts import Common, facts_around, texts_around
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep, Pool, RecordedEpisode
from dreamgym_kit.dream.state.likeness import Heard, hear
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.names import Names, around
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.trees import Feature, TreeCase
from dreamgym_kit.dream.state.values import MISSING, spell
from dreamgym_kit.dream.state.views import State, View, ViewKey
from dreamgym_kit.dream.state.worlds import reads_at, start

_UNKNOWN = 5  # one episode of so many is walked as if its world were new
_PER_WORLD = 8  # examples of one kind that one world may give
_CERTAIN_SAME, _CERTAIN_CHANGED = 0.75, 0.9  # confidence in a read before the write
_AT_NODE = 0.99  # a read that another episode made after the same writes


@dataclass(slots=True)
class GatheredCall:
    """One call as an example for its tool's tree; the facts around it are found when asked for."""

    step: HistoryStep
    form: str
    world: str
    before: str | None
    around: tuple[Names, State] | None
    seen: tuple[dict[Feature, Hashable], dict[Feature, str]] | None = None

    def case(self, common: Common) -> TreeCase:
        """The call with the facts that count where these texts are common."""
        if self.around is not None:
            names, state = self.around
            facts = facts_around(self.step.tool, self.step.spelled, names, state, frozenset(), self.before)
            self.seen, self.around = (facts, texts_around(names)), None
        assert self.seen is not None
        facts, texts = self.seen
        recurring = {feature: text for feature, text in texts.items() if (feature[1], text) in common}
        return TreeCase({**facts, **recurring}, self.form, self.world)


@dataclass(slots=True)
class Gathered:
    """Examples from one world, in the order met, or from several."""

    pairs: dict[tuple[str, str, str], list[Example]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[GatheredCall]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[tuple[str, str], list[Told]] = field(default_factory=lambda: defaultdict(list))
    texts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (name, text): worlds
    given: GivenValues = field(default_factory=GivenValues)
    heard: Heard = field(default_factory=Heard)
    quota: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def wants(self, *kind: str) -> bool:
        """Whether one more example of this kind is wanted."""
        self.quota[kind] += 1
        return self.quota[kind] <= _PER_WORLD


def gather(
    models: ToolModels, pool: Pool, episodes: Sequence[RecordedEpisode], *, pairs: bool, calls: bool
) -> Gathered:
    """Walk one world's episodes: pairs of a read before and after a write, and calls with their answers.

    Some episodes' calls are looked at as if the world had never been recorded, which is how a new one is met.
    """
    found, nothing = Gathered(), Pool(models.advances)
    for episode in episodes:
        known = start(pool, models, episode.world, without=episode.id)
        as_new = zlib.crc32(f"{episode.world} {episode.id}".encode()) % _UNKNOWN == 0
        if pairs or not as_new:
            _walk(found, models, pool, episode, known, pairs=pairs, calls=calls and not as_new)
        if calls and as_new:
            _walk(found, models, nothing, episode, State({}, OFF_RECORD), pairs=False, calls=True)
    found.texts = Counter(found.texts.keys())  # worlds are counted, not calls
    return found


def _walk(
    found: Gathered,
    models: ToolModels,
    pool: Pool,
    episode: RecordedEpisode,
    state: State,
    *,
    pairs: bool,
    calls: bool,
) -> None:
    for step in episode.steps:
        names = around(step.args, state, models.fresh_for(step.tool, state))
        if calls:
            _call(found, models, pool, episode, state, step, names)
        state = _follow(models, pool, episode, state, step, names, found if pairs and step.writes else None)


def _call(
    found: Gathered,
    models: ToolModels,
    pool: Pool,
    episode: RecordedEpisode,
    state: State,
    step: HistoryStep,
    names: Names,
) -> None:
    form, world = models.form(step), episode.world
    found.texts.update((feature[1], text) for feature, text in texts_around(names).items())
    found.given.see(step, state, world)
    if world in pool.episodes:  # walked as if it were new, it has named nothing
        hear(found.heard, step, state)
    if found.wants("call", step.tool, form):
        known, seen = pool.elsewhere(world, step.tool, step.spelled, without=episode.id)
        before = models.form(step._replace(seen=seen, failed=failed(seen))) if known else None
        found.calls[step.tool].append(GatheredCall(step, form, world, before, (names, state)))
    if found.wants("answer", step.tool, form):
        found.answers[step.tool, form].append((names, step.seen, world))


def together(worlds: Iterable[Gathered], *, pairs: int, calls: int, answers: int) -> Gathered:
    """The examples of several worlds, the first ones first, up to so many of a kind.

    Of pairs: so many that stayed as they were, so many that changed, and so many with nothing known before.
    """
    found = Gathered()
    for world in worlds:
        for pair, examples in world.pairs.items():
            for example in examples:
                kind = (*pair, str(example.known and example.same), str(example.known))
                found.quota[kind] += 1
                if found.quota[kind] <= pairs:
                    found.pairs[pair].append(example)
        for tool, some in world.calls.items():
            found.calls[tool].extend(some[: max(0, calls - len(found.calls[tool]))])
        for form, answer in world.answers.items():
            found.answers[form].extend(answer[: max(0, answers - len(found.answers[form]))])
        for key, cases in world.given.cases.items():
            found.given.cases[key].extend(cases)
        found.texts.update(world.texts)
        found.heard.update(world.heard)
    return found


def _follow(
    models: ToolModels,
    pool: Pool,
    episode: RecordedEpisode,
    state: State,
    step: HistoryStep,
    names: Names,
    found: Gathered | None,
) -> State:
    """The state after a step, corrected by what other episodes read there; pairs on the way."""
    line = pool.next(state.line, step)
    after = advance(models, state, step, names, line)
    if not models.advances(step):
        return after
    if found is not None:
        _pair(found, models, pool, state, step, names, episode.world, line)
    views: dict[ViewKey, View] = dict(after.views)
    for key, seen in reads_at(pool, models, line, episode.id).items():
        views[key] = View(*key, seen, confidence=_AT_NODE, source="told", step=after.writes)
    return replace(after, views=views, line=line)


def _pair(
    found: Gathered,
    models: ToolModels,
    pool: Pool,
    state: State,
    step: HistoryStep,
    names: Names,
    world: str,
    line: int,
) -> None:
    told, form = None, models.form(step)
    for key, seen in reads_at(pool, models, line, None).items():
        view = state.views.get(key)
        known = view is not None and view.confidence > _CERTAIN_SAME
        same = view is not None and spell(view.observation) == spell(seen)
        if known and not same and view is not None and view.confidence < _CERTAIN_CHANGED:
            continue  # an earlier write may have changed it
        if not found.wants(step.tool, form, key[0], f"{known}{same}"):
            continue
        told = told or names_after(names, step.seen)
        held = view if view is not None and known else View(*key, None, confidence=1, source="")
        args = dict(held.args)
        before = view.observation if view is not None and known else MISSING
        found.pairs[step.tool, form, key[0]].append(
            Example(
                with_keys(told, args),
                args,
                before,
                seen,
                known,
                world,
                step.args,
                shared_things(step.args, held),
            )
        )
