"""JSON values: spelled with their types, walked, copied, read as numbers; and JSON schemas.

5 and 5.0 are different observations, so `spell` keeps types apart where `canonical` does not.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dreamgym_kit.serialization import JsonValue

Path = tuple[str | int, ...]

_spell = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?")
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9]\d{0,11})\.(\d{1,6})", re.ASCII)
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"enum", "const", "default", "required", "examples"})  # their content is data


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


def decimal_places(value: object) -> int | None:
    """The number of decimals of a text that is a plain decimal number ("43.80": 2); None of any other value.

    Digits without a point are no number: most are ids, codes or postal codes.
    """
    match = _DECIMAL.fullmatch(value) if isinstance(value, str) and "." in value else None
    return len(match[1]) if match else None


def figure(value: object) -> float | None:
    """A number as it is, a decimal text as the number that it spells; None of any other value."""
    if isinstance(value, str):
        return float(value) if decimal_places(value) is not None else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


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


def copy_json(value: JsonValue) -> JsonValue:
    """A copy that shares nothing that can change."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def properties_of(schema: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """The schemas of an object's fields, by name; a server's schema may be of any form."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def without_keywords(schema: Any, keywords: Collection[str], depth: int = 100) -> Any:
    """A JSON schema without these keywords; properties of these names stay, and what is too deep."""
    if depth == 0 or not isinstance(schema, (Mapping, list)):
        return schema
    if isinstance(schema, list):
        return [without_keywords(item, keywords, depth - 1) for item in schema]
    return {
        name: {key: without_keywords(item, keywords, depth - 1) for key, item in value.items()}
        if name in _BY_NAME and isinstance(value, Mapping)
        else value
        if name in _DATA
        else without_keywords(value, keywords, depth - 1)
        for name, value in schema.items()
        if name not in keywords
    }
