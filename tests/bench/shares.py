"""Shares as benches report them: of nothing there is none, which is not the same as 0."""

from collections.abc import Iterable
from math import isnan, nan


def share(part: int, whole: int) -> float:
    """`part` of `whole`; nan where there is no whole, shown as "-"."""
    return part / whole if whole else nan


def in_a_cell(value: float) -> str:
    """A share in a table: three places, or "-"."""
    return "-" if isnan(value) else f"{value:.3f}"


def worst(shares: Iterable[float]) -> float:
    """The least of them; one of nothing counts as 0: what answers nothing is not exact."""
    return min(0.0 if isnan(one) else one for one in shares)
