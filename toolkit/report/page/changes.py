"""What a call changed, as far as the agent was told: a record's fields before and after.

A record is an object in an answer that names itself by an id (`id`, `payment_id`). What an answer tells of
a record is held against what was last told of it in the same episode. Nothing is inferred: a field that
nobody told before has no "before", and a write that says nothing of a record changes nothing here.
A model's own account of what its write changed (`Answer.changes`) is given as it is.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.errors import NotJson
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Transition

_MOST = 20  # changes told of one call
_DEEP = 6
_LONG = 200  # characters of a value
_SCALARS = (str, int, float, bool, type(None))
_Key = tuple[str, str]


@dataclass(slots=True)
class Told:
    """What an episode's answers have told so far, record by record."""

    records: dict[_Key, dict[str, JsonValue]] = field(default_factory=dict)

    def changes(self, step: Transition) -> list[JsonValue]:
        """Take in one more answer; give `{"entity", "field", "before"?, "after"}` for what it tells anew."""
        found = [_said(change) for change in step.answer.changes]
        if step.answer.error is None:
            seen = {(change["entity"], change["field"]) for change in found}
            found += [
                change
                for change in self._take(step.answer.content, writes=step.effect.changes_world)
                if (change["entity"], change["field"]) not in seen
            ]
        return list(found[:_MOST])

    def _take(self, content: JsonValue, *, writes: bool) -> Iterator[dict[str, JsonValue]]:
        for key, fields in _records(_opened(content)):
            known = self.records.setdefault(key, {})
            for name, value in fields.items():
                if name in known and not _same(known[name], value):
                    yield {"entity": key[1], "field": name, "before": _cut(known[name]), "after": _cut(value)}
                elif name not in known and writes:
                    yield {"entity": key[1], "field": name, "after": _cut(value)}
            known.update(fields)


def _said(change: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A change that a model said its write made."""
    return {
        "entity": str(change.get("entity", "")),
        "field": str(change.get("field", "")),
        "after": _cut(change.get("value")),
    }


def _records(value: JsonValue, depth: int = 0) -> Iterator[tuple[_Key, dict[str, JsonValue]]]:
    """Every object that names itself, with its own simple fields."""
    if depth > _DEEP:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, depth + 1)
    elif isinstance(value, Mapping):
        name = next((name for name in value if _names(name) and isinstance(value[name], (str, int))), None)
        if name is not None:
            simple = {key: item for key, item in value.items() if isinstance(item, _SCALARS) and key != name}
            yield (name, str(value[name])), simple
        for item in value.values():
            yield from _records(item, depth + 1)


def _names(field_name: str) -> bool:
    return field_name == "id" or field_name.endswith(("_id", "Id"))


def _opened(content: JsonValue) -> JsonValue:
    """An answer that is JSON in a text, as MCP servers give them, is read."""
    if isinstance(content, str) and content[:1] in ("{", "["):
        try:
            opened: JsonValue = read_json(content)
        except NotJson:
            return content
        return opened
    return content


def _same(one: JsonValue, other: JsonValue) -> bool:
    return type(one) is type(other) and one == other


def _cut(value: JsonValue) -> JsonValue:
    return value[:_LONG] + "\u2026" if isinstance(value, str) and len(value) > _LONG else as_told(value)


def as_told(value: JsonValue) -> JsonValue:
    """Give a value as text where JavaScript, whose numbers are doubles, shows another (1.0, 2**60)."""
    exact = isinstance(value, int) and abs(value) <= 2**53
    return value if isinstance(value, str | None) or exact else json.dumps(value, ensure_ascii=False)
