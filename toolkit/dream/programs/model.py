"""The programs of all tools of a suite: which outcome a call has, what it says, and what it changes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dreamgym_kit.dream.json_values import Path as Place
from dreamgym_kit.dream.observed import Wrap
from dreamgym_kit.dream.programs.collections import VIEW, WHOLE, Collections, Fact, RowKey, is_record
from dreamgym_kit.dream.programs.conditions import Condition
from dreamgym_kit.dream.programs.effects import (
    Assign,
    Delete,
    Effect,
    Forget,
    Insert,
    Keep,
    Rewrite,
    is_view,
)
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
"""Whether the call went well, and the shape of what it said: what a decision tells apart."""
NUMBERED = re.compile(r"(\D*)(\d{1,10})")
_FOUND = ("collections", "counters", "everywhere", "sequences")  # and tools
_LONG = 200  # characters of a text whose words tell no form


class CounterValue(NamedTuple):
    """One id that a counter gave: what the counter stood at when the episode began."""

    world: str
    episode: str
    start: int
    prefix: str
    digits: int  # 0: it is written without leading zeros
    is_number: bool


@dataclass(slots=True)
class ToolProgram:
    """What was mined of one tool.

    Attributes:
        tree: under which conditions a call has which outcome.
        says: by outcome, the program of what it says; None where none explains it.
        laws: by outcome of a write that went well, what held each time.
        effects: by prefix of names, what the write does to the record they are of.
        inserts: by collection, the record that the write makes.
        query: of a read, what it selects.
        absent: of a look-up, how it failed where the record is unknown, and how often.
        views: by view, how often this write left it as it was, and how often it changed.
        wraps: by whether the call went well, what the tool puts around its answer.
        heard: the arguments that recorded calls had.
        choices: of arguments that have a few values, these.
        names: the arguments among these of which every value was heard in an answer first.
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
    heard: frozenset[str] = frozenset()
    choices: Mapping[str, frozenset[ValueKey]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    given: set[frozenset[ValueKey]] = field(default_factory=set)
    blind: frozenset[str] = frozenset()
    upsets: frozenset[OutcomeForm] = frozenset()

    def accounts_for(self, args: Mapping[str, JsonValue], scope: Scope) -> bool:
        """Whether recorded calls had these arguments, and a known value of each that has only a few."""
        return self.heard.issuperset(args) and all(
            name not in args
            or value_key(args[name]) in known
            or (name in self.names and scope.heard.get(f"args.{name}"))
            for name, known in self.choices.items()
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
        """What it does to the record that names with this prefix are of."""
        if prefix in self.effects:
            return self.effects[prefix]
        return self.effects.get(re.sub(r"\d+$", "", prefix))

    def changes(self, view: str) -> bool:
        """Whether it was seen to change a view that its arguments do not name, and more than by chance."""
        kept, changed = self.views.get(view, (0, 0))
        return changed > 0.05 * (kept + changed)


class Model:
    """All tools' programs, and what recordings tell of each world.

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

    def found(self) -> dict[str, Any]:
        """What the search found, as `take` takes it: all but what recordings show without one."""
        tools = {tool: replace(program, wraps={}) for tool, program in self.tools.items()}
        return {name: getattr(self, name) for name in _FOUND} | {"tools": tools}

    def take(self, found: Mapping[str, Any]) -> None:
        """Take what an earlier search in the same recordings found."""
        for name in _FOUND:
            setattr(self, name, found[name])
        self.tools = defaultdict(ToolProgram, found["tools"])

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
        """What a call can see."""
        scope = scope_of(state, self.parameters, tool, args, writes=tool in self.writes)
        for (of, path), given in self.counters.items():
            if of == tool:
                scope[f"next.{tool}.{path}"] = self._next(tool, given, state)
        return scope

    def _next(self, tool: str, given: Sequence[CounterValue], state: WorldState) -> JsonValue:
        """The id that a counter gives next; in a world where it was not seen, one after the highest known."""
        first = given[0]
        starts = Counter(
            one.start for one in given if one.world == state.world and one.episode != state.without
        )
        if starts:
            number = starts.most_common(1)[0][0] + state.count[tool]
        else:
            document = self.collections.documents.get(tool)
            owners = {*self.tools[tool].inserts, *([document.collection] if document else [])}
            known = [
                int(found[2])
                for collection in owners
                for key in state.keys(collection).values()
                if (found := NUMBERED.fullmatch(str(key))) and found[1] == first.prefix
            ]
            number = max(known) + 1 if known else 1 + state.count[tool]
        if first.is_number:
            return number
        return first.prefix + str(number).zfill(max(one.digits for one in given))

    def staying(self, prefix: str) -> float:
        """Return a lower bound on the share of (write, reachable record) pairs with an unchanged record.

        It uses the narrow bound of recorded outcomes: there are as few pairs as tools. A wider bound would
        distrust most records after any write, however many calls agree.
        """
        kept = [
            isinstance(effect, Keep)
            for tool in self.tools.values()
            for other, effect in tool.effects.items()
            if (">." in other) == (">." in prefix) and not (is_view(other) or other.startswith(FIELD))
        ]
        return lower_bound(sum(kept) + 1, len(kept) + 2, NEAR)

    def write(
        self,
        state: WorldState,
        step: SeenStep,
        scope: Scope,
        told: set[RowKey],
        confidence: float | None = None,
        *,
        real: bool = False,
    ) -> None:
        """Do to a state what a write that went well does. `told`: records that its answer shows.

        `real`: it is a recording that is walked; what nobody has examined is left as it was.
        """
        tool = self.tools[step.tool]
        for prefix, (collection, key) in scope.rows.items():
            row = (collection, value_key(key))
            if row not in told or isinstance(tool.effect_on(prefix), Delete):
                self._reach(state, tool, prefix, collection, key, scope, step, confidence, real=real)
        named = {(collection, value_key(key)) for collection, key in scope.rows.values()}
        understood = told | {
            (collection, value_key(key))
            for prefix, (collection, key) in scope.rows.items()
            if is_record(collection) and tool.effect_on(prefix) is not None
        }
        state.written.append((step.tool, self.things(step.tool, step.args), frozenset(understood)))
        for view in tool.views:
            if tool.changes(view):
                for row in state.rows_of(view):
                    if row not in named:
                        state.changed[row] = None
        if not real:
            for collection, insert in tool.inserts.items():
                self._insert(state, step, scope, collection, insert, confidence)

    def left(self, tool: str, scope: Scope, facts: Sequence[Fact]) -> list[Fact]:
        """What a write's answer shows, but for records that the write itself deletes."""
        rows = ((row, self.tools[tool].effect_on(prefix)) for prefix, row in scope.rows.items())
        deleted = {(name, value_key(key)) for (name, key), effect in rows if isinstance(effect, Delete)}
        return [fact for fact in facts if fact.row not in deleted]

    def _reach(
        self,
        state: WorldState,
        tool: ToolProgram,
        prefix: str,
        collection: str,
        key: JsonValue,
        scope: Scope,
        step: SeenStep,
        confidence: float | None,
        *,
        real: bool,
    ) -> None:
        """What a write does to one record that its names reach."""
        row_key, effect = (collection, value_key(key)), tool.effect_on(prefix)
        row = state.at(row_key)
        if effect is None:
            self._unexamined(state, tool, prefix, row_key, row, real=real)
        elif isinstance(effect, Delete):
            self._delete(state, row_key, key, row, confidence, real=real)
        elif isinstance(effect, Forget):
            state.put(collection, key, UNKNOWN, whole=False)
        elif isinstance(effect, Rewrite):
            old = row[""][1] if isinstance(row, dict) else UNKNOWN
            if old is UNKNOWN and effect.from_before:
                return
            value = effect.form(scope.child({"old": old}))
            fields = UNKNOWN if value is UNKNOWN else {"": [True, value]}
            state.put(collection, key, fields, True, confidence)
        elif isinstance(effect, Assign):
            self._assign(state, row_key, row, effect, scope, step, confidence)

    def _unexamined(
        self, state: WorldState, tool: ToolProgram, prefix: str, row_key: RowKey, row: Any, *, real: bool
    ) -> None:
        """Nobody saw whether it changes: as likely to stay as others were; a view may have changed."""
        collection = row_key[0]
        if is_view(collection):
            kept, changed = tool.views.get(collection, (0, 0))
            if not real and (changed or not kept):
                state.changed[row_key] = None
        elif isinstance(row, dict) and not real and is_record(collection):  # of fields, kinds of answers tell
            sure = min(state.confidence.get(row_key, 1.0), self.staying(prefix))
            state.confidence[row_key] = sure

    def _delete(
        self,
        state: WorldState,
        row_key: RowKey,
        key: JsonValue,
        row: Any,
        confidence: float | None,
        *,
        real: bool,
    ) -> None:
        state.put(row_key[0], key, GONE, True, confidence)
        names = {value_key(key)}
        if isinstance(row, dict):
            names |= {
                value_key(value) for value in row.values() if isinstance(value, str) and has_digits(value)
            }
        if real:
            return
        for view in {VIEW + tool for tool in self.collections.reads}:  # what was asked about it is asked anew
            for other, args in state.keys(view).items():
                if isinstance(args, dict) and any(value_key(value) in names for value in args.values()):
                    state.changed[other] = None
        state.lost |= names

    def _assign(
        self,
        state: WorldState,
        row_key: RowKey,
        row: Any,
        effect: Assign,
        scope: Scope,
        step: SeenStep,
        confidence: float | None,
    ) -> None:
        new: dict[str, Any] = dict(row) if isinstance(row, dict) else {}
        for name in effect.unknown:
            new.pop(name, None)
        for name, form in effect.fields.items():
            old = row.get(name, UNKNOWN) if isinstance(row, dict) else UNKNOWN
            value = form(scope.child({"old": old}))
            if value is UNKNOWN:
                new.pop(name, None)
            else:
                new[name] = value
        if effect.named is not None:
            named, given, lower = effect.named
            if isinstance(step.args.get(named), str) and given in step.args:
                value = step.args[given]
                new[step.args[named]] = value.lower() if lower and isinstance(value, str) else value
        lost = isinstance(row, dict) and any(name not in new for name in row)
        new[WHOLE] = bool(new.get(WHOLE, False)) and not lost
        state.changed[row_key] = new
        if confidence is not None:
            state.confidence[row_key] = confidence

    def _insert(
        self,
        state: WorldState,
        step: SeenStep,
        scope: Scope,
        collection: str,
        insert: Insert,
        confidence: float | None,
    ) -> None:
        key = insert.key(scope) if insert.key else UNKNOWN
        if key is UNKNOWN:
            key = f"\u00a7{step.tool}.{state.count[step.tool]}"  # nobody knows its key yet
        fields = {name: form(scope) for name, form in insert.fields.items()}
        fields = {name: value for name, value in fields.items() if value is not UNKNOWN}
        if collection in self.collections.key_fields:
            fields[self.collections.key_fields[collection]] = key
        state.put(collection, key, fields, insert.shown <= set(fields), confidence)
        state.made.append((collection, value_key(key)))

    def note(self, state: WorldState, step: SeenStep) -> None:
        """A call was made; what comes later may rest on it."""
        said = [*leaves(step.out), *(leaves(step.args) if step.ok else ())]
        heard = {value_key(value) for value in said if is_thing(value)}
        state.heard |= heard
        state.denied -= heard if step.ok else set()
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
        """A write's scope with its answer, from which its effects are made."""
        names: dict[str, Any] = {RESULT: step.out}
        if isinstance(step.out, dict):
            names |= {f"{RESULT}.{name}": value for name, value in step.out.items()}
        return scope.child(names)


def outcome_form(step: SeenStep) -> OutcomeForm:
    """The form of a call's outcome."""
    said = list(leaves(step.args))

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
            return shape_of(value, said) if len(value) < _LONG else "text"
        return "number" if is_number(value) else type(value).__name__

    return step.ok, shape(step.out, 2)


def most_common(leaf: TreeLeaf) -> tuple[OutcomeForm, int, int]:
    """The most frequent outcome at a leaf, how often it was seen, and all that were seen."""
    (form, count), total = leaf.counts[0], sum(count for _, count in leaf.counts)
    return form, count, total


def made_up_places(program: ToolProgram | None) -> frozenset[Place]:
    """Where a tool's successes have ids that it makes up."""
    says = program.says.items() if program is not None else ()
    return frozenset(place for (ok, _), form in says if ok and form is not None for place in _places(form))


def _places(form: Program, path: Place = ()) -> Iterator[Place]:
    if isinstance(form, MadeUp) or (isinstance(form, Get) and form.names[0].startswith("next.")):
        yield path
    elif isinstance(form, MakeRecord):
        for field, inner in form.fields.items():
            yield from _places(inner, (*path, field))
        for field, (inner, _) in form.optional.items():
            yield from _places(inner, (*path, field))
    elif isinstance(form, Fields):
        for field, inner in form.fields:
            yield from _places(inner, (*path, field))
    elif isinstance(form, ListOf):
        for place, inner in enumerate(form.items):
            yield from _places(inner, (*path, place))
