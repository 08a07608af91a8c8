"""The audit log: what was done for real, on whose word; each line holds the digest of the one before.

    {"audit":1,"n":3,"prev":"<digest of line 2>","at":<Unix time>,"kind":"call",...,"hash":"<its own digest>"}

Lines are only ever appended. What is about to be done is on the disk before it is done, so that a killed
process has at most announced more than it did. `verify` finds every altered, missing, added or moved byte of
a log. A log that was rewritten from some line to its end is in itself whole: its last digest, the `head`, has
to be kept elsewhere to find that. No secrets: what is written was masked before.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, RunDirectoryError, UserError
from dreamgym_kit.rollout.atomic_files import read_whole, refused, take_lock
from dreamgym_kit.rollout.line_log import LineLog
from dreamgym_kit.serialization import JsonValue

AUDIT = "audit.jsonl"
AUDIT_VERSION = 1
CLOSED = "closed"  # the kind of the line that ends a run
BEGINNING = "0" * 64  # what the first line names as the one before
_MAX_BYTES = 2 * 2**30
_LINE = re.compile(
    rb'(\{"audit":(\d{1,9}),"n":(\d{1,18}),"prev":"([0-9a-f]{64})",.*),"hash":"([0-9a-f]{64})"\}'
)
_HEAD = re.compile("[0-9a-f]{64}")
_OURS = frozenset({"audit", "n", "prev", "at", "kind", "hash"})
_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Entry:
    """One line, as it was written."""

    number: int
    at: float
    kind: str
    facts: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a log is worth."""

    entries: int  # whole lines that follow on one another from the first on
    head: str  # digest of the last of them
    closed: bool  # the last of them says that the run has ended
    wrong: str = ""  # the first thing that is not as it was written; "" where nothing is

    @property
    def whole(self) -> bool:
        """Whether every byte is as it was written."""
        return not self.wrong


class AuditLog:
    """Appends to a log. Thread-safe, and the only writer while it is open, by whatever name it was opened.

    Args:
        path: the file; made where there is none.

    Raises:
        UserError: what is there is not whole, but for a last line that a killed process left half-written;
            or another writer has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.entries, self.head = 0, BEGINNING
        self._log = LineLog(path)
        try:
            # the file itself: a lock beside it would not be met by who knows it by another name
            if not take_lock(path, self._log.descriptor):
                raise RunDirectoryError(f"{path}: somebody else is writing it; wait for that.")
            self._take_up()
        except BaseException:
            self.close()
            raise

    def append(self, kind: str, /, **facts: JsonValue) -> int:
        """Write one line, on the disk once this returns; gives its number.

        Raises:
            RunDirectoryError: the disk refuses; nothing is written after that.
        """
        with self._lock:
            number = self.entries + 1
            line, digest = _line(number, self.head, time.time(), kind, facts)
            self._log.failed = self._log.failed or self._moved()
            self._log.append(line, sync=True, undo=False)  # what was refused is torn, and told of later
            self.entries, self.head = number, digest
            return number

    def close(self) -> None:
        """Close the file; calling it twice does no harm."""
        self._log.close()

    def _moved(self) -> RunDirectoryError | None:
        """Why the file takes no more lines: nobody would find them in a file that was put away or cut."""
        try:
            ours, named = os.fstat(self._log.descriptor), self.path.stat(follow_symlinks=False)
        except OSError as error:
            return refused(self.path, "cannot be written", error)
        if os.path.samestat(ours, named) and ours.st_size == self._log.size:
            return None
        return RunDirectoryError(
            f"{self.path}: was moved, or written to by somebody else; nothing real runs without its log."
        )

    def _take_up(self) -> None:
        """Go on behind what is there; a half-written last line is cut off, and that is written down."""
        content = read_whole(self.path, max_bytes=_MAX_BYTES)
        end = content.rfind(b"\n") + 1
        checked = _check(content[:end])
        if not checked.whole:
            raise UserError(f"{self.path}: {checked.wrong}. Nothing real runs on a log that is not whole.")
        self.entries, self.head = checked.entries, checked.head
        self._log.cut(end)
        if content[end:]:
            torn = hashlib.sha256(content[end:]).hexdigest()
            self.append("torn", bytes=len(content) - end, digest=torn)


def entries_of(path: Path) -> list[Entry]:
    """The whole lines of a log that was verified, in order.

    Raises:
        UserError: a line is not as it was written.
    """
    content = _content(path)
    try:
        return [entry for entry, _ in _follow(content[: content.rfind(b"\n") + 1])]
    except NotSerializable as error:
        raise UserError(f"{path}: {error}.") from None


def verify(path: Path, *, head: str = "") -> Checked:
    """Whether every byte of a log is as it was written.

    Args:
        path: the file.
        head: the digest that its last line had, as it was kept elsewhere; "": nobody kept it.

    Raises:
        UserError: there is no such file, or it cannot be read; or `head` is no whole digest.
    """
    if head and not _HEAD.fullmatch(head):  # a part of one would be met by a log made to meet it
        raise UserError(f"head: expected all 64 characters that the run ended with, got {head!a:.80}.")
    content = _content(path)
    checked = _check(content)
    if checked.whole and not checked.entries:
        return replace(checked, wrong="holds no line: none was ever written, or all were cut off")
    if checked.whole and head and checked.head != head:
        wrong = f"the last line's digest is {checked.head}, and was {head}: lines were cut off or rewritten"
        return replace(checked, wrong=wrong)
    return checked


def _content(path: Path) -> bytes:
    try:
        return read_whole(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no audit log.") from None


def _check(content: bytes) -> Checked:
    """Follow the chain as far as it holds."""
    number, head, closed, wrong = 0, BEGINNING, False, ""
    try:
        for entry, digest in _follow(content):
            number, head, closed = entry.number, digest, entry.kind == CLOSED
    except NotSerializable as error:
        wrong = str(error)
    return Checked(number, head, closed, wrong)


def _follow(content: bytes) -> Iterator[tuple[Entry, str]]:
    """Give each line of a chain with its digest.

    Raises:
        NotSerializable: at the first line that is not as it was written; names it.
    """
    before = BEGINNING
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            record = _read(line, number, before)
        except NotSerializable as error:
            raise NotSerializable(f"line {number} {error}") from None
        facts = {name: value for name, value in record.items() if name not in _OURS}
        before = record["hash"]
        yield Entry(number, record["at"], str(record["kind"]), facts), before
    if rest:
        raise NotSerializable(f"line {len(lines) + 1} is half-written")


def _read(line: bytes, number: int, before: str) -> dict[str, Any]:
    """The record of a line that follows on the one with the digest `before`; else says what is wrong."""
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise NotSerializable("is no line of an audit log")
    if int(parts[2]) != AUDIT_VERSION:
        raise NotSerializable(f"was written in version {int(parts[2])}; this one reads {AUDIT_VERSION}")
    if hashlib.sha256(parts[1]).hexdigest().encode("ascii") != parts[5]:
        raise NotSerializable("was altered")
    if parts[4].decode("ascii") != before or parts[3] != b"%d" % number:
        raise NotSerializable("does not follow on the one before: lines are missing, were added or moved")
    try:
        record: dict[str, Any] = read_json(line)
    except NotSerializable:
        raise NotSerializable("is no line of an audit log") from None
    if not {"kind", "at", "hash"} <= record.keys():
        raise NotSerializable("is no line of an audit log")
    return record


def _line(
    number: int, before: str, at: float, kind: str, facts: Mapping[str, JsonValue]
) -> tuple[bytes, str]:
    if not _OURS.isdisjoint(facts):
        raise ValueError(f"a line has its own {sorted(_OURS & set(facts))}")
    record = {"audit": AUDIT_VERSION, "n": number, "prev": before, "at": at, "kind": kind, **facts}
    body = _spell(record).encode("ascii")[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + b',"hash":"' + digest.encode("ascii") + b'"}\n', digest
