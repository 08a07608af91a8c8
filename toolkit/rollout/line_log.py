"""Lines that are appended to a file: journal, events, audit log, records of a training, history, outbox.

Decides how a line is written and read: never through a link, only behind whole lines, and on the disk before
`append` returns where the caller asks for that. A killed process leaves whole lines and at most a *torn* last
line, without its line end: readers stop before it, the next writer cuts it off. Locks, masking and the form
of a line are the caller's.
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
    """A file of lines, open for appending; made where there is none. The caller is its only writer.

    Attributes:
        size: bytes in the file; the next line begins there.
        failed: why nothing is written any more, None while all is well.

    Raises:
        RunDirectoryError: the file is a link, a folder or a pipe, or the system refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: RunDirectoryError | None = None
        self.descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.size = os.fstat(self.descriptor).st_size

    def append(self, lines: bytes, *, sync: bool = False, undo: bool = True) -> None:
        """Write lines with their line ends, in one system call unless the disk takes less.

        Args:
            lines: one or several.
            sync: wait until the disk has them: they survive the death of the machine, too.
            undo: cut off what was written of lines that were refused.

        Raises:
            RunDirectoryError: the disk refuses, or did before: nothing may follow a torn line.
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
            with suppress(OSError):  # else it stays torn, and readers drop it
                if undo:
                    os.ftruncate(self.descriptor, self.size)
            raise self.failed from error
        self.size += len(lines)

    def end(self) -> int:
        """Bytes up to the end of the last whole line."""
        end = self.size
        while end:
            start = max(0, end - _BLOCK)
            newline = os.pread(self.descriptor, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def cut(self, size: int) -> None:
        """Cut off what stands behind so many bytes.

        Raises:
            RunDirectoryError: the disk refuses.
        """
        try:
            os.ftruncate(self.descriptor, size)
        except OSError as error:
            raise refused(self.path, "cannot be written", error) from error
        self.size = size

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.descriptor < 0

    def close(self) -> None:
        """Close the file; calling it twice does no harm."""
        if not self.closed:
            os.close(self.descriptor)
            self.descriptor = -1


def append_lines(path: Path, lines: bytes, *, sync: bool = False) -> None:
    """Append to a file that nobody holds open, in place of a torn last line; see `LineLog.append`."""
    with LineLog(path) as log:
        log.cut(log.end())
        log.append(lines, sync=sync)


def read_lines(path: Path, *, longest: int = -1, torn: bool = False) -> Iterator[tuple[int, bytes]]:
    """Give the whole lines of a file, in order, each with the number of bytes before it; none without a file.

    Args:
        path: the file.
        longest: bytes; of a longer line only its first bytes count, as of a torn one. -1: no limit.
        torn: give what has no line end as well, instead of stopping there.

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
    """Give what `read` makes of each whole line's JSON, in order; nothing where there is no file.

    Raises:
        RunDirectoryError: a line is not JSON, or `read` raises NotSerializable: "FILE:LINE: `problem`", where
            `problem` has "{}" for the reason.
    """
    for number, (_, line) in enumerate(read_lines(path), start=1):
        try:
            yield read(read_json(line))
        except NotSerializable as error:
            raise RunDirectoryError(f"{path}:{number}: {problem.format(error)}") from None
