"""How often the policy succeeds at a task, from all that was seen of it: small groups say little alone.

The success rate p is held as a posterior on a grid. Counts fade with the steps since they were seen, for the
policy moves; the prior is what the task's cluster did. A judge that errs is in the likelihood: a success is
seen with `a + (1 - a - b) p`, so what an impossible task is credited with by mistake makes it no learnable
one. One extra point stands for p = 0, impossible, which no prior of rates can tell from very hard.

A group of eight says "all equal" of a task with p = 0.1 in 43 % of the cases (p^n + (1 - p)^n); so it is the
running estimate that decides, and never the last group (arXiv 2511.03773, equation 6, has the last group).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

_POINTS = 100  # of the grid, between 0 and 1
_OWN_WEIGHT = 1.0  # of a prior that knows nothing (Jeffreys'), in episodes: most tasks go well or do not
_MOST_WEIGHT = 6.0  # of one that many likes speak for; more would drown what the task itself shows


@dataclass(frozen=True, slots=True)
class Evidence:
    """Successes and failures, faded: no whole numbers."""

    success: float = 0.0
    failure: float = 0.0

    @property
    def episodes(self) -> float:
        """How much was seen."""
        return self.success + self.failure

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(self.success + other.success, self.failure + other.failure)

    def __sub__(self, other: "Evidence") -> "Evidence":
        return Evidence(max(0.0, self.success - other.success), max(0.0, self.failure - other.failure))

    def faded(self, share: float) -> "Evidence":
        """What is left of it, `share` in 0..1."""
        return Evidence(self.success * share, self.failure * share)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What verdicts are worth.

    Attributes:
        false_success: share of failures that are called a success.
        false_failure: share of successes that are called a failure.
        impossible: how likely a task is one that nobody can do, before anything was seen of it.
    """

    false_success: float = 0.0
    false_failure: float = 0.0
    impossible: float = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a task's success rate p, 0..1."""

    mean: float
    spread: float  # standard deviation
    value: float  # mean of p (1 - p): how much its groups differ, 0.25 at most
    impossible: float  # how likely it is that nobody can do it


def estimated(evidence: Evidence, likes: Evidence, doubt: Doubt) -> Estimate:
    """Weigh what was seen of a task.

    Args:
        evidence: of the task itself.
        likes: of the others of its cluster.
        doubt: how its verdicts err, and how likely it is impossible to begin with.
    """
    success, failure = _logs(doubt.false_success, doubt.false_failure)
    weight = min(_MOST_WEIGHT, _OWN_WEIGHT + likes.episodes / 16)
    mean = (likes.success + 1) / (likes.episodes + 2)
    grid = _grid()
    prior = (weight * mean - 0.5) * np.log(grid) + (weight * (1 - mean) - 0.5) * np.log1p(-grid)
    prior = np.exp(prior - prior.max())
    mass = np.concatenate(([doubt.impossible], (1 - doubt.impossible) * prior / prior.sum()))
    with np.errstate(divide="ignore", invalid="ignore"):
        told = _times(evidence.success, success) + _times(evidence.failure, failure) + np.log(mass)
    mass = np.exp(told - told.max())
    mass /= mass.sum()
    rates = np.concatenate(([0.0], grid))
    first, second = float(mass @ rates), float(mass @ rates**2)
    return Estimate(first, sqrt(max(0.0, second - first**2)), first - second, float(mass[0]))


def evidence_of(
    seen: Sequence[tuple[int, str, int, int]], *, step: int, half_life: float
) -> dict[str, Evidence]:
    """Add up what earlier steps saw, each faded by its age.

    Args:
        seen: (step, task, successes, failures) of each group.
        step: that is chosen for; what was seen in it counts whole.
        half_life: steps after which what was seen counts half.
    """
    found: dict[str, Evidence] = {}
    for at, task, success, failure in seen:
        share = 0.5 ** (max(0, step - at) / half_life)
        found[task] = found.get(task, Evidence()) + Evidence(success, failure).faded(share)
    return found


def pooled(evidence: Mapping[str, Evidence], clusters: Mapping[str, int]) -> dict[int, Evidence]:
    """What was seen of each cluster's tasks together."""
    found: dict[int, Evidence] = {}
    for task, one in evidence.items():
        cluster = clusters.get(task)
        if cluster is not None:
            found[cluster] = found.get(cluster, Evidence()) + one
    return found


@lru_cache(maxsize=1)
def _grid() -> NDArray[np.float64]:
    """Even steps of an angle, densest at both ends: p = sin^2, so a Beta's exponents are a - 1/2, b - 1/2."""
    evenly: NDArray[np.float64] = (np.arange(_POINTS) + 0.5) / _POINTS
    return np.sin(evenly * np.pi / 2) ** 2


@lru_cache(maxsize=64)
def _logs(false_success: float, false_failure: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probability that an episode is called a success, and a failure, at each rate; first of them 0."""
    rates = np.concatenate(([0.0], _grid()))
    called = false_success + (1 - false_success - false_failure) * rates
    with np.errstate(divide="ignore"):
        return np.log(called), np.log1p(-called)


def _times(count: float, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """`count * logs`, where nothing counted says nothing, also of what cannot be."""
    return count * logs if count else np.zeros_like(logs)
