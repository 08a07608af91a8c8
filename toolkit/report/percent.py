"""Format shares, counts and durations equally in all outputs."""

from collections.abc import Sequence
from math import ceil, floor

_NOISE = 9  # digits kept of a percentage: 0.07 * 100 is slightly more than 7


def whole_percent(share: float) -> int:
    """Round to whole percent, never up to 100 or down to 0."""
    percent = round(share * 100)
    if percent == 100 and share < 1:
        return 99
    return 1 if percent == 0 and share > 0 else percent


def whole_bounds(low: float, high: float) -> tuple[int, int]:
    """Round the bounds of an interval outward to whole percent."""
    return floor(round(100 * low, _NOISE)), ceil(round(100 * high, _NOISE))


def format_interval(low: float, high: float) -> str:
    """Format the bounds of a share: "68 to 99"."""
    return "{} to {}".format(*whole_bounds(low, high))


def format_points(low: float, high: float) -> str:
    """Format the bounds of a change: "-3 to +12"."""
    return "{:+d} to {:+d}".format(*whole_bounds(low, high))


def duration(seconds: float) -> str:
    """Format a duration: "4.2 s", "1:02", "1:02:03"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: "1 call", "1,204 calls"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_some(names: Sequence[str], most: int, noun: str = "") -> str:
    """Format the first few names and the number of others: "a, b and 3 more"; `noun` stands behind it."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more{noun}" if left > 0 else "")
