"""Which tasks are alike: what one of them shows says something of the others. For PPO these are the groups.

By a field of the tasks' `meta` where settings name one, else by their words: each task joins the cluster
whose first task it is most like, if it is like enough, or begins one of its own. So a task that is made later
joins without moving any other.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.canonical import canonical
from dreamgym_kit.interfaces import Embedder
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Task

ALIKE = 0.6  # least cosine of two texts of one cluster


class Clusters:
    """Puts each task into a cluster, named by a number, in the order that the tasks come."""

    def __init__(self, field: str | None, embedder: Embedder | None) -> None:
        """`field` of the tasks' meta, else the words under `embedder`; without both each task is alone."""
        self._field, self._embedder = field, embedder
        self._of: dict[str, int] = {}
        self._named: dict[str, int] = {}
        self._first: NDArray[np.float32] | None = None  # of each cluster of words: its vector, a row each
        self._numbers: list[int] = []  # of these rows
        self._count = 0

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
                self._of[task.id] = self._next()

    def _led(self, row: NDArray[np.float32]) -> int:
        if self._first is not None:
            likeness = self._first @ row
            best = int(likeness.argmax())
            if likeness[best] >= ALIKE:
                return self._numbers[best]
        self._first = row[None] if self._first is None else np.vstack([self._first, row])
        self._numbers.append(self._next())
        return self._numbers[-1]

    def _called(self, name: str) -> int:
        if name not in self._named:
            self._named[name] = self._next()
        return self._named[name]

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


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
