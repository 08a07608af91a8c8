"""How long a regular expression may take at the most, reckoned from its form before it is asked.

Python's matcher tries one way after the other; an expression of a stranger's can have it try for years, in
C, where no signal and no deadline ends it. So the ways are counted beforehand: a bound, not a measure, and
an expression whose bound is too high is simply not asked. What stands in a repeat and can itself match in
several ways has no bound, nor have backward references.
"""

import importlib
import re
from functools import lru_cache
from math import inf
from typing import Any

_LONGEST = 2000  # characters of an expression that is looked at
_MAX_TURNS = 64  # of a repeat whose inside can match in several ways
_ONE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY", "RANGE", "FAILURE", "SUCCESS"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


def work_of_search(pattern: str, length: int) -> float:
    """The most steps that `re.search` makes for a text of that length; infinity where nothing bounds them.

    Raises:
        re.error: it is not a regular expression, as Python has them.
    """
    parsed = _parsed(pattern)
    if parsed is None:
        return inf
    try:
        ways, work = _sequence(parsed, length)
    except (OverflowError, RecursionError):
        return inf
    return ways + work + length if _is_anchored(parsed) else (ways + work) * (length + 1)


@lru_cache(maxsize=1024)
def _parsed(pattern: str) -> Any:
    if len(pattern) > _LONGEST:
        return None
    try:
        parser = importlib.import_module("re._parser")  # of Python's own, and not promised to stay
        return parser.parse(pattern)
    except (ImportError, AttributeError, RecursionError, OverflowError):
        return None


def _is_anchored(parsed: Any) -> bool:
    if not len(parsed) or parsed.state.flags & re.MULTILINE:
        return False
    kind, what = parsed[0]
    return str(kind) == "AT" and str(what) in ("AT_BEGINNING", "AT_BEGINNING_STRING")


def _sequence(parts: Any, length: int) -> tuple[float, float]:
    """In how many ways parts can match one after the other, and how many steps it takes to try them all."""
    ways, work = 1.0, 1.0
    for kind, what in parts:
        more, steps = _part(str(kind), what, length)
        work += ways * steps
        ways *= more
        if work == inf:
            return inf, inf
    return ways, work


def _part(kind: str, what: Any, length: int) -> tuple[float, float]:
    if kind in _ONE:
        return 1.0, 1.0
    if kind in _REPEATS:
        least, most, inside = what
        return _repeated(int(least), min(int(most), length), *_sequence(inside, length))
    if kind == "BRANCH":
        found = [_sequence(branch, length) for branch in what[1]]
        return sum(ways for ways, _ in found), sum(work for _, work in found)
    if kind == "SUBPATTERN":
        return _sequence(what[-1], length)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _sequence(what[1], length)
    if kind == "ATOMIC_GROUP":
        return _sequence(what, length)
    return inf, inf


def _repeated(least: int, most: int, ways: float, work: float) -> tuple[float, float]:
    turns = max(0, most - least) + 1
    if ways == 1.0:
        return float(turns), (most + 1) * work + turns
    if most > _MAX_TURNS:
        return inf, inf
    return turns * ways**most, turns * ways**most * (most + 1) * work
