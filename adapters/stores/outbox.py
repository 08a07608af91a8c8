"""A file of rows that a server could not take: added durably, delivered in order, removed once delivered.

The file is JSON lines in the form of `buffer export`, so `buffer import` reads it too. An add is on the disk
when it returns; a line that a killed process left half was never acknowledged, and goes at the next add.
Ids are made of content, so delivering twice is delivering once: what is delivered is removed only after the
store acknowledged it, and a delivery killed in between is repeated. Adding takes a short lock, delivering
another: nobody who adds waits for a network. Lines that somebody made unreadable are never removed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.errors import NotSerializable, RunDirectoryError, StoreError
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.replay.records import dump_transition, load_transition
from dreamgym_kit.replay.transfer import batches
from dreamgym_kit.rollout.atomic_files import replacing, sync_folder, write_whole
from dreamgym_kit.rollout.line_log import append_lines, read_lines
from dreamgym_kit.rollout.lock import RunLock, locked
from dreamgym_kit.types import Transition

_BATCH_ROWS = 200  # of one message to a server: what it took is not sent again


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the rows that waited."""

    sent: int = 0  # that the store has now
    new: int = 0  # of these, how many it did not have before
    unreadable: tuple[str, ...] = ()  # "FILE:7: why"; such lines stay in the file


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    raw: bytes
    end: int  # offset behind it
    row: Transition | str  # or why it is none


class Spool:
    """Rows that wait for one buffer.

    Args:
        path: the file; it and its folder are made when the first row is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_suffix(".lock")

    def add(self, transitions: Sequence[Transition]) -> None:
        """Keep rows behind those that wait; they survive a killed process and a power cut from then on.

        Raises:
            StoreError: they cannot be kept, and none was.
        """
        try:
            data = b"".join(dump_transition(row).encode("ascii") + b"\n" for row in transitions)
        except NotSerializable as error:
            raise StoreError(f"{self.path}: a transition cannot be stored, so none was: {error}") from error
        with self._named("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._lock):
                append_lines(self.path, data, sync=True)

    def ids(self) -> set[str]:
        """The rows that wait."""
        return {line.row.id for line in self._lines() if isinstance(line.row, Transition)}

    def waits(self) -> bool:
        """Whether anything is to be delivered."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def state(self) -> tuple[int, int] | None:
        """Changes whenever rows are added or removed; None: nothing waits."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size

    def deliver(self, store: TransitionStore, heard: Callable[[int], None] = lambda _: None) -> Delivered:
        """Put what waits into a store, oldest first, and remove it here; `heard` is told how many so far.

        Raises:
            StoreError: the store is away or refused; what it did not acknowledge still waits.
            RunDirectoryError: another process delivers just now.
        """
        if not self.waits():
            return Delivered()
        with RunLock(self.path.with_suffix(".delivering")):
            sent = new = done = 0  # `done`: offset up to which all was acknowledged, or cannot be read
            unreadable: list[_Line] = []
            try:
                for lines in batches(((line, len(line.raw)) for line in self._lines()), _BATCH_ROWS):
                    rows = [line.row for line in lines if isinstance(line.row, Transition)]
                    new += store.put(rows) if rows else 0
                    sent += len(rows)
                    unreadable += [line for line in lines if not isinstance(line.row, Transition)]
                    done = lines[-1].end
                    heard(sent)
            finally:  # what a store that went away half-way acknowledged is not sent again
                self._remove(done, unreadable)
        return Delivered(sent, new, tuple(f"{self.path}:{line.number}: {line.row}" for line in unreadable))

    def _lines(self) -> Iterator[_Line]:
        """Whole lines only: what stands behind the last line's end is being written, or never was."""
        with self._named("read"):
            for number, (start, raw) in enumerate(read_lines(self.path), 1):
                if raw.strip():
                    yield _Line(number, raw, start + len(raw), _row(raw))

    def _remove(self, done: int, lines: Sequence[_Line]) -> None:
        """Take out what was delivered; what others added meanwhile stands behind it and stays."""
        if not done:
            return
        with self._named("written"), locked(self._lock):
            with self.path.open("rb") as old, replacing(self.path) as new:
                write_whole(new, b"".join(line.raw for line in lines))
                old.seek(done)
                while block := old.read(2**20):
                    write_whole(new, block)
            if not self.waits():
                self.path.unlink()
            sync_folder(self.path.parent)

    @contextmanager
    def _named(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RunDirectoryError) as refusal:
            error = refusal.__cause__ if isinstance(refusal, RunDirectoryError) else refusal
            if not isinstance(error, OSError):  # a link in its place
                raise
            reason = error.strerror or type(error).__name__
            raise StoreError(
                f"{self.path}: cannot be {action} ({reason}); recordings wait there for a server that is away"
            ) from error


def _row(raw: bytes) -> Transition | str:
    try:
        return load_transition(raw.strip())
    except NotSerializable as error:
        return str(error)
