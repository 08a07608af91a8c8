"""Files of appended lines: journal, events, audit log, training records, history, outbox.

Lines are never written through a link, only after a complete line, and flushed to the disk before `append`
returns if the caller wants that. A killed process leaves whole lines and at most a *torn* last line, without
its line end: readers stop before it, and the next writer removes it. Locks, masking and the form of a line
are up to the caller.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.rollout.atomic_files import Closing, open_plain, refused, sync_folder, write_whole

Record = TypeVar("Record")
_BLOCK = 2**16  # bytes


class LineLog(Closing):
    """A file of lines, open for appending, created if absent. The caller is its only writer.

    Attributes:
        size: size of the file in bytes; the next line begins there.
        failed: why lines are no longer written; None: no error.

    Raises:
        RunDirectoryError: the file is a link, a folder or a pipe, or a system error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: RunDirectoryError | None = None
        self.closed = False
        self.descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.size = os.fstat(self.descriptor).st_size

    def append(self, lines: bytes, *, sync: bool = False, undo: bool = True) -> None:
        """Write lines with their line ends, in one system call unless the disk accepts less.

        Args:
            lines: one or more lines.
            sync: flush to the disk: the lines survive a crash of the machine.
            undo: after an error, remove the part that was written.

        Raises:
            RunDirectoryError: the disk refuses, or did earlier: nothing may follow a torn line.
        """
        if self.failed is not None:
            raise self.failed
        try:
            write_whole(self.descriptor, lines)
            if sync:
                os.fsync(self.descriptor)
            if sync and not self.size:
                sync_folder(self.path.parent)
        except OSError as error:
            self.failed = refused(self.path, "cannot be written", error)
            with suppress(OSError):  # otherwise readers drop the torn line
                if undo:
                    os.ftruncate(self.descriptor, self.size)
            raise self.failed from error
        self.size += len(lines)

    def end(self) -> int:
        """Return the offset after the last whole line, in bytes."""
        end = self.size
        while end:
            start = max(0, end - _BLOCK)
            newline = os.pread(self.descriptor, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def cut(self, size: int) -> None:
        """Truncate the file to `size` bytes.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        try:
            os.ftruncate(self.descriptor, size)
        except OSError as error:
            raise refused(self.path, "cannot be written", error) from error
        self.size = size

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if not self.closed:
            self.closed = True
            os.close(self.descriptor)
            self.descriptor = -1


def append_lines(path: Path, lines: bytes, *, sync: bool = False) -> None:
    """Append to a file that is not open, replacing a torn last line; see `LineLog.append`."""
    with LineLog(path) as log:
        log.cut(log.end())
        log.append(lines, sync=sync)


def read_lines(path: Path, *, longest: int = -1, torn: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield (offset in bytes, line) for each whole line; none if the file does not exist.

    Args:
        path: the file.
        longest: maximum bytes; a longer line is cut and treated as torn. -1: no limit.
        torn: also yield a line without a line end.

    Raises:
        RunDirectoryError: it cannot be read, or is not a plain file.
    """
    try:
        descriptor = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    start = 0
    try:
        with os.fdopen(descriptor, "rb") as file:
            while (line := file.readline(longest)) and (torn or line.endswith(b"\n")):
                yield start, line
                start += len(line)
    except OSError as error:
        raise refused(path, "cannot be read", error) from error


def read_records(path: Path, read: Callable[[Any], Record], problem: str) -> Iterator[Record]:
    """Yield `read(JSON)` for each whole line; none if the file does not exist.

    Raises:
        RunDirectoryError: a line is not JSON, or `read` raises NotSerializable: "FILE:LINE: `problem`", where
            "{}" in `problem` is the reason.
    """
    for number, (_, line) in enumerate(read_lines(path), start=1):
        try:
            yield read(read_json(line))
        except NotSerializable as error:
            raise RunDirectoryError(f"{path}:{number}: {problem.format(error)}") from None
