"""JSON values as programs compare, name and take them apart."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dreamgym_kit.dream.json_values import decimal_places, figure, is_key, is_number, is_scalar
from dreamgym_kit.dream.observed import Wrap, failed, opened
from dreamgym_kit.dream.recorded_episodes import HistoryStep
from dreamgym_kit.serialization import JsonValue

ValueKey = tuple[str, Any]
"""Equal values have equal keys: 5 and 5.0 are one number, sums may be off by a rounding error."""

_spell = json.JSONEncoder(sort_keys=True).encode  # `json.dumps` makes an encoder for each call
_TOKEN = re.compile(r"[A-Za-z0-9_#@+\-]+(?:[.:][A-Za-z0-9_#@+\-]+)*|\s+|.", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d?:\d\d")
CLOCK = re.compile(r"(\d{4}-\d\d-\d\d[T ])?\d\d?:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_WITH_DIGITS = re.compile(r"\w*\d[\w.\-]*")
_LEFT_OPEN = re.compile(
    r"(?i)time[d-]?[ -]?out|no answer|bad gateway|service unavailable|(http|status|error)\W{0,3}50[24]\b"
    r"|connection ?(error|was|reset|aborted|closed|lost)|(read|write|network|protocol|transport) ?error"
)
_EXACT = 2**53  # whole numbers from which on floats leave some out
_SMALL = 0.001  # numbers below it are compared by their first digits
_MAX_FAILURE = 600  # characters of a failure that is searched for signs of a broken connection
_MAX_MASKED = 160  # characters of a text that tells forms apart


class Sign:
    """A marker in place of a value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __bool__(self) -> bool:
        return False


UNKNOWN = Sign("UNKNOWN")
"""The value is unknown."""
GONE = Sign("GONE")
"""The record is known not to exist."""


class SeenStep(NamedTuple):
    """One call of an episode and its answer without its wrapping."""

    tool: str
    args: dict[str, JsonValue]  # without those that equal their default
    ok: bool
    out: JsonValue
    writes: bool
    wrap: Wrap


def is_left_open(step: SeenStep) -> bool:
    """Whether a write failed without its tool's own answer: it may have taken effect."""
    text = " ".join(map(str, leaves(step.out))) if step.writes and not step.ok else ""
    return len(text) < _MAX_FAILURE and _LEFT_OPEN.search(text) is not None


def step_of(step: HistoryStep, defaults: Mapping[str, JsonValue]) -> SeenStep:
    """Convert a recorded call for mining; `defaults` are those of the tool's arguments."""
    args = without_defaults(step.args, defaults)
    seen = step.seen
    parts = seen.get("$answer") if isinstance(seen, dict) and len(seen) == 1 else None
    if isinstance(parts, dict) and parts.get("error") is not None:
        return SeenStep(step.tool, args, False, parts, step.writes, lambda out: {"$answer": out})
    out, wrap = opened(seen)
    return SeenStep(step.tool, args, not (step.failed or failed(out)), out, step.writes, wrap)


def without_defaults(
    args: Mapping[str, JsonValue], defaults: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the arguments sorted by name, without those that equal their default."""
    return {
        name: value
        for name, value in sorted(args.items())
        if not (name in defaults and same(value, defaults[name]))
        and (value is not None or defaults.get(name) is not None)
    }


def value_key(value: object) -> ValueKey:
    """Return a hashable key; equal values have equal keys."""
    if type(value) is str:
        return ("s", value)
    if value is None or isinstance(value, (bool, Sign)):
        return ("b", value)
    if isinstance(value, (int, float)):
        return ("n", _rounded(value))
    if isinstance(value, str):
        return ("s", value)
    return ("j", _spell(_normal(value)))


def same(left: object, right: object) -> bool:
    """Whether two values are known and equal."""
    if left is right:
        return True
    return not isinstance(left, Sign) and not isinstance(right, Sign) and value_key(left) == value_key(right)


def is_known(value: object) -> bool:
    """Whether this is a value: neither UNKNOWN nor GONE."""
    return value is not UNKNOWN and value is not GONE


def has_digits(text: str, least: int = 1) -> bool:
    """Whether a text has at least this many digits."""
    return sum(character.isdigit() for character in text) >= least


def is_thing(value: object) -> bool:
    """Whether a value may name a thing: one word of at least 3 characters, or an integer of at least 100."""
    if isinstance(value, str):
        return len(value) > 2 and len(value.split()) == 1
    return isinstance(value, int) and not isinstance(value, bool) and value >= 100


def is_code(value: object) -> bool:
    """Whether a value is one word with letters and digits, such as a key or a code, and not a time."""
    text = value if isinstance(value, str) else ""
    mixed = has_digits(text) and any(character.isalpha() for character in text)
    return mixed and len(text.split()) == 1 and not _TIME.match(text)


def is_clock(value: object) -> bool:
    """Whether a value is only a time of day, which changes without any call."""
    return isinstance(value, str) and CLOCK.fullmatch(value) is not None


def at_path(value: JsonValue, path: Iterable[str | int]) -> Any:
    """Return the value at a path; UNKNOWN if there is none."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return UNKNOWN
    return value


def leaves(value: JsonValue) -> Iterator[JsonValue]:
    """Yield the scalars in a value."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def tokens(text: str) -> list[str]:
    """Split a text into words, spaces and signs; ids and times stay whole."""
    return _TOKEN.findall(text)


def shape_of(text: str, arg_values: Iterable[JsonValue] = ()) -> str:
    """Return a text with arguments and numbers masked; no argument is looked for inside a word or number."""
    parts = {value for value in arg_values if isinstance(value, str) and len(value) > 1}
    for part in sorted(parts, key=len, reverse=True):
        if part in text:
            text = re.sub(rf"(?<![^\W_]){re.escape(part)}(?![^\W_])", "@", text)
    return _WITH_DIGITS.sub("#", text)[:_MAX_MASKED]


def _rounded(number: float) -> float | str:
    if isinstance(number, int) and abs(number) >= _EXACT:
        return number  # an id, say: as a float it would be its neighbour
    if number != number:
        return "nan"
    return round(float(number), 6) if abs(number) >= _SMALL else float(f"{number:.6g}")


def _normal(value: JsonValue) -> JsonValue:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return _rounded(value)
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return {name: _normal(item) for name, item in value.items()}


__all__ = ["decimal_places", "figure", "is_key", "is_number", "is_scalar"]  # imported, and meant for others
