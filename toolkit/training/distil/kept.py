"""Annotations in a file: a line each, appended as they come, so that an interrupted annotating goes on.

A line bears the digest of the steps that it is of. One whose recording has changed since, or that another
annotator wrote, does not count and is made again; the last line of a trajectory holds. A torn last line is
dropped: its trajectory is annotated again.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import NotJson, RunDirectoryError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.rollout.files import open_plain, read_whole, refused, write_whole
from dreamgym_kit.rollout.records import spend_from_record, spend_to_record
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory, Tutorial
from dreamgym_kit.vocabulary import Spend

FILE = "annotations.jsonl"
_MOST_BYTES = 2**31
_NOTHING = Spend()


class KeptAnnotations:
    """The annotations of one folder."""

    def __init__(self, folder: Path) -> None:
        """Open the folder's file, which need not be there yet.

        Raises:
            RunDirectoryError: a line other than a torn last one is no annotation; names it.
        """
        self.path = folder / FILE
        self.spend = Spend()  # on all that was ever kept here, and on what was of no use in between
        self._found: dict[str, tuple[str, Annotation]] = {}
        self._whole = 0
        try:
            text = read_whole(self.path, max_bytes=_MOST_BYTES)
        except FileNotFoundError:
            return
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break
            of, annotation, spend = _read(self.path, number, line)
            self.spend += spend
            self._found[annotation.trajectory] = (of, annotation)
            self._whole += len(line)

    def of(self, trajectory: Trajectory, by: str | None = None) -> Annotation | None:
        """What was said of a trajectory as it is now, by anybody or by one annotator; None: nothing yet."""
        of, annotation = self._found.get(trajectory.key, ("", None))
        if annotation is None or of != _digest(trajectory) or by not in (None, annotation.by):
            return None
        return annotation

    def missing(self, trajectories: Iterable[Trajectory], by: str | None = None) -> list[Trajectory]:
        """Those that nothing was said of yet."""
        return [one for one in trajectories if self.of(one, by) is None]

    def append(self, trajectory: Trajectory, annotation: Annotation, spend: Spend = _NOTHING) -> None:
        """Keep one, and what was spent since the last; it is there once this returns, whatever comes.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        of = _digest(trajectory)
        line = _line(of, annotation, spend)
        try:
            descriptor = open_plain(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                os.ftruncate(descriptor, self._whole)  # of what was torn
                os.lseek(descriptor, 0, os.SEEK_END)
                write_whole(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise refused(self.path, "cannot be written", error) from error
        self._whole += len(line)
        self.spend += spend
        self._found[trajectory.key] = (of, annotation)


def _digest(trajectory: Trajectory) -> str:
    return digest([trajectory.key, [step.id for step in trajectory.steps]])[:16]


def _line(of: str, annotation: Annotation, spend: Spend) -> bytes:
    tutorial = annotation.tutorial
    told: dict[str, JsonValue] = {
        "trajectory": annotation.trajectory,
        "of": of,
        "by": annotation.by,
        "tutorial": {"plan": tutorial.plan, "success": tutorial.success, "failure": tutorial.failure},
        "notes": [
            {
                "step": note.step,
                "reasoning": note.reasoning,
                "changes": None if note.changes is None else [dict(one) for one in note.changes],
            }
            for note in annotation.notes
        ],
    }
    if spend.calls:
        told["spend"] = spend_to_record(spend)
    return json.dumps(told, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _read(path: Path, number: int, line: bytes) -> tuple[str, Annotation, Spend]:
    try:
        told: dict[str, Any] = read_json(line)
        notes = tuple(
            StepNote(
                int(note["step"]),
                str(note["reasoning"]),
                None if note.get("changes") is None else tuple(dict(one) for one in note["changes"]),
            )
            for note in told["notes"]
        )
        tutorial = Tutorial(**{name: str(value) for name, value in told["tutorial"].items()})
        spend = spend_from_record(told["spend"], "spend") if "spend" in told else Spend()
        said = Annotation(str(told["trajectory"]), str(told["by"]), notes, tutorial)
        return str(told["of"]), said, spend
    except (NotJson, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunDirectoryError(
            f"{path}:{number}: is no annotation ({error}); remove the line to have it made again."
        ) from None
