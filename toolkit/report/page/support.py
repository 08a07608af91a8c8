"""How well grounded a tool's dreamt answers were, as a small histogram."""

from collections.abc import Sequence
from statistics import median

from dreamgym_kit.plain import JsonValue

BINS = 10


def support_of(supports: Sequence[float]) -> dict[str, JsonValue]:
    """Give `{"bins": [10 ints], "median", "least"}` of values from 0 to 1; empty where there are none."""
    if not supports:
        return {}
    bins = [0] * BINS
    for support in supports:
        bins[min(BINS - 1, max(0, int(support * BINS)))] += 1
    return {"bins": list(bins), "median": round(median(supports), 4), "least": round(min(supports), 4)}
