"""Shares as whole percent, alike in every form of a report."""

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


def interval_told(low: float, high: float) -> str:
    """The bounds of a share in words: "68 to 99"."""
    return "{} to {}".format(*whole_bounds(low, high))


def points_told(low: float, high: float) -> str:
    """The bounds of a change in words: "-3 to +12"."""
    return "{:+d} to {:+d}".format(*whole_bounds(low, high))
