"""Verify that a server answers with the right weights: both score the same canary tokens.

A server that missed a sync, or got half of it, still answers without any sign. Its scores are compared with
those of the current weights and of the previous ones: scores closer to the old ones are stale, even after a
small step.
"""

from collections.abc import Sequence
from math import fsum, isfinite

_MOVED = 1e-5  # nats per token: smaller differences are not distinguishable in float32

Scores = Sequence[Sequence[float]]


def attest(server: Scores, now: Scores, before: Scores | None, *, most: float) -> tuple[float, str]:
    """Compare a server's scores with those of its intended weights.

    Args:
        server: log-probs of the canaries by the server, after the sync; one row per canary.
        now: by the trainer, after its update.
        before: by the trainer, before its update; None if there was none.
        most: maximum difference in nats.

    Returns:
        The largest difference in nats, and the problem; "" if the scores match.
    """
    gap = _largest(server, now)
    if gap is None:
        return float("inf"), "the server scored another number of canary tokens"
    if gap > most or not isfinite(gap):
        text = (
            f"the server's log-probs of canary tokens are {gap:.3g} nats from the trainer's (most {most:g})"
        )
        return gap, f"{text}: it does not serve the weights of this step"
    moved = before is not None and _mean(now, before) > _MOVED
    if before is not None and moved and _mean(server, before) < _mean(server, now) / 2:
        text = "the server's log-probs of canary tokens are those of the weights before the update"
        return gap, f"{text}: the sync did not reach it"
    return gap, ""


def _largest(first: Scores, second: Scores) -> float | None:
    """Return the largest difference; None for different shapes, infinite for NaN."""
    if [len(row) for row in first] != [len(row) for row in second]:
        return None
    differences = [abs(a - b) for a, b in _pairs(first, second)]
    if not all(isfinite(difference) for difference in differences):
        return float("inf")
    return max(differences, default=0.0)


def _mean(first: Scores, second: Scores) -> float:
    differences = [abs(a - b) for a, b in _pairs(first, second)]
    return fsum(differences) / max(len(differences), 1)


def _pairs(first: Scores, second: Scores) -> list[tuple[float, float]]:
    return [pair for a, b in zip(first, second, strict=True) for pair in zip(a, b, strict=True)]
