"""Fields of the environment itself: an engine, a working directory, a login. No call has an ID for them.

A field is a place in answers, such as `{"engine": {"state": ...}}`. Several tools show the same field if it
has the same name in their answers, and they agreed where one was called after the other. A read whose answer
depends on its arguments shows no such field.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from dreamgym_kit.dream.programs.values import SeenStep, ValueKey, has_digits, value_key
from dreamgym_kit.serialization import JsonValue

ENVIRONMENT = "environment:"
"""Prefix of the collections of these fields; each has one record, with the empty key."""
FIELD = "environment."
"""Prefix of their names."""
VALUE = "value"
_DEPTH = 2
_AGREEING = 0.95
_MAX_ASKED = 12  # earlier calls that an answer is compared with
_MAX_FIELDS = 80
_PLAIN_VALUES: tuple[JsonValue, ...] = (None, True, False, 0, 1, "", [], {})
_PLAIN = set(map(value_key, _PLAIN_VALUES))

Place = tuple[str, str]
"""A tool, and the dotted path of a field in its answers."""


class _Shown(NamedTuple):
    """One sight of a field."""

    place: Place
    args: ValueKey
    value: ValueKey
    writes: bool


class _Agreement:
    """Counts of agreement between two places, and the common values."""

    def __init__(self) -> None:
        self.agreed, self.differed = 0, 0
        self.values: set[ValueKey] = set()

    @property
    def is_same(self) -> bool:
        """Whether both show one field: agreement on one common value may be chance."""
        is_telling = len(self.values) > 1 or bool(self.values - _PLAIN)
        return self.agreed > 1 and is_telling and not self.is_other

    @property
    def is_other(self) -> bool:
        """Whether they contradict each other."""
        return self.agreed < _AGREEING * (self.agreed + self.differed)


class EnvironmentFields:
    """Which places in answers show which fields.

    Args:
        calls: the recorded calls of each episode whose answers name no record, with the episode's world.
        reads: the tools that change nothing.

    Attributes:
        names: by place, the field.
        forms: by read and arguments, the paths of an answer, where all such answers show these alone.
        written: the same by write, of any arguments.
    """

    def __init__(self, calls: Sequence[tuple[str, Sequence[SeenStep]]], reads: frozenset[str]) -> None:
        self.names: dict[Place, str] = {}
        self.forms: dict[tuple[str, ValueKey], tuple[str, ...]] = {}
        self.written: dict[str, tuple[str, ...]] = {}
        self._reads = reads
        self._records = _records(step for _, steps in calls for step in steps)
        self._pairs: dict[tuple[Place, Place], _Agreement] = defaultdict(_Agreement)
        self._values: dict[Place, set[ValueKey]] = defaultdict(set)
        self._arguments: dict[Place, set[ValueKey]] = defaultdict(set)
        self._count: Counter[Place] = Counter()
        self._compare(calls)
        self._name()
        self._find_forms(calls)
        del self._pairs, self._values, self._arguments, self._count  # needed only to find the fields

    def shown(self, step: SeenStep) -> Iterator[tuple[str, JsonValue]]:
        """Yield the fields that an answer shows."""
        for path, value in self._parts(step):
            name = self.names.get((step.tool, path))
            if name is not None:
                yield name, value

    def all(self) -> list[str]:
        """Return the names of all fields."""
        return sorted(set(self.names.values()))

    def tops(self, tool: str) -> set[str]:
        """Return the top-level fields of a tool's answers that are, or contain, fields of the environment."""
        return {path.split(".")[0] for of, path in self.names if of == tool}

    def _parts(self, step: SeenStep) -> Iterator[tuple[str, JsonValue]]:
        def walk(path: str, value: Any, left: int) -> Iterator[tuple[str, JsonValue]]:
            if left and value and isinstance(value, dict) and (step.tool, path) in self._records:
                for name, item in value.items():
                    yield from walk(f"{path}.{name}" if path else name, item, left - 1)
            elif path:
                yield path, value

        if step.ok and isinstance(step.out, dict):
            yield from walk("", step.out, _DEPTH)

    def _compare(self, calls: Sequence[tuple[str, Sequence[SeenStep]]]) -> None:
        at_start: dict[str, dict[str, list[_Shown]]] = defaultdict(lambda: defaultdict(list))
        for world, steps in calls:
            now, before = at_start[world], defaultdict[str, list[_Shown]](list)
            for step in steps:
                writes = step.tool not in self._reads
                if writes and step.ok:
                    for path, shown in now.items():
                        before[path] = [*shown, *before[path]][:_MAX_ASKED]
                    now = defaultdict(list)
                for path, value in self._parts(step):
                    sight = _Shown((step.tool, path), value_key(step.args), value_key(value), writes)
                    self._values[sight.place].add(sight.value)
                    self._arguments[sight.place].add(sight.args)
                    self._count[sight.place] += 1
                    for other in now[path]:
                        self._hold(sight, other, is_unchanged=True)
                    for other in before[path]:
                        self._hold(sight, other, is_unchanged=False)
                    if len(now[path]) < _MAX_ASKED and sight not in now[path]:
                        now[path].append(sight)

    def _hold(self, sight: _Shown, other: _Shown, *, is_unchanged: bool) -> None:
        """Compare two sights; a write between them explains a difference."""
        if sight.place == other.place and sight.args == other.args:
            return
        pair = self._pairs[min(sight.place, other.place), max(sight.place, other.place)]
        if sight.value == other.value:
            pair.agreed += 1
            pair.values.add(sight.value)
        elif is_unchanged:
            pair.differed += 1

    def _name(self) -> None:
        by_path: dict[str, list[Place]] = defaultdict(list)
        for place in sorted(self._count):
            if not ((place, place) in self._pairs and self._pairs[place, place].is_other):
                by_path[place[1]].append(place)
        fields: list[tuple[int, str, list[Place]]] = []
        for path, places in by_path.items():
            groups = sorted(self._groups(places), key=lambda group: (-len(group), group))
            for number, group in enumerate(groups):
                name = path if not number else f"{path}@{group[0][0]}"
                fields.append((sum(self._count[place] for place in group), name, group))
        for _, name, group in sorted(fields, key=lambda field: (-field[0], field[1]))[:_MAX_FIELDS]:
            self.names |= dict.fromkeys(group, name)

    def _groups(self, places: list[Place]) -> Iterator[list[Place]]:
        """Yield the places of one path, grouped by the field that they show; others are left out."""
        groups = [{place} for place in places]
        for first, second in combinations(places, 2):
            pair = self._pairs.get((first, second))
            both_write = first[0] not in self._reads and second[0] not in self._reads
            overlap = bool((self._values[first] & self._values[second]) - _PLAIN)
            if pair.is_same if pair is not None else (both_write or overlap):
                first_group = next(group for group in groups if first in group)
                second_group = next(group for group in groups if second in group)
                if first_group is not second_group:
                    first_group |= second_group
                    groups.remove(second_group)
        for group in groups:
            alone = next(iter(group))
            plain_read = alone[0] in self._reads and len(self._arguments[alone]) == 1
            own = self._pairs.get((alone, alone))
            if len(group) > 1 or plain_read or (alone[0] in self._reads and own is not None and own.is_same):
                yield sorted(group)

    def _find_forms(self, calls: Sequence[tuple[str, Sequence[SeenStep]]]) -> None:
        forms_by_call: dict[tuple[str, ValueKey | None], set[tuple[str, ...]]] = defaultdict(set)
        for step in (step for _, steps in calls for step in steps if step.ok):
            paths = tuple(path for path, _ in self._parts(step))
            named = all((step.tool, path) in self.names for path in paths)
            args = value_key(step.args) if step.tool in self._reads else None
            forms_by_call[step.tool, args].add(paths if named else ())
        for (tool, args), forms in forms_by_call.items():
            form = forms.pop()
            if form and not forms and args is None:
                self.written[tool] = form
            elif form and not forms and args is not None:
                self.forms[tool, args] = form


def are_related(name: str, *others: str) -> bool:
    """Whether names share a word. This proves nothing; it selects the doubts that are measured separately."""
    return not _words(name).isdisjoint(word for other in others for word in _words(other))


def _words(name: str) -> set[str]:
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]{2,}(?![a-z])", name)
    return {part.lower().removesuffix("s") for part in parts if len(part) > 2}


def made_of(parts: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return the answer that has these values at dotted paths."""
    out: dict[str, Any] = {}
    for path, value in parts.items():
        *above, last = path.split(".")
        inside = out
        for name in above:
            inside = inside.setdefault(name, {})
        inside[last] = value
    return out


def _records(steps: Iterator[SeenStep]) -> set[tuple[str, str]]:
    """Return the paths in each tool's answers with a record of fixed fields, not a map of things."""
    keys: dict[tuple[str, str], list[frozenset[str]]] = defaultdict(list)
    for step in steps:
        if step.ok and isinstance(step.out, dict):
            keys[step.tool, ""].append(frozenset())
            for name, item in step.out.items():
                if isinstance(item, dict):
                    keys[step.tool, name].append(frozenset(item))
    return {
        place
        for place, seen in keys.items()
        if len(set(seen)) == 1 and not any(has_digits(name) or "." in name for name in seen[0])
    }
