"""Could chance alone make B do so badly on these very tasks? Exactly, with few tasks and few tries.

A bootstrap over tasks says little of six tasks. Here the tasks are given: had A and B been equally good at
each of them, any split of a task's tries between the two would have been as likely as the one that was seen.
"""

from collections.abc import Sequence
from math import comb

from dreamgym_kit.trust.outcomes import TaskOutcome


def exact_test(a: Sequence[TaskOutcome], b: Sequence[TaskOutcome]) -> float:
    """The chance of as few successes of B, or fewer, were both equally good at each task; 1.0 of no task.

    The exact conditional test for stratified 2x2 tables, one-sided (C. R. Mehta, N. R. Patel and R. Gray,
    JASA 80, 1985, p. 969): given a task's successes, B's share of them is hypergeometric. Inconclusive
    episodes are left out.
    """
    of_a = {outcome.task: outcome for outcome in a}
    chances, seen = [1.0], 0  # of so many successes of B over the tasks so far
    for outcome in b:
        other = of_a.get(outcome.task)
        if other is None or not other.decided or not outcome.decided:
            continue
        successes = other.success + outcome.success
        chances = _added(chances, _split(successes, other.decided, outcome.decided))
        seen += outcome.success
    return min(1.0, sum(chances[: seen + 1]))


def _split(successes: int, tries_a: int, tries_b: int) -> list[float]:
    """Chances that B has 0, 1, 2, ... of a task's successes."""
    ways = comb(tries_a + tries_b, successes)
    return [comb(tries_b, of_b) * comb(tries_a, successes - of_b) / ways if of_b <= successes else 0.0
            for of_b in range(tries_b + 1)]  # fmt: skip


def _added(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """The chances of a sum of two independent counts."""
    total = [0.0] * (len(first) + len(second) - 1)
    for at, chance in enumerate(first):
        for more, also in enumerate(second):
            total[at + more] += chance * also
    return total
