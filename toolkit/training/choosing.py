"""Which tasks a step learns from: no task twice in an epoch, and the same ones at every resume.

An epoch is one shuffle of all tasks, cut into steps; the rest that fills no step waits for the next shuffle.
So a step's tasks follow from (seed, step) alone, and no running generator has to be saved.
"""

from collections.abc import Sequence
from random import Random

from dreamgym_kit.canonical import digest
from dreamgym_kit.vocabulary import Task


def tasks_of_step(tasks: Sequence[Task], count: int, *, step: int, seed: int, draw: int = 1) -> list[Task]:
    """Choose `count` tasks for a step, each at most once in it; all of them where there are fewer.

    Args:
        tasks: all of them, in their order.
        count: how many, 1 or more.
        step: from 1.
        seed: of the run.
        draw: from 1; a further draw of the same step (the one before taught nothing) has its own shuffle.
    """
    count = min(count, len(tasks))
    if draw > 1:
        return _shuffled(tasks, "draw", seed, step, draw)[:count]
    epoch, window = divmod(step - 1, len(tasks) // count)
    return _shuffled(tasks, "epoch", seed, epoch)[window * count : (window + 1) * count]


def step_seed(seed: int, step: int, draw: int = 1) -> int:
    """The seed of one step's rollouts; another one for each draw."""
    return int(digest(["rollouts", seed, step, draw])[:12], 16)


def _shuffled(tasks: Sequence[Task], *key: str | int) -> list[Task]:
    order = list(tasks)
    Random(digest(list(key))).shuffle(order)  # noqa: S311  a choice of tasks, no secret
    return order
