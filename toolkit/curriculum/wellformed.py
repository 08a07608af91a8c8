"""Whether a task that was made may be taken: well-formed, about what is there, new, and nothing held out.

    malformed   the input lacks what the pattern's has, is empty, or is far longer
    unknown     it speaks of an id (a word with a digit in it) that its world does not know
    unrecorded  nothing was recorded of its world, so that a dream could not answer
    held_out    it is a held-out task, in its words or nearly so, or is set in a world that only such are in
    twice       its words are those of a task in the same world
    reworded    it says of the same things nearly what such a task says: no meaningful change

Who judges it is asked elsewhere. Decides by text and values alone; nothing is run.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.curriculum.clusters import text_of
from dreamgym_kit.errors import UserError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Embedder, Pattern
from dreamgym_kit.rollout.tasks import TASKS, task_from_record
from dreamgym_kit.vocabulary import Split, Task, World

MALFORMED, UNKNOWN, UNRECORDED = "malformed", "unknown", "unrecorded"
HELD_OUT, TWICE, REWORDED = "held_out", "twice", "reworded"

_LONGER = 4  # times the pattern's text, and some words
_SPARE = 200  # characters
_NEARLY = 0.75  # cosine of two texts about the same things
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a made task is held against.

    Attributes:
        held_out: tasks to measure with.
        given: tasks that were given to learn from.
        recorded: whether a dream can know anything of a world.
        known: the values that a world was seen to hold.
        embedder: tells how alike two texts are; None: only equal words count as the same.
    """

    held_out: Sequence[Task]
    given: Sequence[Task]
    recorded: Callable[[World], bool]
    known: Callable[[World], Sequence[str]]
    embedder: Embedder | None = None


def fault_of(task: Task, pattern: Pattern, taken: Iterable[Task], bounds: Bounds) -> str:
    """Why a made task is not taken, "" where nothing speaks against it; `taken`: all tasks so far."""
    if not _well_formed(task, pattern):
        return MALFORMED
    known = set(_words(bounds.known(task.world)))
    spoken = _ids(text_of(pattern.task)) if task.world == pattern.task.world else set()
    if _ids(text_of(task)) - spoken - known:
        return UNKNOWN
    if not bounds.recorded(task.world):
        return UNRECORDED
    if _held_out(task, known, bounds):
        return HELD_OUT
    return _repeats(task, known, [one for one in taken if one.world == task.world], bounds.embedder)


def read_again(task: Task) -> Task | None:
    """The task as a line of a file would give it, to learn from; None where a file could not hold it."""
    try:
        return task_from_record(TASKS.write(replace(task, split=Split.TRAIN)), source="a made task")
    except (UserError, TypeError, ValueError, AttributeError):
        return None


def _well_formed(task: Task, pattern: Pattern) -> bool:
    text, before = text_of(task), text_of(pattern.task)
    return (
        read_again(task) is not None
        and _shape(task.input) == _shape(pattern.task.input)
        and bool(text.strip())
        and len(text) <= _LONGER * len(before) + _SPARE
    )


def _shape(value: JsonValue) -> JsonValue:
    """An input without its texts: the same keys and as many messages."""
    if isinstance(value, Mapping):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shape(inner) for inner in value]
    return type(value).__name__


def _ids(text: str) -> set[str]:
    return {word for word in _WORD.findall(text) if any(sign.isdigit() for sign in word)}


def _words(values: Collection[str]) -> Iterable[str]:
    return (word for value in values for word in _WORD.findall(value))


def _held_out(task: Task, known: Collection[str], bounds: Bounds) -> bool:
    said = _said(task)
    if any(_said(one) == said and one.world.name == task.world.name for one in bounds.held_out):
        return True
    there = [one for one in bounds.held_out if one.world == task.world]
    if _repeats(task, known, there, bounds.embedder):
        return True
    return any(one.world == task.world for one in bounds.held_out) and not any(
        one.world == task.world for one in bounds.given
    )


def _said(task: Task) -> tuple[str, ...]:
    return tuple(_WORD.findall(text_of(task).casefold()))


def _repeats(task: Task, known: Collection[str], others: Sequence[Task], embedder: Embedder | None) -> str:
    if any(_said(one) == _said(task) for one in others):
        return TWICE
    if embedder is None:
        return ""
    mine = _things(task, known)
    same = [one for one in others if _things(one, known) == mine]
    if not same:
        return ""
    own, *rest = embedder.embed([text_of(task), *(text_of(one) for one in same)])
    return REWORDED if any(float(own @ row) >= _NEARLY for row in rest) else ""


def _things(task: Task, known: Collection[str]) -> set[str]:
    """What a task speaks of: ids, and words that are values of its world."""
    text = text_of(task)
    return _ids(text) | {word for word in _WORD.findall(text) if word in known}
