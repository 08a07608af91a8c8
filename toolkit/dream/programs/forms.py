"""Programs over names. Called with a scope, a program gives its value; UNKNOWN where an input is unknown.

Programs are plain data: a person reads and corrects them, and they are written to files as they are.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from msgspec import Struct

from dreamgym_kit.dream.programs.conditions import Condition
from dreamgym_kit.dream.programs.scope import Scope, element_names
from dreamgym_kit.dream.programs.values import (
    UNKNOWN,
    figure,
    is_known,
    is_number,
    is_scalar,
    same,
    value_key,
)
from dreamgym_kit.serialization import JsonValue

_MAX_PLACES = 15  # a float has no more
_SHORTEST_DATE = 10  # characters of "2026-11-29"
_DATE_AND_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)")


class Program(Struct, frozen=True, tag_field="form", tag=str.lower):
    """A program."""

    def __call__(self, scope: Scope) -> Any:
        """Its value in a scope, or UNKNOWN."""
        raise NotImplementedError


class Const(Program, frozen=True):
    """Always the same."""

    of: JsonValue

    def __call__(self, _: Scope) -> Any:
        return self.of


class Get(Program, frozen=True):
    """The value of a name. Several names agreed in all recordings; UNKNOWN where they now differ."""

    names: tuple[str, ...]

    def __call__(self, scope: Scope) -> Any:
        got: Any = UNKNOWN
        for name in self.names:
            value = scope.get(name, UNKNOWN)
            if not is_known(value):
                continue
            if got is UNKNOWN:
                got = value
            elif not same(got, value):
                return UNKNOWN
        return got


class Tie(Program, frozen=True):
    """A constant that equaled a name in all recordings; UNKNOWN if the name now has another value."""

    of: JsonValue
    name: Program

    def __call__(self, scope: Scope) -> Any:
        value = self.name(scope)
        return self.of if value is UNKNOWN or same(value, self.of) else UNKNOWN


class Apply(Program, frozen=True):
    """A function of one value."""

    function: str
    to: Program

    def __call__(self, scope: Scope) -> Any:
        value = self.to(scope)
        return UNKNOWN if value is UNKNOWN else FUNCTIONS[self.function](value)


class Arithmetic(Program, frozen=True):
    """Two numbers."""

    op: str
    left: Program
    right: Program

    def __call__(self, scope: Scope) -> Any:
        left, right = self.left(scope), self.right(scope)
        return operate(self.op, left, right)


class Linear(Program, frozen=True):
    """A sum of numbers, each with its factor, and a constant; rounded to cents."""

    terms: tuple[tuple[str, float], ...]
    plus: float = 0.0
    whole: bool = False  # whether it is a whole number each time

    def __call__(self, scope: Scope) -> Any:
        numbers = [figure(scope.get(name)) for name, _ in self.terms]
        values = [number for number in numbers if number is not None]
        if len(values) < len(numbers):
            return UNKNOWN
        factors = {factor for _, factor in self.terms}
        if len(self.terms) > 1 and len(factors) == 1:  # one factor before the bracket, as code writes it
            total = sum(values) * factors.pop() + self.plus
        else:
            total = self.plus + sum(
                factor * value for (_, factor), value in zip(self.terms, values, strict=True)
            )
        return int(total) if self.whole and total == int(total) else round(total, 2)


class Later(Program, frozen=True):
    """A time as a text, some minutes after another one; `pattern` is of strftime."""

    start: Program
    minutes: Program
    pattern: str

    def __call__(self, scope: Scope) -> Any:
        start, minutes = moment(self.start(scope)), figure(self.minutes(scope))
        if start is None or minutes is None or not math.isfinite(minutes):
            return UNKNOWN
        try:
            return (start + timedelta(minutes=minutes)).strftime(self.pattern)
        except OverflowError:  # no calendar has such a year
            return UNKNOWN


class Minutes(Program, frozen=True):
    """The minutes between two times."""

    since: Program
    until: Program

    def __call__(self, scope: Scope) -> Any:
        since, until = moment(self.since(scope)), moment(self.until(scope))
        if since is None or until is None:
            return UNKNOWN
        return (until - since).total_seconds() / 60


def moment(value: object) -> datetime | None:
    """Return the time that a text gives, without its zone; None where it gives no date."""
    if not isinstance(value, str) or len(value) < _SHORTEST_DATE:
        return None
    try:
        return datetime.fromisoformat(value.strip()).replace(tzinfo=None)
    except ValueError:
        return None


class Decimals(Program, frozen=True):
    """A number as a text with this many decimals ("43.80"); halves round to the even digit."""

    of: Program
    places: int

    def __call__(self, scope: Scope) -> Any:
        value = figure(self.of(scope))
        if value is None or not math.isfinite(value) or not 0 <= self.places <= _MAX_PLACES:
            return UNKNOWN
        return f"{Decimal(str(value)):.{self.places}f}"


class Text(Program, frozen=True):
    """Fixed text with values between."""

    parts: tuple[str | Program, ...]

    def __call__(self, scope: Scope) -> Any:
        texts: list[str] = []
        for part in self.parts:
            value = part if isinstance(part, str) else part(scope)
            if value is UNKNOWN or not is_scalar(value):
                return UNKNOWN
            texts.append(value if isinstance(value, str) else str(value))
        return "".join(texts)


class Switch(Program, frozen=True):
    """A constant for each of a few values of one name."""

    name: str
    values: tuple[tuple[JsonValue, JsonValue], ...]  # (value of the name, answer)

    def __call__(self, scope: Scope) -> Any:
        value = scope.get(self.name, UNKNOWN)
        return next((out for of, out in self.values if same(of, value)), UNKNOWN)


class MakeRecord(Program, frozen=True):
    """A record, field by field; an `optional` field is present where one of its names has a value."""

    fields: Mapping[str, Program]
    optional: Mapping[str, tuple[Program, tuple[str, ...]]] = {}

    def __call__(self, scope: Scope) -> Any:
        wanted = dict(self.fields)
        for field, (form, names) in self.optional.items():
            if any(scope.get(name, UNKNOWN) not in (UNKNOWN, None) for name in names):
                wanted[field] = form
        return _all_known({field: form(scope) for field, form in wanted.items()})


class Update(Program, frozen=True):
    """A record with fields set and removed; those in `where_present` only where it has them."""

    base: Program
    fields: Mapping[str, Program]
    removed: tuple[str, ...] = ()
    where_present: tuple[str, ...] = ()

    def __call__(self, scope: Scope) -> Any:
        base = self.base(scope)
        if not isinstance(base, dict):
            return UNKNOWN
        out = dict(base)
        for field, form in self.fields.items():
            if field in self.where_present and field not in base:
                continue
            value = form(scope.child({"old": base.get(field, UNKNOWN)}))
            if value is UNKNOWN:
                return UNKNOWN
            out[field] = value
        for field in self.removed:
            out.pop(field, None)
        return out


class UpdateKey(Program, frozen=True):
    """A map with one entry changed; with `adds`, or given this entry where it has none."""

    base: Program
    key: Program
    change: Program
    adds: bool = False

    def __call__(self, scope: Scope) -> Any:
        base, key = self.base(scope), self.key(scope)
        if not isinstance(base, dict) or key is UNKNOWN:
            return UNKNOWN
        if not isinstance(key, str) or not (key in base or self.adds):
            return dict(base)
        value = self.change(scope.child(element_names(base[key])) if key in base else scope)
        return UNKNOWN if value is UNKNOWN else {**base, key: value}


class Concat(Program, frozen=True):
    """Lists after one another."""

    lists: tuple[Program, ...]

    def __call__(self, scope: Scope) -> Any:
        out: list[JsonValue] = []
        for form in self.lists:
            part = form(scope)
            if not isinstance(part, list):
                return UNKNOWN
            out += part
        return out


class ListOf(Program, frozen=True):
    """A list with a fixed number of values."""

    items: tuple[Program, ...]

    def __call__(self, scope: Scope) -> Any:
        return _list_known([form(scope) for form in self.items])


class Map(Program, frozen=True):
    """One value for each element of a list."""

    base: Program
    each: Program

    def __call__(self, scope: Scope) -> Any:
        base = self.base(scope)
        if not isinstance(base, list):
            return UNKNOWN
        return _list_known([self.each(scope.child(element_names(item))) for item in base])


class MapItems(Program, frozen=True):
    """One value for each element of the call's list arguments."""

    each: Program

    def __call__(self, scope: Scope) -> Any:
        return _list_known([self.each(scope.child(item)) for item in scope.items_of_args])


class Drop(Program, frozen=True):
    """A list without the elements that equal one of the values, or whose field does."""

    base: Program
    field: str | None
    values: Program

    def __call__(self, scope: Scope) -> Any:
        base, values = self.base(scope), self.values(scope)
        if not isinstance(base, list) or values is UNKNOWN:
            return UNKNOWN
        keys = {value_key(value) for value in (values if isinstance(values, list) else [values])}
        return [item for item in base if value_key(_field(item, self.field)) not in keys]


class EditItems(Program, frozen=True):
    """A list in which each element that a list argument names is edited."""

    base: Program
    field: str
    named_by: str
    change: Program

    def __call__(self, scope: Scope) -> Any:
        base = self.base(scope)
        if not isinstance(base, list):
            return UNKNOWN
        out = list(base)
        for item in scope.items_of_args:
            wanted = item.get(self.named_by, UNKNOWN)
            place = next(
                (i for i, element in enumerate(out) if same(_field(element, self.field), wanted)), None
            )
            if place is None:
                return UNKNOWN
            value = self.change(scope.child({**item, **element_names(out[place])}))
            if value is UNKNOWN:
                return UNKNOWN
            out[place] = value
        return out


class If(Program, frozen=True):
    """One program where a condition holds, another where it does not."""

    condition: Condition
    then: Program
    otherwise: Program

    def __call__(self, scope: Scope) -> Any:
        truth = self.condition(scope)
        return UNKNOWN if truth is UNKNOWN else (self.then if truth else self.otherwise)(scope)


class MadeUp(Program, frozen=True):
    """A value that the tool makes up: an id, a time. `like` is a recorded one."""

    like: str

    def __call__(self, scope: Scope) -> Any:
        return scope.make_up(self.like)


class Open(Program, frozen=True):
    """A value that no program explains."""

    def __call__(self, _: Scope) -> Any:
        return UNKNOWN


class Fields(Program, frozen=True):
    """A record whose later fields may be computed from earlier ones."""

    fields: tuple[tuple[str, Program], ...]

    def __call__(self, scope: Scope) -> Any:
        out: dict[str, JsonValue] = {}
        for field, form in self.fields:
            rests_on = isinstance(form, (Linear, Arithmetic, Decimals, Apply, Get, Switch, If, Text)) and out
            value = form(scope.child(sibling_names(out)) if rests_on else scope)
            if value is UNKNOWN:
                return UNKNOWN
            out[field] = value
        return out


def sibling_names(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return names for the earlier fields of a record, and counts of flags in its lists."""
    names: dict[str, JsonValue] = {}
    for field, value in fields.items():
        names[f"sibling.{field}"] = value
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for flag in (name for name, item in value[0].items() if isinstance(item, bool)):
                for truth, word in ((True, "count"), (False, "count_not")):
                    hits = sum(isinstance(element, dict) and element.get(flag) is truth for element in value)
                    names[f"{word}(sibling.{field}.{flag})"] = hits
    return names


def _field(item: JsonValue, field: str | None) -> Any:
    if field is None:
        return item
    return item.get(field) if isinstance(item, dict) else item


def _all_known(values: dict[str, Any]) -> Any:
    return UNKNOWN if any(value is UNKNOWN for value in values.values()) else values


def _list_known(values: list[Any]) -> Any:
    return UNKNOWN if any(value is UNKNOWN for value in values) else values


def _time_part(value: Any, form: str) -> Any:
    """Return a date and time in ISO 8601 format, or a part of it."""
    match = _DATE_AND_TIME.match(value) if isinstance(value, str) else None
    return UNKNOWN if match is None else form.format(*match.groups())


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "lower": lambda value: value.lower() if isinstance(value, str) else UNKNOWN,
    "upper": lambda value: value.upper() if isinstance(value, str) else UNKNOWN,
    "str": lambda value: str(value) if not isinstance(value, str) and is_scalar(value) else UNKNOWN,
    "negative": lambda value: -value if is_number(value) else UNKNOWN,
    "abs": lambda value: abs(value) if is_number(value) else UNKNOWN,
    "sorted": lambda value: sorted(value, key=str) if isinstance(value, list) else UNKNOWN,
    "length": lambda value: len(value) if isinstance(value, (list, dict, str)) else UNKNOWN,
    "money": lambda value: f"{value:.2f}" if is_number(value) else UNKNOWN,
    "not": lambda value: not value if isinstance(value, bool) else UNKNOWN,
    "round2": lambda value: round(value, 2) if is_number(value) else UNKNOWN,
    "values": lambda value: list(value.values()) if isinstance(value, dict) else UNKNOWN,
    "keys": lambda value: list(value) if isinstance(value, dict) else UNKNOWN,
    "time": lambda value: _time_part(value, "{}T{}:00"),
    "day": lambda value: _time_part(value, "{}"),
    "clock": lambda value: _time_part(value, "{1}"),
}
ON_SCALARS = ("lower", "str", "money", "abs", "negative", "not", "length", "upper", "time", "day", "clock")
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "abs-": lambda left, right: abs(left - right),
}


def operate(op: str, left: object, right: object) -> Any:
    """Return the result of an operation; UNKNOWN unless both are numbers or decimal texts.

    With a text it is exact, as code that keeps amounts as texts computes, and not off by a rounding error.
    """
    left_number, right_number = figure(left), figure(right)
    if left_number is None or right_number is None:
        return UNKNOWN
    if (
        (isinstance(left, str) or isinstance(right, str))
        and math.isfinite(left_number)
        and math.isfinite(right_number)
    ):
        return float(OPERATIONS[op](Decimal(str(left)), Decimal(str(right))))
    return OPERATIONS[op](left_number, right_number)
