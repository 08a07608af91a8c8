"""The files beside a test that hold what real tools and the agent's model said: JSON lines, made for review.

`NAME.jsonl` holds tool calls in the form of the buffer's exports (`buffer import` takes them), without ids
and clocks, so that recording the same again gives the same bytes. `NAME.models.jsonl` holds what the
agent's model was told and said: a turn names the messages that it was told by their digests and spells only
those that no earlier turn of its task was told, so a file reads like the conversation, and grows no faster.
Both are written whole, under a lock of their folder: tests that share a cassette replace their own lines
only, whichever worker runs them.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from dreamgym_kit.adapters.langgraph.intercept.model_replay import message_of
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.codec import Codec, on_disk
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.replay.records import transition_to_record
from dreamgym_kit.replay.transfer import TransitionLine, read_lines
from dreamgym_kit.rollout.atomic_files import locked, write_atomically
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import SCHEMA_VERSION, Source, Transition


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of the agent's model.

    Attributes:
        turn: its number in the task.
        new: those of the messages that are spelt here, in order.
        answer: of the model (`model_replay.answer_record`).
        sent: digests of the messages that it was given.
    """

    task: str
    turn: int
    new: tuple[Mapping[str, JsonValue], ...]
    answer: Mapping[str, JsonValue] = field(metadata=on_disk("said"))
    model: str
    tools: tuple[str, ...]
    options: str
    sent: tuple[str, ...] = field(metadata=on_disk("told"))


TURNS = Codec(ModelTurn)


def turn_from_record(record: object) -> ModelTurn:
    """Read what `TURNS` wrote.

    Raises:
        NotSerializable: names the wrong field.
    """
    turn = TURNS.read(record, what="a recorded turn")
    try:
        message_of(turn.answer)
    except ValueError as error:
        raise NotSerializable(f"said: {' '.join(str(error).split())[:200]}") from None
    return turn


_FIRST = ("task", "step", "effect", "call", "answer", "world", "after")


@dataclass(frozen=True, slots=True)
class Recording:
    """What one run of a test's agent left: its tool calls and its model's turns."""

    task: str
    calls: tuple[Transition, ...]
    turns: tuple[ModelTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class Cassette:
    """A cassette on disk; `path` is that of its tool calls."""

    path: Path

    @property
    def models(self) -> Path:
        """Where the model's turns are."""
        return self.path.with_name(f"{self.path.stem}.models.jsonl")

    def holds(self, test: str) -> bool:
        """Whether anything was recorded for a test."""
        mine = belonging_to(test)
        calls = any(mine(entry.task) for entry in self.calls())
        return calls or any(mine(turn.task) for turn in self.turns())

    def calls(self) -> list[Transition]:
        """The recorded tool calls; none where there is no file.

        Raises:
            UserError: a line is no recorded call; names it.
        """
        calls: list[Transition] = []
        with _reading(self.path) as stream:
            for item in read_lines(stream):
                if not isinstance(item, TransitionLine):
                    raise UserError(f"{self.path}:{item.line}: {item.why}; record the test again")
                calls.append(item.transition)
        return calls

    def turns(self) -> list[ModelTurn]:
        """The recorded turns of models; none where there is no file.

        Raises:
            UserError: a line is no recorded turn; names it.
        """
        turns: list[ModelTurn] = []
        with _reading(self.models) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    turns.append(turn_from_record(read_json(line)))
                except NotSerializable as error:
                    raise UserError(f"{self.models}:{number}: {error}; record the test again") from None
        return turns

    def write(self, recording: Recording, *, instead_of: Callable[[str], bool]) -> None:
        """Put a recording in place of what was there for the tasks that `instead_of` names.

        Raises:
            UserError: the files cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.path.parent):
                calls = [entry for entry in self.calls() if not instead_of(entry.task)]
                turns = [turn for turn in self.turns() if not instead_of(turn.task)]
                calls.extend(replace(entry, task=recording.task) for entry in recording.calls)
                turns.extend(recording.turns)
                calls.sort(key=lambda entry: (entry.task, entry.step))
                turns.sort(key=lambda turn: (turn.task, turn.turn))
                _write(self.path, [_call_record(entry) for entry in calls])
                if turns or self.models.exists():
                    _write(self.models, [TURNS.write(turn) for turn in turns])
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror})") from error


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """Open a file; an empty one where there is none.

    Raises:
        UserError: it cannot be read, or something else stands there: a device would be read for ever.
    """
    if not path.is_file():
        if path.exists() or path.is_symlink():
            raise UserError(f"{path}: is no file; remove it, and record the test again")
        yield io.BytesIO()
        return
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def belonging_to(test: str) -> Callable[[str], bool]:
    """Which tasks are runs of a test: the first has its name, the others a number behind it."""
    return lambda task: task == test or task.startswith(f"{test}#")


def recordable(calls: Sequence[Transition]) -> tuple[Transition, ...]:
    """The calls that a cassette has to answer: what is pure runs in a dream, too."""
    return tuple(
        entry for entry in calls if entry.answer.source is Source.REAL and not entry.effect.runs_in_dream
    )


def _call_record(entry: Transition) -> dict[str, JsonValue]:
    """A call without what differs each time and what the reader fills in."""
    full = transition_to_record(entry)
    full["call"] = {key: full["call"][key] for key in ("tool", "args", "replies") if key in full["call"]}
    answer = full["answer"]
    full["answer"] = {
        key: value
        for key, value in answer.items()
        if key in ("content", "provenance") or value not in (None, "", [], {}, 1.0)
    }
    record = {key: full[key] for key in _FIRST}
    return {"schema": SCHEMA_VERSION, **record, "episode": entry.task}


def _write(path: Path, records: Sequence[Mapping[str, JsonValue]]) -> None:
    write_atomically(path, b"".join(_line(record) for record in records))


def _line(record: Mapping[str, JsonValue]) -> bytes:
    """One line, readable in any language; escaped where a text has no UTF-8 form."""
    try:
        return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(record, allow_nan=False) + "\n").encode()
