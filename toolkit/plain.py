"""Any Python value as plain JSON data, always: tool arguments, tool answers, graph state.

A tool may be handed bytes, datetimes, pydantic models, NaN, cycles or ten megabytes. What has a JSON
form gets it; what has none gets a mark that says so. Never raises, never runs a value's `repr`
(which may hold secrets or addresses).
"""

import base64
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

MAX_DEPTH = 64
MAX_TEXT = 1_000_000  # characters of one string
MAX_ITEMS = 100_000  # items of one list or object

JsonValue = Any
"""None, bool, int, finite float, str, list of these, dict from str to these."""


def to_plain(value: object) -> JsonValue:
    """Give `value` as JSON data; equal values give equal data."""
    return _plain(value, 0, ())


def _plain(value: object, depth: int, above: tuple[int, ...]) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    simple = _scalar(value)
    if simple is not None:
        return simple
    if depth >= MAX_DEPTH:
        return {"$cut": f"nested deeper than {MAX_DEPTH}"}
    if id(value) in above:
        return {"$cut": "refers to itself"}
    return _composite(value, depth + 1, (*above, id(value)))


def _scalar(value: object) -> JsonValue:
    """A JSON scalar for values that have one; None where the value is not a scalar."""
    match value:
        case Enum():
            return _scalar(value.value)
        case str():
            return _text(str(value))
        case int():
            return int(value) if value.bit_length() < 14_000 else {"$cut": "integer too large"}
        case float():
            return float(value) if isfinite(value) else {"$float": str(float(value))}
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID() | PurePath():
            return str(value)
        case bytes() | bytearray() | memoryview():
            raw = bytes(value)
            mark: dict[str, JsonValue] = {"$bytes": base64.b64encode(raw[:MAX_TEXT]).decode("ascii")}
            return mark if len(raw) <= MAX_TEXT else {**mark, "$cut": f"{len(raw)} bytes"}
    return None


def _text(value: str) -> str:
    if len(value) <= MAX_TEXT:
        return value
    return f"{value[:MAX_TEXT]}... (cut: {len(value)} characters)"


def _composite(value: object, depth: int, above: tuple[int, ...]) -> JsonValue:
    if isinstance(value, Mapping):
        return _object(value, depth, above)
    if isinstance(value, (list, tuple)):
        items = [_plain(item, depth, above) for item in value[:MAX_ITEMS]]
        return items if len(value) <= MAX_ITEMS else [*items, {"$cut": f"{len(value)} items"}]
    if isinstance(value, Set):
        return sorted((_plain(item, depth, above) for item in value), key=repr)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return _plain(dump(), depth, above)
        except Exception:  # noqa: BLE001  a user's model may raise anything; the mark says what it was
            return _mark(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name, None), depth, above) for field in fields(value)}
    return _mark(value)


def _object(value: Mapping[object, object], depth: int, above: tuple[int, ...]) -> JsonValue:
    """Keys become text; keys that would meet ("1" and 1) keep their type as a mark."""
    plain: dict[str, JsonValue] = {}
    for count, (key, item) in enumerate(value.items()):
        if count >= MAX_ITEMS:
            plain["$cut"] = f"{len(value)} keys"
            break
        name = key if isinstance(key, str) else _key(key)
        if name in plain or (not isinstance(key, str) and name in value):
            name = f"{name} ({type(key).__name__})"
        plain[_text(name)] = _plain(item, depth, above)
    return plain


def _key(key: object) -> str:
    scalar = _scalar(key) if not isinstance(key, bool) else str(key).lower()
    return str(scalar) if scalar is not None else "null" if key is None else _name(key)


def _mark(value: object) -> JsonValue:
    return {"$object": _name(value)}


def _name(value: object) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
