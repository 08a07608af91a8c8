"""How sure a change between two runs of the same tasks is.

The task is the unit: tasks were chosen, and episodes of one task are alike. Each task gives a pair of shares
(or means), one for each run.
"""

from collections.abc import Sequence
from math import sqrt

from dreamgym_kit.report.interval import Z_95, wilson

_RESAMPLES = 2_000
_SEED = 0


def share_change(
    before: Sequence[float], after: Sequence[float], *, z: float = Z_95
) -> tuple[float, float, float]:
    """Give the change of a mean share, with its 95 % interval.

    Newcombe's method 10 for a difference of paired proportions (R. G. Newcombe, Statist. Med. 17, 1998,
    p. 2635): Wilson's intervals of both shares,
    joined by how far they go together. Made for one episode a task (shares of 0 and 1); with several, a
    task's share varies less than a single yes or no, so the interval is wider than it need be.

    Args:
        before: one share (0..1) a task.
        after: the same tasks in the same order.
        z: normal quantile.

    Returns:
        Change (after - before), its lower and its upper bound.

    Raises:
        ValueError: no tasks, or not as many on both sides.
    """
    count = len(before)
    if count == 0 or count != len(after):
        raise ValueError("a change needs the same tasks, one or more, on both sides")
    one, other = sum(before) / count, sum(after) / count
    low_1, high_1 = _wilson(one, count, z)
    low_2, high_2 = _wilson(other, count, z)
    together = _correlation(before, after)
    change = other - one
    down = (other - low_2) ** 2 - 2 * together * (other - low_2) * (high_1 - one) + (high_1 - one) ** 2
    up = (high_2 - other) ** 2 - 2 * together * (high_2 - other) * (one - low_1) + (one - low_1) ** 2
    return change, max(-1.0, change - sqrt(max(0.0, down))), min(1.0, change + sqrt(max(0.0, up)))


def mean_change(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Give the change of a mean, with its 95 % interval.

    Paired bootstrap over tasks, percentiles of 2,000 resamples (B. Efron and R. Tibshirani, An Introduction
    to the Bootstrap, 1993, ch. 13), always the same draws. With fewer than about ten tasks it is too narrow.

    Raises:
        ValueError: no tasks, or not as many on both sides.
    """
    import numpy as np

    if not before or len(before) != len(after):
        raise ValueError("a change needs the same tasks, one or more, on both sides")
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    drawn = np.random.default_rng(_SEED).integers(0, len(differences), (_RESAMPLES, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), [0.025, 0.975])
    return float(differences.mean()), float(low), float(high)


def _wilson(share: float, count: int, z: float) -> tuple[float, float]:
    """Wilson's interval of a mean share; `wilson` itself where the share is one of whole tasks."""
    whole = round(share * count)
    if abs(whole - share * count) < 1e-9:
        return wilson(whole, count, z=z)
    shrink = 1 + z * z / count
    middle = share + z * z / (2 * count)
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, (middle - spread) / shrink), min(1.0, (middle + spread) / shrink)


def _correlation(before: Sequence[float], after: Sequence[float]) -> float:
    """The phi coefficient with Newcombe's correction, which lessens it; 0 where one side never varies."""
    count = len(before)
    one, other = sum(before) / count, sum(after) / count
    together = sum((a - one) * (b - other) for a, b in zip(before, after, strict=True))
    if together > 0:
        together = max(0.0, together - 0.5)  # ad - bc less n/2, over n
    spread = sqrt(sum((a - one) ** 2 for a in before) * sum((b - other) ** 2 for b in after))
    return together / spread if spread else 0.0
