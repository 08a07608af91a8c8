"""Import a file of traces into a store: read, join, redact, order, store; report what cannot be imported.

The format is detected per record, so that a file may mix formats. Spans of a trace may be anywhere in a
file, so all calls of the file (not its spans) are in memory until it is read. A span that was exported twice
counts once. Episodes are named after traces, so a repeated import adds nothing.

A file of any outer form is read with one line or document in memory. A record is a line of JSON Lines, an
element of a top-level list, or an element of the lists in which span formats nest (`resourceSpans`,
`scopeSpans`, `batches`, `spans`, `data`, `observations`, ...). Each is parsed separately, so that one that is
damaged, too deep or truncated affects no other.
"""

import codecs
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from dreamgym_kit.adapters.traces.conversations import is_conversation, is_row, read_conversation, read_row
from dreamgym_kit.adapters.traces.dialects import completed, read_otel_span
from dreamgym_kit.adapters.traces.seen import (
    Belonging,
    Effects,
    Item,
    SeenCall,
    SeenTurn,
    TraceRecord,
    guessed,
    transitions_of,
)
from dreamgym_kit.adapters.traces.spans import Runs, is_observation, is_run, is_span, read_observation
from dreamgym_kit.bounded_json import MAX_BYTES, read_json
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotSerializable, StoreError, UserError
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.replay.redaction import RedactionRules, Redactor, redact_episode
from dreamgym_kit.replay.trace_formats import Format
from dreamgym_kit.replay.transfer import UTF16, TransitionLine, UnreadableLine, bounded_lines, read_lines
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Transition

MAX_DOCUMENT_BYTES = 96 * 2**20  # of a file other than JSON Lines; its records are parsed one by one
MAX_RECORDS = 500_000  # per JSON text; without a limit, 12 MB of `{},` take a minute
MAX_OUTLINE = 32  # lists of records and objects that are looked into, one inside another
RECORD_LISTS = frozenset(
    f'"{name}"'.encode()
    for name in (
        *("resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "batches", "spans", "data"),
        *("observations", "runs", "traces"),
    )
)
_LINES = frozenset({".jsonl", ".ndjson"})
_NOT_SPACE = re.compile(rb"\S")
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
    if lines or first.startswith(UTF16) or _balanced(first):
        for item in bounded_lines(stream):
            if isinstance(item, UnreadableLine):
                yield item
            else:
                number, line = item
                yield from _Splitter(line, number).run()
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


class _Torn(Exception):
    """The text ended inside the container that begins at this place."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class _Splitter:
    """Split one JSON text into its records; reports damaged parts with their line.

    It follows brackets and keys, and parses only the records.
    """

    def __init__(self, data: bytes, line: int) -> None:
        self._data = data
        self._line, self._counted = line, 0
        self._given = 0  # records yielded, readable or not
        self._key = self._last = b""
        self._tokens = ((token[0], token.start()) for token in _TOKEN.finditer(data))

    def run(self) -> Iterator[TraceRecord | UnreadableLine]:
        try:
            for item in self._items():
                yield item
                if self._given > MAX_RECORDS:
                    why = f"more than {MAX_RECORDS} records in one JSON text; the rest is skipped"
                    yield UnreadableLine(item.line, why)
                    return
        except _Torn as torn:
            yield self._unread(torn.start, "the text ends in the middle of this record")
        if not self._given and self._data.strip():
            item = self._record(0, len(self._data))  # for the reason why it is not JSON
            yield item if isinstance(item, UnreadableLine) else self._unread(0, "no object in it")

    def _items(self) -> Iterator[TraceRecord | UnreadableLine]:
        for mark, at in self._tokens:
            if mark == b"[":
                yield from self._list(at, 1)
            elif mark == b"{":
                yield from self._object(at, 1)
            elif mark in b"]}":
                yield self._unread(at, "a closing bracket without its opening one")
            else:
                self._note(mark)

    def _object(self, start: int, depth: int) -> Iterator[TraceRecord | UnreadableLine]:
        """Yield the records in an object's lists of records, or the object if it has none."""
        filled = False
        for mark, at in self._tokens:
            if mark == b"[" and self._key in RECORD_LISTS and depth < MAX_OUTLINE:
                filled |= yield from self._list(at, depth + 1)
            elif mark in b"[{":
                self._skip()
            elif mark in b"]}":
                if not filled:
                    yield self._record(start, at + 1)
                self._key = b""
                return
            else:
                self._note(mark)
        raise _Torn(start)

    def _list(self, start: int, depth: int) -> Generator[TraceRecord | UnreadableLine, None, bool]:
        """Yield the records of a list, and report other elements; return whether any is an object."""
        any_object = is_object = False
        since = start + 1  # of the current element
        for mark, at in self._tokens:
            if mark == b"{":
                any_object = is_object = True
                yield from self._object(at, depth + 1)
            elif mark == b"[":
                self._skip()
            elif mark in b",]}":
                stray_token = None if is_object else _NOT_SPACE.search(self._data, since, at)
                if stray_token is not None:
                    yield self._unread(stray_token.start(), "expected an object")
                is_object, since = False, at + 1
                if mark != b",":
                    self._key = b""
                    return any_object
            else:
                self._note(mark)
        raise _Torn(start)

    def _note(self, mark: bytes) -> None:
        """Follow the key of the value that comes next."""
        if mark == b":":
            self._key = self._last
        elif mark == b",":
            self._key = b""
        else:
            self._last = mark

    def _skip(self) -> None:
        """Pass over the rest of a value whose bracket was just opened."""
        deep = 1
        while deep and (token := next(self._tokens, None)) is not None:
            deep += (token[0] in b"[{") - (token[0] in b"]}")

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


MAX_PROBLEMS = 1_000
_BATCH = 500
_MAX_LOOK = 200  # records examined to detect a file's format
NOWHERE = Belonging()


_FORMATS: Mapping[Format, Callable[[Mapping[str, JsonValue]], bool]] = {
    Format.TRANSITIONS: lambda value: {"call", "answer", "effect"} <= value.keys(),
    Format.LANGSMITH: is_run,
    Format.LANGFUSE: is_observation,
    Format.SPANS: is_span,
    Format.MESSAGES: is_conversation,
    Format.TRL: is_row,
}  # a record may match several: the first counts


def format_of(value: Mapping[str, JsonValue]) -> Format | None:
    """Return the format of a record, or None."""
    return next((form for form, fits in _FORMATS.items() if fits(value)), None)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The result of an import."""

    read: int  # calls with their answers
    new: int  # of these, calls that the store did not have
    duplicates: int
    unread: int = 0  # unreadable records
    unanswered: int = 0  # calls without an answer in the trace: not stored
    passed: Mapping[str, int] = field(default_factory=dict)  # records without a call, by kind
    formats: Mapping[str, int] = field(default_factory=dict)  # records by format
    redacted: Mapping[str, int] = field(default_factory=dict)  # replacements by rule or field
    problems: tuple[str, ...] = ()  # "file:line: why", the first 1,000
    notes: tuple[str, ...] = ()  # the same for unanswered calls

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as JSON data in a stable form."""
        return _REPORTS.write(self)


_REPORTS = Codec(TraceReport)


@dataclass(slots=True)
class _Read:
    """The contents of a file: calls, turns and other records."""

    calls: list[SeenCall] = field(default_factory=list)
    turns: list[SeenTurn] = field(default_factory=list)
    unread: list[UnreadableLine] = field(default_factory=list)  # the first ones; see `counts`
    counts: Counter[bool] = field(default_factory=Counter)  # of `unread`, by whether unanswered
    recorded: list[Transition] = field(default_factory=list)  # recordings of the kit
    passed: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    met: set[tuple[str, str, str | None]] = field(default_factory=set)  # span IDs of the calls

    def take(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, SeenCall):
                self._call(item)
            elif isinstance(item, SeenTurn):
                self.turns.append(item)
            elif isinstance(item, Transition):
                self.recorded.append(item)
            elif isinstance(item, UnreadableLine):
                self.add(item)
            else:
                self.passed[item.kind] += 1

    def add(self, item: UnreadableLine) -> None:
        self.counts[item.unanswered] += 1
        if self.counts[item.unanswered] <= MAX_PROBLEMS:
            self.unread.append(item)

    def lines(self, path: Path, *, unanswered: bool) -> tuple[str, ...]:
        items = [item for item in self.unread if item.unanswered is unanswered]
        return tuple(f"{path}:{item.line}: {item.why}" for item in sorted(items, key=lambda item: item.line))

    def _call(self, call: SeenCall) -> None:
        name = (call.episode, call.span, call.call_id)
        if call.span and name in self.met:
            self.passed["span exported again"] += 1
            return
        self.met.add(name)
        self.calls.append(call)


def looks_like(path: Path) -> Format | None:
    """Return the format of the first record with a known format; None if there is none.

    Raises:
        UserError: the file cannot be read.
    """
    for number, item in enumerate(read_records(path)):
        if isinstance(item, TraceRecord) and (form := format_of(item.value)) is not None:
            return form
        if number >= _MAX_LOOK:
            break
    return None


def import_traces(
    path: Path,
    store: TransitionStore,
    *,
    form: Format = Format.AUTO,
    belonging: Belonging = NOWHERE,
    effects: Effects = guessed,
    redaction: RedactionRules | None = None,
) -> TraceReport:
    """Import the calls of a file of traces into a store.

    Args:
        path: the file.
        store: receives the calls.
        form: its format; `auto` detects it per record.
        belonging: environment and tenant, if given.
        effects: returns a tool's effect from name and description.
        redaction: removes secrets and personal data before storing.

    Raises:
        UserError: the file cannot be read.
        StoreError: the store failed; states how many rows were stored before.
    """
    read = _everything(path, form)
    redactor = Redactor(redaction, key=_file_digest(path)) if redaction is not None else None
    if redactor is not None:
        _redact(read, redactor)
    rows = [_belongs(row, belonging) for row in read.recorded]
    for item in transitions_of(read.calls, read.turns, belonging, effects):
        if isinstance(item, UnreadableLine):
            read.add(item)
        else:
            rows.append(item)
    new = _put(path, store, rows)
    return TraceReport(
        read=len(rows),
        new=new,
        duplicates=len(rows) - new,
        unread=read.counts[False],
        unanswered=read.counts[True],
        passed=dict(read.passed),
        formats=dict(read.formats),
        redacted=dict(redactor.counts) if redactor is not None else {},
        problems=read.lines(path, unanswered=False),
        notes=read.lines(path, unanswered=True),
    )


def _everything(path: Path, form: Format) -> _Read:
    if form is Format.TRANSITIONS:
        return _own(path)
    read, runs, met = _Read(), Runs(), Counter[str]()
    readers: Mapping[Format, Callable[[TraceRecord], Iterator[Item]]] = {
        Format.LANGSMITH: runs.read,
        Format.LANGFUSE: read_observation,
        Format.SPANS: read_otel_span,
        Format.MESSAGES: read_conversation,
        Format.TRL: read_row,
    }
    for item in read_records(path):
        if isinstance(item, UnreadableLine):
            read.add(item)
            continue
        kind = format_of(item.value)
        if kind is None or kind is Format.TRANSITIONS or form not in (Format.AUTO, kind):
            read.add(UnreadableLine(item.line, _unknown(item, kind, form)))
            continue
        read.formats[kind] += 1
        items = list(readers[kind](item))
        read.take(_with_own_names(items, met) if kind in (Format.MESSAGES, Format.TRL) else items)
    read.take(runs.calls())
    read.calls, missing = completed(read.calls, read.turns)
    for unread in missing:
        read.add(unread)
    return read


def _own(path: Path) -> _Read:
    read = _Read()
    try:
        with path.open("rb") as stream:
            for item in read_lines(stream):
                if isinstance(item, TransitionLine):
                    read.recorded.append(item.transition)
                    read.formats[Format.TRANSITIONS] += 1
                else:
                    read.add(item)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({reason}); nothing was imported") from error
    return read


def _with_own_names(items: list[Item], met: Counter[str]) -> list[Item]:
    """Rename the second conversation of an ID: repeats of a group share the ID."""
    names = {item.episode for item in items if isinstance(item, SeenCall)}
    met.update(names)
    return [
        replace(item, episode=f"{item.episode}#{met[item.episode]}")
        if isinstance(item, SeenCall) and met[item.episode] > 1
        else item
        for item in items
    ]


def _redact(read: _Read, redactor: Redactor) -> None:
    """Redact everything that will be stored, after reading all of it."""
    for call in read.calls:
        redactor.learn(dict(call.args))
        if call.answer is not None:
            redactor.learn_answer(call.answer)
    for row in read.recorded:
        redactor.learn(dict(row.call.args))
        redactor.learn_answer(row.answer)
    read.turns = [replace(turn, episode=redactor.text(turn.episode)) for turn in read.turns]
    read.unread = [replace(item, why=redactor.text(item.why)) for item in read.unread]
    read.calls = [
        replace(
            call,
            episode=redactor.text(call.episode),
            args=redactor.value(dict(call.args)),
            answer=None if call.answer is None else redactor.answer(call.answer),
            call_id=None if call.call_id is None else redactor.text(call.call_id),
        )
        for call in read.calls
    ]
    episodes: dict[tuple[str, str, str], list[Transition]] = {}
    for row in read.recorded:
        episodes.setdefault((row.tenant, str(row.environment), row.episode), []).append(row)
    read.recorded = [row for rows in episodes.values() for row in redact_episode(rows, redactor)]


def _belongs(row: Transition, belonging: Belonging) -> Transition:
    return replace(
        row, environment=belonging.environment or row.environment, tenant=belonging.tenant or row.tenant
    )


def _unknown(record: TraceRecord, kind: Format | None, form: Format) -> str:
    if kind is Format.TRANSITIONS:
        return "a recording of the kit among other traces; import recordings separately"
    if kind is not None:
        return f"has format {kind}, not {form}"
    keys = ", ".join(list(record.value)[:6])
    return f"unknown trace format (an object of {keys or 'nothing'})"


def _put(path: Path, store: TransitionStore, rows: list[Transition]) -> int:
    new = 0
    for start in range(0, len(rows), _BATCH):
        try:
            new += store.put(rows[start : start + _BATCH])
        except StoreError as error:
            progress = f"{start} recordings of {path} were stored; import again for the rest"
            raise StoreError(f"{error} ({progress})") from error
    return new


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
