"""The rule-based annotator: recorded calls as lessons, with words, reasons, outcomes and changes.

No teacher is needed: the outcome is the recorded answer's, the changes are those that later reads show, and
the reason is the path of a decision tree that is mined for each tool over the very facts that the model is
told. Which facts are told is decided here as well: those of few values, or numbers that a tree cuts, as far
as they say anything about the outcome.

Every call of every recorded episode is met once, in a state that follows the true answers; what only its
own episode has seen of the world beforehand is left out. Of one episode in `_UNKNOWN` the world is met as
if nobody had recorded it, so that what is learned covers such worlds too.
"""

import itertools
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.dream.decision import MAX_CHANGES
from dreamgym_kit.dream.learned.facts import Facts, Thing, facts_of, form_of_failure, things_of
from dreamgym_kit.dream.learned.vocabulary import (
    MAX_WHY,
    OPEN,
    POINTERS,
    UNKNOWN,
    CallDecision,
    FactWords,
    ToolWords,
    Vocabulary,
    is_pointed,
    pointed,
    value_word,
)
from dreamgym_kit.dream.state.claims import differs
from dreamgym_kit.dream.state.dreaming import Knowledge, follow
from dreamgym_kit.dream.state.entities import records
from dreamgym_kit.dream.state.history import OFF_RECORD, RecordedEpisode
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.trees import Feature, Node, TreeCase, grow, predict
from dreamgym_kit.dream.state.values import as_number
from dreamgym_kit.dream.state.views import State, ViewKey, args_of
from dreamgym_kit.dream.state.worlds import reads_at, start
from dreamgym_kit.serialization import JsonValue

_FEW = 8  # values of a fact that has words
_RECURS = 2  # worlds in which a value has to be met
_MAX_CUTS, _MAX_CANDIDATES = 3, 32
_MAX_FACTS = 14  # of one tool
_TELLS = 0.01  # bits about the outcome, from which on a fact is told
_MAX_REFUSALS = 12
_CASES = 3_000  # that a tree is grown from


_UNKNOWN = 3

Changes = tuple[tuple[str, JsonValue, JsonValue], ...]
"""Changed facts, as ("order.status", old value, new value)."""


class Met(NamedTuple):
    """One recorded call with what was known around it."""

    tool: str
    args: Mapping[str, JsonValue]
    facts: Facts
    form: str | None  # of its failure; None where it went well
    changes: Changes | None  # None where more changed than can be said
    looked: (
        frozenset[str] | None
    )  # facts known before and looked at again after; None of what changes nothing
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


@dataclass(frozen=True, slots=True)
class Taught:
    """Words, and lessons in them; `trees` say why."""

    vocabulary: Vocabulary
    trees: Mapping[str, Node]
    lessons: tuple[DecisionLesson, ...]


def met(knowledge: Knowledge) -> Iterator[Met]:
    """Every call of the pooled recordings."""
    for world, episodes in knowledge.pool.episodes.items():
        for number, episode in enumerate(episodes):
            yield from met_in(knowledge, world, episode, unseen=number % _UNKNOWN == _UNKNOWN - 1)


def met_in(
    knowledge: Knowledge, world: str, episode: RecordedEpisode, *, unseen: bool = False
) -> Iterator[Met]:
    """The calls of one episode, in their order."""
    models, pool = knowledge.models, knowledge.pool
    state = State({}, OFF_RECORD) if unseen else start(pool, models, world, without=episode.id)
    node = pool.root(world)
    for step in episode.steps:
        node = pool.next(node, step)
        things = things_of(state, models.usual, step.tool, step.args)
        changes: Changes | None = ()
        looked: frozenset[str] | None = None
        if models.advances(step):
            changes, looked = _later_changes(models, things, reads_at(pool, models, node, None))
        yield Met(
            step.tool,
            step.args,
            facts_of(models, state, step.tool, step.args),
            form_of_failure(step.seen, step.args),
            changes,
            looked,
            world,
            unseen,
        )
        state = follow(knowledge, state, step)


def taught(calls: Sequence[Met]) -> Taught:
    """Fix the words, mine the trees, tell the lessons."""
    by_tool: dict[str, list[Met]] = defaultdict(list)
    for call in calls:
        by_tool[call.tool].append(call)
    words: dict[str, ToolWords] = {}
    trees: dict[str, Node] = {}
    for tool in sorted(by_tool):
        words[tool], trees[tool] = _of_tool(by_tool[tool])
    vocabulary = Vocabulary(words)
    lessons = tuple(made for call in calls if (made := lesson(call, vocabulary, trees)) is not None)
    return Taught(vocabulary, trees, lessons)


def lesson(call: Met, vocabulary: Vocabulary, trees: Mapping[str, Node]) -> DecisionLesson | None:
    """A call as a lesson; None where its outcome has no word."""
    words = vocabulary.tools.get(call.tool)
    outcome = words.outcome(call.form) if words is not None else None
    if words is None or outcome is None:
        return None
    why = _why(call, words, trees[call.tool])
    known = call.looked is None or all(name in call.looked for name in words.changes)
    changes = _changes(call, words) if known and call.changes is not None else None
    record = vocabulary.record(call.tool, call.facts)
    return DecisionLesson(call.tool, record, CallDecision(why, outcome, changes), call.world, call.unseen)


def _of_tool(calls: Sequence[Met]) -> tuple[ToolWords, Node]:
    forms = Counter(call.form for call in calls if call.form is not None)
    worlds: dict[str, set[str]] = defaultdict(set)
    for call in calls:
        worlds[call.form or ""].add(call.world)
    refusals = tuple(form for form, _ in forms.most_common(_MAX_REFUSALS) if len(worlds[form]) >= _RECURS)
    outcomes = ToolWords(refusals=refusals)
    samples = [(call, outcome) for call in calls if (outcome := outcomes.outcome(call.form)) is not None]
    facts = _few_valued(calls) | _candidate_steps(calls)
    tree = grow([_case(call, facts, outcome) for call, outcome in samples[:_CASES]])
    used = set(_features(tree))
    facts = {name: _cut(name, fact, used) for name, fact in facts.items()}
    tells = {
        name: _bits([(call.facts.get(name), outcome) for call, outcome in samples], words)
        for name, words in facts.items()
        if words is not None
    }
    in_tree = {feature[1] for feature in used}
    worth = [name for name in tells if name in in_tree or tells[name] > _TELLS]
    best = sorted(worth, key=lambda name: (name not in in_tree, -tells[name], name))[:_MAX_FACTS]
    order = [name for name in facts if name in best]
    chosen = {name: words for name in order if (words := facts[name]) is not None}
    return ToolWords(chosen, refusals, _changed(calls)), tree


def _few_valued(calls: Sequence[Met]) -> dict[str, FactWords | None]:
    """Facts with a few values that recur; those that always say the same are no facts."""
    worlds: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    met: Counter[str] = Counter()
    for call in calls:
        for name, value in call.facts.items():
            worlds[name][value_word(value)].add(call.world)
            met[name] += 1
    facts: dict[str, FactWords | None] = {}
    for name, values in worlds.items():
        recurring = sorted(value for value, where in values.items() if len(where) >= _RECURS)
        tells = len(values) > 1 or (met[name] < len(calls) and "~" not in name)  # "never the same" is nothing
        if len(values) <= _FEW and recurring and tells:
            facts[name] = FactWords(tuple(recurring))
    return facts


def _candidate_steps(calls: Sequence[Met]) -> dict[str, FactWords | None]:
    """Numbers of many values, cut wherever a tree may want to."""
    numbers: dict[str, list[float]] = defaultdict(list)
    others: set[str] = set()
    for call in calls:
        for name, value in call.facts.items():
            number = as_number(value)
            if number is None:
                others.add(name)
            else:
                numbers[name].append(number)
    facts: dict[str, FactWords | None] = {}
    for name, values in numbers.items():
        distinct = sorted(set(values))
        if name in others or len(distinct) <= _FEW:
            continue
        middles = [(low + high) / 2 for low, high in itertools.pairwise(distinct)]
        every = max(1, len(middles) // _MAX_CANDIDATES)
        facts[name] = FactWords(cuts=tuple(middles[every // 2 :: every]))
    return facts


def _case(call: Met, facts: Mapping[str, FactWords | None], outcome: str) -> TreeCase:
    return TreeCase(_tested(call, facts), outcome, call.world)


def _tested(call: Met, facts: Mapping[str, FactWords | None]) -> dict[Feature, Hashable]:
    """The facts as a tree asks for them: equal to a word, or from a cut on."""
    features: dict[Feature, Hashable] = {}
    for name, words in facts.items():
        if words is None or name not in call.facts:
            continue
        value = call.facts[name]
        number = as_number(value)
        if words.cuts and number is not None:
            place = bisect_right(words.cuts, number)
            features.update({("from", name, repr(cut)): at < place for at, cut in enumerate(words.cuts)})
        elif not words.cuts:
            features["is", name] = words.word(value)
    return features


def _features(node: Node) -> Iterable[Feature]:
    if node.feature is not None:
        yield node.feature
    for branch in node.branches:
        if branch is not None:
            yield from _features(branch)


def _cut(name: str, words: FactWords | None, used: set[Feature]) -> FactWords | None:
    """A number keeps the cuts that its tree uses, and has no words where that uses none."""
    if words is None or not words.cuts:
        return words
    cuts = tuple(cut for cut in words.cuts if ("from", name, repr(cut)) in used)[:_MAX_CUTS]
    return FactWords(cuts=cuts) if cuts else None


def _bits(pairs: Sequence[tuple[JsonValue, str]], words: FactWords) -> float:
    """What a fact tells about the outcome, in bits a call."""
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for value, outcome in pairs:
        parts["" if value is None else words.word(value)][outcome] += 1
    whole: Counter[str] = Counter()
    for counts in parts.values():
        whole.update(counts)
    total = whole.total()
    inside = sum(counts.total() * _entropy(counts) for counts in parts.values())
    return _entropy(whole) - inside / total if total else 0.0


def _entropy(counts: Counter[str]) -> float:
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def _changed(calls: Sequence[Met]) -> dict[str, dict[str, JsonValue]]:
    """By changed fact, the words of its new values, those that tell most first, `OPEN` last."""
    worlds: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    values: dict[tuple[str, str], JsonValue] = {}
    for call in calls:
        for name, old, new in call.changes or ():
            values[name, value_word(new)] = new
            for word in (*_pointers(call, old, new), value_word(new)):
                worlds[name][word].add(call.world)
                counts[name][word] += 1
    changed: dict[str, dict[str, JsonValue]] = {}
    for name, count in counts.items():
        recurring = [word for word, _ in count.most_common() if len(worlds[name][word]) >= _RECURS]
        few = [word for word in recurring if not is_pointed(word)]
        common = [word for word in recurring if is_pointed(word) or len(few) <= _FEW]
        changed[name] = {word: values.get((name, word)) for word in (*common, OPEN)} if common else {}
    return {name: words for name, words in changed.items() if words}


def _pointers(call: Met, old: JsonValue, new: JsonValue) -> Iterable[str]:
    """The words by which an argument tells this value."""
    for name in call.args:
        for sign in POINTERS:
            if pointed(f"{sign}{name}", call.args, old) == new:
                yield f"{sign}{name}"


def _changes(call: Met, words: ToolWords) -> tuple[tuple[str, str], ...]:
    changes = []
    for name, old, new in call.changes or ():
        if name in words.changes:
            candidates = {*_pointers(call, old, new), value_word(new)}
            changes.append((name, next((word for word in words.changes[name] if word in candidates), OPEN)))
    return tuple(sorted(changes))


def _why(call: Met, words: ToolWords, tree: Node) -> tuple[tuple[str, str], ...]:
    """The facts that the tree asked on its way, the first ones first."""
    features = _tested(call, _as_grown(words, tree))
    reasons: dict[str, str] = {}
    for test in predict(tree, features).path:
        name = test.feature[1]
        known = words.facts.get(name)
        if known is not None and name not in reasons:
            reasons[name] = known.word(call.facts[name]) if name in call.facts else UNKNOWN
    return tuple(reasons.items())[:MAX_WHY]


def _as_grown(words: ToolWords, tree: Node) -> dict[str, FactWords | None]:
    """The facts that a tree asks for, cut where it cuts."""
    facts: dict[str, FactWords | None] = {}
    cuts: dict[str, set[float]] = defaultdict(set)
    for feature in _features(tree):
        if feature[0] == "from":
            cuts[feature[1]].add(float(feature[2]))
        else:
            facts[feature[1]] = words.facts.get(feature[1])
    return facts | {name: FactWords(cuts=tuple(sorted(some))) for name, some in cuts.items()}


def _later_changes(
    models: ToolModels, things: Iterable[Thing], reads: Mapping[ViewKey, JsonValue]
) -> tuple[Changes | None, frozenset[str]]:
    """What later reads show to be otherwise of the things that the call was about, and all that they show."""
    by_entity = {thing.entity: thing for thing in things}
    changed: dict[str, tuple[JsonValue, JsonValue]] = {}
    looked: set[str] = set()
    for (tool, spelled), seen in reads.items():
        if ":" in tool or tool in models.writes or failed(seen):
            continue
        for record in records(seen, args_of(spelled)):
            thing = by_entity.get(record.entity)
            for name, value in record.scalars() if thing is not None else ():
                assert thing is not None
                if name in thing.fields:
                    looked.add(f"{thing.role}.{name}")
                    if differs(thing.fields[name], value):
                        changed[f"{thing.role}.{name}"] = thing.fields[name], value
    changes = tuple((name, *values) for name, values in changed.items())
    return changes if len(changes) <= MAX_CHANGES else None, frozenset(looked)
