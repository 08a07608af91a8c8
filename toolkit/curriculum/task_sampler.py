"""Which tasks a draw takes: hard but solvable ones most often, every one now and then.

A share of each draw goes in turn, to those not met for longest, so that no task is forgotten. The rest is
drawn without replacement, with a weight that follows the score (Efraimidis and Spirakis 2006). Each task's
dice are its own, so another task more or less changes no other's luck. Made tasks get no more than their
share of a draw. Tasks that rest are drawn only where the others do not fill it.

How often the policy succeeds at a task is estimated from all that was seen of it, since small groups say
little alone: a group of eight says "all equal" of a task with p = 0.1 in 43 % of the cases (p^n + (1 - p)^n),
so the running estimate decides, and never the last group (arXiv 2511.03773, equation 6, has the last group).
The success rate p is held as a posterior on a grid. Counts fade with the steps since they were seen, for the
policy moves; the prior is what the task's cluster did. A judge that errs is in the likelihood: a success is
seen with `e + (1 - 2 e) p`, so what an impossible task is credited with by mistake makes it no learnable
one. One extra point stands for p = 0, impossible, which no prior of rates can tell from very hard.
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

_POINTS = 100  # of the grid, between 0 and 1
_OWN_WEIGHT = 1.0  # of a prior that knows nothing (Jeffreys'), in episodes: most tasks go well or do not
ALIKE = 0.6  # least cosine of two texts of one cluster
_MAX_WEIGHT = 6.0  # of one that many likes speak for; more would drown what the task itself shows


@dataclass(frozen=True, slots=True)
class SeenOutcomes:
    """Successes and failures, faded: no whole numbers."""

    success: float = 0.0
    failure: float = 0.0

    @property
    def episodes(self) -> float:
        """How much was seen."""
        return self.success + self.failure

    def __add__(self, other: "SeenOutcomes") -> "SeenOutcomes":
        return SeenOutcomes(self.success + other.success, self.failure + other.failure)

    def __sub__(self, other: "SeenOutcomes") -> "SeenOutcomes":
        return SeenOutcomes(max(0.0, self.success - other.success), max(0.0, self.failure - other.failure))


@dataclass(frozen=True, slots=True)
class Doubt:
    """What verdicts are worth.

    Attributes:
        error: share of failures that are called a success, and of successes that are called a failure.
        impossible: how likely a task is one that nobody can do, before anything was seen of it.
    """

    error: float = 0.0
    impossible: float = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a task's success rate p, 0..1."""

    mean: float
    spread: float  # standard deviation
    value: float  # mean of p (1 - p): how much its groups differ, 0.25 at most
    impossible: float  # how likely it is that nobody can do it


def estimated(evidence: SeenOutcomes, likes: SeenOutcomes, doubt: Doubt) -> Estimate:
    """Weigh what was seen of a task.

    Args:
        evidence: of the task itself.
        likes: of the others of its cluster.
        doubt: how its verdicts err, and how likely it is impossible to begin with.
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
    """Add up what earlier steps saw of each task, faded by its age.

    Args:
        seen: what was seen.
        step: that is chosen for; what was seen in it counts whole.
        half_life: steps after which what was seen counts half.
    """
    by_task: dict[str, SeenOutcomes] = {}
    for at, group in seen:
        share = 0.5 ** (max(0, step - at) / half_life)
        faded = SeenOutcomes(group.success * share, group.failure * share)
        by_task[group.task] = by_task.get(group.task, SeenOutcomes()) + faded
    return by_task


def pooled(evidence: Mapping[str, SeenOutcomes], clusters: Mapping[str, int]) -> dict[int, SeenOutcomes]:
    """What was seen of each cluster's tasks together."""
    by_cluster: dict[int, SeenOutcomes] = {}
    for task, seen in evidence.items():
        cluster = clusters.get(task)
        if cluster is not None:
            by_cluster[cluster] = by_cluster.get(cluster, SeenOutcomes()) + seen
    return by_cluster


@lru_cache(maxsize=1)
def _grid() -> NDArray[np.float64]:
    """Even steps of an angle, densest at both ends: p = sin^2, so a Beta's exponents are a - 1/2, b - 1/2."""
    evenly: NDArray[np.float64] = (np.arange(_POINTS) + 0.5) / _POINTS
    return np.sin(evenly * np.pi / 2) ** 2


@lru_cache(maxsize=64)
def _logs(error: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probability that an episode is called a success, and a failure, at each rate; first of them 0."""
    rates = np.concatenate(([0.0], _grid()))
    called = error + (1 - error - error) * rates
    with np.errstate(divide="ignore"):
        return np.log(called), np.log1p(-called)


def _times(count: float, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """`count * logs`, where nothing counted says nothing, also of what cannot be."""
    return count * logs if count else np.zeros_like(logs)


_LEAST = 1e-6  # score: a task of none is still drawn before nothing


@dataclass(frozen=True, slots=True)
class Standing:
    """A task as a draw looks at it."""

    task: Task
    estimate: Estimate
    score: float
    rests: str = ""  # why it is not to be drawn: "mastered", "hopeless"; "": it may be
    made: bool = False  # and not one of those that were given
    met: int = 0  # the step that it was drawn in last; 0: never


@dataclass(frozen=True, slots=True)
class Pick:
    """A task that was drawn, and why."""

    task: Task
    why: str
    score: float


def score_of(estimate: Estimate, explore: float, decided: float = 1.0) -> float:
    """What a group of the task promises to teach: expected p (1 - p), and more where little is known.

    `decided`: share of its episodes that could be judged; from the others nothing is learned.
    """
    return decided * (estimate.value + explore * estimate.spread)


def rests(estimate: Estimate, settings: CurriculumSettings) -> str:
    """Whether a task has nothing to teach for now; it comes back as what was seen of it fades."""
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
        count: how many, 1 or more; fewer come where there are fewer.
        settings: shares and weights.
        key: names the draw: equal keys give equal draws.
        without: ids drawn already in this step; they come again only where nothing else is left.
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
        key=lambda standing: _luck(standing, key, settings.focus),
    )
    spare = sorted(
        (standing for standing in standings if standing.rests or standing.task.id in again),
        key=lambda standing: (standing.task.id in again, standing.made, standing.met, _dice(standing, key)),
    )
    room = int(settings.synthetic * count)  # for made ones
    for standing in [*by_luck, *spare]:
        if len(picks) >= count:
            break
        if standing.made:
            if room <= 0:
                continue
            room -= 1
        picks.append(Pick(standing.task, SCORE, standing.score))
    return picks[:count]


def _luck(standing: Standing, key: Sequence[str | int], focus: float) -> float:
    """The smallest are taken: an exponential waiting time whose rate is the weight."""
    return _dice(standing, key) / float(max(standing.score, _LEAST) ** focus)


def _dice(standing: Standing, key: Sequence[str | int]) -> float:
    """An exponential draw of mean 1 that follows from the key and the task alone."""
    share = int(digest([*key, standing.task.id])[:13], 16) / 16**13
    return -log1p(-share)


class Clusters:
    """Puts each task into a cluster, named by a number, in the order that the tasks come.

    What one task shows says something of those that are alike; for PPO these are the groups. By a field of
    the tasks' `meta` where settings name one, else by their words: each task joins the cluster whose first
    task it is most like, if it is like enough, or begins one of its own. So a later task moves no other.
    """

    def __init__(self, field: str | None, embedder: Embedder | None) -> None:
        """`field` of the tasks' meta, else the words under `embedder`; without both each task is alone."""
        self._field, self._embedder = field, embedder
        self._of: dict[str, int] = {}
        self._named: dict[str, int] = {}
        self._first: NDArray[np.float32] | None = None  # of each cluster of words: its vector, a row each
        self._numbers: list[int] = []  # of these rows
        self._unused = itertools.count()

    @property
    def of(self) -> Mapping[str, int]:
        """Cluster by task id."""
        return self._of

    def add(self, tasks: Sequence[Task]) -> None:
        """Place more tasks; those that are placed already stay where they are."""
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
    """What a task says, for comparing: the texts in its input, in their order."""
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
