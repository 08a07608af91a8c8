"""Tests over names.

A test is True, False, or UNKNOWN where what it needs is not known.
"""

import re
from collections import Counter
from typing import Any

from msgspec import Struct

from dreamgym_kit.dream.programs.scope import Scope
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

Example = tuple[Scope, JsonValue]
Truth = Any
"""True, False or UNKNOWN."""


class Condition(Struct, frozen=True, tag_field="test", tag=str.lower):
    """A test."""

    def __call__(self, scope: Scope) -> Truth:
        """Its truth in a scope."""
        raise NotImplementedError


class Is(Condition, frozen=True):
    """A name has this value."""

    name: str
    value: JsonValue

    def __call__(self, scope: Scope) -> Truth:
        key = scope.key_of(self.name)
        return UNKNOWN if key is None else key == value_key(self.value)


class Among(Condition, frozen=True):
    """A name has one of these values."""

    name: str
    values: tuple[JsonValue, ...]

    def __call__(self, scope: Scope) -> Truth:
        value = scope.get(self.name, UNKNOWN)
        if not is_known(value) or not is_scalar(value):
            return UNKNOWN
        return any(same(value, allowed) for allowed in self.values)


class AnyOf(Condition, frozen=True):
    """At least one of these names has a value."""

    names: tuple[str, ...]

    def __call__(self, scope: Scope) -> Truth:
        return any(is_known(scope.get(name, UNKNOWN)) for name in self.names)


class Has(Condition, frozen=True):
    """A name has a value."""

    name: str

    def __call__(self, scope: Scope) -> Truth:
        value = scope.get(self.name, UNKNOWN)
        if value is UNKNOWN and any(self.name.startswith(prefix) for prefix in scope.unseen):
            return UNKNOWN
        return is_known(value)


class Same(Condition, frozen=True):
    """Two names have one value."""

    left: str
    right: str

    def __call__(self, scope: Scope) -> Truth:
        left, right = scope.key_of(self.left), scope.key_of(self.right)
        return UNKNOWN if left is None or right is None else left == right


class Differ(Condition, frozen=True):
    """Two names never have one value."""

    left: str
    right: str

    def __call__(self, scope: Scope) -> Truth:
        is_same = Same(self.left, self.right)(scope)
        return UNKNOWN if is_same is UNKNOWN else not is_same


class Less(Condition, frozen=True):
    """One number is below another; either may be a constant."""

    left: str | float
    right: str | float

    def __call__(self, scope: Scope) -> Truth:
        left, right = _number(scope, self.left), _number(scope, self.right)
        return left < right if left is not None and right is not None else UNKNOWN


class AtMost(Condition, frozen=True):
    """One number is not above another."""

    left: str
    right: str

    def __call__(self, scope: Scope) -> Truth:
        left, right = _number(scope, self.left), _number(scope, self.right)
        return left <= right if left is not None and right is not None else UNKNOWN


class In(Condition, frozen=True):
    """A value, or each element of a list, is in a list or is a key of a map."""

    name: str
    of: str

    def __call__(self, scope: Scope) -> Truth:
        value, others = scope.get(self.name, UNKNOWN), scope.get(self.of, UNKNOWN)
        if value is UNKNOWN or not isinstance(others, (list, dict)):
            return UNKNOWN
        if isinstance(value, str):
            return value in others
        keys = {value_key(other) for other in others}
        return all(value_key(item) in keys for item in (value if isinstance(value, list) else [value]))


class CountedIn(Condition, frozen=True):
    """A list argument's elements are values of a field in a list of records, each at least as often."""

    name: str
    of: str
    field: str

    def __call__(self, scope: Scope) -> Truth:
        value, others = scope.get(self.name, UNKNOWN), scope.get(self.of, UNKNOWN)
        if not isinstance(value, list) or not isinstance(others, list):
            return UNKNOWN
        there = Counter(value_key(record.get(self.field)) for record in others if isinstance(record, dict))
        return all(there[key] >= count for key, count in Counter(map(value_key, value)).items())


class OfKind(Condition, frozen=True):
    """A value is a text, a number, a list..."""

    name: str
    kind: str

    def __call__(self, scope: Scope) -> Truth:
        value = scope.get(self.name, UNKNOWN)
        return UNKNOWN if value is UNKNOWN else kind_of(value) == self.kind


class InRange(Condition, frozen=True):
    """A number is within the recorded range, extended by its width on each side."""

    name: str
    low: float
    high: float

    def __call__(self, scope: Scope) -> Truth:
        value = scope.get(self.name, UNKNOWN)
        if value is UNKNOWN:
            return UNKNOWN
        span = self.high - self.low
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        number = figure(value)
        if number is None or not self.low - span <= number <= self.high + span:
            return False
        return number > 0 or self.low <= 0


class HeardBefore(Condition, frozen=True):
    """An argument's value appeared in an earlier answer."""

    name: str

    def __call__(self, scope: Scope) -> Truth:
        return scope.seen_earlier.get(self.name, UNKNOWN)


class Shaped(Condition, frozen=True):
    """A text has one of these shapes; see `text_shape`."""

    name: str
    shapes: tuple[str, ...]

    def __call__(self, scope: Scope) -> Truth:
        value = scope.get(self.name, UNKNOWN)
        return text_shape(value) in self.shapes if isinstance(value, str) else UNKNOWN


class SameOr(Condition, frozen=True):
    """Two names have one value, or another name has the value that excuses it."""

    left: str
    right: str
    unless: tuple[tuple[str, JsonValue], ...]

    def __call__(self, scope: Scope) -> Truth:
        is_same = Same(self.left, self.right)(scope)
        if is_same is not False:
            return is_same
        values = [(scope.get(name, UNKNOWN), wanted) for name, wanted in self.unless]
        if any(value is not UNKNOWN and same(value, wanted) for value, wanted in values):
            return True
        return UNKNOWN if all(value is UNKNOWN for value, _ in values) else False


class EachItem(Condition, frozen=True):
    """A test holds for all elements of the list arguments."""

    condition: Condition

    def __call__(self, scope: Scope) -> Truth:
        truths = [self.condition(scope.child(item)) for item in scope.items_of_args]
        if False in truths:
            return False
        return UNKNOWN if UNKNOWN in truths or not truths else True


class NoItem(Condition, frozen=True):
    """A test holds for no element of the list arguments."""

    condition: Condition

    def __call__(self, scope: Scope) -> Truth:
        truths = [self.condition(scope.child(item)) for item in scope.items_of_args]
        return False if True in truths else UNKNOWN if UNKNOWN in truths else True


def text_shape(text: str) -> str:
    """Return a text with each run of letters as "a" and each run of digits as "0"."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", text))


def kind_of(value: object) -> str:
    """The JSON kind of a value."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if is_number(value) else type(value).__name__


def _number(scope: Scope, of: str | float) -> float | None:
    value = scope.get(of, UNKNOWN) if isinstance(of, str) else of
    return figure(value)
