"""JSON values as state sees them: spelled with their types, walked, copied, read as numbers.

5 and 5.0 are different observations, so `spell` keeps types apart where `canonical` does not.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal

from dreamgym_kit.serialization import JsonValue

Path = tuple[str | int, ...]

MISSING = object()
"""No value at all, where None would be a value."""

_spell = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?")


def spell(value: JsonValue) -> str:
    """Equal text for equal values of equal types."""
    return _spell(value)


def is_scalar(value: object) -> bool:
    """Text, number, truth value or nothing."""
    return value is None or isinstance(value, (str, int, float))


def is_number(value: object) -> bool:
    """A number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_key(value: object) -> bool:
    """What may name an entity: text or a whole number."""
    return (isinstance(value, str) and 0 < len(value) <= 80) or (
        isinstance(value, int) and not isinstance(value, bool)
    )


def as_number(value: object) -> float | None:
    """The number that a value is or spells ("19.90"); None otherwise."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def add(left: JsonValue, right: JsonValue, sign: int = 1) -> JsonValue:
    """Sum or difference of two numbers, or of two texts that spell numbers; MISSING for anything else.

    Texts keep their decimals: "10.00" and "9.90" make "19.90".
    """
    if is_number(left) and is_number(right):
        total = left + sign * right
        return round(total, 10) if isinstance(total, float) else total
    if (
        isinstance(left, str)
        and isinstance(right, str)
        and _NUMBER.fullmatch(left)
        and _NUMBER.fullmatch(right)
    ):
        return str(Decimal(left) + sign * Decimal(right))
    return MISSING


def walk(value: JsonValue, path: Path = (), depth: int = 5) -> Iterator[tuple[Path, JsonValue]]:
    """A value and what is in it, each with its path; at most 40 items of a list."""
    yield path, value
    if depth == 0:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*path, key), depth - 1)
    elif isinstance(value, list):
        for place, item in enumerate(value[:40]):
            yield from walk(item, (*path, place), depth - 1)


def field_path(path: Path) -> str:
    """A path as a name: "orders.total"."""
    return ".".join(str(part) for part in path)


def fields(value: JsonValue, most: int = 14) -> dict[str, JsonValue]:
    """The first few things in a value by name, three levels deep; what is in lists is left out."""
    if is_scalar(value):
        return {"": value}
    found: dict[str, JsonValue] = {}
    for path, item in walk(value, depth=3):
        if any(isinstance(part, int) for part in path):
            continue
        found[field_path(path)] = item
        if len(found) > most:
            break
    return found


def copy_json(value: JsonValue) -> JsonValue:
    """A copy that shares nothing that can change."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value
