"""What a step and an evaluation came to, as lines of a training's run directory.

    steps.jsonl        one line a step          written after its update, before its checkpoint
    evaluations.jsonl  one line an evaluation
    curriculum.jsonl   one line a step: what chose its tasks has to remember of it; none where they go in turn

All are cut back to the checkpoint that a resume goes on from: a line of a step that was lost with its
process is written again by the step that takes its place.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from dreamgym_kit.codec import Codec, Record
from dreamgym_kit.errors import NotJson, RunDirectoryError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.files import open_plain, read_whole, refused, write_atomically, write_whole
from dreamgym_kit.rollout.records import RENAMED_FIELDS
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.turns import UpdateFacts

STEPS, EVALUATIONS, COURSES = "steps.jsonl", "evaluations.jsonl", "curriculum.jsonl"
_spell = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_MOST_BYTES = 512 * 2**20  # a line of a step has about 1 kB


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimiser step: its episodes, its update, its sync, and what each of them took."""

    step: int  # 1-based
    facts: StepFacts
    draws: int = 1  # times that tasks were drawn for it; a draw that taught nothing is drawn again
    staleness: int = 0  # updates between the oldest weights that sampled its tokens and those it changed
    loss: float | None = None
    grad_norm: float | None = None
    entropy: float | None = None  # nats a token
    kl: float | None = None  # nats a token, from the weights that sampled
    clipped: float | None = None  # 0..1 of the tokens
    logprob_gap: float | None = None  # nats; None where weights had changed since
    canary_gap: float | None = None  # nats: server against trainer, after the sync
    seconds: Mapping[str, float] = field(default_factory=dict)  # by phase
    cpu_seconds: float | None = None  # of the update
    figures: Mapping[str, float] = field(default_factory=dict)  # of the algorithm: "value_loss", ...

    @property
    def success(self) -> float | None:
        """0..1 of the decided episodes, in the dream; None: none was decided."""
        return self.facts.success / self.facts.decided if self.facts.decided else None


@dataclass(frozen=True, slots=True)
class CourseRecord:
    """What whoever chose a step's tasks has to remember of it (`choosing.Chooser.course`)."""

    step: int
    course: JsonValue


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """How the policy did on tasks that it never learns from."""

    step: int  # optimiser steps before it; 0: the start
    real: bool  # on the real tools, or in the dream
    outcomes: Mapping[str, Sequence[int]]  # by task: episodes that succeeded, failed, are inconclusive
    seconds: float = 0.0

    @property
    def success(self) -> int:
        """Episodes that succeeded."""
        return sum(counts[0] for counts in self.outcomes.values())

    @property
    def inconclusive(self) -> int:
        """Episodes that nobody can judge."""
        return sum(counts[2] for counts in self.outcomes.values())

    @property
    def decided(self) -> int:
        """Episodes that were judged."""
        return sum(sum(counts[:2]) for counts in self.outcomes.values())


_STEPS = Codec(StepRecord, nested=(Codec(StepFacts, renamed=RENAMED_FIELDS),))
_EVALUATIONS = Codec(EvaluationRecord)
_COURSES = Codec(CourseRecord)
_CODECS: Mapping[type, Codec[Any]] = {one.kind: one for one in (_STEPS, _EVALUATIONS, _COURSES)}


def record_of(
    facts: StepFacts,
    update: UpdateFacts,
    *,
    draws: int,
    staleness: int,
    canary_gap: float | None,
    seconds: Mapping[str, float],
) -> StepRecord:
    """Put together what is kept of a step; numbers that are not finite become None."""
    return StepRecord(
        step=update.step,
        facts=facts,
        draws=draws,
        staleness=staleness,
        loss=_finite(update.loss),
        grad_norm=_finite(update.grad_norm),
        entropy=_finite(update.entropy),
        kl=_finite(update.kl),
        clipped=_finite(update.clipped),
        logprob_gap=_finite(update.logprob_gap),
        canary_gap=canary_gap,
        seconds={**seconds, "update": update.seconds},
        cpu_seconds=_finite(update.cpu_seconds),
        figures={name: value for name, value in update.figures.items() if isfinite(value)},
    )


class Lines:
    """Appends records to a file of one JSON object a line, and cuts it back when a run goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: StepRecord | EvaluationRecord | CourseRecord) -> None:
        """Keep a record; it is there once this returns, whatever becomes of the process.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        line = _spell(_CODECS[type(record)].write(record)).encode("ascii") + b"\n"
        try:
            descriptor = open_plain(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                write_whole(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise refused(self._path, "cannot be written", error) from error

    def cut_back(self, step: int) -> None:
        """Forget what came after `step`: its checkpoint is where the run goes on from."""
        try:
            kept = [line for line, told in _lines(self._path) if int(told["step"]) <= step]
        except FileNotFoundError:
            return
        write_atomically(self._path, b"".join(kept))


def read_steps(folder: Path) -> list[StepRecord]:
    """The steps of a training's run directory, in order; none where there is no such file yet.

    Raises:
        RunDirectoryError: a line is no record of a step; names it.
    """
    return _read(folder / STEPS, _STEPS)


def read_evaluations(folder: Path) -> list[EvaluationRecord]:
    """The evaluations of a training's run directory, in order.

    Raises:
        RunDirectoryError: a line is no record of an evaluation; names it.
    """
    return _read(folder / EVALUATIONS, _EVALUATIONS)


def read_courses(folder: Path) -> list[CourseRecord]:
    """What the choosing of tasks has to remember of each step, in order; none where they go in turn.

    Raises:
        RunDirectoryError: a line is no such record; names it.
    """
    return _read(folder / COURSES, _COURSES)


def _read(path: Path, codec: Codec[Record]) -> list[Record]:
    found = []
    try:
        for number, (_, told) in enumerate(_lines(path), start=1):
            try:
                found.append(codec.read(told))
            except NotJson as error:
                raise RunDirectoryError(f"{path}:{number}: is no record of a training: {error}.") from None
    except FileNotFoundError:
        return []
    return found


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Whole lines with what they say; a torn last line is no line."""
    found = []
    for number, line in enumerate(read_whole(path, max_bytes=_MOST_BYTES).splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            told = read_json(line)
        except NotJson as error:
            raise RunDirectoryError(f"{path}:{number}: {error}.") from None
        if not isinstance(told, dict) or not isinstance(told.get("step"), int):
            raise RunDirectoryError(f"{path}:{number}: is no record of a training.")
        found.append((line, told))
    return found


def _finite(value: float) -> float | None:
    return float(value) if isfinite(value) else None
