"""Shares, counts and durations in words, alike in every form of a report."""

from math import ceil, floor

_NOISE = 9  # digits of a percent that are kept: 0.07 * 100 is a little more than 7


def whole_percent(share: float) -> int:
    """Whole per cent, never rounded up to 100 or down to 0."""
    percent = round(share * 100)
    if percent == 100 and share < 1:
        return 99
    return 1 if percent == 0 and share > 0 else percent


def whole_bounds(low: float, high: float) -> tuple[int, int]:
    """The bounds of an interval in whole percent, rounded outwards: they promise no more than is known."""
    return floor(round(100 * low, _NOISE)), ceil(round(100 * high, _NOISE))


def format_interval(low: float, high: float) -> str:
    """The bounds of a share in words: "68 to 99"."""
    return "{} to {}".format(*whole_bounds(low, high))


def format_points(low: float, high: float) -> str:
    """The bounds of a change in words: "-3 to +12"."""
    return "{:+d} to {:+d}".format(*whole_bounds(low, high))


def duration(seconds: float) -> str:
    """Say how long something took or will take: "4.2 s", "1:02", "1:02:03"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_count(number: int, noun: str) -> str:
    """A number with its noun: "1 call", "1,204 calls"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
