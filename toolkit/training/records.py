"""What a training keeps in its run directory: what its steps and evaluations came to, and what goes on.

    steps.jsonl        one line a step          written after its update, before its checkpoint
    evaluations.jsonl  one line an evaluation
    curriculum.jsonl   one line a step: what chose its tasks has to remember of it; none where they go in turn
    learned_from.json  the tasks that it learned from: nothing is to be proven on these
    state/step-N.json  batches that were collected ahead, written before the checkpoint of step N

Lines are cut back to the checkpoint that a resume goes on from: a line of a step that was lost with its
process is written again by the step that takes its place. All else follows from the seed and the step. A file
of state holds a checksum, since a batch of other numbers would be another run.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.canonical import digest
from dreamgym_kit.codec import Codec, Record
from dreamgym_kit.errors import NotSerializable, RunDirectoryError, UserError
from dreamgym_kit.interfaces import Collector
from dreamgym_kit.rollout.atomic_files import read_sealed, read_whole, write_atomically, write_sealed
from dreamgym_kit.rollout.journal import RENAMED_FIELDS
from dreamgym_kit.rollout.line_log import append_lines, read_lines, read_records
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.turns import Batch, UpdateFacts
from dreamgym_kit.types import Task, Verdict

STEPS, EVALUATIONS, COURSES = "steps.jsonl", "evaluations.jsonl", "curriculum.jsonl"
_spell = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_PROBLEM = "is no record of a training: {}."
_LEARNED_FROM = "learned_from.json"
# what a step's record has of its update, as it was reported
_REPORTED = ("loss", "grad_norm", "entropy", "kl", "clipped", "logprob_gap", "cpu_seconds")
_STATE_BYTES = 2 * 2**30
_ORDER = (Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE)  # of a record's counts; errors with the last


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
        return self.facts.share


@dataclass(frozen=True, slots=True)
class CourseRecord:
    """What whoever chose a step's tasks has to remember of it (`plan.TaskChooser.course`)."""

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


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one step will learn from, collected and judged."""

    batch: Batch
    facts: StepFacts
    draws: int  # times that tasks were drawn for it
    seconds: float  # that the rollouts took
    course: JsonValue = None  # what the choosing of its tasks has to remember


_FACTS = Codec(StepFacts, renamed=RENAMED_FIELDS)
_STEPS = Codec(StepRecord, nested=(_FACTS,))
_DRAWN = Codec(Drawn, nested=(_FACTS,))
_EVALUATIONS = Codec(EvaluationRecord)
_COURSES = Codec(CourseRecord)
_FILES: Mapping[type, tuple[str, Codec[Any]]] = {
    StepRecord: (STEPS, _STEPS),
    EvaluationRecord: (EVALUATIONS, _EVALUATIONS),
    CourseRecord: (COURSES, _COURSES),
}


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
    reported = {name: float(getattr(update, name)) for name in _REPORTED}
    return StepRecord(
        step=update.step,
        facts=facts,
        draws=draws,
        staleness=staleness,
        canary_gap=canary_gap,
        seconds={**seconds, "update": update.seconds},
        figures={name: value for name, value in update.figures.items() if isfinite(value)},
        **{name: value if isfinite(value) else None for name, value in reported.items()},
    )


def append_record(folder: Path, record: StepRecord | EvaluationRecord | CourseRecord) -> None:
    """Keep a record; it is there once this returns, whatever becomes of the process.

    Raises:
        RunDirectoryError: the disk refuses.
    """
    name, codec = _FILES[type(record)]
    append_lines(folder / name, _spell(codec.write(record)).encode("ascii") + b"\n")


def cut_back(folder: Path, step: int) -> None:
    """Forget what came after `step`: its checkpoint is where the run goes on from."""
    for path in (folder / name for name, _ in _FILES.values()):
        steps = read_records(path, _step, _PROBLEM)
        lines = [line for (_, line), of in zip(read_lines(path), steps, strict=True) if of <= step]
        if path.exists():
            write_atomically(path, b"".join(lines))


def read_steps(folder: Path) -> list[StepRecord]:
    """The steps of a training's run directory, in order; none where there is no such file yet.

    Raises:
        RunDirectoryError: a line is no record of a step; names it.
    """
    return _read(folder / STEPS, _STEPS)


def read_evaluations(folder: Path) -> list[EvaluationRecord]:
    """The evaluations of a training's run directory, as `read_steps`."""
    return _read(folder / EVALUATIONS, _EVALUATIONS)


def read_courses(folder: Path) -> list[CourseRecord]:
    """What the choosing of tasks has to remember of each step; none where they go in turn."""
    return _read(folder / COURSES, _COURSES)


def _read(path: Path, codec: Codec[Record]) -> list[Record]:
    return list(read_records(path, codec.read, _PROBLEM))


def _step(record: Any) -> int:
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise NotSerializable("it names no step")
    return int(record["step"])


class StateFolder:
    """Keeps the batches that wait, by the step after which they wait."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, step: int, waiting: Sequence[Drawn], *, keep_from: int = 0) -> None:
        """Keep what waits after `step`, in one step of the file system; forgets steps before `keep_from`.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        self._folder.mkdir(exist_ok=True)
        batches = [_flat(_DRAWN.write(drawn)) for drawn in waiting]
        write_sealed(self._path(step), json.dumps(batches, separators=(",", ":")).encode("ascii"))
        for path in self._folder.glob("step-*.json"):
            if path < self._path(keep_from):
                path.unlink(missing_ok=True)

    def read(self, step: int) -> list[Drawn]:
        """What waited after `step`; nothing where nothing was kept.

        Raises:
            RunDirectoryError: the file is not what was written.
        """
        path = self._path(step)
        try:
            body = read_sealed(path, max_bytes=_STATE_BYTES)
        except FileNotFoundError:
            return []
        if body is None:
            raise RunDirectoryError(
                f"{path}: is damaged; remove it to have those rollouts made again, with today's weights."
            )
        return [_DRAWN.read(_nested(record)) for record in json.loads(body)]

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.json"


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A drawn batch as the file has it: the batch's own fields beside the others."""
    batch = record.pop("batch")
    return {"step": batch["step"], "samples": batch["samples"], "logged": batch["facts"], **record}


def _nested(record: dict[str, Any]) -> dict[str, Any]:
    batch = {"step": record.pop("step"), "samples": record.pop("samples"), "facts": record.pop("logged")}
    return {"batch": batch, **record}


def write_learned_from(run: Path, tasks: Iterable[str]) -> None:
    """Keep the ids of all tasks that may be drawn; what an earlier leg kept stays."""
    ids = (read_learned_from(run) or frozenset()) | frozenset(tasks)
    write_atomically(run / _LEARNED_FROM, json.dumps(sorted(ids)).encode("ascii"))


def read_learned_from(run: Path) -> frozenset[str] | None:
    """The ids; None where nobody wrote them down.

    Raises:
        UserError: the file is damaged.
    """
    try:
        ids = read_json(read_whole(run / _LEARNED_FROM))
    except FileNotFoundError:
        return None
    except NotSerializable as error:
        raise UserError(f"{run / _LEARNED_FROM}: is damaged ({error}).") from error
    if not isinstance(ids, list) or not all(isinstance(task, str) for task in ids):
        raise UserError(f"{run / _LEARNED_FROM}: is damaged (no list of task ids).")
    return frozenset(str(task) for task in ids)


async def evaluated(
    examiner: Collector, tasks: Sequence[Task], *, n: int, step: int, seed: int, real: bool
) -> EvaluationRecord:
    """Run n episodes of each task and count; inconclusive and error are neither success nor failure.

    `step`: optimiser steps made so far. `seed`: of the run. `real`: whether the tools are the real ones.
    """
    began = time.monotonic()
    # the same whatever the step, so that two evaluations differ by the weights alone
    own = int(digest(["evaluation", seed])[:12], 16)
    groups = await examiner.collect(tasks, n, step=step, seed=own)
    outcomes: dict[str, list[int]] = {}
    for group in groups:
        counts = outcomes.setdefault(group.task, [0] * len(_ORDER))
        for rollout in group.rollouts:
            verdict = rollout.episode.verdict
            counts[_ORDER.index(verdict if verdict.conclusive else Verdict.INCONCLUSIVE)] += 1
    return EvaluationRecord(step=step, real=real, outcomes=outcomes, seconds=time.monotonic() - began)
