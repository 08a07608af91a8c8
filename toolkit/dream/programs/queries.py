"""Reads as queries over records: filtered, ordered, cut into pages; or the one record that fits."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from msgspec import Struct

from dreamgym_kit.dream.programs.collections import WHOLE, Collections, Path, RowKey
from dreamgym_kit.dream.programs.forms import Program
from dreamgym_kit.dream.programs.records import Base, WorldState
from dreamgym_kit.dream.programs.scope import Scope
from dreamgym_kit.dream.programs.synthesis import direct, explain
from dreamgym_kit.dream.programs.values import (
    UNKNOWN,
    SeenStep,
    ValueKey,
    at_path,
    is_key,
    is_known,
    is_scalar,
    same,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

PAGE_ARGS = ("page", "page_number", "page_no")
START_ARGS = ("offset", "cursor", "skip", "start")  # number of records skipped at the front
_CUTS = frozenset({*PAGE_ARGS, *START_ARGS})
_TIMES = ("date", "time", "at")
_AGREED = 0.8  # share of calls that were cut as an argument says; other records may be unknown
_BY_CHANCE = 0.05  # share of short lists that may miss a record, for instance a new one
_MAX_OTHERS = 40  # not returned records that a predicate is tested on, for each call


def _ordered(value: Any, given: Any) -> bool:
    return type(value) is type(given) and isinstance(value, (str, int, float)) and not isinstance(value, bool)


TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": same,
    "holds": lambda value, given: isinstance(value, list) and any(same(item, given) for item in value),
    "equals_any_case": lambda value, given: (
        isinstance(value, str) and isinstance(given, str) and value.lower() == given.lower()
    ),
    "contains": lambda value, given: (
        isinstance(value, str) and isinstance(given, str) and given.lower() in value.lower()
    ),
    "at_least": lambda value, given: _ordered(value, given) and value >= given,
    "at_most": lambda value, given: _ordered(value, given) and value <= given,
    "from_day": lambda value, given: (
        isinstance(value, str) and isinstance(given, str) and value[:10] >= given[:10]
    ),
    "to_day": lambda value, given: (
        isinstance(value, str) and isinstance(given, str) and value[:10] <= given[:10]
    ),
}
"""By name, whether a record's value fits an argument; the narrow ones first."""
WORDS = "words"  # all words of the argument are in the fields' texts
_ORDER = [*list(TESTS)[:4], WORDS, *list(TESTS)[4:]]
_FOR_ONE = ("equals", "holds", "equals_any_case", "contains")


class Predicate(Struct, frozen=True):
    """The test that an argument makes on records."""

    test: str
    fields: tuple[str, ...]

    def truth(self, given: JsonValue, record: Mapping[str, Any]) -> Any:
        """Return True, False, or UNKNOWN where the record lacks a field that could decide it."""
        values = [record.get(field, UNKNOWN) for field in self.fields]
        if self.test == WORDS:
            text = " ".join(value for value in values if isinstance(value, str)).lower()
            fits = all(word in text for word in str(given).lower().split())
        else:
            fits = any(is_known(value) and TESTS[self.test](value, given) for value in values)
        if fits:
            return True
        return UNKNOWN if any(value is UNKNOWN for value in values) else False


class Find(Struct, frozen=True, tag=True):
    """The key of the one record that fits all arguments."""

    collection: str
    predicates: Mapping[str, Predicate]


class Select(Struct, frozen=True, tag=True):
    """The records that fit all arguments.

    `project`: the fields shown, each with the record's name for it if that differs. `limit`: the maximum
    number of records, or the name in scope that has it; the first ones, or the `last`. `around`: makes the
    fields around the list in the answer. `empty`: the answer instead of an empty list. `cuts`: the arguments
    that skip records, each with whether recorded calls skipped some. `short`: (world, whether filtered) of
    recorded calls that had all known records and fewer than their argument's limit.
    """

    collection: str
    key_field: str
    path: Path
    predicates: Mapping[str, Predicate]
    project: Mapping[str, str | None]
    limit: int | str | None
    order: tuple[str, bool] | None  # field, whether the highest comes first
    empty: Any = UNKNOWN
    around: Program | None = None
    last: bool = False
    cuts: Mapping[str, bool] = {}
    short: frozenset[tuple[str, bool]] = frozenset()


Query = Find | Select


class QueryAnswer(NamedTuple):
    """A query's answer."""

    out: JsonValue
    kind: str  # what sort of answer: each is trusted by itself
    rows: tuple[RowKey, ...]


class ScopedCall(NamedTuple):
    """One recorded call with its scope."""

    scope: Scope
    step: SeenStep
    world: str


def flat_record(
    collections: Collections,
    collection: str,
    record: Mapping[str, Any],
    other: Callable[[str, JsonValue], Any] | None = None,
) -> dict[str, Any]:
    """Return a record's values by name, and those of records that it refers to ("vehicle_id>depot")."""
    out = {name: value for name, value in record.items() if name != WHOLE}
    out |= dict(collections.flat(collection, record))
    if other is not None:
        for name, value in list(out.items()):
            target = collections.field_refs.get((collection, name)) if is_key(value) else None
            named = other(target, value) if target else None
            if isinstance(named, dict):
                scalars = {key: item for key, item in named.items() if is_scalar(item) and key != WHOLE}
                out |= {f"{name}>{key}": item for key, item in scalars.items()}
    return out


def learn_query(collections: Collections, base: Base, tool: str, calls: Sequence[ScopedCall]) -> Query | None:
    """Learn the query behind a read's recorded calls; None where there is none."""
    if tool in collections.lists:
        return _Selecting(collections, base, tool, calls).learn()
    return _learn_find(collections, base, calls) if tool in collections.views else None


def _learn_find(collections: Collections, base: Base, calls: Sequence[ScopedCall]) -> Find | None:
    good = [call for call in calls if call.step.ok and is_key(call.step.out) and call.step.args]
    if len({value_key(call.step.out) for call in good}) < 2:
        return None
    best: tuple[int, Find] | None = None
    for collection in collections.key_fields:
        hits = [
            (call.step.args, flat_record(collections, collection, record))
            for call in good
            if (record := base.row(call.world, (collection, value_key(call.step.out)))) is not None
        ]
        if len({value_key(record.get(collections.key_fields[collection])) for _, record in hits}) < 2:
            continue
        names = {name for args, _ in hits for name in args}
        predicates = {
            name: predicate for name in sorted(names) if (predicate := _equal_field(name, hits)) is not None
        }
        if len(predicates) == len(names) and (best is None or len(hits) > best[0]):
            best = (len(hits), Find(collection, predicates))
    return best[1] if best else None


def _equal_field(
    arg: str, hits: Sequence[tuple[Mapping[str, JsonValue], Mapping[str, Any]]]
) -> Predicate | None:
    for test in _FOR_ONE:
        fields = [
            field
            for field in {field for _, record in hits for field in record}
            if all(
                field in record and TESTS[test](record[field], args[arg])
                for args, record in hits
                if arg in args
            )
        ]
        if fields:
            nearest = min(
                fields,
                key=lambda field: (field.split(".")[-1] != arg, field.count("."), len(field), field),
            )
            return Predicate(test, (nearest,))
    return None


class _Selecting:
    """Learns the query behind a list of records."""

    def __init__(self, collections: Collections, base: Base, tool: str, calls: Sequence[ScopedCall]) -> None:
        self.collections, self.base = collections, base
        self.path, self.collection, self.key_field = collections.lists[tool][0]
        self.good = [call for call in calls if call.step.ok]
        self.full = [call for call in self.good if self._rows(call)]
        self.records_by_world = {world: self._records(world) for world in {call.world for call in self.good}}

    def learn(self) -> Select | None:
        if not self.full:
            return None
        names = {name for call in self.good for name in call.step.args}
        self.limit = self._given_limit() or self._page_size()
        predicates = self._predicates(names - _CUTS)
        order = self._order()
        last = order is not None and self._shows_last(predicates, *order)
        cuts = self._cuts(names & _CUTS, predicates, order, last=last)
        predicates |= self._predicates(names & _CUTS - cuts.keys())
        self.limit = self.limit or self._hidden_limit(predicates)
        short = self._short(predicates)
        if short is None:
            return None
        around = None
        if self.path:
            around = self._around(predicates)
            if around is None:
                return None
        return Select(
            self.collection,
            self.key_field,
            self.path,
            predicates,
            self._projection(),
            self.limit,
            order,
            self._empty(),
            around,
            last,
            cuts,
            short,
        )

    def _predicates(self, names: Set[str]) -> dict[str, Predicate]:
        return {
            name: predicate
            for name in sorted(names)
            if f"args.{name}" != self.limit and (predicate := self._predicate(name)) is not None
        }

    def _cuts(
        self,
        names: Set[str],
        predicates: Mapping[str, Predicate],
        order: tuple[str, bool] | None,
        *,
        last: bool,
    ) -> dict[str, bool]:
        """Return the arguments that skip records as recorded, each with whether a call skipped some."""
        cuts = {}
        for name in sorted(names):
            agreements: dict[bool, list[bool]] = {False: [], True: []}  # by whether the call skips records
            for call in self.full:
                if name not in call.step.args or _after_writes(call.scope):
                    continue
                start = _start({name: call.step.args[name]}, most := _most(self.limit, call.scope))
                hits = self._sorted(self._hits(call, predicates), call.world, order)
                shown = [value_key(row.get(self.key_field)) for row in self._rows(call)]
                agreements[start != 0].append(
                    start is not None and shown == _slice(hits, start, most, last=last)
                )
            skipped = agreements[True]
            proved = len(skipped) > 1 if skipped else bool(agreements[False])
            if proved and all(kind.count(True) >= _AGREED * len(kind) for kind in agreements.values()):
                cuts[name] = bool(skipped)
        return cuts

    def _sorted(self, keys: set[ValueKey], world: str, order: tuple[str, bool] | None) -> list[ValueKey]:
        """Return the keys of records in the order of the list."""
        records = self.records_by_world[world]
        listed = [key for key in records if key in keys]
        if order is not None and all(order[0] in records[key] for key in listed):
            with contextlib.suppress(TypeError):
                listed.sort(key=lambda key: records[key][order[0]], reverse=order[1])
        return listed

    def _missed(self, call: ScopedCall, predicates: Mapping[str, Predicate]) -> set[ValueKey]:
        """Return the known records that fit and that the call's answer does not have."""
        return self._hits(call, predicates) - {value_key(row.get(self.key_field)) for row in self._rows(call)}

    def _short(self, predicates: Mapping[str, Predicate]) -> frozenset[tuple[str, bool]] | None:
        """Return where lists shorter than their argument's limit had all; None where some had not."""
        if not isinstance(self.limit, str):
            return frozenset()
        names = {*predicates, self.limit.removeprefix("args.")}
        short = [
            (call, self._missed(call, predicates))
            for call in self.full
            if len(self._rows(call)) < (_most(self.limit, call.scope) or 0)
            and call.step.args.keys() <= names
            and not _after_writes(call.scope)
        ]
        if sum(bool(missed) for _, missed in short) > _BY_CHANCE * len(short):
            return None
        return frozenset(
            (call.world, not predicates.keys().isdisjoint(call.step.args))
            for call, missed in short
            if not missed
        )

    def _rows(self, call: ScopedCall) -> list[Any]:
        rows = at_path(call.step.out, self.path)
        return rows if isinstance(rows, list) else []

    def _records(self, world: str) -> dict[ValueKey, dict[str, Any]]:
        def other(collection: str, key: JsonValue) -> Any:
            return self.base.row(world, (collection, value_key(key)))

        return {
            row[1]: flat_record(self.collections, self.collection, record, other)
            for row in list(self.base.facts.get((world, self.collection), {}))
            if (record := self.base.row(world, row)) is not None
        }

    def _given_limit(self) -> str | None:
        """Return the argument that limits the number of records."""
        for name in sorted({name for call in self.full for name in call.scope if name.startswith("args.")}):
            sizes = [(len(self._rows(call)), call.scope.get(name)) for call in self.full]
            met = {rows for rows, most in sizes if rows == most}
            if len(met) > 1 and all(type(most) is int and rows <= most for rows, most in sizes):
                return name
        return None

    def _shows_last(self, predicates: Mapping[str, Predicate], field: str, reverse: bool) -> bool:
        """Whether each cut list shows the last of the fitting records."""
        agreements = []
        for call in self.full:
            rows, records = self._rows(call), self.records_by_world[call.world]
            hits = [records[key][field] for key in self._hits(call, predicates) if field in records[key]]
            if (
                len(rows) < len(hits)
                and not _after_writes(call.scope)
                and _CUTS.isdisjoint(call.step.args)
                and len({type(value) for value in hits}) == 1
            ):
                cut = sorted(hits, reverse=reverse)[-len(rows) :]
                agreements.append(
                    all(same(row.get(field), value) for row, value in zip(rows, cut, strict=True))
                )
        return len(agreements) > 1 and all(agreements)

    def _page_size(self) -> int | None:
        longest = max(len(self._rows(call)) for call in self.full)
        often = sum(len(self._rows(call)) == longest for call in self.full) >= 3
        paged = any(name in call.step.args for call in self.good for name in PAGE_ARGS)
        return longest if longest >= 2 and often and (longest >= 3 or paged) else None

    def _predicate(self, arg: str) -> Predicate | None:
        """Return the narrowest test that all returned records pass and others fail."""
        mine = [call for call in self.full if arg in call.step.args]
        returned = [
            (
                call.step.args[arg],
                flat_record(
                    self.collections,
                    self.collection,
                    {**self.records_by_world[call.world].get(value_key(row.get(self.key_field)), {}), **row},
                ),
            )
            for call in mine
            for row in self._rows(call)
        ]
        if not returned:
            return None
        others: list[tuple[JsonValue, Mapping[str, Any]]] = []
        for call in mine:
            rows, most = self._rows(call), _most(self.limit, call.scope)
            if most and len(rows) >= most:
                continue
            back = {value_key(row.get(self.key_field)) for row in rows}
            left = (record for key, record in self.records_by_world[call.world].items() if key not in back)
            others += [
                (call.step.args[arg], record) for record, _ in zip(left, range(_MAX_OTHERS), strict=False)
            ]
        best: tuple[tuple[float, bool, int, int], Predicate] | None = None
        for predicate in self._thinkable(returned):
            truths = [predicate.truth(given, record) for given, record in others]
            rejected, wrong = truths.count(False), truths.count(True)
            words = predicate.fields[0].lower().replace(".", "_").split("_")
            score = (
                rejected / (rejected + wrong) if rejected + wrong else 0.5,
                any(word in arg.lower() for word in words),
                -_ORDER.index(predicate.test),
                -len(predicate.fields),
            )
            # without a rejected record it may be no test, but an order, a limit or a mode
            if rejected and (best is None or score > best[0]):
                best = (score, predicate)
        return best[1] if best else None

    def _thinkable(self, returned: Sequence[tuple[JsonValue, Mapping[str, Any]]]) -> Iterator[Predicate]:
        def passes(predicate: Predicate) -> bool:
            return all(predicate.truth(given, record) is True for given, record in returned)

        fields = sorted({field for _, record in returned for field in record})
        single = [
            predicate for test in TESTS for field in fields if passes(predicate := Predicate(test, (field,)))
        ]
        yield from single
        texts = tuple(
            field for field in fields if any(isinstance(record.get(field), str) for _, record in returned)
        )
        narrow = any(predicate.test in _FOR_ONE for predicate in single)  # an order may hold by chance
        for test in ("contains", WORDS) if not narrow and texts else ():
            if not passes(Predicate(test, texts)):
                continue
            needed = list(texts)
            for field in texts:
                rest = tuple(other for other in needed if other != field)
                if rest and passes(Predicate(test, rest)):
                    needed.remove(field)
            yield Predicate(test, tuple(needed))

    def _hits(self, call: ScopedCall, predicates: Mapping[str, Predicate]) -> set[ValueKey]:
        given = [(predicates[name], value) for name, value in call.step.args.items() if name in predicates]
        return {
            key
            for key, record in self.records_by_world[call.world].items()
            if all(predicate.truth(value, record) is True for predicate, value in given)
        }

    def _hidden_limit(self, predicates: Mapping[str, Predicate]) -> int | None:
        """Return a limit without an argument: no list is longer, and shorter lists miss no fitting record."""
        if len(self.full) < 4:
            return None
        most, cut, short = max(len(self._rows(call)) for call in self.full), 0, 0
        for call in self.full:
            if _after_writes(call.scope) or not _CUTS.isdisjoint(call.step.args):
                continue
            rows = self._rows(call)
            if {value_key(row.get(self.key_field)) for row in rows} < self._hits(call, predicates):
                cut += len(rows) == most
                short += len(rows) < most
        return most if cut >= 2 and not short else None

    def _order(self) -> tuple[str, bool] | None:
        lists = [rows for call in self.full if len(rows := self._rows(call)) > 1]
        fields = {
            field
            for rows in lists
            for row in rows
            for field, value in row.items()
            if value is not None and is_scalar(value) and not isinstance(value, bool)
        } - {self.key_field}
        by_time = sorted(fields, key=lambda field: (not any(word in field for word in _TIMES), field))
        for field in [self.key_field, *by_time]:
            for reverse in (False, True):
                try:
                    values = [[row[field] for row in rows] for rows in lists]
                    if values and all(column == sorted(column, reverse=reverse) for column in values):
                        return field, reverse
                except (KeyError, TypeError):
                    pass
        return None

    def _empty(self) -> Any:
        """Return the usual answer where no record fits."""
        none = [call.step.out for call in self.good if not self._rows(call)]
        if not none:
            return [] if not self.path else UNKNOWN
        first = Counter(map(value_key, none)).most_common(1)[0][0]
        return next(out for out in none if value_key(out) == first)

    def _projection(self) -> dict[str, str | None]:
        rows = [(call.world, row) for call in self.full for row in self._rows(call)]
        counts = Counter(field for _, row in rows for field in row)
        project: dict[str, str | None] = {
            field: None for field, count in counts.items() if count == len(rows)
        }
        whole = self.collections.fields.get(self.collection, set())
        for field in project:  # a field that records have under another name
            if not whole or field in whole:
                continue
            examples = []
            for world, row in rows[:200]:
                record = self.records_by_world[world].get(value_key(row[self.key_field]))
                if record and any(name in record for name in whole - {self.key_field}):
                    others = {name: value for name, value in record.items() if name != field}
                    examples.append((Scope(others), row[field]))
            named = direct(examples, field) if examples else None
            project[field] = named.names[0] if named else None
        return project

    def _around(self, predicates: Mapping[str, Predicate]) -> Program | None:
        """Return the program of the fields around the list, such as a page number or a count."""
        examples = []
        for call in self.good:
            if not isinstance(call.step.out, dict) or _after_writes(call.scope):
                continue
            rows, hits = self._rows(call), self._hits(call, predicates)
            if {value_key(row.get(self.key_field)) for row in rows} <= hits:
                rest = {name: value for name, value in call.step.out.items() if name != self.path[0]}
                examples.append((call.scope.child(_list_names(rows, len(hits))), rest))
        return explain(examples, "", 2, 1) if len(examples) >= 2 else None


def ask(query: Query, state: WorldState, scope: Scope, args: Mapping[str, JsonValue]) -> QueryAnswer | None:
    """Return a query's answer in a state; None where the state does not determine it."""
    limit = query.limit if isinstance(query, Select) else None
    cuts = {
        name for name in args if (isinstance(query, Select) and name in query.cuts) or f"args.{name}" == limit
    }
    if not args.keys() - cuts <= query.predicates.keys():
        return None  # every argument is accounted for
    filters = {name: value for name, value in args.items() if name not in cuts}
    if any(value_key(value) in state.lost for value in filters.values()):
        return None
    fitting = _fitting(query, state, filters)
    if isinstance(query, Find):
        if len(fitting.rows) != 1:
            return None
        row, record, _ = fitting.rows[0]
        key = record.get(state.collections.key_fields[query.collection])
        return QueryAnswer(key, "find", (row,))
    if isinstance(limit, str) and not _most(limit, scope):
        return None  # no recording has such a limit
    if query.collection in state.tainted or None in map(state.at, state.rows_of(query.collection)):
        return None  # there may be unknown records, or records with unknown fields
    return _selected(query, fitting, state, scope, args)


class _Fitting(NamedTuple):
    rows: list[tuple[RowKey, dict[str, Any], dict[str, Any]]]  # key, record, record with names
    unsure: bool  # for some records the tests are undecided
    own: bool  # whether this episode changed a fitting record


def _fitting(query: Query, state: WorldState, filters: Mapping[str, JsonValue]) -> _Fitting:
    rows, unsure, own = [], False, False
    for row in state.rows_of(query.collection):
        record = state.at(row)
        if not isinstance(record, dict):
            continue
        named = flat_record(state.collections, query.collection, record, state.row)
        truths = [query.predicates[name].truth(value, named) for name, value in filters.items()]
        if False in truths:
            continue
        if UNKNOWN in truths:
            unsure = True
            continue
        rows.append((row, record, named))
        own = own or row in state.changed
    return _Fitting(rows, unsure, own)


def _shown(query: Select, fitting: _Fitting) -> list[tuple[RowKey, dict[str, Any]]] | None:
    """Return the fitting records in the order and form of the list; None where these are unknown."""
    rows: list[tuple[RowKey, dict[str, Any]]] = []
    for row, record, named in fitting.rows:
        shown = {
            field: named.get(other, UNKNOWN) if other else record.get(field, UNKNOWN)
            for field, other in query.project.items()
        }
        if any(value is UNKNOWN for value in shown.values()):
            return None
        rows.append((row, shown))
    if query.order is not None:
        field, reverse = query.order
        try:
            rows.sort(key=lambda entry: entry[1][field], reverse=reverse)
        except (KeyError, TypeError):
            return None
    return rows


def _selected(
    query: Select, fitting: _Fitting, state: WorldState, scope: Scope, args: Mapping[str, JsonValue]
) -> QueryAnswer | None:
    rows, filtered = _shown(query, fitting), not query.predicates.keys().isdisjoint(args)
    if rows is None:
        return None
    count, most = len(rows), _most(query.limit, scope)
    start = _start({name: args[name] for name in query.cuts if name in args}, most)
    if start is None or (start and not all(query.cuts[name] for name in query.cuts if name in args)):
        return None
    if isinstance(query.limit, str) and count < start + (most or 0):
        proofs = {(state.world, False), (state.world, filtered)}
        if proofs.isdisjoint(query.short) and not state.is_listed(query.collection):
            return None  # there may be more records
    rows = _slice(rows, start, most, last=query.last)
    cut = bool(most and count >= most) or bool(start and rows)
    size = "none" if not rows else "cut" if cut else "one" if len(rows) == 1 else "some"
    kind = f"list:{size}" + ":unsure" * fitting.unsure + ":own" * fitting.own + ":all" * (not filtered)
    keys = tuple(row for row, _ in rows)
    out: Any = [shown for _, shown in rows]
    if query.path:
        around = query.around(scope.child(_list_names(out, count))) if query.around else UNKNOWN
        if not isinstance(around, dict):
            return None
        out = {**around, query.path[0]: out}
    elif not rows:
        return None if query.empty is UNKNOWN else QueryAnswer(query.empty, kind, ())
    return QueryAnswer(out, kind, keys)


def _most(limit: int | str | None, scope: Scope) -> int | None:
    given = scope.get(limit) if isinstance(limit, str) else limit
    return given if type(given) is int and given > 0 else None


def _start(cuts: Mapping[str, JsonValue], most: int | None) -> int | None:
    """Return how many records these arguments skip; None where they do not say it."""
    start = 0
    for name, value in cuts.items():
        lowest = 1 if name in PAGE_ARGS else 0
        if type(value) is not int or value < lowest or (value > lowest and not most):
            return None
        start += (value - lowest) * (most or 0) if name in PAGE_ARGS else value
    return start


def _slice(rows: list[Any], start: int, most: int | None, *, last: bool) -> list[Any]:
    """Return at most so many rows after those skipped, or before them from the end."""
    if most is None:
        return rows[start:]
    end = max(0, len(rows) - start)
    return rows[max(0, end - most) : end] if last else rows[start : start + most]


def _list_names(rows: Sequence[JsonValue], count: int) -> dict[str, Any]:
    return {"rows": list(rows), "len(rows)": len(rows), "matches": count}


def _after_writes(scope: Scope) -> bool:
    return any(re.match(r"count\(", name) for name in scope)
