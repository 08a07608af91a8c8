"""Mines the programs of all tools from recorded episodes.

Three passes over the recordings. Each pass uses the effects that the pass before learned: which records a
write does not change, so that a later read still shows their initial state, and which of several writes
explains a record's present state. A prediction for an episode never uses that same episode.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dreamgym_kit.dream.programs.collections import (
    VIEW,
    Collections,
    Document,
    Fact,
    RecordedCalls,
    RowKey,
    is_record,
)
from dreamgym_kit.dream.programs.conditions import Condition, Example, In, Is, Same, SameOr
from dreamgym_kit.dream.programs.effects import (
    DELETED,
    Assign,
    Delete,
    Effect,
    Keep,
    Sighting,
    is_view,
    learn_effect,
    learn_field_effect,
    learn_insert,
)
from dreamgym_kit.dream.programs.environment_fields import ENVIRONMENT, FIELD, VALUE, are_related
from dreamgym_kit.dream.programs.everywhere import constant_answers
from dreamgym_kit.dream.programs.forms import MadeUp, Program
from dreamgym_kit.dream.programs.model import NUMBERED, CounterValue, Model, OutcomeForm, outcome_form
from dreamgym_kit.dream.programs.queries import ScopedCall, learn_query
from dreamgym_kit.dream.programs.records import Base, WorldState
from dreamgym_kit.dream.programs.scope import Parameters, Scope
from dreamgym_kit.dream.programs.synthesis import explain, is_made_up, record_with_gaps
from dreamgym_kit.dream.programs.trees import grow, laws
from dreamgym_kit.dream.programs.values import (
    GONE,
    SeenStep,
    ValueKey,
    at_path,
    has_digits,
    is_code,
    is_key,
    is_left_open,
    is_scalar,
    is_thing,
    leaves,
    same,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

_PASSES = 3
_NEVER_MATTERS = 6  # answers that an argument left alike, before it counts as one that decides nothing
_MAX_CALLS, _MAX_EXAMPLES = 300, 60  # of one tool's tree, of one outcome's program
_MAX_TEXTS = 12  # outcomes of one tool; more are texts of all kinds
_MAX_CHOICES, _EACH_CHOICE = 12, 4  # values of an argument, and how often each was given on average
_WORDS = 3  # of a choice; a longer text is free
_COUNTER_NAME = re.compile(r"(id|no|number)_?$|^$")
_PAGING = re.compile(r"page|limit|offset|cursor|(^|_)(size|count|top|skip|first|after)$", re.IGNORECASE)
_AMOUNT_OR_TIME = re.compile(r"[-+]?\d[\d.,]*$|\d{4}-\d\d|\d\d?:\d\d")
_LIMIT = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")


def mine(
    episodes: Sequence[RecordedCalls],
    parameters: Mapping[str, Parameters],
    writes: frozenset[str],
    only_worlds: Sequence[RecordedCalls] = (),
    *,
    mined: Mapping[str, Any] | None = None,
    watch: Callable[[float], None] = lambda _: None,
) -> Model:
    """Mine the programs that recordings show.

    Args:
        episodes: teach programs, and how their worlds begin.
        parameters: by tool.
        writes: the tools that change the world.
        only_worlds: teach how worlds begin, and nothing else: crawls.
        mined: `Model.mined_parts` of an earlier mining of the same recordings. Only the initial state of each
            world is then read again.
        watch: receives the share done, 0..1, several times a second; an exception from it ends the mining.
    """
    return _Miner(episodes, parameters, writes, only_worlds, mined or {}).mine(watch)


_Place = tuple[str, str]
"""A write, with the prefix of names or the collection that it may change."""


class _Pending(NamedTuple):
    """A write that may have changed a record, and the record before it."""

    place: int
    tool: str
    prefix: str
    scope: Scope
    before: Any


class _Act(NamedTuple):
    """A successful write."""

    tool: str
    scope: Scope
    step: SeenStep
    place: int


class _WalkResults:
    """What one walk over all recordings collects."""

    def __init__(self, facts: Mapping[int, Sequence[Fact]]) -> None:
        self.facts = facts  # by the `id` of a recorded step
        self.calls: dict[str, list[ScopedCall]] = defaultdict(list)
        self.inserts: dict[_Place, list[tuple[Scope, Any, Mapping[str, Any]]]] = defaultdict(list)
        self.sights: dict[_Place, list[Sighting]] = defaultdict(list)  # after one write alone
        self.mixed: dict[_Place, list[Sighting]] = defaultdict(list)  # after several
        self.shown: dict[_Place, list[bool]] = defaultdict(list)  # by an answer: whether it was there next
        self.views: dict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)
        """By write: view, and whether it was left as it was."""
        self.unclear: dict[str, list[tuple[list[_Pending], Any]]] = defaultdict(list)
        """By field of the environment: after several writes."""


class _Miner:
    def __init__(
        self,
        episodes: Sequence[RecordedCalls],
        parameters: Mapping[str, Parameters],
        writes: frozenset[str],
        only_worlds: Sequence[RecordedCalls],
        mined: Mapping[str, Any],
    ) -> None:
        self.episodes, self.mined = episodes, mined
        self.everything = sorted([*episodes, *only_worlds], key=lambda episode: episode.number)
        tools = {step.tool for episode in self.everything for step in episode.steps}
        collections = mined.get("collections") or Collections(frozenset(tools - writes), self.everything)
        self.model = Model(parameters, writes, collections)
        facts = self.model.collections.facts
        self.facts = {id(step): facts(step) for episode in self.everything for step in episode.steps}
        self.episodes_with: dict[tuple[str, ValueKey], set[str]] = defaultdict(set)

    def mine(self, watch: Callable[[float], None]) -> Model:
        if self.mined:
            self.model.take(self.mined)
        self._learn_wraps()
        self.model.recorded_in = {
            (step.tool, episode.world) for episode in self.everything for step in episode.steps
        }
        if self.mined:
            self._hear()
            self.model.base = self._base(_PASSES)
            return self.model
        self._learn_counters()
        self._learn_upsets()
        self._hear()
        self.model.everywhere = constant_answers(self.everything, self.model.writes)
        for number in range(_PASSES):
            watch(number / _PASSES)
            self.model.base = self._base(number)
            walked = self._walk(number)
            self._learn_effects(walked)
            if not number:
                self._learn_choices()
            for place, (tool, calls) in enumerate(walked.calls.items()):  # of the last walk alone
                watch((number + place / len(walked.calls)) / _PASSES)
                self._learn_outcomes(tool, calls)
        self.model.base = self._base(_PASSES)
        self._find_unread()
        return self.model

    def _find_unread(self) -> None:
        """Find key-like or code-like arguments that no program reads: the tool may still check them."""
        for tool in sorted(self.model.tools):
            program = self.model.tools[tool]
            laws_of_two = [
                law
                for outcome_laws in program.laws.values()
                for law in outcome_laws
                if isinstance(law, (Same, SameOr, In))
            ]
            text = repr((program.tree, program.says, laws_of_two, program.effects, program.inserts))
            refs = {name for of, name in self._keys() if of == tool}
            every = [step for episode in self.episodes for step in episode.steps if step.tool == tool]
            calls = [step for step in every if step.ok]
            names = is_code if tool in self.model.writes else is_thing  # a read's arguments say what of
            program.unread = frozenset(
                name
                for name in program.arguments - refs
                if not re.search(rf"\bargs\.{re.escape(name)}\b", text)
                and all(names(step.args[name]) for step in calls if name in step.args)
                and not (tool not in self.model.writes and self._never_matters(tool, name))
            )
            program.given = (
                {self.model.things(tool, step.args) for step in calls or every} if program.unread else set()
            )

    def _never_matters(self, tool: str, name: str) -> bool:
        """Whether recorded reads that differ only in this argument always have the same answer."""
        answers: dict[tuple[str, ValueKey], dict[ValueKey, ValueKey]] = defaultdict(dict)
        for episode in self.episodes:
            for step in episode.steps:
                if step.tool == tool and name in step.args:
                    others = {key: value for key, value in step.args.items() if key != name}
                    by_value = answers[episode.world, value_key(others)]
                    by_value.setdefault(value_key(step.args[name]), value_key([step.ok, step.out]))
        alike = [values.values() for values in answers.values() if len(values) > 1]
        return all(len(set(values)) == 1 for values in alike) and sum(map(len, alike)) >= _NEVER_MATTERS

    def _learn_wraps(self) -> None:
        for episode in [*self.episodes, *self.everything]:  # a crawl's answers are often empty
            for step in episode.steps:
                self.model.tools[step.tool].wraps.setdefault(step.ok, step.wrap)

    def _hear(self) -> None:
        """Collect the things that answers and successful calls name, up to an open failed write."""
        for episode in self.everything:
            for step in episode.steps:
                for value in [*leaves(step.out), *(leaves(step.args) if step.ok else ())]:
                    if is_thing(value):
                        self.episodes_with[episode.world, value_key(value)].add(episode.id)
                if self.model.is_open(step):
                    break  # later answers may show another world

    def _learn_upsets(self) -> None:
        """Find failed writes that changed the answer of a read, although no write succeeded."""
        upset: set[tuple[str, str, OutcomeForm]] = set()  # with the read that shows it
        restless: set[str] = set()  # reads whose answers change by themselves
        for episode in self.episodes:
            last_answers: dict[tuple[str, ValueKey], tuple[ValueKey, set[tuple[str, OutcomeForm]]]] = {}
            for step in episode.steps:
                if step.tool not in self.model.writes:
                    question, answer = (step.tool, value_key(step.args)), value_key([step.ok, step.out])
                    before, failures = last_answers.get(question, (answer, set()))
                    if before != answer:
                        upset |= {(step.tool, *failure) for failure in failures}
                        restless |= set() if failures else {step.tool}
                    last_answers[question] = answer, set()
                elif step.ok:
                    last_answers.clear()
                for _, failures in last_answers.values() if step.tool in self.model.writes else ():
                    failures.add((step.tool, outcome_form(step)))
        for read, tool, form in upset:
            self.model.tools[tool].upsets |= frozenset() if read in restless else {form}

    def _learn_counters(self) -> None:
        """Find ids in answers of writes that count up by one, with one start for each world."""
        candidates: dict[tuple[str, str], list[CounterValue]] = defaultdict(list)
        echoed: set[tuple[str, str]] = set()
        for episode in self.everything:
            done: Counter[str] = Counter()
            for step in episode.steps:
                if not step.ok or step.tool not in self.model.writes:
                    continue
                out = step.out
                parts = [("", out)] if is_scalar(out) else list(out.items()) if isinstance(out, dict) else []
                for path, value in parts:
                    number = NUMBERED.fullmatch(str(value)) if is_key(value) else None
                    if number is None:
                        continue
                    key = step.tool, path
                    start = int(number[2]) - done[step.tool]
                    digits = len(number[2]) if number[2][0] == "0" else 0
                    candidates[key].append(
                        CounterValue(
                            episode.world, episode.id, start, number[1], digits, isinstance(value, int)
                        )
                    )
                    if any(same(value, given) for given in leaves(step.args)):
                        echoed.add(key)
                done[step.tool] += 1
        for key, given in candidates.items():
            worlds = len({counter.world for counter in given})
            starts = len({(counter.world, counter.start) for counter in given})
            named = _COUNTER_NAME.search(key[1].lower())
            if key in echoed or not named or len({counter.prefix for counter in given}) > 1:
                continue
            if starts <= max(1, worlds * 1.2) and len(given) > worlds:
                self.model.counters[key] = given

    # -- how worlds begin

    def _base(self, number: int) -> Base:
        """Collect each world's initial records from reads that the effects mined so far leave valid."""
        base = Base(self.episodes_with)
        for episode in self.everything:
            beginning = _Beginning(self.model, base, episode) if number else None
            wrote = False
            for step in episode.steps:
                if self.model.is_open(step):
                    break  # later answers may show another world
                if step.tool in self.model.writes:
                    wrote = wrote or step.ok
                    if beginning is not None and step.ok:
                        beginning.write(step)
                        start_facts = beginning.of_start(step, self.facts[id(step)])
                        start_facts = [
                            fact for fact in start_facts if fact.collection.startswith(ENVIRONMENT)
                        ]
                        base.add(episode, start_facts, step.wrap, is_first=False)
                    continue
                facts = self.facts[id(step)]
                if beginning is not None:
                    start = beginning.of_start(step, facts)
                    base.add(episode, start, step.wrap, is_first=not wrote)
                    beginning.state.observe(facts)
                elif not wrote:
                    base.add(episode, facts, step.wrap, is_first=True)
        self._find_whole_lists(base)
        return base

    def _find_whole_lists(self, base: Base) -> None:
        """Mark the unfiltered lists that contain every known record of their collection."""
        for tool, (site, *_) in self.model.collections.lists.items():
            listed: dict[str, list[tuple[str, set[Any]]]] = defaultdict(list)
            for episode in self.everything:
                for step in episode.steps:
                    if step.tool in self.model.writes:
                        if step.ok or self.model.is_open(step):
                            break
                    elif (
                        step.tool == tool
                        and step.ok
                        and not step.args
                        and self._is_not_a_page(step, site.path)
                    ):
                        rows = at_path(step.out, site.path)
                        if isinstance(rows, list):
                            keys = {
                                value_key(row.get(site.key_field)) for row in rows if isinstance(row, dict)
                            }
                            listed[episode.world].append((episode.id, keys))
            if any(self._is_missing(base, world, site.collection, lists) for world, lists in listed.items()):
                continue
            for world, lists in listed.items():
                base.listed[world, site.collection] |= {episode for episode, _ in lists}

    def _is_not_a_page(self, step: SeenStep, path: tuple[str, ...]) -> bool:
        """Whether a list is complete: the tool has no paging argument, or returned less than a full page."""
        parameters = self.model.parameters.get(step.tool)
        paging = [name for name in parameters.names if _PAGING.search(name)] if parameters is not None else []
        if not paging:
            return True
        rows = at_path(step.out, path)
        sizes = [parameters.defaults.get(name) for name in paging] if parameters is not None else []
        largest = max((size for size in sizes if isinstance(size, int) and size > 1), default=0)
        return isinstance(rows, list) and len(rows) < largest

    def _is_missing(self, base: Base, world: str, collection: str, lists: list[tuple[str, set[Any]]]) -> bool:
        always = set.intersection(*(keys for _, keys in lists))
        return any(row[1] not in always for row in base.facts.get((world, collection), {}))

    # -- one walk over all recordings

    def _walk(self, number: int) -> _WalkResults:
        results = _WalkResults(self.facts)
        for tool in self.model.tools.values():
            tool.absent.clear()
        for episode in self.episodes:
            _Walk(self.model, episode, number, results).walk()
        return results

    def _learn_effects(self, results: _WalkResults) -> None:
        tools = self.model.tools
        for program in tools.values():
            program.effects, program.inserts, program.views = {}, {}, {}
        for key in sorted({*results.sights, *results.mixed}):
            if key[1].startswith(FIELD):
                effect = self._field_effect(*key, [*results.sights[key], *results.mixed[key]])
            else:
                effect = _effect(results.sights[key], results.mixed[key], of_view=is_view(key[1]))
            tools[key[0]].effects[key[1]] = effect
        for (tool, prefix), there in results.shown.items():  # it shows the record that it deleted
            gone, learned = there.count(False), tools[tool].effects.get(prefix)
            if gone >= max(2, DELETED * len(there)) and not isinstance(learned, (Assign, Keep)):
                tools[tool].effects[prefix] = Delete(len(there))
        for collection, unclear in results.unclear.items():
            self._eliminate(FIELD + collection.removeprefix(ENVIRONMENT), unclear)
        for (tool, collection), made in results.inserts.items():
            key_field = self.model.collections.key_fields.get(collection)
            tools[tool].inserts[collection] = learn_insert(key_field, made)
        for tool, counts in results.views.items():
            for view in {view for view, _ in counts}:
                tools[tool].views[view] = (counts[view, True], counts[view, False])

    def _field_effect(self, tool: str, prefix: str, sights: list[Sighting]) -> Effect | None:
        name = prefix.removeprefix(FIELD)
        starts = Counter(
            value_key(base_facts[0].fields[VALUE])
            for (_, collection), records in self.model.base.facts.items()
            if collection == ENVIRONMENT + name
            for base_facts in records.values()
        )
        return learn_field_effect(prefix, sights, starts, shown=self._shows(tool, prefix))

    def _eliminate(self, prefix: str, unclear: list[tuple[list[_Pending], Any]]) -> None:
        """Attribute a field's changes after several writes to the write that explains most of them."""
        while unclear:
            candidates: list[tuple[int, bool, bool, str, Effect]] = []
            for tool in sorted({write.tool for pending, _ in unclear for write in pending}):
                program = self.model.tools[tool]
                some = [
                    Sighting([write for write in pending if write.tool == tool][-1].scope, None, fields)
                    for pending, fields in unclear
                    if any(write.tool == tool for write in pending)
                ]
                effect = (
                    self._field_effect(tool, prefix, some) if program.effects.get(prefix) is None else None
                )
                if isinstance(effect, Keep) and all(pending[-1].tool == tool for pending, _ in unclear):
                    program.effects[prefix] = effect
                elif isinstance(effect, Assign):
                    shown = self._shows(tool, prefix)
                    candidates.append((len(some), shown, are_related(tool, prefix), tool, effect))
            if not candidates:
                return
            *_, tool, effect = max(candidates, key=lambda candidate: candidate[:4])
            self.model.tools[tool].effects[prefix] = effect
            unclear = [sight for sight in unclear if all(pending.tool != tool for pending in sight[0])]

    def _shows(self, tool: str, prefix: str) -> bool:
        names = self.model.collections.environment.names.items()
        return any(of == tool and FIELD + name == prefix for (of, _), name in names)

    def _learn_choices(self) -> None:
        """Find arguments with few, recurring values: the tool may refuse a value that no recording has."""
        given: dict[tuple[str, str], Counter[ValueKey]] = defaultdict(Counter)
        for step in (step for episode in self.episodes for step in episode.steps):
            for name, value in step.args.items():
                if isinstance(value, (str, bool)):
                    given[step.tool, name][value_key(value)] += 1
        keys = self._keys()
        for (tool, name), counts in given.items():
            few = len(counts) <= _MAX_CHOICES and counts.total() >= _EACH_CHOICE * len(counts)
            coded = [text for kind, text in counts if kind == "s" and has_digits(text, 2)]
            is_open = any((tool, name) in keys or _AMOUNT_OR_TIME.match(text) for text in coded)
            is_open = is_open or any(len(str(text).split()) > _WORDS for _, text in counts)
            if (few and not is_open) or all(kind == "b" for kind, _ in counts):
                self.model.tools[tool].choices[name] = frozenset(counts)

    def _learn_outcomes(self, tool: str, calls: list[ScopedCall]) -> None:
        mined, writes = self.model.tools[tool], tool in self.model.writes
        mined.arguments = frozenset(name for call in calls for name in call.step.args)
        good = [call for call in calls if call.step.ok]
        mined.names = frozenset(name for name in mined.arguments if self._names_things(tool, name, good))
        absent = Counter(name for call in good for name in call.scope.absent())
        mined.blind = frozenset(name for name, count in absent.items() if count > 1)
        if not writes:
            mined.query = learn_query(self.model.collections, self.model.base, tool, calls)
            if tool in self.model.collections.lists:  # records change; the answer around them has one form
                return
        groups: dict[Any, list[ScopedCall]] = defaultdict(list)
        for call in calls:
            groups[outcome_form(call.step)].append(call)
        if len(groups) > max(_MAX_TEXTS, 0.5 * len(calls)) and len(calls) > 6:
            mined.tree = None
            return
        some = _drawn(calls, _MAX_CALLS, 0)
        mined.tree = grow(
            [call.scope for call in some],
            [outcome_form(call.step) for call in some],
            limits=_limits([call.step for call in some]),
        )
        for form, group in groups.items():
            examples = [(call.scope, call.step.out) for call in _drawn(group, _MAX_EXAMPLES, 1)]
            mined.says[form] = _answer_program(examples, went_well=form[0], writes=writes)
            if writes and form[0]:
                mined.laws[form] = tuple(
                    law
                    for law in laws([scope for scope, _ in examples])
                    if self._could_be_otherwise(law, examples)
                )

    def _names_things(self, tool: str, name: str, good: Sequence[ScopedCall]) -> bool:
        """Whether earlier answers had each value of a choice, or most values of another argument."""
        seen = [call.scope.seen_earlier.get(f"args.{name}", False) for call in good if name in call.step.args]
        if name in self.model.tools[tool].choices:
            return bool(seen) and all(seen)
        return (tool, name) in self._keys() or 2 * seen.count(True) > len(seen)

    def _keys(self) -> set[tuple[str, str]]:
        """Return the arguments, each with its tool, that are keys of records."""
        return {*self.model.collections.arg_refs, *self.model.collections.arg_fields}

    def _could_be_otherwise(self, law: Condition, examples: Sequence[Example]) -> bool:
        """Whether the law restricts calls: the field has several values among the known records."""
        if not isinstance(law, Is) or law.name.endswith("?"):
            return True
        rows = {prefix: row[0] for scope, _ in examples for prefix, row in scope.rows.items()}
        owner = max((prefix for prefix in rows if law.name.startswith(f"{prefix}.")), key=len, default=None)
        if owner is None:
            return True
        field = law.name.removeprefix(f"{owner}.")
        return self._varies(rows[owner], field)

    def _varies(self, collection: str, field: str) -> bool:
        values = {
            value_key(fact.fields[field])
            for (_, other), records in self.model.base.facts.items()
            if other == collection
            for facts in records.values()
            for fact in facts
            if field in fact.fields
        }
        return len(values) != 1


class _Beginning:
    """Decides which reads of an episode still show the initial state of its world."""

    def __init__(self, model: Model, base: Base, episode: RecordedCalls) -> None:
        self.model, self.base, self.world = model, base, episode.world
        self.state = WorldState(model.collections, base, episode.world, episode.id)
        self.touched: set[RowKey] = set()
        self.inserted: set[str] = set()  # collections
        self.views: set[str] = set()  # that a write changed
        self.made: set[Any] = set()  # values that answers of writes hold
        self.done: set[str] = set()

    def write(self, step: SeenStep) -> None:
        """Mark the records that a successful write can reach and may change."""
        tool = self.model.tools[step.tool]
        self.done.add(step.tool)
        self.made |= {value_key(leaf) for leaf in leaves(step.out) if is_key(leaf) and len(str(leaf)) > 1}
        scope = self.model.scope(self.state, step.tool, step.args)
        for prefix, (collection, key) in scope.rows.items():
            if not isinstance(tool.effect_on(prefix), Keep):
                self.touched.add((collection, value_key(key)))
        facts = self.model.collections.facts(step)
        self.touched |= {fact.row for fact in facts if is_record(fact.collection)}
        self.inserted |= set(tool.inserts)
        self.views |= {view for view, (_, changed) in tool.views.items() if changed}

    def of_start(self, step: SeenStep, facts: Sequence[Fact]) -> list[Fact]:
        """Return the facts of a read that describe the initial state."""
        return [fact for fact in facts if self._is_of_start(step, fact)]

    def _is_of_start(self, step: SeenStep, fact: Fact) -> bool:
        if fact.row in self.touched:
            return False
        if not is_view(fact.collection):
            return fact.collection not in self.inserted or fact.row in self.base.facts.get(
                (self.world, fact.collection), {}
            )
        return not self.done or self._view_is_of_start(step, fact)

    def _view_is_of_start(self, step: SeenStep, fact: Fact) -> bool:
        """Whether a view read after writes is unchanged: each write left it alone at least twice."""
        tool, collections = fact.collection.removeprefix(VIEW), self.model.collections
        if fact.collection in self.views:
            return False
        if any(value_key(value) in self.made for value in step.args.values() if is_scalar(value)):
            return False
        if tool in collections.views:
            unchanged_counts = (
                self.model.tools[write].views.get(fact.collection, (0, 0))[0] for write in self.done
            )
            return all(count >= 2 for count in unchanged_counts)
        touched = {collection for collection, _ in self.touched} | self.inserted
        return not any(site.collection in touched for site in collections.lists[tool])


class _Walk:
    """Follows one recorded episode, and collects what each answer shows of the writes before it."""

    def __init__(self, model: Model, episode: RecordedCalls, number: int, results: _WalkResults) -> None:
        self.model, self.episode, self.number, self.results = model, episode, number, results
        self.state = WorldState(model.collections, model.base, episode.world, episode.id)
        self.pending: dict[RowKey, list[_Pending]] = defaultdict(list)
        self.acts: list[_Act] = []
        self.last_view: dict[RowKey, tuple[int, JsonValue]] = {}
        self.shown: dict[RowKey, tuple[str, str]] = {}  # by which write, and name, an answer showed it

    def walk(self) -> None:
        for place, step in enumerate(self.episode.steps):
            writes, is_last = step.tool in self.model.writes, self.number == _PASSES - 1
            scope = self.model.scope(self.state, step.tool, step.args) if writes or is_last else Scope()
            if is_last and not is_left_open(step):
                self.results.calls[step.tool].append(ScopedCall(scope, step, self.episode.world))
            if self.model.is_open(step):
                return  # its effects are unknown
            facts = self.results.facts[id(step)]
            for fact in facts if not writes else ():
                self._seen(place, fact)
            if not writes and not facts:
                self._missing(step)
            if writes:
                self.model.sequences |= self.model.followed(self.state, step.tool, step.args, scope)
            if writes and step.ok:
                self._act(place, step, scope, facts)
                facts = self.model.left(step.tool, scope, facts)
            self.state.observe(facts)
            self.model.note(self.state, step)

    def _seen(self, place: int, fact: Fact) -> None:
        """Attribute the change of a record to the writes since it was last seen."""
        row, before = fact.row, self.state.at(fact.row)
        if row in self.shown:
            self.results.shown[self.shown.pop(row)].append(True)
        if self.pending.get(row):
            pending = self.pending.pop(row)
            alone = len({write.place for write in pending}) == 1
            blamed = self._blamed(pending, fact.fields)
            if not blamed and fact.collection.startswith(ENVIRONMENT):
                self.results.unclear[fact.collection].append((pending, fact.fields))
            for write in blamed:
                prefix = re.sub(r"(<item\.[^>]*>)\d+$", r"\1", write.prefix)
                (self.results.sights if alone else self.results.mixed)[write.tool, prefix].append(
                    Sighting(write.scope, write.before, fact.fields)
                )
        elif row not in self.pending and self.acts and is_record(fact.collection):
            base_rows = self.model.base.facts.get((self.episode.world, fact.collection), {})
            new = before is None or (self.number and row in self.state.made)
            maker = self._maker(fact) if new and row not in base_rows else None
            if maker is not None:
                self.results.inserts[maker.tool, fact.collection].append((maker.scope, fact.key, fact.fields))
        if is_view(fact.collection):
            self._view_seen(place, fact)

    def _view_seen(self, place: int, fact: Fact) -> None:
        row, answer = fact.row, fact.fields[""]
        if row in self.last_view:
            since, old = self.last_view[row]
            between = [act for act in self.acts if act.place >= since]
            named = any(
                row == (collection, value_key(key))
                for act in between
                for collection, key in act.scope.rows.values()
            )
            if len({act.tool for act in between}) == 1 and not named:
                self.results.views[between[0].tool][fact.collection, same(old, answer)] += 1
        self.last_view[row] = (place, answer)

    def _missing(self, step: SeenStep) -> None:
        """Record a failed look-up: the record does not exist."""
        collections = self.model.collections
        where = collections.documents.get(step.tool) or collections.projections.get(step.tool)
        if where is None or where.key_arg is None or where.key_arg not in step.args:
            return
        key = step.args[where.key_arg]
        if isinstance(where, Document) and where.by != where.key_field:
            return
        row = (where.collection, value_key(key))
        if not isinstance(self.state.at(row), dict):
            self.model.tools[step.tool].absent[outcome_form(step)] += 1
        if row in self.shown:
            self.results.shown[self.shown.pop(row)].append(False)
        pending = self.pending.pop(row, [])
        if len({write.place for write in pending}) == 1:
            for write in pending:
                self.results.sights[write.tool, write.prefix].append(
                    Sighting(write.scope, write.before, GONE)
                )
        self.state.put(where.collection, key, GONE, whole=True)

    def _act(self, place: int, step: SeenStep, scope: Scope, facts: Sequence[Fact]) -> None:
        after = self.model.after_names(scope, step)
        shown_rows = {fact.row for fact in facts}
        self.shown.clear()  # a later miss may be this write's doing
        for fact in facts:
            if is_record(fact.collection):
                self.pending.pop(fact.row, None)
        for prefix, (collection, key) in scope.rows.items():
            row = (collection, value_key(key))
            if row in shown_rows and is_record(collection):
                self.shown[row] = step.tool, prefix
            else:
                before = self.state.at(row)
                before = dict(before) if isinstance(before, dict) else before
                self.pending[row].append(_Pending(place, step.tool, prefix, after, before))
        for fact in facts:
            if fact.collection.startswith(ENVIRONMENT):  # the answer itself shows what the write did
                self._seen(place, fact)
        self.acts.append(_Act(step.tool, after, step, place))
        self.model.replay(self.state, step, after, shown_rows)

    def _blamed(self, pending: list[_Pending], after: Any) -> list[_Pending]:
        """Return the writes since the last sight of a record that explain its present state."""
        places = {write.place for write in pending}
        if len(places) == 1:
            return pending
        if not self.number:
            return []
        effects = {write.place: self.model.tools[write.tool].effect_on(write.prefix) for write in pending}
        old = pending[0].before
        quiet = all(effect is None or isinstance(effect, Keep) for effect in effects.values())
        both = isinstance(old, dict) and isinstance(after, dict)
        if quiet and both and all(field not in old or same(old[field], after[field]) for field in after):
            return pending
        last = max(places)  # the effects of the writes before it are known
        if all(effects[write.place] is not None for write in pending if write.place < last):
            return [write for write in pending if write.place == last]
        unclear = [place for place in places if effects[place] is None]
        if len(unclear) == 1 and quiet:
            return [write for write in pending if write.place == unclear[0]]
        return []

    def _maker(self, fact: Fact) -> _Act | None:
        """Return the write that made a record: its answer has the key, or two fields have its arguments."""
        for act in reversed(self.acts):
            if any(same(value, fact.key) for value in leaves(act.step.out)):
                return act
        best: tuple[int, _Act] | None = None
        for act in self.acts:
            texts = [value for value in act.step.args.values() if isinstance(value, str)]
            given_texts = {value for value in texts if len(value) > 2} | {text.lower() for text in texts}
            hits = sum(
                isinstance(value, str)
                and len(value) > 2
                and (value in given_texts or value.lower() in given_texts)
                for value in fact.fields.values()
            )
            if hits >= 2 and (best is None or (hits, act.tool) >= (best[0], best[1].tool)):
                best = (hits, act)
        return best[1] if best else None


def _effect(alone: list[Sighting], mixed: list[Sighting], *, of_view: bool) -> Effect | None:
    """Learn an effect from sights after this write alone; use the others only where these are not enough."""
    effect = learn_effect(alone, of_view=of_view) if len(alone) >= 2 else None
    unclear = effect is None or (isinstance(effect, Assign) and not effect.sure)
    if unclear or (isinstance(effect, Keep) and mixed):
        both = learn_effect([*alone, *mixed], of_view=of_view)
        partial = isinstance(both, Assign) and not both.sure
        if effect is None or not partial or isinstance(effect, Keep):
            return both
    return effect


def _answer_program(examples: list[Example], *, went_well: bool, writes: bool) -> Program | None:
    """Return the program that makes a tool's answers of one form; None if none explains them."""
    form = explain(examples, "", 4, 1)
    if form is not None:
        return form
    first = examples[0][1]
    if isinstance(first, dict):
        return record_with_gaps(examples, writes=writes)
    if went_well and writes and isinstance(first, str) and is_made_up("id", [out for _, out in examples]):
        return MadeUp(first)
    return None


def _limits(steps: Sequence[SeenStep]) -> list[float]:
    """Figures that come again in a tool's short texts: "up to 400.00"."""
    counts: Counter[float] = Counter()
    for step in steps:
        text = step.out.get("error") if isinstance(step.out, dict) else step.out
        if isinstance(text, str) and len(text) < 200:
            counts.update({float(number) for number in _LIMIT.findall(text)})
    return [number for number, count in counts.most_common(3) if count >= 2]


def _drawn(calls: list[ScopedCall], most: int, seed: int) -> list[ScopedCall]:
    return calls if len(calls) <= most else random.Random(seed).sample(calls, most)  # noqa: S311
