"""Makers and chat models that say what they are told to, and tasks in worlds that are known."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dreamgym_kit.curriculum.curriculum import TaskBounds, Workshop
from dreamgym_kit.interfaces import Pattern
from dreamgym_kit.types import Environment, Task

KNOWN = ("O11", "O12", "lamp", "chair", "Ana")


def asking(identity: str, text: str, world: int = 1, **more: object) -> Task:
    return Task(
        identity, {"messages": [{"role": "user", "content": text}]}, Environment("shop", world), **more
    )


class MakerDouble:
    """Gives the texts that it was made with, as tasks in the pattern's world."""

    how = "rules"

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = texts, list[Pattern]()

    async def like(self, pattern: Pattern, count: int, *, seed: int) -> list[Task]:
        self.asked.append(pattern)
        return [
            replace(asking("made", text), environment=pattern.task.environment, checker="shop")
            for text in self.texts[:count]
        ]


def bounds(
    held_out: Sequence[Task] = (),
    given: Sequence[Task] = (),
    *,
    recorded: Callable[[Environment], bool] = lambda _: True,
    embedder: object = None,
) -> TaskBounds:
    return TaskBounds(
        held_out=held_out, given=given, recorded=recorded, known_values=lambda _: KNOWN, embedder=embedder
    )


def workshop(folder: Path, maker: object, given: Sequence[Task] = (), **more: object) -> Workshop:
    parts = {
        "makers": [maker],
        "bounds": bounds(given=given),
        "judged": lambda task: task if task.checker else None,
        "admit": lambda _: None,
        "folder": folder,
    }
    return Workshop(**(parts | more))
