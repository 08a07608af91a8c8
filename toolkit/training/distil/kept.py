"""Annotations in a file: a line each, appended as they come, so that an interrupted annotating goes on.

A line bears the digest of the steps that it is of. One whose recording has changed since, or that another
annotator wrote, does not count and is made again; the last line of a trajectory holds. A torn last line is
dropped: its trajectory is annotated again.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dreamgym_kit.canonical import digest
from dreamgym_kit.codec import IF_SET, Codec
from dreamgym_kit.errors import NotJson, RunDirectoryError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.rollout.files import open_plain, read_whole, refused, write_whole
from dreamgym_kit.training.annotation import Annotation, StepNote, Trajectory, Tutorial
from dreamgym_kit.vocabulary import Spend

FILE = "annotations.jsonl"
_MOST_BYTES = 2**31
_NOTHING = Spend()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file: an annotation, the digest of the steps that it is of, and what was spent on it."""

    trajectory: str
    of: str
    by: str
    tutorial: Tutorial
    notes: tuple[StepNote, ...]
    spend: Spend | None = field(default=None, metadata=IF_SET)


_LINES = Codec(_Line)


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


def _line(of: str, said: Annotation, spend: Spend) -> bytes:
    spent = spend if spend.calls else None
    record = _LINES.write(_Line(said.trajectory, of, said.by, said.tutorial, said.notes, spent))
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _read(path: Path, number: int, line: bytes) -> tuple[str, Annotation, Spend]:
    try:
        told = _LINES.read(read_json(line))
    except NotJson as error:
        raise RunDirectoryError(
            f"{path}:{number}: is no annotation ({error}); remove the line to have it made again."
        ) from None
    return told.of, Annotation(told.trajectory, told.by, told.notes, told.tutorial), told.spend or Spend()
