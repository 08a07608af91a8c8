"""The programs of all tools of a suite: the outcome, the answer and the changes of each call."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dreamgym_kit.dream.json_values import Path as Place
from dreamgym_kit.dream.observed import Wrap
from dreamgym_kit.dream.programs.collections import VIEW, WHOLE, Collections, Fact, RowKey, is_record
from dreamgym_kit.dream.programs.conditions import Condition
from dreamgym_kit.dream.programs.effects import Assign, Delete, Effect, Forget, Insert, Keep, Rewrite, is_view
from dreamgym_kit.dream.programs.environment_fields import FIELD
from dreamgym_kit.dream.programs.everywhere import Everywhere
from dreamgym_kit.dream.programs.forms import Fields, Get, ListOf, MadeUp, MakeRecord, Program
from dreamgym_kit.dream.programs.queries import Query
from dreamgym_kit.dream.programs.records import Base, WorldState
from dreamgym_kit.dream.programs.scope import RESULT, Parameters, Scope, scope_of
from dreamgym_kit.dream.programs.trees import Tree, TreeLeaf
from dreamgym_kit.dream.programs.trust import NEAR, lower_bound
from dreamgym_kit.dream.programs.values import (
    GONE,
    UNKNOWN,
    SeenStep,
    ValueKey,
    at_path,
    has_digits,
    is_left_open,
    is_number,
    is_scalar,
    is_thing,
    leaves,
    shape_of,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

OutcomeForm = tuple[bool, Any]
"""Whether the call succeeded, and the shape of its answer. Decision trees predict this."""
NUMBERED = re.compile(r"(\D*)(\d{1,10})")
_MINED_PARTS = ("collections", "counters", "everywhere", "sequences")  # and tools
_LONG = 200  # characters of a text whose words tell no form


class CounterValue(NamedTuple):
    """One id from a counter, with the counter's value at the start of the episode."""

    world: str
    episode: str
    start: int
    prefix: str
    digits: int  # 0: it is written without leading zeros
    is_number: bool


@dataclass(slots=True)
class ToolProgram:
    """The mined program of one tool.

    Attributes:
        tree: under which conditions a call has which outcome.
        says: by outcome, the program of the answer; None where no program explains it.
        laws: by outcome of a successful write, the conditions that held each time.
        effects: by prefix of names, what the write does to the record they are of.
        inserts: by collection, the record that the write makes.
        query: of a read, what it selects.
        absent: of a look-up, how it failed where the record is unknown, and how often.
        views: by view, how often this write left it as it was, and how often it changed.
        wraps: by success of the call, the wrapping that the tool puts around its answer.
        arguments: those that recorded calls had.
        choices: by argument with only a few values, these values.
        names: arguments whose values earlier answers had: every value of a choice, most of another argument.
        unread: arguments that name things but that the mined program never reads, such as a code.
        given: values of these arguments in successful calls, with the other things that the call named.
        blind: arguments by which successful calls named things that were known to be absent.
        upsets: forms of its failures after which recordings show another answer than before.
    """

    tree: Tree | None = None
    says: dict[OutcomeForm, Program | None] = field(default_factory=dict)
    laws: dict[OutcomeForm, tuple[Condition, ...]] = field(default_factory=dict)
    effects: dict[str, Effect | None] = field(default_factory=dict)
    inserts: dict[str, Insert] = field(default_factory=dict)
    query: Query | None = None
    absent: Counter[OutcomeForm] = field(default_factory=Counter)
    views: dict[str, tuple[int, int]] = field(default_factory=dict)
    wraps: dict[bool, Wrap] = field(default_factory=dict)
    arguments: frozenset[str] = frozenset()
    choices: dict[str, frozenset[ValueKey]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    given: set[frozenset[ValueKey]] = field(default_factory=set)
    blind: frozenset[str] = frozenset()
    upsets: frozenset[OutcomeForm] = frozenset()

    def accounts_for(self, args: Mapping[str, JsonValue], scope: Scope) -> bool:
        """Whether recorded calls had all these arguments, and the values of those with only a few values."""
        return self.arguments.issuperset(args) and all(
            name not in args
            or value_key(args[name]) in values
            or (name in self.names and scope.seen_earlier.get(f"args.{name}"))
            for name, values in self.choices.items()
        )

    def summary(self) -> str:
        """Count the program's parts, in a phrase."""
        parts = [
            (sum(says is not None for says in self.says.values()), "outcome"),
            (sum(effect is not None for effect in self.effects.values()), "update"),
            (len(self.inserts), "insert"),
            (int(self.query is not None), "query"),
        ]
        return (
            ", ".join(f"{count} {name}{'s' * (count > 1)}" for count, name in parts if count)
            or "repeats what was read"
        )

    def effect_on(self, prefix: str) -> Effect | None:
        """Return the effect on the record that names with this prefix describe."""
        if prefix in self.effects:
            return self.effects[prefix]
        return self.effects.get(re.sub(r"\d+$", "", prefix))

    def changes(self, view: str) -> bool:
        """Whether this write changed a view that its arguments do not name, more often than by chance."""
        unchanged, changed = self.views.get(view, (0, 0))
        return changed > 0.05 * (unchanged + changed)


class Model:
    """All tools' programs, and the recorded initial state of each world.

    Args:
        parameters: by tool.
        writes: the tools that change the world.
        collections: where records stand in answers.
    """

    def __init__(
        self, parameters: Mapping[str, Parameters], writes: frozenset[str], collections: Collections
    ) -> None:
        self.parameters, self.writes, self.collections = dict(parameters), writes, collections
        self.tools: dict[str, ToolProgram] = defaultdict(ToolProgram)
        self.counters: dict[tuple[str, str], list[CounterValue]] = {}
        self.everywhere: dict[str, Everywhere] = {}
        self.declared: frozenset[str] = frozenset()  # tools whose programs a person wrote
        self.base = Base()
        self.recorded_in: set[tuple[str, str]] = set()
        """Tools, each with a world that it was recorded in."""
        self.sequences: set[tuple[str, str]] = set()
        """Pairs of writes recorded one after the other on the same thing."""

    def mined_parts(self) -> dict[str, Any]:
        """Return what the search mined, for `take`; initial states and wrappings are not part of it."""
        tools = {tool: replace(program, wraps={}) for tool, program in self.tools.items()}
        return {name: getattr(self, name) for name in _MINED_PARTS} | {"tools": tools}

    def take(self, mined: Mapping[str, Any]) -> None:
        """Use the `mined_parts` of an earlier search in the same recordings."""
        for name in _MINED_PARTS:
            setattr(self, name, mined[name])
        self.tools = defaultdict(ToolProgram, mined["tools"])

    def things(self, tool: str, args: Mapping[str, JsonValue]) -> frozenset[ValueKey]:
        """Return the things that a call names."""
        choices = self.tools[tool].choices
        named = (value for name, value in args.items() if name not in choices)
        return frozenset(value_key(value) for value in named if is_thing(value))

    def is_open(self, step: SeenStep) -> bool:
        """Whether a write reported a failure, but may have changed records."""
        failed = step.writes and not step.ok
        return failed and (is_left_open(step) or outcome_form(step) in self.tools[step.tool].upsets)

    def followed(
        self, state: WorldState, tool: str, args: Mapping[str, JsonValue], scope: Scope
    ) -> set[tuple[str, str]]:
        """Return pairs of an earlier write of this episode and this one that name a common thing.

        Skips writes with a known effect on a record that both reach: the record already shows it.
        """
        things, rows = self.things(tool, args), {(name, value_key(key)) for name, key in scope.rows.values()}
        return {
            (earlier, tool)
            for earlier, named, understood in state.written
            if named & things and not understood & rows
        }

    def scope(self, state: WorldState, tool: str, args: Mapping[str, JsonValue]) -> Scope:
        """Return the names that a call can see."""
        scope = scope_of(state, self.parameters, tool, args, writes=tool in self.writes)
        for (of, path), given in self.counters.items():
            if of == tool:
                scope[f"next.{tool}.{path}"] = self._next(tool, given, state)
        return scope

    def _next(self, tool: str, given: Sequence[CounterValue], state: WorldState) -> JsonValue:
        """Return a counter's next id; in a world without recordings of it, one above the highest known id.

        Where no id is known either, the counter starts as in most other worlds.
        """
        first, starts = given[0], _starts(given, state)
        elsewhere = (counter.start for counter in given if counter.episode != state.without)
        number = (starts or Counter(elsewhere) or Counter([1])).most_common(1)[0][0] + state.count[tool]
        if not starts:
            document = self.collections.documents.get(tool)
            owners = {*self.tools[tool].inserts, *([document.collection] if document else [])}
            known_numbers = [
                int(match[2])
                for collection in owners or filter(is_record, self.collections.fields)
                for key in state.keys(collection).values()
                if (match := NUMBERED.fullmatch(str(key))) and match[1] == first.prefix
            ]
            if known_numbers and (owners or number in known_numbers):
                number = max(known_numbers) + 1
        if first.is_number:
            return number
        return first.prefix + str(number).zfill(max(counter.digits for counter in given))

    def guessed_ids(self, tool: str, out: JsonValue, state: WorldState) -> set[JsonValue]:
        """Return the ids in a write's answer that count on from a start which nothing recorded shows."""
        return {
            at_path(out, (path,) if path else ())
            for (of, path), given in self.counters.items()
            if of == tool and not _starts(given, state)
        }

    def staying(self, prefix: str) -> float:
        """Return a lower bound on the share of (write, reachable record) pairs with an unchanged record.

        It uses the narrow bound of recorded outcomes: there are as few pairs as tools. A wider bound would
        distrust most records after any write, however many calls agree.
        """
        keeps = [
            isinstance(effect, Keep)
            for tool in self.tools.values()
            for other, effect in tool.effects.items()
            if (">." in other) == (">." in prefix) and not (is_view(other) or other.startswith(FIELD))
        ]
        return lower_bound(sum(keeps) + 1, len(keeps) + 2, NEAR)

    def write(
        self,
        state: WorldState,
        step: SeenStep,
        scope: Scope,
        shown_rows: set[RowKey],
        confidence: float | None = None,
    ) -> None:
        """Apply a successful write to a state. `shown_rows`: records that its answer shows."""
        _Writing(self, state, step, scope, confidence).do(shown_rows, real=False)

    def replay(self, state: WorldState, step: SeenStep, scope: Scope, shown_rows: set[RowKey]) -> None:
        """Apply a recorded write to the state of a walk; records with no known effect stay as they are."""
        _Writing(self, state, step, scope, None).do(shown_rows, real=True)

    def left(self, tool: str, scope: Scope, facts: Sequence[Fact]) -> list[Fact]:
        """Return the facts of a write's answer, without records that the write deletes."""
        rows = ((row, self.tools[tool].effect_on(prefix)) for prefix, row in scope.rows.items())
        deleted = {(name, value_key(key)) for (name, key), effect in rows if isinstance(effect, Delete)}
        return [fact for fact in facts if fact.row not in deleted]

    def note(self, state: WorldState, step: SeenStep) -> None:
        """Add an answered call to the history of the episode."""
        values = [*leaves(step.out), *(leaves(step.args) if step.ok else ())]
        things = {value_key(value) for value in values if is_thing(value)}
        state.seen_values |= things
        state.denied -= things if step.ok else set()
        if step.tool not in self.writes:
            return
        if not step.ok:
            state.refused.append((step.tool, self.things(step.tool, step.args)))
            return
        done = (step.tool, value_key(step.args))
        state.line = (*state.line, done)
        state.count[step.tool] += 1
        state.done.add(done)
        for name, value in step.args.items():
            if is_scalar(value):
                state.last[step.tool, name] = value

    def after_names(self, scope: Scope, step: SeenStep) -> Scope:
        """Return a write's scope with names for its answer; effects are computed in it."""
        names: dict[str, Any] = {RESULT: step.out}
        if isinstance(step.out, dict):
            names |= {f"{RESULT}.{name}": value for name, value in step.out.items()}
        return scope.child(names)


class _Writing:
    """Applies one successful write to a state."""

    def __init__(
        self, model: Model, state: WorldState, step: SeenStep, scope: Scope, confidence: float | None
    ) -> None:
        self.model, self.state, self.step, self.scope = model, state, step, scope
        self.tool, self.confidence = model.tools[step.tool], confidence

    def do(self, shown_rows: set[RowKey], *, real: bool) -> None:
        state, tool, model = self.state, self.tool, self.model
        rows = {prefix: (name, value_key(key)) for prefix, (name, key) in self.scope.rows.items()}
        for prefix, row in rows.items():
            effect = tool.effect_on(prefix)
            if row not in shown_rows or isinstance(effect, Delete):
                self._reach(prefix, row, effect, real=real)
        understood = {
            row for prefix, row in rows.items() if is_record(row[0]) and tool.effect_on(prefix) is not None
        }
        things = model.things(self.step.tool, self.step.args)
        state.written.append((self.step.tool, things, frozenset(shown_rows | understood)))
        named = set(rows.values())
        for view in filter(tool.changes, tool.views):
            state.changed |= dict.fromkeys(row for row in state.rows_of(view) if row not in named)
        for collection, insert in tool.inserts.items() if not real else ():
            self._insert(collection, insert)

    def _reach(self, prefix: str, row: RowKey, effect: Effect | None, *, real: bool) -> None:
        """Apply the effect on one record that the write's names reach."""
        record, key = self.state.at(row), self.scope.rows[prefix][1]
        if effect is None:
            if not real:
                self._leave_unexamined(prefix, row, record)
        elif isinstance(effect, Delete):
            self.state.put(row[0], key, GONE, True, self.confidence)
            if not real:
                self._forget_deleted(key, record)
        elif isinstance(effect, Forget):
            self.state.put(row[0], key, UNKNOWN, whole=False)
        elif isinstance(effect, Rewrite):
            old = record[""][1] if isinstance(record, dict) else UNKNOWN
            if old is UNKNOWN and effect.from_before:
                return
            value = effect.form(self.scope.child({"old": old}))
            fields = UNKNOWN if value is UNKNOWN else {"": [True, value]}
            self.state.put(row[0], key, fields, True, self.confidence)
        elif isinstance(effect, Assign):
            self._assign(row, record, effect)

    def _leave_unexamined(self, prefix: str, row: RowKey, record: Any) -> None:
        """Lower the confidence of a record with no known effect; forget a view that may have changed."""
        if is_view(row[0]):
            unchanged, changed = self.tool.views.get(row[0], (0, 0))
            if changed or not unchanged:
                self.state.changed[row] = None
        elif isinstance(record, dict) and is_record(row[0]):  # a field's confidence is measured by kind
            confidence = self.state.confidence
            confidence[row] = min(confidence.get(row, 1.0), self.model.staying(prefix))

    def _forget_deleted(self, key: JsonValue, record: Any) -> None:
        """Forget the answers of reads about a deleted record."""
        values = record.values() if isinstance(record, dict) else ()
        names = {value_key(value) for value in values if isinstance(value, str) and has_digits(value)} | {
            value_key(key)
        }
        for read in self.model.collections.reads:
            for other, args in self.state.keys(VIEW + read).items():
                if isinstance(args, dict) and any(value_key(value) in names for value in args.values()):
                    self.state.changed[other] = None
        self.state.lost |= names

    def _assign(self, row: RowKey, record: Any, effect: Assign) -> None:
        old = record if isinstance(record, dict) else {}
        new = {name: value for name, value in old.items() if name not in effect.unknown}
        for name, form in effect.fields.items():
            new[name] = form(self.scope.child({"old": old.get(name, UNKNOWN)}))
        if effect.named is not None:
            named, given, lower = effect.named
            field, value = self.step.args.get(named), self.step.args.get(given, UNKNOWN)
            if isinstance(field, str) and value is not UNKNOWN:
                new[field] = value.lower() if lower and isinstance(value, str) else value
        new = {name: value for name, value in new.items() if value is not UNKNOWN}
        new[WHOLE] = bool(new.get(WHOLE, False)) and new.keys() >= old.keys()
        self.state.changed[row] = new
        if self.confidence is not None:
            self.state.confidence[row] = self.confidence

    def _insert(self, collection: str, insert: Insert) -> None:
        key = insert.key(self.scope) if insert.key else UNKNOWN
        if key is UNKNOWN:
            key = f"\u00a7{self.step.tool}.{self.state.count[self.step.tool]}"  # its key is not known yet
        fields = {name: form(self.scope) for name, form in insert.fields.items()}
        fields = {name: value for name, value in fields.items() if value is not UNKNOWN}
        if collection in self.model.collections.key_fields:
            fields[self.model.collections.key_fields[collection]] = key
        self.state.put(collection, key, fields, insert.shown <= set(fields), self.confidence)
        self.state.made.append((collection, value_key(key)))


def _starts(given: Sequence[CounterValue], state: WorldState) -> Counter[int]:
    """Count the recorded starts of a counter in a world."""
    return Counter(
        counter.start
        for counter in given
        if counter.world == state.world and counter.episode != state.without
    )


def outcome_form(step: SeenStep) -> OutcomeForm:
    """Return the form of a call's outcome."""
    arg_values = list(leaves(step.args))

    def shape(value: JsonValue, depth: int) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, dict) and depth:
            return tuple(
                sorted(
                    (name, shape(item, depth - 1) if isinstance(item, bool) or name == "error" else None)
                    for name, item in value.items()
                )
            )
        if isinstance(value, str) and (depth == 2 or not step.ok):
            return shape_of(value, arg_values) if len(value) < _LONG else "text"
        return "number" if is_number(value) else type(value).__name__

    return step.ok, shape(step.out, 2)


def most_common(leaf: TreeLeaf) -> tuple[OutcomeForm, int, int]:
    """Return the most frequent outcome at a leaf, its count, and the count of all outcomes."""
    (form, count), total = leaf.counts[0], sum(count for _, count in leaf.counts)
    return form, count, total


def made_up_places(program: ToolProgram | None) -> frozenset[Place]:
    """Return the places in a tool's successful answers that have made-up ids."""
    says = program.says.items() if program is not None else ()
    return frozenset(place for (ok, _), form in says if ok and form is not None for place in _places(form))


def _places(form: Program, path: Place = ()) -> Iterator[Place]:
    parts: Iterable[tuple[str | int, Program]] = ()
    if isinstance(form, MadeUp) or (isinstance(form, Get) and form.names[0].startswith("next.")):
        yield path
    elif isinstance(form, MakeRecord):
        parts = [*form.fields.items(), *((field, inner) for field, (inner, _) in form.optional.items())]
    elif isinstance(form, Fields):
        parts = form.fields
    elif isinstance(form, ListOf):
        parts = enumerate(form.items)
    for part, inner in parts:
        yield from _places(inner, (*path, part))
