"""Which tasks a step learns from: no task twice in an epoch, and the same ones at every resume.

An epoch is one shuffle of all tasks, cut into steps; the rest that fills no step waits for the next shuffle.
So a step's tasks follow from (seed, step) alone, and no running generator has to be saved. What chooses by
what was seen (`curriculum`) stands behind the same `Chooser`.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from dreamgym_kit.canonical import digest
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Group
from dreamgym_kit.vocabulary import Task


class Chooser(Protocol):
    """Says which tasks a draw takes. Draws come in the order of their steps, one after the other."""

    async def tasks(self, step: int, draw: int) -> list[Task]:
        """Choose for draw `draw` (from 1) of a step; draw 1 again means that the step is made anew."""
        ...

    def saw(self, step: int, groups: Sequence[Group]) -> frozenset[str]:
        """Hear what the last draw came to; gives the tasks whose groups must not be learned from."""
        ...

    def course(self, step: int) -> JsonValue:
        """What it has to remember of a step; None: nothing."""
        ...

    def restore(self, courses: Mapping[int, JsonValue]) -> None:
        """Take up what it remembered, by step, in place of whatever it knows."""
        ...


class InTurn:
    """Chooses by epochs, whatever was seen."""

    def __init__(self, tasks: Sequence[Task], count: int, seed: int) -> None:
        self._tasks, self._count, self._seed = tasks, count, seed

    async def tasks(self, step: int, draw: int) -> list[Task]:
        """See `Chooser.tasks`."""
        return tasks_of_step(self._tasks, self._count, step=step, seed=self._seed, draw=draw)

    def saw(self, step: int, groups: Sequence[Group]) -> frozenset[str]:  # noqa: ARG002  the port's
        """Learns from every group."""
        return frozenset()

    def course(self, step: int) -> JsonValue:  # noqa: ARG002  the port's
        """Nothing: a step's tasks follow from its number."""
        return None

    def restore(self, courses: Mapping[int, JsonValue]) -> None:
        """Nothing to take up."""


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
