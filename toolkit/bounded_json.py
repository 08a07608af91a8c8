"""The one reader of JSON from outside: bounded in size, depth and values, finite numbers only.

`json.loads` alone dies with RecursionError near 1,000 levels, takes NaN and 1e999, keeps the last of two
equal keys without a word, and makes 1 GB of objects from 12 MB of `{},`. Everything that the kit did not
write itself is read here, and what it writes to be read again passes `check_bounds`.
"""

import json
import re
from math import isfinite
from typing import Any

import msgspec

from dreamgym_kit.errors import NotSerializable

MAX_DEPTH = 200
MAX_BYTES = 32 * 2**20
MAX_VALUES = 500_000  # items of all lists and objects together: some 200 MB of Python objects

# Nothing is given back, and one that has no end goes on to the end: else each of many quotes would be tried.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


def read_json(text: str | bytes, *, max_bytes: int = MAX_BYTES, checked: bool = False) -> Any:
    """Parse one JSON value.

    Args:
        text: what is parsed.
        max_bytes: the most it may be.
        checked: it was compared with a checksum of what the kit wrote, which writes no key twice; quicker.

    Raises:
        NotSerializable: says why in one line: not UTF-8, too large, too deep, two equal keys, NaN, infinity,
            or what the parser found and at which column.
    """
    if len(text) > max_bytes:
        raise NotSerializable(f"larger than {max_bytes} bytes")
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise NotSerializable(f"not UTF-8 at byte {error.start}") from None
    check_bounds(decoded, max_bytes=max_bytes)
    if decoded.startswith("\ufeff"):
        raise NotSerializable("Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1")
    try:
        return _decode_own(decoded) if checked else _decode(decoded)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno} " if "\n" in decoded else ""
        raise NotSerializable(f"{error.msg} at {line}column {error.colno}") from None
    except RecursionError:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH}") from None
    except NotSerializable:
        raise
    except ValueError:  # the one that is left: Python's limit for the digits of an integer
        raise NotSerializable("an integer of more than 4,300 digits") from None


def read_own_json(text: str | bytes) -> Any:
    """Parse JSON that this kit wrote and whose sum or sender is known: ten times as fast, without bounds.

    Raises:
        NotSerializable: it is not JSON, or holds a number that is not finite.
    """
    try:
        return _decode_own(text if isinstance(text, str) else text.decode("utf-8"))
    except NotSerializable:
        raise
    except (ValueError, RecursionError) as error:
        raise NotSerializable(" ".join(str(error).split())) from None


def check_bounds(text: str, *, max_bytes: int = MAX_BYTES) -> None:
    """Refuse a text that is too large, too deep or of too many values before anything is built of it.

    Raises:
        NotSerializable: which bound it breaks.
    """
    if len(text) > max_bytes:
        raise NotSerializable(f"larger than {max_bytes} bytes")
    if text.count("[") + text.count("{") <= MAX_DEPTH and text.count(",") <= MAX_VALUES:
        return  # nearly every text: too few marks for a breach, wherever they stand
    marks = _STRING.sub("", text)
    if sum(map(marks.count, ",[{")) > MAX_VALUES:
        raise NotSerializable(f"more than {MAX_VALUES} values")
    depth = 0
    for bracket in _BRACKET.finditer(marks):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise NotSerializable(f"nested deeper than {MAX_DEPTH}")


def _refuse_constant(name: str) -> object:
    raise NotSerializable(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise NotSerializable(f"number {text[:20]} is not finite")
    return value


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotSerializable(f"key {key[:60]!r} stands twice in one object")
            seen.add(key)
    return items


# Made once: `json.loads` makes a new one for each text that it is given hooks for.
_decode = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_distinct_keys
).decode
_decode_slowly = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode
_decode_quickly = msgspec.json.Decoder().decode


def _decode_own(text: str) -> Any:
    """Parse what the kit wrote; what msgspec refuses (lone surrogates, say) is for the standard library."""
    try:
        return _decode_quickly(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _decode_slowly(text)
