"""What a write does to a view: the difference of two answers as operations, and operations applied.

Operations: set, new key, delete key, append, prepend, remove. A step of a path is a constant key, a key
that a name gives, or the one row of a list whose field equals a name.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.values import is_key, is_scalar, spell
from dreamgym_kit.serialization import JsonValue


class OperationStep(NamedTuple):
    """One step of a path: key (constant), by (the key that `name` gives), row (whose `key` equals `name`)."""

    kind: str
    key: str | int = ""
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "by":
                return f"<{self.name}>"
            case "row":
                return f"[{self.key}={self.name}]"
        return str(self.key)


class FieldChange(NamedTuple):
    """One operation, as it happened."""

    path: tuple[OperationStep | str | int, ...]
    kind: str  # set, new, delete, append, prepend, remove
    value: JsonValue
    old: JsonValue


def difference(
    before: JsonValue, after: JsonValue, names: Names, path: tuple[OperationStep | str | int, ...] = ()
) -> Iterator[FieldChange]:
    """What has to be done to `before` to make it `after`."""
    if spell(before) == spell(after):
        return
    told = not failed(before) and not failed(after)
    if (
        isinstance(before, dict)
        and isinstance(after, dict)
        and told
        and (before.keys() & after.keys() or not before or not after)
    ):
        for key, value in after.items():
            if key in before:
                yield from difference(before[key], value, names, (*path, key))
            else:
                yield FieldChange((*path, key), "new", value, None)
        for key in before.keys() - after.keys():
            yield FieldChange((*path, key), "delete", None, before[key])
        return
    if isinstance(before, list) and isinstance(after, list) and (path or told):
        found = list(_of_lists(before, after, names, path))
        if found:
            yield from found
            return
    yield FieldChange(path, "set", after, before)


def _of_lists(
    before: list[JsonValue], after: list[JsonValue], names: Names, path: tuple[OperationStep | str | int, ...]
) -> Iterator[FieldChange]:
    old, new = [spell(item) for item in before], [spell(item) for item in after]
    if len(new) == len(old) + 1 and new[:-1] == old:
        yield FieldChange(path, "append", after[-1], None)
    elif len(new) == len(old) + 1 and new[1:] == old:
        yield FieldChange(path, "prepend", after[0], None)
    elif len(new) == len(old) - 1:
        gone = next((place for place in range(len(old)) if old[:place] + old[place + 1 :] == new), None)
        if gone is not None:
            yield FieldChange(path, "remove", before[gone], None)
    elif len(new) == len(old):
        changed = [place for place in range(len(old)) if old[place] != new[place]]
        if len(changed) == 1 and isinstance(before[changed[0]], dict) and isinstance(after[changed[0]], dict):
            row = before[changed[0]]
            for step in _selectors(row, before, names):
                yield from difference(row, after[changed[0]], names, (*path, step))


def _selectors(row: dict[str, JsonValue], rows: list[JsonValue], names: Names) -> Iterator[OperationStep]:
    for key, value in row.items():
        if not is_key(value):
            continue
        if sum(isinstance(other, dict) and other.get(key) == value for other in rows) != 1:
            continue
        for name in names.by_spelling.get(spell(value), ()):
            if name.startswith(("args.", "answer.")):
                yield OperationStep("row", key, name)


def general_paths(
    path: tuple[OperationStep | str | int, ...], names: Names
) -> list[tuple[OperationStep, ...]]:
    """The ways to say a path for any call: each key as itself, or as what a name gives; at most 12."""
    ways: list[list[OperationStep]] = []
    for part in path:
        if isinstance(part, OperationStep):
            ways.append([part])
            continue
        giving = [
            OperationStep("by", name=name)
            for name, value in names.values.items()
            if name.startswith(("args.", "answer.")) and is_scalar(value) and str(value) == str(part)
        ]
        ways.append([OperationStep("key", part), *giving[:2]])
    return list(itertools.islice(itertools.product(*ways), 12))


class Place(NamedTuple):
    """Where a path leads: container, key in it, and what stands there (None for a key to be made)."""

    container: JsonValue
    key: str | int
    value: JsonValue


def locate(observation: JsonValue, path: tuple[OperationStep, ...], names: Names) -> Place | None:
    """Follow a path; None where it leads nowhere."""
    current: JsonValue = observation
    container: JsonValue = None
    key: str | int = ""
    for number, step in enumerate(path):
        container = current
        found = _key(container, step, names)
        if found is None:
            return None
        key = found
        try:
            current = container[key]
        except (KeyError, IndexError, TypeError):
            if number != len(path) - 1 or not isinstance(container, dict):
                return None
            current = None
    return Place(container, key, current)


def _key(container: JsonValue, step: OperationStep, names: Names) -> str | int | None:
    if step.kind == "key":
        return step.key
    if step.name not in names.values:
        return None
    value = names.values[step.name]
    if step.kind == "by":
        return str(value)
    if not isinstance(container, list):
        return None
    spelled = spell(value)
    rows = [
        place
        for place, row in enumerate(container)
        if isinstance(row, dict) and step.key in row and spell(row[step.key]) == spelled
    ]
    return rows[0] if len(rows) == 1 else None


def apply(
    kind: str, observation: JsonValue, path: tuple[OperationStep, ...], names: Names, value: JsonValue
) -> JsonValue:
    """Do one operation in place (only an empty path gives another object back).

    Raises:
        LookupError: the view has no such place of that kind.
    """
    if kind in ("append", "prepend", "remove"):
        place = locate(observation, path, names) if path else None
        rows = observation if not path else place.value if place is not None else None
        if not isinstance(rows, list):
            raise LookupError(kind)
        if kind == "append":
            rows.append(value)
        elif kind == "prepend":
            rows.insert(0, value)
        else:
            gone = [number for number, row in enumerate(rows) if spell(row) == spell(value)]
            if gone:
                rows.pop(gone[0])
        return observation
    if not path:
        return value
    place = locate(observation, path, names)
    if place is None:  # the row or key is not in this view: nothing happens to it
        return observation
    if kind == "delete":
        if isinstance(place.container, dict):
            place.container.pop(str(place.key), None)
        return observation
    place.container[place.key] = value
    return observation
