"""Read a file of traces as JSON objects, in any outer form, with one line or document in memory.

A record is a line of JSON Lines, an element of a top-level list, or an element of the lists in which span
formats nest (`resourceSpans`, `scopeSpans`, `batches`, `spans`, `data`, `observations`, ...). Each record is
parsed separately, so that one that is damaged, too deep or truncated affects no other.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dreamgym_kit.adapters.traces.seen import TraceRecord
from dreamgym_kit.bounded_json import MAX_BYTES, read_json
from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.replay.transfer import UnreadableLine

MAX_DOCUMENT_BYTES = 96 * 2**20  # of a file other than JSON Lines; its records are parsed one by one
MAX_RECORDS = 500_000  # per JSON text; without a limit, 12 MB of `{},` take a minute
RECORD_LISTS = frozenset(
    f'"{name}"'.encode()
    for name in (
        *("resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "batches", "spans", "data"),
        *("observations", "runs", "traces"),
    )
)
_LINES = frozenset({".jsonl", ".ndjson"})
_NOT_SPACE = re.compile(rb"\S")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Possessive: a million escapes must not cause a million backtracking states. An open string ends the text.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[\]{},:]', re.DOTALL)


def read_records(path: Path) -> Iterator[TraceRecord | UnreadableLine]:
    """Read a file record by record.

    Raises:
        UserError: the file cannot be opened or read.
    """
    try:
        with path.open("rb") as stream:
            yield from _records(stream, lines=path.suffix.lower() in _LINES)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({reason})") from error


def _records(stream: BinaryIO, *, lines: bool) -> Iterator[TraceRecord | UnreadableLine]:
    first = _first_line(stream)
    if first.startswith(_UTF16):
        yield UnreadableLine(1, "UTF-16 text; save the file as UTF-8")
    elif lines or _balanced(first):
        yield from _lines(stream)
    else:
        data = stream.read(MAX_DOCUMENT_BYTES + 1).removeprefix(codecs.BOM_UTF8)
        if len(data) > MAX_DOCUMENT_BYTES:
            yield UnreadableLine(
                1, f"one JSON document of more than {MAX_DOCUMENT_BYTES} bytes; export as JSON Lines"
            )
        else:
            yield from _Splitter(data, 1).run()


def _first_line(stream: BinaryIO) -> bytes:
    line = b""
    while not line.strip() and (line := stream.readline(MAX_BYTES + 1)):
        pass
    stream.seek(0)
    return line


def _balanced(line: bytes) -> bool:
    """Return whether a line is complete JSON, as in JSON Lines; an overlong one counts as a document."""
    if len(line) > MAX_BYTES:
        return False
    depth = 0
    for token in _TOKEN.finditer(line):
        depth += (token[0] in (b"[", b"{")) - (token[0] in (b"]", b"}"))
    return depth == 0


def _lines(stream: BinaryIO) -> Iterator[TraceRecord | UnreadableLine]:
    number = 0
    while raw := stream.readline(MAX_BYTES + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if len(raw) > MAX_BYTES:
            while (part := stream.readline(2**20)) and not part.endswith(b"\n"):
                pass
            yield UnreadableLine(number, f"longer than {MAX_BYTES} bytes")
        elif line := raw.strip():
            yield from _Splitter(line, number).run()


@dataclass(slots=True)
class _Open:
    """An open container: the root, a list of records, or a record that may contain such lists."""

    is_list: bool
    start: int
    since: int = 0  # of a list: start of its current element
    filled: bool = False  # list: its current element was an object; object: it contains records


class _Splitter:
    """Split one JSON text into its records; reports damaged parts with their line.

    It tracks brackets and keys, and parses only the records.
    """

    def __init__(self, data: bytes, line: int) -> None:
        self._data = data
        self._line, self._counted = line, 0
        self._outline: list[_Open] = []
        self._deep = 0  # open brackets inside a skipped value
        self._key = self._last = b""
        self._given = 0  # records yielded, readable or not

    def run(self) -> Iterator[TraceRecord | UnreadableLine]:
        for token in _TOKEN.finditer(self._data):
            mark, at = token[0], token.start()
            if mark in b"[{":
                self._open(mark == b"[", at)
            elif mark in b"]}":
                yield from self._close(at)
                if self._given > MAX_RECORDS:
                    yield self._unread(
                        at, f"more than {MAX_RECORDS} records in one JSON text; the rest is skipped"
                    )
                    return
            elif not self._deep:
                yield from self._between(mark, at)
        yield from self._end()

    def _open(self, is_list: bool, at: int) -> None:
        if self._deep or not self._looked_into(is_list):
            self._deep += 1
            return
        if self._outline and not is_list:
            self._outline[-1].filled = True
            if len(self._outline) > 1:
                self._outline[-2].filled = True
        self._outline.append(_Open(is_list, at, at + 1))

    def _looked_into(self, is_list: bool) -> bool:
        if not self._outline:
            return True
        if self._outline[-1].is_list:
            return not is_list
        return is_list and self._key in RECORD_LISTS

    def _close(self, at: int) -> Iterator[TraceRecord | UnreadableLine]:
        if self._deep:
            self._deep -= 1
            return
        if not self._outline:
            yield self._unread(at, "a closing bracket without its opening one")
            return
        closed = self._outline.pop()
        if closed.is_list:
            yield from self._element(closed, at)
        elif not closed.filled:
            yield self._record(closed.start, at + 1)
        self._key = b""

    def _between(self, mark: bytes, at: int) -> Iterator[TraceRecord | UnreadableLine]:
        top = self._outline[-1] if self._outline else None
        if mark == b":":
            self._key = self._last
        elif mark != b",":
            self._last = mark
        elif top is not None and top.is_list:
            yield from self._element(top, at)
        else:
            self._key = b""

    def _element(self, holder: _Open, at: int) -> Iterator[UnreadableLine]:
        """Report an element that is not an object; objects were yielded when they closed."""
        if not holder.filled and (match := _NOT_SPACE.search(self._data, holder.since, at)) is not None:
            yield self._unread(match.start(), "expected an object")
        holder.filled, holder.since = False, at + 1

    def _end(self) -> Iterator[TraceRecord | UnreadableLine]:
        if self._outline or self._deep:
            start = self._outline[-1].start if self._outline else 0
            yield self._unread(start, "the text ends in the middle of this record")
        elif not self._given and self._data.strip():
            item = self._record(0, len(self._data))  # for the reason why it is not JSON
            yield item if isinstance(item, UnreadableLine) else self._unread(0, "no object in it")

    def _record(self, start: int, end: int) -> TraceRecord | UnreadableLine:
        try:
            value = read_json(self._data[start:end])
        except NotSerializable as error:
            return self._unread(start, str(error))
        self._given += 1
        return TraceRecord(self._line_at(start), value)

    def _unread(self, at: int, why: str) -> UnreadableLine:
        self._given += 1
        return UnreadableLine(self._line_at(at), why)

    def _line_at(self, at: int) -> int:
        if at < self._counted:  # only a truncated text looks back
            return self._line - self._data.count(b"\n", at, self._counted)
        self._line += self._data.count(b"\n", self._counted, at)
        self._counted = at
        return self._line
