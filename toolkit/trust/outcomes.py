"""What came of the tasks of an evaluation: tries by task, those that nobody can judge apart.

An inconclusive episode is never a success and never a failure. Where there are some, every figure comes with
the two it would be had all of them failed, and had all of them succeeded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dreamgym_kit.trust.interval import share_interval
from dreamgym_kit.trust.pass_at_k import pass_all, pass_at
from dreamgym_kit.types import Verdict


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One task: its episodes by verdict."""

    task: str
    success: int
    failure: int
    inconclusive: int = 0
    family: str = ""  # which kind of task it is; "": none is told

    @property
    def decided(self) -> int:
        """Episodes with a success or a failure."""
        return self.success + self.failure

    @property
    def episodes(self) -> int:
        """All of them."""
        return self.decided + self.inconclusive

    @property
    def share(self) -> float | None:
        """Share of the decided episodes that succeeded, 0..1; None where none is decided."""
        return self.success / self.decided if self.decided else None

    @property
    def worst(self) -> float:
        """The share had every inconclusive episode failed."""
        return self.success / self.episodes

    @property
    def best(self) -> float:
        """The share had every inconclusive episode succeeded."""
        return (self.success + self.inconclusive) / self.episodes


@dataclass(frozen=True, slots=True)
class Share:
    """A mean over tasks with its 95 % interval; `worst` and `best` are the mean with nothing inconclusive."""

    mean: float
    low: float
    high: float
    tasks: int  # that it is the mean of
    left_out: int = 0  # tasks with too few decided episodes for it
    worst: float = 0.0  # had every inconclusive episode failed
    best: float = 1.0  # had every one succeeded


def task_outcomes(
    verdicts: Iterable[tuple[str, Verdict]], *, family: Callable[[str], str] = lambda _: ""
) -> tuple[TaskOutcome, ...]:
    """Count (task, verdict) pairs by task, in the order that tasks are met."""
    counted: dict[str, dict[Verdict, int]] = {}
    for task, verdict in verdicts:
        row = counted.setdefault(task, dict.fromkeys(Verdict, 0))
        row[verdict] += 1
    return tuple(
        TaskOutcome(
            task,
            row[Verdict.PASSED],
            row[Verdict.FAILED],
            row[Verdict.INCONCLUSIVE] + row[Verdict.ERROR],
            family(task),
        )
        for task, row in counted.items()
    )


def passed_once(outcomes: Sequence[TaskOutcome]) -> Share | None:
    """pass@1: the share of a task's decided episodes that succeed, mean over tasks."""
    return _mean(outcomes, 1, lambda _, tries, successes: successes / tries)


def passed_by_any(outcomes: Sequence[TaskOutcome], k: int) -> Share | None:
    """pass@k, mean over the tasks with k decided episodes or more; None where there is none."""
    return _mean(outcomes, k, pass_at)


def passed_by_all(outcomes: Sequence[TaskOutcome], k: int) -> Share | None:
    """pass^k, mean over the tasks with k decided episodes or more; None where there is none."""
    return _mean(outcomes, k, pass_all)


def _mean(outcomes: Sequence[TaskOutcome], k: int, figure: Callable[[int, int, int], float]) -> Share | None:
    """Mean of a figure of (k, tries, successes) over tasks; worst and best count those left out too."""
    held = [outcome for outcome in outcomes if outcome.decided >= k]
    if not held:
        return None
    looks = max(1, min(task.decided for task in held) // k)
    mean, low, high = share_interval([figure(k, task.decided, task.success) for task in held], episodes=looks)
    whole = [task for task in outcomes if task.episodes >= k]
    worst = [figure(k, task.episodes, task.success) for task in whole]
    best = [figure(k, task.episodes, task.success + task.inconclusive) for task in whole]
    return Share(
        mean,
        low,
        high,
        len(held),
        len(outcomes) - len(held),
        worst=sum(worst) / len(whole),
        best=sum(best) / len(whole),
    )
