"""How sure a share is.

The task is the unit: tasks were chosen, and episodes of one task are alike. Every interval here is Wilson's,
with as many trials as the figures are worth.
"""

from collections.abc import Sequence
from math import sqrt

Z_95 = 1.959963984540054


def wilson(successes: int, trials: int, *, z: float = Z_95) -> tuple[float, float]:
    """Give the 95 % interval of a success rate.

    Wilson's score interval (E. B. Wilson, JASA 22, 1927, p. 209): stays inside 0..1 and holds for few
    trials and for rates of 0 and 1, where the usual +/- does not. It takes trials as independent;
    episodes of one task are not quite, so with few tasks the truth is wider: see `share_interval`.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"no rate of {successes} in {trials}")
    return wilson_of_share(successes / trials, trials, z=z)


def wilson_of_share(share: float, trials: float, *, z: float = Z_95) -> tuple[float, float]:
    """Wilson's interval of a share (0..1) that is worth so many independent trials, not always whole."""
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
