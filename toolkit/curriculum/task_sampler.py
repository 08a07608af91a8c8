"""Sample the tasks of a draw: hard but solvable ones most often, every one now and then.

A share of each draw goes in rotation to the tasks not drawn for longest, so that none is forgotten. The rest
is drawn without replacement, weighted by score (Efraimidis and Spirakis 2006). Each task has its own random
numbers, so another task changes no other's chance. Synthetic tasks get at most their share of a draw. Resting
tasks are drawn only if the others do not fill it.

A task's success rate p is estimated from all its results, because small groups say little: a group of eight
is "all equal" for a task with p = 0.1 in 43 % of cases (p^n + (1 - p)^n), so the running estimate decides,
not the last group (as in arXiv 2511.03773, equation 6). p has a posterior on a grid. Counts decay with the
steps, because the policy changes; the prior comes from the task's cluster. Judge errors are in the
likelihood: a success is seen with `e + (1 - 2 e) p`, so false successes do not make an impossible task
learnable. An extra point stands for p = 0, impossible, which a prior of rates cannot tell from very hard.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.canonical import canonical, digest
from dreamgym_kit.curriculum.records import SCORE, TURN, Seen
from dreamgym_kit.interfaces import Embedder
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import CurriculumSettings
from dreamgym_kit.types import Task

_POINTS = 100  # grid points between 0 and 1
_OWN_WEIGHT = 1.0  # weight of the uninformed prior (Jeffreys'), in episodes
ALIKE = 0.6  # minimum cosine of two texts of one cluster
_MAX_WEIGHT = 6.0  # maximum weight of the cluster's prior; more would hide the task's own results


@dataclass(frozen=True, slots=True)
class SeenOutcomes:
    """Decayed counts of successes and failures."""

    success: float = 0.0
    failure: float = 0.0

    @property
    def episodes(self) -> float:
        """The decayed number of episodes."""
        return self.success + self.failure

    def __add__(self, other: "SeenOutcomes") -> "SeenOutcomes":
        return SeenOutcomes(self.success + other.success, self.failure + other.failure)

    def __sub__(self, other: "SeenOutcomes") -> "SeenOutcomes":
        return SeenOutcomes(max(0.0, self.success - other.success), max(0.0, self.failure - other.failure))


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reliability of verdicts.

    Attributes:
        error: share of failures graded as successes, and vice versa.
        impossible: prior chance that a task is impossible.
    """

    error: float = 0.0
    impossible: float = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a task's success rate p, 0..1."""

    mean: float
    spread: float  # standard deviation
    value: float  # mean of p (1 - p), the variance within its groups, at most 0.25
    impossible: float  # chance that it is impossible


def estimated(evidence: SeenOutcomes, likes: SeenOutcomes, doubt: Doubt) -> Estimate:
    """Estimate a task's success rate.

    Args:
        evidence: the task's own results.
        likes: results of the cluster's other tasks.
        doubt: error of the verdicts, and prior chance that it is impossible.
    """
    success, failure = _logs(doubt.error)
    weight = min(_MAX_WEIGHT, _OWN_WEIGHT + likes.episodes / 16)
    mean = (likes.success + 1) / (likes.episodes + 2)
    grid = _grid()
    prior = (weight * mean - 0.5) * np.log(grid) + (weight * (1 - mean) - 0.5) * np.log1p(-grid)
    prior = np.exp(prior - prior.max())
    mass = np.concatenate(([doubt.impossible], (1 - doubt.impossible) * prior / prior.sum()))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = _times(evidence.success, success) + _times(evidence.failure, failure) + np.log(mass)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    rates = np.concatenate(([0.0], grid))
    first, second = float(mass @ rates), float(mass @ rates**2)
    return Estimate(first, sqrt(max(0.0, second - first**2)), first - second, float(mass[0]))


def evidence_of(seen: Seen, *, step: int, half_life: float) -> dict[str, SeenOutcomes]:
    """Add up earlier results of each task, decayed by age.

    Args:
        seen: earlier groups.
        step: current step, whose results count fully.
        half_life: steps after which a result counts half.
    """
    by_task: dict[str, SeenOutcomes] = {}
    for at, group in seen:
        share = 0.5 ** (max(0, step - at) / half_life)
        faded = SeenOutcomes(group.success * share, group.failure * share)
        by_task[group.task] = by_task.get(group.task, SeenOutcomes()) + faded
    return by_task


def pooled(evidence: Mapping[str, SeenOutcomes], clusters: Mapping[str, int]) -> dict[int, SeenOutcomes]:
    """Return the results by cluster."""
    by_cluster: dict[int, SeenOutcomes] = {}
    for task, seen in evidence.items():
        cluster = clusters.get(task)
        if cluster is not None:
            by_cluster[cluster] = by_cluster.get(cluster, SeenOutcomes()) + seen
    return by_cluster


@lru_cache(maxsize=1)
def _grid() -> NDArray[np.float64]:
    """Return the grid p = sin^2 of even angles, dense at both ends; Beta exponents are a - 1/2, b - 1/2."""
    evenly: NDArray[np.float64] = (np.arange(_POINTS) + 0.5) / _POINTS
    return np.sin(evenly * np.pi / 2) ** 2


@lru_cache(maxsize=64)
def _logs(error: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log-probs of a graded success and failure at each rate; the first rate is 0."""
    rates = np.concatenate(([0.0], _grid()))
    called = error + (1 - error - error) * rates
    with np.errstate(divide="ignore"):
        return np.log(called), np.log1p(-called)


def _times(count: float, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `count * logs`, with 0 * -inf = 0."""
    return count * logs if count else np.zeros_like(logs)


_LEAST = 1e-6  # minimum score, so that every task can be drawn


@dataclass(frozen=True, slots=True)
class Standing:
    """A task's state for a draw."""

    task: Task
    estimate: Estimate
    score: float
    rests: str = ""  # why it rests: "mastered", "hopeless"; "": it does not
    made: bool = False  # whether synthetic
    met: int = 0  # step of its last draw; 0: never


@dataclass(frozen=True, slots=True)
class Pick:
    """A drawn task and the reason."""

    task: Task
    why: str
    score: float


def score_of(estimate: Estimate, explore: float, decided: float = 1.0) -> float:
    """Return the training value of a task's group: expected p (1 - p), plus a bonus for uncertainty.

    `decided`: share of conclusive episodes; others are not trained on.
    """
    return decided * (estimate.value + explore * estimate.spread)


def rests(estimate: Estimate, settings: CurriculumSettings) -> str:
    """Return why a task rests for now, or ""; it returns as its results decay."""
    if estimate.impossible > settings.max_infeasible:
        return "hopeless"
    return "mastered" if estimate.mean > settings.mastered else ""


def drawn(
    standings: Sequence[Standing],
    count: int,
    *,
    settings: CurriculumSettings,
    key: Sequence[str | int],
    without: Iterable[str] = (),
) -> list[Pick]:
    """Draw tasks for a step, each at most once.

    Args:
        standings: all tasks.
        count: number, 1 or more; fewer if there are fewer.
        settings: shares and weights.
        key: identifies the draw: equal keys give equal draws.
        without: IDs already drawn in this step; repeated only if no others are left.
    """
    again = frozenset(without)
    fresh = [standing for standing in standings if not standing.rests and standing.task.id not in again]
    given = [standing for standing in fresh if not standing.made]
    waiting = sorted(given, key=lambda standing: (standing.met, _dice(standing, key)))[
        : round(settings.round_robin_share * count)
    ]
    picks = [Pick(standing.task, TURN, standing.score) for standing in waiting]
    took = {pick.task.id for pick in picks}
    by_luck = sorted(
        (standing for standing in fresh if standing.task.id not in took),
        # an exponential waiting time with the weight as rate: the smallest are taken
        key=lambda standing: _dice(standing, key) / float(max(standing.score, _LEAST) ** settings.focus),
    )
    spare = sorted(
        (standing for standing in standings if standing.rests or standing.task.id in again),
        key=lambda standing: (standing.task.id in again, standing.made, standing.met, _dice(standing, key)),
    )
    room = int(settings.synthetic * count)  # for synthetic tasks
    for standing in [*by_luck, *spare]:
        if len(picks) >= count:
            break
        if standing.made:
            if room <= 0:
                continue
            room -= 1
        picks.append(Pick(standing.task, SCORE, standing.score))
    return picks[:count]


def _dice(standing: Standing, key: Sequence[str | int]) -> float:
    """Return an exponential draw of mean 1 that depends on key and task only."""
    share = int(digest([*key, standing.task.id])[:13], 16) / 16**13
    return -log1p(-share)


class Clusters:
    """Assigns each task to a numbered cluster, in the order of the tasks.

    A task's results inform similar tasks; PPO uses clusters as groups. Clusters follow a field of the tasks'
    `meta` if the settings name one, else the text: each task joins the cluster with the most similar first
    task, if similar enough, or starts a new one. So a later task moves no other.
    """

    def __init__(self, field: str | None, embedder: Embedder | None) -> None:
        """Use `field` of the tasks' meta, else texts with `embedder`; without both each task is alone."""
        self._field, self._embedder = field, embedder
        self._of: dict[str, int] = {}
        self._named: dict[str, int] = {}
        self._first: NDArray[np.float32] | None = None  # (clusters, dimension): their first tasks
        self._numbers: list[int] = []  # cluster numbers of these rows
        self._unused = itertools.count()

    @property
    def of(self) -> Mapping[str, int]:
        """Cluster by task ID."""
        return self._of

    def add(self, tasks: Sequence[Task]) -> None:
        """Add tasks; assigned ones keep their clusters."""
        fresh = [task for task in tasks if task.id not in self._of]
        by_words = [task for task in fresh if self._field is None or self._field not in task.meta]
        vectors = {}
        if self._embedder is not None and by_words:
            rows = self._embedder.embed([text_of(task) for task in by_words])
            vectors = {task.id: row for task, row in zip(by_words, rows, strict=True)}
        for task in fresh:
            if task.id in vectors:
                self._of[task.id] = self._led(vectors[task.id])
            elif self._field is not None and self._field in task.meta:
                self._of[task.id] = self._called(canonical(task.meta[self._field]))
            else:
                self._of[task.id] = next(self._unused)

    def _led(self, row: NDArray[np.float32]) -> int:
        if self._first is not None:
            likeness = self._first @ row
            best = int(likeness.argmax())
            if likeness[best] >= ALIKE:
                return self._numbers[best]
        self._first = row[None] if self._first is None else np.vstack([self._first, row])
        self._numbers.append(next(self._unused))
        return self._numbers[-1]

    def _called(self, name: str) -> int:
        if name not in self._named:
            self._named[name] = next(self._unused)
        return self._named[name]


def text_of(task: Task) -> str:
    """Return a task's text for comparison: the texts in its input, in order."""
    return " ".join(_texts(task.input.get("messages", dict(task.input))))


def _texts(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        inner = value["content"] if "content" in value else list(value.values())
        return _texts(inner)
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return []
