"""Mines tool models from recordings alone: what writes change, when calls fail, how answers are made.

The first worlds are walked for pairs from pooled nodes only, then again with views tracked through the rules
so far, then for trees and templates on tracked states. The worlds after them are walked once, by the rules of
those before: 12 worlds, then 12 by their rules, 24 by the rules of these 24, and so on. So what is taken from
a world rests on nothing that comes later, and a `Miner` that mines again after rows were added walks only the
worlds that they touch; the result is that of mining everything at once. Everything is counted by world, and
tried on worlds that it was not made from.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dreamgym_kit.dream.state.answering import answer_form
from dreamgym_kit.dream.state.effects import EffectRule, Example, mine_rule
from dreamgym_kit.dream.state.forms import enumerated_texts
from dreamgym_kit.dream.state.gathering import Gathered, gather, together
from dreamgym_kit.dream.state.history import Pool, RecordedEpisode, acting_failures
from dreamgym_kit.dream.state.likeness import count_heard, usual_values
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.pseudo import hidden_fields, probes
from dreamgym_kit.dream.state.stated import StatedModel
from dreamgym_kit.dream.state.trees import TreeCase, grow
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.volatile import Renaming, declared, fresh_fields
from dreamgym_kit.dream.state.wrapping import Wrap, usual_wrap

Part = TypeVar("Part")
Made = TypeVar("Made")

_FIRST = 12  # worlds
_PAIR_PASSES, _CALLS, _LATER = (0, 1), 2, 3  # of the first worlds; of those after them
_FIXED = 4  # calls that went well in several worlds, from which on equal answers are no chance
_COMMON = 3  # worlds in which a text has to recur
_PAIRS, _CASES, _ANSWERS = 40, 350, 60  # of one (write, form, read), of one tool, of one (tool, form)


def mine(episodes: Sequence[RecordedEpisode], stated: Mapping[str, StatedModel] | None = None) -> ToolModels:
    """Mine the tool models of some recordings, beside what somebody stated of tools."""
    return Miner(stated).mine(episodes)


def _spoken_of(said: Mapping[str, StatedModel]) -> set[str]:
    return {*said, *(read for model in said.values() for _, read in model.said.reads())}


def _wrap(episodes: Sequence[RecordedEpisode], tool: str) -> Wrap:
    steps = (step for episode in episodes for step in episode.steps)
    return usual_wrap(step.seen for step in steps if step.tool == tool and not step.failed)


def renamed(episode: RecordedEpisode, models: ToolModels) -> RecordedEpisode:
    """The episode with symbols for made-up ids."""
    renaming = Renaming(models.fresh)
    return RecordedEpisode(episode.id, episode.world, tuple(renaming.step(step) for step in episode.steps))


def pooled(episodes: Sequence[RecordedEpisode], models: ToolModels) -> Pool:
    """All episodes by the nodes that they passed."""
    pool = Pool(models.advances)
    for episode in episodes:
        pool.add(episode)
    return pool


@dataclass(slots=True)
class _Environment:
    """One world, and by pass what was gathered from it and what that rested on."""

    episodes: list[RecordedEpisode]
    writes: frozenset[tuple[str, str]]  # (tool, form)
    gathered: dict[int, tuple[list[object], Gathered]] = field(default_factory=dict)


class Miner:
    """Mines recordings, and again when there are more of them."""

    def __init__(self, stated: Mapping[str, StatedModel] | None = None) -> None:
        self._stated = stated or {}
        self._words: tuple[object, ...] = ()
        self._worlds: dict[str, _Environment] = {}
        self._made: dict[tuple[object, ...], tuple[Sequence[object], object]] = {}
        self.walked = 0  # worlds that the last mining walked, over all passes

    def mine(self, episodes: Sequence[RecordedEpisode]) -> ToolModels:
        """The tool models of these recordings."""
        self.walked = 0
        models, in_symbols, pool = _vocabulary(episodes, self._stated)
        self._keep_worlds(models, in_symbols)
        worlds = list(self._worlds.values())
        found = self._first(worlds[:_FIRST], models, pool)
        end = _FIRST
        while end < len(worlds):
            self._learn_effects(end, found, models)
            block, end = worlds[end : 2 * end], 2 * end
            found += [self._gather(_LATER, world, models, pool, pairs=True, calls=True) for world in block]
        self._learn_effects(0, found, models)
        self._learn_answers(_together(found), models)
        return models

    def _first(self, worlds: Sequence[_Environment], models: ToolModels, pool: Pool) -> list[Gathered]:
        """The first worlds have no rules from others: pairs without rules, pairs with those, then calls."""
        found: list[Gathered] = []
        for number in _PAIR_PASSES:
            found = [self._gather(number, world, models, pool, pairs=True, calls=False) for world in worlds]
            self._learn_effects(-1 - number, found, models)
        calls = [self._gather(_CALLS, world, models, pool, pairs=False, calls=True) for world in worlds]
        return [*found, *calls]

    def _learn_effects(self, stage: int, found: Sequence[Gathered], models: ToolModels) -> None:
        pairs = _together(found).pairs
        models.left_alone = _left_alone(pairs)
        models.rules = {}
        for (tool, form, read), examples in pairs.items():
            made = self._kept(("rule", stage, tool, form, read), examples, mine_rule)
            models.rules.setdefault((tool, form), {})[read] = made

    def _learn_answers(self, found: Gathered, models: ToolModels) -> None:
        models.common = frozenset(key for key, worlds in found.texts.items() if worlds >= _COMMON)
        count_heard(models.usual, found.heard)
        models.absences = found.given.absences()
        for tool, calls in found.calls.items():
            cases = [call.case(models.common) for call in calls]
            models.trees[tool] = self._kept(("tree", tool), cases, grow)
        for key, answer in found.answers.items():
            models.answers[key] = self._kept(("answer", *key), answer, answer_form)

    def _keep_worlds(self, models: ToolModels, in_symbols: Sequence[RecordedEpisode]) -> None:
        """Worlds that are as before keep what was gathered from them, if it is told in the same words."""
        words = (
            *(models.writes, models.parameters, models.enumerated, models.probes),
            *(models.hidden, models.acting, {tool: set(names) for tool, names in models.fresh.items()}),
        )
        by_world: dict[str, list[RecordedEpisode]] = defaultdict(list)
        for episode in in_symbols:
            by_world[episode.world].append(episode)
        before = self._worlds if words == self._words else {}
        self._words = words
        self._worlds = {
            world: before[world]
            if world in before and before[world].episodes == some
            else _Environment(some, _writes(models, some))
            for world, some in by_world.items()
        }

    def _gather(
        self, number: int, world: _Environment, models: ToolModels, pool: Pool, *, pairs: bool, calls: bool
    ) -> Gathered:
        rests_on = _rests_on(models, world.writes)
        known = world.gathered.get(number)
        if known is not None and _alike(known[0], rests_on):
            return known[1]
        self.walked += 1
        found = gather(models, pool, world.episodes, pairs=pairs, calls=calls)
        world.gathered[number] = (rests_on, found)
        return found

    def _kept(
        self, name: tuple[object, ...], parts: Sequence[Part], make: Callable[[Sequence[Part]], Made]
    ) -> Made:
        """What was made of these very parts before, or made anew."""
        known = self._made.get(name)
        if known is None or not _alike(known[0], parts):
            known = self._made[name] = (list(parts), make(parts))
        made: Made = known[1]  # type: ignore[assignment]
        return made


def _alike(left: Sequence[object], right: Sequence[object]) -> bool:
    """Whether two lists hold the same things: the same objects, or equal ones that are cheap to compare."""
    return len(left) == len(right) and all(
        one is other or (isinstance(one, (TreeCase, tuple)) and one == other)
        for one, other in zip(left, right, strict=True)
    )


def _vocabulary(
    episodes: Sequence[RecordedEpisode], said: Mapping[str, StatedModel]
) -> tuple[ToolModels, list[RecordedEpisode], Pool]:
    """What all passes speak in: symbols, forms, pseudo-reads, and what is simply counted."""
    writes = {step.tool for episode in episodes for step in episode.steps if step.writes}
    made_up = {tool: declared(model.said.fresh) for tool, model in said.items() if model.said.fresh}
    models = ToolModels(
        writes=frozenset(writes | {tool for tool, model in said.items() if model.writes}),
        transitions=sum(len(episode.steps) for episode in episodes),
        fresh={**fresh_fields(episodes), **made_up},
        stated=said,
        wraps={tool: _wrap(episodes, tool) for tool in _spoken_of(said)},
    )
    in_symbols = [renamed(episode, models) for episode in episodes]
    models.enumerated = enumerated_texts(in_symbols)
    models.acting = acting_failures(in_symbols, models.form)
    models.parameters = _parameters(in_symbols)
    models.usual = usual_values(in_symbols)
    pool = pooled(in_symbols, models)
    models.probes = probes(pool, models)
    models.steady = pool.steadiness()
    models.hidden = hidden_fields(in_symbols, pool, models)
    _count_everywhere(models, in_symbols)
    return models, in_symbols, pool


def _writes(models: ToolModels, episodes: Sequence[RecordedEpisode]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (step.tool, models.form(step))
        for episode in episodes
        for step in episode.steps
        if models.advances(step)
    )


def _rests_on(models: ToolModels, writes: frozenset[tuple[str, str]]) -> list[object]:
    """The rules and shares that walking a world with these writes looks at."""
    tools = {tool for tool, _ in writes} | {"*"}
    shares = tuple(sorted(item for item in models.left_alone.items() if item[0][0] in tools))
    rules = [
        rule for key in sorted(writes) for _, rule in sorted(models.rules.get(key, {}).items(), key=_read)
    ]
    return [shares, *rules]


def _read(item: tuple[str, EffectRule]) -> str:
    return item[0]


def _parameters(episodes: Sequence[RecordedEpisode]) -> dict[str, frozenset[str]]:
    counts: dict[str, Counter[frozenset[str]]] = defaultdict(Counter)
    for episode in episodes:
        for step in episode.steps:
            if not step.writes:
                counts[step.tool][frozenset(step.args)] += 1
    return {tool: kinds.most_common(1)[0][0] for tool, kinds in counts.items()}


def _together(found: Sequence[Gathered]) -> Gathered:
    return together(found, pairs=_PAIRS, calls=_CASES, answers=_ANSWERS)


def _left_alone(
    found: Mapping[tuple[str, str, str], list[Example]],
) -> dict[tuple[str, str], tuple[float, float]]:
    """How often writes leave known reads as they are; each kind of pair counts up to 20 times."""
    counts: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (write, _, read), pairs in found.items():
        known = [example.same for example in pairs if example.known]
        if not known or ":" in read:
            continue
        weight = min(len(known), 20)
        for key in ((write, read), (write, "*"), ("*", "*")):
            counts[key][0] += weight * sum(known) / len(known)
            counts[key][1] += weight
    return {key: (same, total) for key, (same, total) in counts.items()}


def _count_everywhere(models: ToolModels, episodes: Sequence[RecordedEpisode]) -> None:
    """How often the same call is answered alike in different worlds."""
    worlds: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for episode in episodes:
        for step in episode.steps:
            worlds[step.tool, step.spelled][episode.world].add(spell(step.seen))
    for key, answers in worlds.items():
        models.everywhere[key] = Counter(spelled for seen in answers.values() for spelled in seen)
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (tool, _), answers in worlds.items():
        if len(answers) > 1:
            said = Counter(spelled for seen in answers.values() for spelled in seen)
            counts[tool][0] += max(said.values()) - 1
            counts[tool][1] += said.total() - 1
    worked: dict[str, list[bool]] = defaultdict(list)
    for (tool, _), answers in worlds.items():
        kinds = {spelled for seen in answers.values() for spelled in seen}
        if len(answers) > 1 and any(not failed(json.loads(kind)) for kind in kinds):
            worked[tool].append(len(kinds) == 1)
    models.fixed = {  # a write that says what it was told is no catalogue: only what was there was written to
        tool: (len(alike) + 0.2) / (len(alike) + 1)
        for tool, alike in worked.items()
        if tool not in models.writes and all(alike) and len(alike) >= _FIXED
    }
    models.agreement = {tool: (same + 0.2) / (total + 1) for tool, (same, total) in counts.items()}
