"""Cassettes: files next to a test with the answers of real tools and of the agent's model, as JSON Lines.

`NAME.jsonl` has tool calls in the form of the buffer's exports (`buffer import` reads them), without IDs and
times, so that recording the same again gives the same bytes. `NAME.models.jsonl` has the requests and replies
of the agent's model: a turn references its messages by digest and contains only those that no earlier turn of
its task had, so that a file reads like the conversation and grows no faster. Both are written atomically
under a lock of their folder: tests that share a cassette replace only their own lines, in any worker.
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
        new: the messages that this turn contains, in order.
        answer: the model's answer (`model_replay.answer_record`).
        sent: digests of the request's messages.
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
    """Parse a record of `TURNS`.

    Raises:
        NotSerializable: names the wrong field.
    """
    turn = TURNS.read(record, label="a recorded turn")
    try:
        message_of(turn.answer)
    except ValueError as error:
        raise NotSerializable(f"said: {' '.join(str(error).split())[:200]}") from None
    return turn


_FIRST = ("task", "step", "effect", "call", "answer", "world", "after")


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording of one run of a test's agent: tool calls and model turns."""

    task: str
    calls: tuple[Transition, ...]
    turns: tuple[ModelTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class Cassette:
    """A cassette on disk; `path` is its file of tool calls."""

    path: Path

    @property
    def models(self) -> Path:
        """The path of the model's turns."""
        return self.path.with_name(f"{self.path.stem}.models.jsonl")

    def holds(self, test: str) -> bool:
        """Return whether the cassette has a recording of a test."""
        mine = belonging_to(test)
        calls = any(mine(entry.task) for entry in self.calls())
        return calls or any(mine(turn.task) for turn in self.turns())

    def calls(self) -> list[Transition]:
        """Return the recorded tool calls; none if the file does not exist.

        Raises:
            UserError: a line is not a recorded call; names it.
        """
        calls: list[Transition] = []
        with _reading(self.path) as stream:
            for item in read_lines(stream):
                if not isinstance(item, TransitionLine):
                    raise UserError(f"{self.path}:{item.line}: {item.why}; record the test again")
                calls.append(item.transition)
        return calls

    def turns(self) -> list[ModelTurn]:
        """Return the recorded model turns; none if the file does not exist.

        Raises:
            UserError: a line is not a recorded turn; names it.
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
        """Replace the recordings of the tasks for which `instead_of` is true.

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
    """Open a file; an empty stream if it does not exist.

    Raises:
        UserError: it cannot be read, or is not a file: reading a device could block forever.
    """
    if not path.is_file():
        if path.exists() or path.is_symlink():
            raise UserError(f"{path}: is not a file; remove it and record the test again")
        yield io.BytesIO()
        return
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def belonging_to(test: str) -> Callable[[str], bool]:
    """Return a filter for the tasks of a test: the first has its name, the others a number after it."""
    return lambda task: task == test or task.startswith(f"{test}#")


def recordable(calls: Sequence[Transition]) -> tuple[Transition, ...]:
    """Return the calls that a cassette must answer: pure tools also run in a dream."""
    return tuple(
        entry for entry in calls if entry.answer.source is Source.REAL and not entry.effect.runs_in_dream
    )


def _call_record(entry: Transition) -> dict[str, JsonValue]:
    """Return a call's record without varying fields and those that the reader fills in."""
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
    """Encode one line as readable UTF-8; escaped if a text has no UTF-8 form."""
    try:
        return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(record, allow_nan=False) + "\n").encode()
