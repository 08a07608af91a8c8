"""Mines tool models from recordings alone: what writes change, when calls fail, how answers are made.

Passes: first pairs from pooled nodes only, then again with views tracked through the rules so far, then
trees and templates on tracked states. Everything is counted by world, and tried on worlds that it was not
made from. A `Miner` that mines again after rows were added walks only the worlds that they touch, and makes
anew only what rests on other examples than before; the result is that of mining everything at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dreamgym_kit.dream.state.answering import answer_form
from dreamgym_kit.dream.state.effects import Rule, mine_rule
from dreamgym_kit.dream.state.forms import enumerated_texts
from dreamgym_kit.dream.state.gathering import Gathered, calls_of, pairs_of, together
from dreamgym_kit.dream.state.history import Pool, Recording, acting_failures
from dreamgym_kit.dream.state.likeness import count_heard, usual_values
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.pseudo import hidden_fields, probes
from dreamgym_kit.dream.state.trees import Case, grow
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.volatile import Renaming, fresh_fields

Part = TypeVar("Part")
Made = TypeVar("Made")

_PAIR_PASSES = (False, True)  # untracked, tracked
_CALLS = len(_PAIR_PASSES)  # the last pass
_COMMON = 3  # worlds in which a text has to recur
_PAIRS, _CASES, _ANSWERS = 160, 350, 60  # of one (write, form, read); of one tool; of one (tool, form)
_STEADY = 50.0  # pairs, from which on their number says no more


def mine(episodes: Sequence[Recording]) -> ToolModels:
    """Mine the tool models of some recordings."""
    return Miner().mine(episodes)


def renamed(episode: Recording, models: ToolModels) -> Recording:
    """The episode with symbols for made-up ids."""
    renaming = Renaming(models.fresh)
    return Recording(episode.id, episode.world, tuple(renaming.step(step) for step in episode.steps))


def pooled(episodes: Sequence[Recording], models: ToolModels) -> Pool:
    """All episodes by the nodes that they passed."""
    pool = Pool(models.advances)
    for episode in episodes:
        pool.add(episode)
    return pool


@dataclass(slots=True)
class _World:
    """One world, and by pass what was gathered from it and what that rested on."""

    episodes: list[Recording]
    writes: frozenset[tuple[str, str]]  # (tool, form)
    gathered: dict[int, tuple[list[object], Gathered]] = field(default_factory=dict)


class Miner:
    """Mines recordings, and again when there are more of them."""

    def __init__(self) -> None:
        self._words: tuple[object, ...] = ()
        self._worlds: dict[str, _World] = {}
        self._made: dict[tuple[object, ...], tuple[Sequence[object], object]] = {}
        self.walked = 0  # worlds that the last mining walked, over all passes

    def mine(self, episodes: Sequence[Recording]) -> ToolModels:
        """The tool models of these recordings."""
        self.walked = 0
        models, in_symbols, pool = _vocabulary(episodes)
        self._keep_worlds(models, in_symbols)
        for number, _ in enumerate(_PAIR_PASSES):
            found = self._gather(number, models, pool)
            models.left_alone = _left_alone(found)
            models.rules = self._rules(number, found)
            models.common = frozenset(key for key, worlds in found.texts.items() if worlds >= _COMMON)
        found = self._gather(_CALLS, models, pool)
        count_heard(models.usual, found.heard)
        models.absences = found.given.absences()
        for tool, calls in found.calls.items():
            cases = [call.case(models.common) for call in calls]
            models.trees[tool] = self._kept(("tree", tool), cases, grow)
        for key, told in found.answers.items():
            models.answers[key] = self._kept(("answer", *key), told, answer_form)
        return models

    def _keep_worlds(self, models: ToolModels, in_symbols: Sequence[Recording]) -> None:
        """Worlds that are as before keep what was gathered from them, if it is told in the same words."""
        words = (
            *(models.writes, models.parameters, models.enumerated, models.probes),
            *(models.hidden, models.acting, models.fresh),
        )
        by_world: dict[str, list[Recording]] = defaultdict(list)
        for episode in in_symbols:
            by_world[episode.world].append(episode)
        before = self._worlds if words == self._words else {}
        self._words = words
        self._worlds = {
            world: before[world]
            if world in before and before[world].episodes == some
            else _World(some, _writes(models, some))
            for world, some in by_world.items()
        }

    def _gather(self, number: int, models: ToolModels, pool: Pool) -> Gathered:
        found = [self._of_world(number, world, models, pool) for world in self._worlds.values()]
        return together(found, pairs=_PAIRS, calls=_CASES, answers=_ANSWERS)

    def _of_world(self, number: int, world: _World, models: ToolModels, pool: Pool) -> Gathered:
        rests_on = _rests_on(models, world.writes)
        known = world.gathered.get(number)
        if known is not None and _alike(known[0], rests_on):
            return known[1]
        self.walked += 1
        if number == _CALLS:
            found = calls_of(models, pool, world.episodes)
        else:
            found = pairs_of(models, pool, world.episodes, tracked=_PAIR_PASSES[number])
        world.gathered[number] = (rests_on, found)
        return found

    def _rules(self, number: int, found: Gathered) -> dict[tuple[str, str], dict[str, Rule]]:
        rules: dict[tuple[str, str], dict[str, Rule]] = {}
        for (tool, form, read), examples in found.pairs.items():
            made = self._kept(("rule", number, tool, form, read), examples, mine_rule)
            rules.setdefault((tool, form), {})[read] = made
        return rules

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
        one is other or (isinstance(one, (Case, tuple)) and one == other)
        for one, other in zip(left, right, strict=True)
    )


def _vocabulary(episodes: Sequence[Recording]) -> tuple[ToolModels, list[Recording], Pool]:
    """What all passes speak in: symbols, forms, pseudo-reads, and what is simply counted."""
    models = ToolModels(
        writes=frozenset(step.tool for episode in episodes for step in episode.steps if step.writes),
        transitions=sum(len(episode.steps) for episode in episodes),
        fresh=fresh_fields(episodes),
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


def _writes(models: ToolModels, episodes: Sequence[Recording]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (step.tool, models.form(step)) for one in episodes for step in one.steps if models.advances(step)
    )


def _rests_on(models: ToolModels, writes: frozenset[tuple[str, str]]) -> list[object]:
    """The rules and shares that walking a world with these writes looks at."""
    tools = {tool for tool, _ in writes} | {"*"}
    shares = tuple(sorted(item for item in models.left_alone.items() if item[0][0] in tools))
    rules = [
        rule for key in sorted(writes) for _, rule in sorted(models.rules.get(key, {}).items(), key=_read)
    ]
    return [shares, *rules]


def _read(item: tuple[str, Rule]) -> str:
    return item[0]


def _parameters(episodes: Sequence[Recording]) -> dict[str, frozenset[str]]:
    counts: dict[str, Counter[frozenset[str]]] = defaultdict(Counter)
    for episode in episodes:
        for step in episode.steps:
            if not step.writes:
                counts[step.tool][frozenset(step.args)] += 1
    return {tool: kinds.most_common(1)[0][0] for tool, kinds in counts.items()}


def _left_alone(gathered: Gathered) -> dict[tuple[str, str], tuple[float, float]]:
    """How often writes leave known reads as they are; each kind of pair counts up to 20 times.

    In whole percents, of so many pairs at most: one more pair among many changes nothing that rests on it.
    """
    counts: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (write, _, read), pairs in gathered.pairs.items():
        known = [example.same for example in pairs if example.known]
        if not known or ":" in read:
            continue
        weight = min(len(known), 20)
        for key in ((write, read), (write, "*"), ("*", "*")):
            counts[key][0] += weight * sum(known) / len(known)
            counts[key][1] += weight
    shares = {key: (round(same / total, 2), min(total, _STEADY)) for key, (same, total) in counts.items()}
    return {key: (share * total, total) for key, (share, total) in shares.items()}


def _count_everywhere(models: ToolModels, episodes: Sequence[Recording]) -> None:
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
    models.agreement = {tool: (same + 0.2) / (total + 1) for tool, (same, total) in counts.items()}
