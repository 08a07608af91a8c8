"""The rule-based annotator: recorded calls as lessons, with words, reasons and outcomes.

No teacher is needed: the outcome is the recorded answer's, and the reason is the path of a small decision
tree that is grown for each tool over the very words that the model is told. Which facts are told is decided
here as well: those of few values, or numbers cut where outcomes part, as far as they say anything about the
outcome.

Every call of every recorded episode is met once, in a state that follows the true answers; what only its
own episode has seen of the world beforehand is left out. Of one episode in `_UNKNOWN` the world is met as
if nobody had recorded it, so that what is learned covers such worlds too.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dreamgym_kit.dream.json_values import as_number
from dreamgym_kit.dream.learned.experience import facts_of, form_of_failure
from dreamgym_kit.dream.learned.vocabulary import (
    MAX_WHY,
    UNKNOWN,
    CallDecision,
    FactWords,
    ToolWords,
    Vocabulary,
    value_word,
)
from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.model import Model
from dreamgym_kit.dream.programs.records import WorldState
from dreamgym_kit.serialization import JsonValue

_FEW = 8  # values of a fact that has words
_RECURS = 2  # worlds in which a value has to be met
_MAX_CUTS, _MAX_CANDIDATES = 3, 32
_MAX_FACTS = 14  # of one tool
_TELLS = 0.01  # bits about the outcome, from which on a fact is told
_GAIN = 0.02  # bits a call, from which on a tree asks for a fact
_DEPTH, _SMALLEST = 6, 8  # of a tree, and of the calls that a branch is grown from
_MAX_REFUSALS = 12
_CASES = 3_000  # that words are chosen and a tree is grown from
_UNKNOWN = 3


class Met(NamedTuple):
    """One recorded call with what was known around it."""

    tool: str
    facts: Mapping[str, JsonValue]
    form: str | None  # of its failure; None where it went well
    world: str
    unseen: bool  # whether its world was met as if nobody had recorded it


@dataclass(frozen=True, slots=True)
class DecisionLesson:
    """One call as a model is taught it."""

    tool: str
    record: tuple[str, ...]
    label: CallDecision
    world: str
    unseen: bool


@dataclass(slots=True)
class FactTree:
    """What a tool's outcome hangs on: the fact that is asked, and what comes next by its word."""

    fact: str = ""  # "": nothing is asked any more
    branches: dict[str, "FactTree"] = field(default_factory=dict)

    def path(self, words: Mapping[str, str]) -> Iterator[str]:
        """The facts that are asked of a call."""
        node: FactTree | None = self
        while node is not None and node.fact:
            yield node.fact
            node = node.branches.get(words.get(node.fact, UNKNOWN))


@dataclass(frozen=True, slots=True)
class Taught:
    """Words, and lessons in them; `trees` say why."""

    vocabulary: Vocabulary
    trees: Mapping[str, FactTree]
    lessons: tuple[DecisionLesson, ...]


def met(model: Model, episodes: Iterable[RecordedCalls]) -> Iterator[Met]:
    """Every call of these recordings; `model` was mined from them."""
    numbers: Counter[str] = Counter()
    for episode in episodes:
        number = numbers[episode.world]
        numbers[episode.world] += 1
        yield from met_in(model, episode, unseen=number % _UNKNOWN == _UNKNOWN - 1)


def met_in(model: Model, episode: RecordedCalls, *, unseen: bool = False) -> Iterator[Met]:
    """The calls of one episode, in their order."""
    dream = ProgramEpisode(model, episode.world, None, episode.id)
    world = "" if unseen else episode.world
    dream.state = WorldState(model.collections, model.base, world, without=episode.id)
    for step in episode.steps:
        facts = facts_of(dream, step.tool, step.args).values
        yield Met(step.tool, facts, form_of_failure(step), episode.world, unseen)
        dream.observe(step)


def taught(calls: Sequence[Met]) -> Taught:
    """Fix the words, grow the trees, tell the lessons."""
    by_tool: dict[str, list[Met]] = defaultdict(list)
    for call in calls:
        by_tool[call.tool].append(call)
    words: dict[str, ToolWords] = {}
    trees: dict[str, FactTree] = {}
    for tool in sorted(by_tool):
        words[tool], trees[tool] = _of_tool(by_tool[tool])
    vocabulary = Vocabulary(words)
    lessons = tuple(made for call in calls if (made := lesson(call, vocabulary, trees)) is not None)
    return Taught(vocabulary, trees, lessons)


def lesson(call: Met, vocabulary: Vocabulary, trees: Mapping[str, FactTree]) -> DecisionLesson | None:
    """Convert a call to a lesson; None if its outcome has no word."""
    words = vocabulary.tools.get(call.tool)
    outcome = words.outcome(call.form) if words is not None else None
    if words is None or outcome is None:
        return None
    fact_words = _fact_words(call, words.facts)
    tested_facts = (name for name in trees[call.tool].path(fact_words) if name in words.facts)
    why = tuple((name, fact_words.get(name, UNKNOWN)) for name in tested_facts)[:MAX_WHY]
    record = vocabulary.record(call.tool, call.facts)
    return DecisionLesson(call.tool, record, CallDecision(why, outcome), call.world, call.unseen)


def _of_tool(calls: Sequence[Met]) -> tuple[ToolWords, FactTree]:
    forms = Counter(call.form for call in calls if call.form is not None)
    worlds: dict[str, set[str]] = defaultdict(set)
    for call in calls:
        worlds[call.form or ""].add(call.world)
    refusals = tuple(form for form, _ in forms.most_common(_MAX_REFUSALS) if len(worlds[form]) >= _RECURS)
    outcomes = ToolWords(refusals=refusals)
    samples = [(call, outcome) for call in calls if (outcome := outcomes.outcome(call.form)) is not None]
    some = samples[:: max(1, len(samples) // _CASES)]
    facts = _few_valued(calls) | _cut_numbers(some)
    tells = {
        name: _bits([(_word(call, name, words), out) for call, out in some]) for name, words in facts.items()
    }
    tree = _grown([(_fact_words(call, facts), out) for call, out in some], [*facts], _DEPTH)
    tested_facts = set(_tested_facts(tree))
    worth = [name for name in tells if name in tested_facts or tells[name] > _TELLS]
    best = set(sorted(worth, key=lambda name: (name not in tested_facts, -tells[name], name))[:_MAX_FACTS])
    return ToolWords({name: words for name, words in facts.items() if name in best}, refusals), tree


def _few_valued(calls: Sequence[Met]) -> dict[str, FactWords]:
    """Facts with a few values that recur; those that always say the same are no facts."""
    worlds: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    count: Counter[str] = Counter()
    for call in calls:
        for name, value in call.facts.items():
            worlds[name][value_word(value)].add(call.world)
            count[name] += 1
    facts: dict[str, FactWords] = {}
    for name, values in worlds.items():
        recurring = sorted(value for value, where in values.items() if len(where) >= _RECURS)
        tells = len(values) > 1 or (count[name] < len(calls) and "~" not in name)
        if len(values) <= _FEW and recurring and tells:  # "never the same" is nothing
            facts[name] = FactWords(tuple(recurring))
    return facts


def _cut_numbers(samples: Sequence[tuple[Met, str]]) -> dict[str, FactWords]:
    """Numbers of many values, cut where outcomes part."""
    numbers: dict[str, list[tuple[float, str]]] = defaultdict(list)
    others: set[str] = set()
    for call, outcome in samples:
        for name, value in call.facts.items():
            number = as_number(value)
            if number is None:
                others.add(name)
            else:
                numbers[name].append((number, outcome))
    facts: dict[str, FactWords] = {}
    for name, pairs in numbers.items():
        if name in others or len({number for number, _ in pairs}) <= _FEW:
            continue
        cuts: list[float] = []
        while len(cuts) < _MAX_CUTS and (cut := _best_cut(pairs, cuts)) is not None:
            cuts.append(cut)
        if cuts:
            facts[name] = FactWords(cuts=tuple(sorted(cuts)))
    return facts


def _best_cut(pairs: Sequence[tuple[float, str]], cuts: Sequence[float]) -> float | None:
    """The further cut that tells most about the outcome; None where none tells enough."""
    middles = [(low + high) / 2 for low, high in itertools.pairwise(sorted({number for number, _ in pairs}))]
    every = max(1, len(middles) // _MAX_CANDIDATES)

    def bits(some: Sequence[float]) -> float:
        words = FactWords(cuts=tuple(sorted(some)))
        return _bits([(words.word(number), outcome) for number, outcome in pairs])

    tried = [(bits([*cuts, cut]), cut) for cut in middles[every // 2 :: every] if cut not in cuts]
    best = max(tried, default=(0.0, 0.0))
    return best[1] if best[0] - (bits(cuts) if cuts else 0.0) > _GAIN else None


def _grown(samples: Sequence[tuple[Mapping[str, str], str]], names: Sequence[str], depth: int) -> FactTree:
    """Split by the fact that tells most about the outcome, then split each branch."""
    if depth == 0 or len(samples) < _SMALLEST or len({outcome for _, outcome in samples}) == 1:
        return FactTree()
    bits = {
        name: _bits([(fact_words.get(name, UNKNOWN), outcome) for fact_words, outcome in samples])
        for name in names
    }
    best = max(bits, key=lambda name: (bits[name], -len(name)), default="")
    if not best or bits[best] <= _GAIN:
        return FactTree()
    parts: dict[str, list[tuple[Mapping[str, str], str]]] = defaultdict(list)
    for fact_words, outcome in samples:
        parts[fact_words.get(best, UNKNOWN)].append((fact_words, outcome))
    rest = [name for name in names if name != best and bits[name] > 0]
    return FactTree(best, {word: _grown(part, rest, depth - 1) for word, part in parts.items()})


def _tested_facts(tree: FactTree) -> Iterator[str]:
    if tree.fact:
        yield tree.fact
    for branch in tree.branches.values():
        yield from _tested_facts(branch)


def _fact_words(call: Met, facts: Mapping[str, FactWords]) -> dict[str, str]:
    return {name: words.word(call.facts[name]) for name, words in facts.items() if name in call.facts}


def _word(call: Met, name: str, words: FactWords) -> str:
    return words.word(call.facts[name]) if name in call.facts else UNKNOWN


def _bits(pairs: Sequence[tuple[str, str]]) -> float:
    """What a fact tells about the outcome, in bits a call, without what chance alone would tell."""
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for word, outcome in pairs:
        parts[word][outcome] += 1
    whole: Counter[str] = Counter()
    for counts in parts.values():
        whole.update(counts)
    total = whole.total()
    inside = sum(counts.total() * _entropy(counts) for counts in parts.values())
    by_chance = (len(parts) - 1) * (len(whole) - 1) / math.log(2)
    return _entropy(whole) - (inside + by_chance) / total if total else 0.0


def _entropy(counts: Counter[str]) -> float:
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values())
