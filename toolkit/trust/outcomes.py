"""What came of the tasks of an evaluation, and how sure that is: intervals, pass@k, pass^k.

The task is the unit: tasks were chosen, and episodes of one task are alike. Every interval here is Wilson's,
with as many trials as the figures are worth. A task that was tried n times with c successes is worth more
than its first k tries: pass@k and pass^k average over all ways to choose k of the n, so that no episode is
thrown away and none counts more than another.

An inconclusive episode is never a success and never a failure. Where there are some, every figure comes with
the two it would be had all of them failed, and had all of them succeeded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, sqrt

from dreamgym_kit.types import Verdict

_Z_95 = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Give the 95 % interval of a success rate.

    Wilson's score interval (E. B. Wilson, JASA 22, 1927, p. 209): stays inside 0..1 and holds for few
    trials and for rates of 0 and 1, where the usual +/- does not. It takes trials as independent;
    episodes of one task are not quite, so with few tasks the truth is wider: see `share_interval`.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"no rate of {successes} in {trials}")
    return wilson_of_share(successes / trials, trials)


def wilson_of_share(share: float, trials: float) -> tuple[float, float]:
    """Wilson's interval of a share (0..1) that is worth so many independent trials, not always whole."""
    z = _Z_95
    shrink = 1 + z * z / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (middle - spread) / shrink), min(1.0, (middle + spread) / shrink)


def share_interval(shares: Sequence[float], *, episodes: int = 1) -> tuple[float, float, float]:
    """Give the mean of shares, one a task, with its 95 % interval.

    Wilson's interval with the effective number of trials: those of a plain share that would waver as much
    as the tasks' shares do (the design effect; E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998,
    p. 193). Never fewer than there are tasks nor more than `episodes` for each.

    Args:
        shares: one (0..1) a task.
        episodes: independent looks at a task that its share comes from.

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
    """Give the chance that at least one of k tries succeeds, unbiased: `1 - C(n-c, k) / C(n, k)`.

    M. Chen et al., Evaluating Large Language Models Trained on Code, arXiv 2107.03374, equation 1.

    Args:
        k: tries that the chance is about.
        tries: n, all decided.
        successes: c of them.

    Raises:
        ValueError: fewer than k tries, or more successes than tries.
    """
    return 1.0 - _chance_of_kind(k, tries, tries - successes)


def pass_all(k: int, tries: int, successes: int) -> float:
    """Give the chance that k tries in a row all succeed (pass^k), unbiased: `C(c, k) / C(n, k)`.

    S. Yao et al., tau-bench, arXiv 2406.12045: what a user meets who comes k times. Arguments and errors as
    for `pass_at`.
    """
    return _chance_of_kind(k, tries, successes)


def _chance_of_kind(k: int, tries: int, kind: int) -> float:
    """The chance that k tries, chosen of all, are all of one kind."""
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
