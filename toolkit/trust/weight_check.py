"""Proof that a server answers with the weights that it should have: both score the same canary tokens.

A server that missed a sync, or got half of it, still answers, and nothing in its answers says so. It is held
against the weights as they are now, and as they were before: scores nearer to the old ones are stale, however
small the step was.
"""

from collections.abc import Sequence
from math import fsum, isfinite

_MOVED = 1e-5  # nats a token: below it old and new weights cannot be told apart in float32

Scores = Sequence[Sequence[float]]


def attest(server: Scores, now: Scores, before: Scores | None, *, most: float) -> tuple[float, str]:
    """Compare the scores that a server gives with those that its weights should give.

    Args:
        server: log-probs of the canaries by the server, after the sync; one row a canary.
        now: by the trainer, after its update.
        before: by the trainer, before its update; None where there was none.
        most: nats that the largest difference may have.

    Returns:
        Nats of the largest difference, and how the server's are not those of the weights; "" where they are.
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
    """None where they are not of the same shape; infinite where a score is no number."""
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
