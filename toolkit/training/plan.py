"""What a training is asked for, who does its work, which tasks a step learns from, and what came of it.

What chooses tasks by what was seen (`curriculum`) and what takes them in turn are both a `TaskChooser`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import TrainingStopped
from dreamgym_kit.interfaces import Collector, Group, PolicyServer, Trainer
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import AlarmSettings, TrainSettings
from dreamgym_kit.training.records import EvaluationRecord, StepRecord
from dreamgym_kit.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """What a training is asked for."""

    tasks: Sequence[Task]  # to learn from
    train: TrainSettings
    alarms: AlarmSettings
    held_out: Sequence[Task] = ()  # to measure with, never learned from
    temperature: float = 1.0  # that the policy samples at


class TaskChooser(Protocol):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainParts:
    """Who does the work."""

    collector: Collector  # runs the groups that are learned from
    trainer: Trainer  # changes the weights
    policy: PolicyServer  # serves them; the collector's episodes are answered by it
    examiner: Collector | None = None  # runs the episodes of evaluations; None: there are none
    real: bool = False  # whether the examiner's tools are the real ones
    chooser: TaskChooser | None = None  # which tasks a step learns from; None: all in turn
    known_ids: Sequence[int] | None = None  # of `alarms.KNOWN_TEXT`, by its own tokenizer


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a training."""

    checkpoint: int  # the step whose checkpoint is the last whole one
    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvaluationRecord, ...]
    weights: Path | None  # model directory of the last step that is kept; None: nothing was learned
    alarm: TrainingStopped | None = None  # what ended it early
    stopped: str = ""  # why a person or a signal ended it early


class InTurn:
    """Chooses by epochs, whatever was seen: no task twice in one, and the same ones at every resume.

    An epoch is one shuffle of all tasks, cut into steps; the rest that fills no step waits for the next
    shuffle. So a step's tasks follow from (seed, step) alone, and no running generator has to be saved.
    """

    def __init__(self, tasks: Sequence[Task], count: int, seed: int) -> None:
        self._tasks, self._count, self._seed = tasks, count, seed

    async def tasks(self, step: int, draw: int) -> list[Task]:
        """See `TaskChooser.tasks`."""
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

    A further `draw` of the same step (the one before taught nothing) has its own shuffle; both count from 1.
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
