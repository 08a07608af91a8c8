"""Any Python value as plain JSON data, always: tool arguments, tool answers, graph state.

A tool may be handed bytes, datetimes, pydantic models, NaN, cycles or ten megabytes. What has a JSON
form gets it; what has none, is too large or fails when it is read gets a mark that says so. Never
raises, never runs a value's `repr` (which may hold secrets or addresses). The bounds hold for the whole
value, so that four of them (arguments, answer, artifact, update) fit in one row of a buffer.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

MAX_DEPTH = 64
MAX_TEXT = 1_000_000  # characters of all strings, keys and digits together
MAX_ITEMS = 100_000  # items of all lists and objects together

_SMALL = 2**63
_FEW, _SHORT = 64, 4096  # items and characters: far within the bounds, whatever stands beside them
_SCALARS, _TEXT = frozenset({str, int, bool, type(None)}), frozenset({str})

JsonValue = Any
"""None, bool, int, finite float, str, list of these, dict from str to these."""


def to_json(value: object) -> JsonValue:
    """Give `value` as JSON data; equal values give equal data."""
    kind = type(value)
    if value is None or kind is bool or (kind is str and len(value) <= MAX_TEXT):  # type: ignore[arg-type]
        return value  # most of what passes here
    if kind is int and -_SMALL < value < _SMALL:  # type: ignore[operator]
        return value
    if kind is dict and _is_small(value):  # type: ignore[arg-type]
        return dict(value)  # type: ignore[call-overload]
    return _Walk().plain(value, 0)


def _is_small(plain: dict[Any, Any]) -> bool:
    """Whether it maps a few short texts to short scalars: far within the bounds, and JSON as it is."""
    if len(plain) > _FEW or not _TEXT.issuperset(map(type, plain)):
        return False
    for item in (*plain, *plain.values()):
        kind = type(item)
        if (
            kind not in _SCALARS
            or (kind is str and len(item) > _SHORT)
            or (kind is int and abs(item) >= _SMALL)
        ):
            return False
    return True


def is_exact(plain: JsonValue) -> bool:
    """Whether plain data tells its value apart from any other: nothing in it was cut or had no JSON form."""
    left = [plain]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if not _INEXACT.isdisjoint(item):
                return False
            left += item.values()
        elif isinstance(item, list):
            left += item
    return True


def escaped(plain: JsonValue) -> JsonValue:
    """Foreign data that looks like one of our own marks as data that does not: `{"$literal": ...}` holds it.

    Answers are kept with marks for messages, commands to the graph and failures. What a tool, a trace, an
    agent or a model says is never one of these, however it is spelled.
    """
    if isinstance(plain, list):
        return [escaped(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    items = {key: escaped(item) for key, item in plain.items()}
    return {LITERAL: items} if len(items) == 1 and not MARKS.isdisjoint(items) else items


def escaped_args(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A call's arguments with each value escaped; what echoes an argument echoes data."""
    return {
        name: escaped(value) if isinstance(value, (dict, list)) else value for name, value in args.items()
    }


LITERAL = "$literal"
MARKS = frozenset({"$message", "$command", "$list", "$bytes", LITERAL, "$answer"})
"""Keys that alone in an object say what it stands for."""
_INEXACT = frozenset({"$cut", "$object"})


class _Walk:
    """One value on its way: what is left of the bounds, and which containers it is inside of."""

    def __init__(self) -> None:
        self._items = MAX_ITEMS
        self._text = MAX_TEXT
        self._above: list[int] = []

    def plain(self, value: object, depth: int) -> JsonValue:
        if value is None or isinstance(value, bool):
            return value
        if type(value) is str:
            return self._cut(value)
        try:
            simple = self._scalar(value)
            if simple is not None:
                return simple
            if depth >= MAX_DEPTH:
                return {"$cut": f"nested deeper than {MAX_DEPTH}"}
            if id(value) in self._above:
                return {"$cut": "refers to itself"}
            self._above.append(id(value))
            try:
                return self._composite(value, depth + 1)
            finally:
                self._above.pop()
        except Exception:  # noqa: BLE001  a user's object may raise anything; the mark says what it was
            return _mark(value)

    def _scalar(self, value: object) -> JsonValue:
        """A JSON scalar for values that have one; None where the value is not a scalar."""
        match value:
            case Enum():
                return self._scalar(value.value)
            case str():
                return self._cut(str.__str__(value))
            case int():
                return self._whole(int(value))
            case float():
                return float(value) if isfinite(value) else {"$float": str(float(value))}
            case datetime() | date() | time():
                return value.isoformat()
            case timedelta():
                return value.total_seconds()
            case Decimal() | UUID() | PurePath():
                return self._cut(str(value))
            case bytes() | bytearray() | memoryview():
                return self._bytes(bytes(value))
        return None

    def _composite(self, value: object, depth: int) -> JsonValue:
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, (list, tuple)):
            return self._list(value, len(value), depth)
        if isinstance(value, Set):
            items = self._list(value, len(value), depth)
            return sorted(items, key=repr)
        dump = getattr(value, "model_dump", None)
        if callable(dump) and not isinstance(value, type):
            return self.plain(dump(), depth)
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return self.plain(value.tolist(), depth)
        if is_dataclass(value) and not isinstance(value, type):
            return self._object(
                {field.name: getattr(value, field.name, None) for field in fields(value)}, depth
            )
        return _mark(value)

    def _list(self, value: Iterable[object], length: int, depth: int) -> list[JsonValue]:
        items: list[JsonValue] = []
        for item in value:
            if self._spent():
                return [*items, {"$cut": f"{length} items"}]
            items.append(self.plain(item, depth))
        return items

    def _object(self, value: Mapping[object, object], depth: int) -> JsonValue:
        """Keys become text; keys that would meet ("1" and 1) keep their type as a mark."""
        plain: dict[str, JsonValue] = {}
        for key, item in value.items():
            if self._spent():
                plain["$cut"] = f"{len(value)} keys"
                break
            name = self._cut(str.__str__(key)) if isinstance(key, str) else self._key(key)
            if name in plain or (not isinstance(key, str) and name in value):
                name = f"{name} ({type(key).__name__})"
            plain[name] = self.plain(item, depth)
        return plain

    def _key(self, key: object) -> str:
        if key is None or isinstance(key, bool):
            return "null" if key is None else str(key).lower()
        scalar = self._scalar(key)
        return _name(key) if scalar is None else str(scalar)

    def _spent(self) -> bool:
        self._items -= 1
        return self._items < 0

    def _cut(self, text: str) -> str:
        room = self._text
        self._text = max(0, room - len(text))
        if len(text) <= room:
            return text
        # with a digest of the whole: two long texts must not become equal by being cut
        whole = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{text[:room]}... (cut: {len(text)} characters, sha256 {whole})"

    def _whole(self, value: int) -> JsonValue:
        digits = value.bit_length() // 3
        if value.bit_length() >= 14_000 or digits > self._text:  # Python writes at most 4,300 digits
            return {"$cut": "integer too large"}
        self._text -= digits
        return value

    def _bytes(self, raw: bytes) -> JsonValue:
        head = raw[: self._text * 3 // 4]
        self._text = max(0, self._text - len(raw) * 4 // 3)
        mark: dict[str, JsonValue] = {"$bytes": base64.b64encode(head).decode("ascii")}
        return mark if len(head) == len(raw) else {**mark, "$cut": f"{len(raw)} bytes"}


def _mark(value: object) -> JsonValue:
    return {"$object": _name(value)}


def _name(value: object) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
