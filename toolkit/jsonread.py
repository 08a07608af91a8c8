"""The one reader of JSON from outside: bounded in size and depth, finite numbers only.

`json.loads` alone dies with RecursionError near 1,000 levels, takes NaN and 1e999, and keeps the last
of two equal keys without a word. Everything that the kit did not write itself is read here.
"""

import json
import re
from math import isfinite
from typing import Any

from dreamgym_kit.errors import NotJson

MAX_DEPTH = 200
MAX_BYTES = 32 * 2**20

_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*"?', re.DOTALL)


def read_json(text: str | bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """Parse one JSON value.

    Raises:
        NotJson: says why in one line: not UTF-8, too large, too deep, two equal keys, NaN, infinity,
            or what the parser found and at which column.
    """
    if len(text) > max_bytes:
        raise NotJson(f"larger than {max_bytes} bytes")
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    _check_depth(decoded)
    try:
        return json.loads(
            decoded,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_distinct_keys,
        )
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise NotJson(f"nested deeper than {MAX_DEPTH}") from None
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(str(error)) from None


def _check_depth(text: str) -> None:
    """Count brackets outside strings; most texts are cleared by a plain count."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text):
        mark = found.group()[0]
        if mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise NotJson(f"nested deeper than {MAX_DEPTH}")
        elif mark in "]}":
            depth -= 1


def _refuse_constant(name: str) -> object:
    raise NotJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise NotJson(f"number {text[:20]} is not finite")
    return value


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotJson(f"key '{key[:60]}' stands twice in one object")
            seen.add(key)
    return found
