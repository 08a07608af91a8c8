"""The results of an evaluation by task, and their uncertainty: intervals, pass@k, pass^k.

The task is the unit, because episodes of one task are alike. Every interval is Wilson's, with the effective
number of trials. A task with n episodes and c successes contains more information than its first k episodes:
pass@k and pass^k average over all choices of k of the n, so that all episodes count equally.

An inconclusive episode is neither a success nor a failure. If there are any, every figure has two bounds: if
all of them failed, and if all succeeded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, sqrt

from dreamgym_kit.types import Verdict

_Z_95 = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a success rate.

    Wilson's score interval (E. B. Wilson, JASA 22, 1927, p. 209): stays inside 0..1 and is valid for few
    trials and for rates of 0 and 1, unlike the usual +/-. It assumes independent trials; episodes of one task
    are not quite independent, so with few tasks the true interval is wider: see `share_interval`.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"no rate of {successes} in {trials}")
    return wilson_of_share(successes / trials, trials)


def wilson_of_share(share: float, trials: float) -> tuple[float, float]:
    """Return Wilson's interval of a share (0..1) with an effective, fractional number of trials."""
    z = _Z_95
    shrink = 1 + z * z / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (middle - spread) / shrink), min(1.0, (middle + spread) / shrink)


def share_interval(shares: Sequence[float], *, episodes: int = 1) -> tuple[float, float, float]:
    """Return the mean of shares, one per task, with its 95 % interval.

    Wilson's interval with the effective number of trials: those of a simple share that varies as much as the
    tasks' shares (the design effect; E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998, p. 193). At
    least the number of tasks, at most `episodes` per task.

    Args:
        shares: one (0..1) per task.
        episodes: independent episodes behind each share.

    Returns:
        Mean, its lower and its upper bound.

    Raises:
        ValueError: no tasks.
    """
    tasks = len(shares)
    if tasks == 0:
        raise ValueError("a share needs a task, one or more")
    mean = min(1.0, max(0.0, sum(shares) / tasks))
    spread = sum((share - mean) ** 2 for share in shares) / max(1, tasks - 1)
    worth = tasks * mean * (1 - mean) / spread if spread > 0 and tasks > 1 else float(tasks)
    low, high = wilson_of_share(mean, min(max(worth, tasks), float(tasks * max(1, episodes))))
    return mean, min(low, mean), max(high, mean)


def pass_at(k: int, tries: int, successes: int) -> float:
    """Return the unbiased chance that at least one of k tries succeeds: `1 - C(n-c, k) / C(n, k)`.

    M. Chen et al., Evaluating Large Language Models Trained on Code, arXiv 2107.03374, equation 1.

    Args:
        k: number of tries.
        tries: n, all conclusive.
        successes: c of them.

    Raises:
        ValueError: fewer than k tries, or more successes than tries.
    """
    return 1.0 - _chance_of_kind(k, tries, tries - successes)


def pass_all(k: int, tries: int, successes: int) -> float:
    """Return the unbiased chance that k tries all succeed (pass^k): `C(c, k) / C(n, k)`.

    S. Yao et al., tau-bench, arXiv 2406.12045: what a user with k requests sees. Arguments and errors as
    for `pass_at`.
    """
    return _chance_of_kind(k, tries, successes)


def _chance_of_kind(k: int, tries: int, kind: int) -> float:
    """Return the chance that k tries, chosen from all, are all of one kind."""
    if not (1 <= k <= tries and 0 <= kind <= tries):
        raise ValueError(f"no {k} of {tries} tries, {kind} of one kind")
    return comb(kind, k) / comb(tries, k)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One task: its episodes by verdict."""

    task: str
    success: int
    failure: int
    inconclusive: int = 0
    family: str = ""  # the task's family; "": none

    @property
    def decided(self) -> int:
        """Number of conclusive episodes."""
        return self.success + self.failure

    @property
    def episodes(self) -> int:
        """Number of all episodes."""
        return self.decided + self.inconclusive

    @property
    def share(self) -> float | None:
        """Passed share of the conclusive episodes, 0..1; None without conclusive episodes."""
        return self.success / self.decided if self.decided else None

    @property
    def worst(self) -> float:
        """The share if every inconclusive episode failed."""
        return self.success / self.episodes

    @property
    def best(self) -> float:
        """The share if every inconclusive episode succeeded."""
        return (self.success + self.inconclusive) / self.episodes


@dataclass(frozen=True, slots=True)
class Share:
    """A mean over tasks with its 95 % interval; `worst` and `best` resolve the inconclusive episodes."""

    mean: float
    low: float
    high: float
    tasks: int  # number of averaged tasks
    left_out: int = 0  # tasks with too few conclusive episodes
    worst: float = 0.0  # if every inconclusive episode failed
    best: float = 1.0  # if every one succeeded


def task_outcomes(
    verdicts: Iterable[tuple[str, Verdict]], *, family: Callable[[str], str] = lambda _: ""
) -> tuple[TaskOutcome, ...]:
    """Count (task, verdict) pairs by task, in order of first appearance."""
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
    """Return pass@1: the mean over tasks of the passed share of conclusive episodes."""
    return _mean(outcomes, 1, lambda _, tries, successes: successes / tries)


def passed_by_any(outcomes: Sequence[TaskOutcome], k: int) -> Share | None:
    """Return pass@k, the mean over tasks with at least k conclusive episodes; None if there are none."""
    return _mean(outcomes, k, pass_at)


def passed_by_all(outcomes: Sequence[TaskOutcome], k: int) -> Share | None:
    """Return pass^k, the mean over tasks with at least k conclusive episodes; None if there are none."""
    return _mean(outcomes, k, pass_all)


def _mean(outcomes: Sequence[TaskOutcome], k: int, figure: Callable[[int, int, int], float]) -> Share | None:
    """Average a figure of (k, tries, successes) over tasks; worst and best include left-out tasks."""
    counted = [outcome for outcome in outcomes if outcome.decided >= k]
    if not counted:
        return None
    looks = max(1, min(task.decided for task in counted) // k)
    mean, low, high = share_interval(
        [figure(k, task.decided, task.success) for task in counted], episodes=looks
    )
    whole = [task for task in outcomes if task.episodes >= k]
    worst = [figure(k, task.episodes, task.success) for task in whole]
    best = [figure(k, task.episodes, task.success + task.inconclusive) for task in whole]
    return Share(
        mean,
        low,
        high,
        len(counted),
        len(outcomes) - len(counted),
        worst=sum(worst) / len(whole),
        best=sum(best) / len(whole),
    )
