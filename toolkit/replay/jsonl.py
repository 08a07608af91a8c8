"""Transitions in and out of JSON lines: one record a line, the form of `records`.

Reading goes line by line and is bounded, whatever the file is: what can be read is kept, what cannot is
listed with its line and field. Empty lines are passed over. Writing gives a whole file or none.
"""

import codecs
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dreamgym_kit.errors import NotJson, StoreError, UserError
from dreamgym_kit.jsonread import MAX_BYTES
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import TransitionStore
from dreamgym_kit.replay.records import dump_transition, load_transition
from dreamgym_kit.vocabulary import Transition

MAX_PROBLEMS = 20
_BATCH_ROWS = 500
_BATCH_BYTES = 8 * 2**20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of a file's lines."""

    read: int  # transitions that could be read
    new: int  # of these, how many the store did not have yet
    duplicates: int  # of these, how many it had
    problems: tuple[str, ...] = ()  # "rows.jsonl:7: call.tool: missing", the first 20
    unread: int = 0  # lines that could not be read, those beyond the first 20 too

    def to_json(self) -> dict[str, JsonValue]:
        """The same as JSON data, stable for machines."""
        return {
            "read": self.read,
            "new": self.new,
            "duplicates": self.duplicates,
            "unread": self.unread,
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no transition."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Row:
    """A line that is one."""

    line: int
    size: int  # bytes of the line
    transition: Transition


def read_lines(stream: BinaryIO) -> Iterator[Row | Unreadable]:
    """Read a stream of JSON lines one at a time, never holding more than one line of 32 MiB."""
    number = 0
    while raw := stream.readline(MAX_BYTES + 1):
        number += 1
        if number == 1:
            if raw.startswith(_UTF16):
                yield Unreadable(1, "UTF-16 text; save the file as UTF-8")
                return
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if len(raw) > MAX_BYTES:
            _skip_line(stream)
            yield Unreadable(number, f"longer than {MAX_BYTES} bytes")
        elif line := raw.strip():
            yield _read_line(number, line)


def import_jsonl(path: Path, store: TransitionStore) -> ImportReport:
    """Put every transition of a file into a store, in the order of the file.

    Importing again adds nothing, so a broken-off import is simply repeated.

    Raises:
        UserError: the file cannot be opened or read.
        StoreError: the store failed; says how many rows were kept before.
    """
    counts = _Counts(path)
    batch: list[Transition] = []
    size = 0
    try:
        with path.open("rb") as stream:
            for item in read_lines(stream):
                if isinstance(item, Unreadable):
                    counts.refuse(item)
                    continue
                batch.append(item.transition)
                size += item.size
                if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    counts.put(store, batch)
                    batch, size = [], 0
            counts.put(store, batch)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({reason}); {counts.read} transitions were kept") from error
    return counts.report()


def export_jsonl(store: TransitionStore, path: Path, *, overwrite: bool = False) -> int:
    """Write all transitions of a store to a file, in the order recorded; gives their number.

    The file appears whole under its name or not at all; a reader never meets half of it.

    Raises:
        UserError: the file exists and `overwrite` is False, it is a folder, device or pipe, or it cannot
            be written.
        StoreError: the store cannot be read to its end.
    """
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        if path.exists() and not path.is_file():  # root may replace a device, and break it for everybody
            raise UserError(f"{path}: is no plain file; nothing was exported: name a file")
        if not overwrite and path.exists():
            raise _exists(path)
        with beside.open("xb") as file:
            count = 0
            for transition in store.scan():
                file.write(dump_transition(transition).encode("ascii") + b"\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        _give_name(beside, path, overwrite=overwrite)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be written ({reason}); nothing was exported") from error
    finally:
        with suppress(OSError, ValueError):
            beside.unlink()
    return count


class _Counts:
    """What an import has done so far."""

    def __init__(self, path: Path) -> None:
        self.read = 0
        self._path = path
        self._new = 0
        self._unread = 0
        self._problems: list[str] = []

    def refuse(self, item: Unreadable) -> None:
        self._unread += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(f"{self._path}:{item.line}: {item.why}")

    def put(self, store: TransitionStore, batch: list[Transition]) -> None:
        try:
            self._new += store.put(batch)
        except StoreError as error:
            raise StoreError(
                f"{error} ({self.read} transitions of {self._path} are in it; import again for the rest)"
            ) from error
        self.read += len(batch)

    def report(self) -> ImportReport:
        duplicates = self.read - self._new
        return ImportReport(self.read, self._new, duplicates, tuple(self._problems), self._unread)


def _read_line(number: int, line: bytes) -> Row | Unreadable:
    try:
        return Row(number, len(line), load_transition(line))
    except NotJson as error:
        return Unreadable(number, str(error))


def _skip_line(stream: BinaryIO) -> None:
    while (part := stream.readline(2**20)) and not part.endswith(b"\n"):
        pass


def _give_name(beside: Path, path: Path, *, overwrite: bool) -> None:
    """Rename, without replacing a file that came meanwhile."""
    if overwrite:
        beside.replace(path)
        return
    try:
        path.hardlink_to(beside)  # the only rename that fails when the name is taken
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise _exists(path) from None
        beside.replace(path)


def _exists(path: Path) -> UserError:
    return UserError(
        f"{path}: exists already, nothing was exported; name another one, or allow it (--overwrite)"
    )
