"""Which things an answer speaks of, by their own ids, and what it says of each.

A record's own id is its field `id`, else the first of its fields whose name reads like an id; an object
without one stands for the thing that the read's only argument names; rows under a key are named by it.
Fields of a record that refer to other things ("customer_id" of an order) are no records of those.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dreamgym_kit.dream.json_values import Path, is_key, is_scalar
from dreamgym_kit.dream.things import is_id_name
from dreamgym_kit.serialization import JsonValue

_MOST, _DEEP = 400, 8
_WRAPPERS = frozenset({"$json", "$answer", "content"})


class Record(NamedTuple):
    """What an answer says of one thing."""

    entity: str  # its id, as text
    named: str  # the field or argument that holds the id
    path: Path
    fields: dict[str, JsonValue]

    def scalars(self) -> Iterator[tuple[str, JsonValue]]:
        """Its fields that hold one value, without its id."""
        return (
            (name, value) for name, value in self.fields.items() if is_scalar(value) and name != self.named
        )


def records(seen: JsonValue, args: Mapping[str, JsonValue]) -> Iterator[Record]:
    """Every record of an observation, outermost first."""
    named = [(name, value) for name, value in args.items() if is_key(value)]
    only = named[0] if len(named) == 1 else None
    left = _MOST
    for path, key, value in _objects(seen, (), "", _DEEP):
        left -= 1
        if left < 0:
            return
        if "$json" in value or "$answer" in value:  # `observed` wraps answers that are more than content
            continue
        own = _own(value)
        if own is not None:
            yield Record(str(value[own]), own, path, value)
        elif not [part for part in path if part not in _WRAPPERS] and only is not None:
            yield Record(str(only[1]), only[0], path, value)
        elif key:
            yield Record(key, "", path, value)


def mentioned(value: JsonValue) -> Iterator[str]:
    """The texts in a value that may name things, as text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from mentioned(item)
    elif isinstance(value, list):
        for item in value[:_MOST]:
            yield from mentioned(item)
    elif is_key(value):
        yield str(value)


def _own(record: Mapping[str, JsonValue]) -> str | None:
    if is_key(record.get("id")):
        return "id"
    return next((name for name, value in record.items() if is_id_name(name) and is_key(value)), None)


def _objects(
    value: JsonValue, path: Path, key: str, depth: int
) -> Iterator[tuple[Path, str, dict[str, JsonValue]]]:
    """Objects with their path, and the key that an object stands under where its siblings are objects too."""
    if depth == 0:
        return
    if isinstance(value, dict):
        yield path, key, value
        rows = len(value) > 0 and all(isinstance(item, dict) for item in value.values())
        for name, item in value.items():
            yield from _objects(
                item, (*path, name), name if rows and name not in _WRAPPERS else "", depth - 1
            )
    elif isinstance(value, list):
        for place, item in enumerate(value[:_MOST]):
            yield from _objects(item, (*path, place), "", depth - 1)
