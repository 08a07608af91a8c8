"""How long a stranger can hold a run up: hostile schemas, and long texts over everything that reads them.

Each check is one call, timed by itself; one that goes on for longer than `PATIENCE_S` is broken off, and
counts as that long. What a check says does not matter here, only that it ends.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from bench.hostile import LENGTH, matchers, schemas, texts

from dreamgym_kit.routing.schema_work import first_problem

PATIENCE_S = 20.0


class _Endless(BaseException):
    """A check was broken off."""


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(LENGTH)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with texts of a tenth."""
    return figures(LENGTH // 10)


def figures(length: int) -> list[tuple[str, float, str]]:
    """The slowest check, which is named on stderr, and how many there were."""
    (seconds, name), count = worst(checks(length))
    print(f"slowest: {name}", file=sys.stderr)
    return [("worst_s", seconds, "s"), ("checks", count, "hostile schemas, and texts over matchers")]


def checks(length: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and call of each check."""
    for name, schema, given in schemas():
        yield f"schema: {name}", lambda schema=schema, given=given: first_problem(schema, given)
    for about, text in texts(length):
        for name, match in matchers().items():
            yield f"{name}: {about}", lambda match=match, text=text: match(text)


def worst(all_checks: Iterator[tuple[str, Callable[[], Any]]]) -> tuple[tuple[float, str], int]:
    """Seconds and name of the slowest check, and how many there were."""
    slowest, count = (0.0, ""), 0
    before = signal.signal(signal.SIGALRM, _break_off)
    try:
        for name, check in all_checks:
            slowest, count = max(slowest, (seconds_of(check), name)), count + 1
    finally:
        signal.signal(signal.SIGALRM, before)
    return slowest, count


def seconds_of(check: Callable[[], Any]) -> float:
    """How long one check takes, whatever comes of it."""
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        with suppress(Exception):
            check()
    except _Endless:
        return PATIENCE_S
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return time.perf_counter() - started


def _break_off(signum: int, frame: FrameType | None) -> None:
    raise _Endless
