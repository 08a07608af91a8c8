"""All of a store: in and out as JSON lines (a record each, in the form of `records`), copied, counted.

Reading goes line by line and is bounded, whatever the file is: what can be read is kept, what cannot is
listed with its line and field. Empty lines are passed over. Writing gives a whole file or none.

A migration between stores is idempotent by the ids: one that broke off is repeated, and rows that came over
stay. Rows keep everything they say (tenant, split, provenance, times) and their order. What came over is read
back and held against what was sent, row by row and as one checksum that does not depend on their order.
"""

import codecs
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from dreamgym_kit.bounded_json import MAX_BYTES
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import NotSerializable, StoreError, UserError
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.replay.records import dump_transition, load_transition
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Effect, Transition

MAX_PROBLEMS = 20
_BATCH_ROWS = 500
_BATCH_BYTES = 8 * 2**20
Item = TypeVar("Item")
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of a file's lines."""

    read: int  # transitions that could be read
    new: int  # of these, how many the store did not have yet
    duplicates: int  # of these, how many it had
    unread: int = 0  # lines that could not be read, those beyond the first 20 too
    problems: tuple[str, ...] = ()  # "rows.jsonl:7: call.tool: missing", the first 20

    def to_json(self) -> dict[str, JsonValue]:
        """The same as JSON data, stable for machines."""
        return _IMPORTS.write(self)


_IMPORTS = Codec(ImportReport)


@dataclass(frozen=True, slots=True)
class UnreadableLine:
    """A line, or a record of a trace that begins there, that is not a recording."""

    line: int  # 1-based
    why: str
    unanswered: bool = False  # a whole call without an answer: the file is not at fault


@dataclass(frozen=True, slots=True)
class TransitionLine:
    """A line that is one."""

    line: int
    size: int  # bytes of the line
    transition: Transition


def bounded_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes] | UnreadableLine]:
    """The lines of a stream that hold something, with their numbers; never more than 32 MiB in memory."""
    number = 0
    while raw := stream.readline(MAX_BYTES + 1):
        number += 1
        if number == 1:
            if raw.startswith(UTF16):
                yield UnreadableLine(1, "UTF-16 text; save the file as UTF-8")
                return
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if len(raw) > MAX_BYTES:
            while (part := stream.readline(2**20)) and not part.endswith(b"\n"):
                pass
            yield UnreadableLine(number, f"longer than {MAX_BYTES} bytes")
        elif line := raw.strip():
            yield number, line


def read_lines(stream: BinaryIO) -> Iterator[TransitionLine | UnreadableLine]:
    """Read the recordings in a stream of JSON lines, one at a time."""
    for item in bounded_lines(stream):
        if isinstance(item, UnreadableLine):
            yield item
            continue
        number, line = item
        try:
            yield TransitionLine(number, len(line), load_transition(line))
        except NotSerializable as error:
            yield UnreadableLine(number, str(error))


def is_own_form(path: Path) -> bool:
    """Whether a file begins with a recording in the kit's own form; False for what cannot be read."""
    try:
        with path.open("rb") as stream:
            return isinstance(next(read_lines(stream), None), TransitionLine)
    except OSError:
        return False


def import_jsonl(path: Path, store: TransitionStore) -> ImportReport:
    """Put every transition of a file into a store, in the order of the file.

    Importing again adds nothing, so a broken-off import is simply repeated.

    Raises:
        UserError: the file cannot be opened or read.
        StoreError: the store failed; says how many rows were kept before.
    """
    read = new = unread = 0
    problems: list[str] = []

    def readable(stream: BinaryIO) -> Iterator[tuple[Transition, int]]:
        nonlocal unread
        for item in read_lines(stream):
            if isinstance(item, TransitionLine):
                yield item.transition, item.size
                continue
            unread += 1
            if len(problems) < MAX_PROBLEMS:
                problems.append(f"{path}:{item.line}: {item.why}")

    try:
        with path.open("rb") as stream:
            for batch in batches(readable(stream), _BATCH_ROWS):
                try:
                    new += store.put(batch)
                except StoreError as error:
                    rest = f"{read} transitions of {path} are in it; import again for the rest"
                    raise StoreError(f"{error} ({rest})") from error
                read += len(batch)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({reason}); {read} transitions were kept") from error
    return ImportReport(read, new, read - new, unread, tuple(problems))


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


_NAMED = 5


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration found in the store that it filled."""

    rows: int  # in the store that was read
    new: int  # that were not in the other one before
    there: int  # rows there that have their ids; more than `rows` where one is there twice
    others: int  # rows there that the store that was read does not have
    checksum: str  # of the rows as they were read, 64 hex digits
    checksum_there: str  # of the same rows as they are there
    missing: tuple[str, ...] = ()  # ids, the first five
    differing: tuple[str, ...] = ()  # ids of rows that say something else there, the first five
    in_order: bool = True  # they stand there in the order that they were recorded in

    @property
    def whole(self) -> bool:
        """Whether every row is there as it was read."""
        return self.there == self.rows and self.checksum == self.checksum_there

    def to_json(self) -> dict[str, JsonValue]:
        """The same as JSON data, stable for machines."""
        return {**_MIGRATIONS.write(self), "whole": self.whole}


_MIGRATIONS = Codec(MigrationReport)


def migrate(
    source: TransitionStore, target: TransitionStore, progress: Callable[[int], None] = lambda _: None
) -> MigrationReport:
    """Put all rows of one store into another and read them back; `progress` is told how many were put so far.

    Raises:
        StoreError: one of them failed; what came over stays, and repeating goes on.
    """
    sent: dict[str, bytes] = {}
    new = 0
    put = 0
    for batch in batches(_noted(source.scan(), sent), _BATCH_ROWS):
        try:
            new += target.put(batch)
        except StoreError as error:
            text = f"{error} ({put} transitions came over; migrate again, it goes on with the rest)"
            raise type(error)(text) from error
        put += len(batch)
        progress(put)
    return _compared(sent, new, target.scan())


def _noted(rows: Iterable[Transition], sent: dict[str, bytes]) -> Iterator[tuple[Transition, int]]:
    """Each row and its size; `sent` learns what it says."""
    for row in rows:
        spelled = dump_transition(row)
        sent[row.id] = _digest(spelled)
        yield row, len(spelled)


def batches(items: Iterable[tuple[Item, int]], most: int) -> Iterator[list[Item]]:
    """The items, each with its bytes, some at a time: at most so many, and hardly more than 8 MiB."""
    batch: list[Item] = []
    size = 0
    for item, length in items:
        batch.append(item)
        size += length
        if len(batch) >= most or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compared(sent: dict[str, bytes], new: int, rows: Iterable[Transition]) -> MigrationReport:
    places = {name: place for place, name in enumerate(sent)}
    seen: set[str] = set()
    digests: list[bytes] = []
    differing: list[str] = []
    others, last, in_order = 0, -1, True
    for row in rows:
        place = places.get(row.id)
        if place is None:
            others += 1
            continue
        digest = _digest(dump_transition(row))
        if digest != sent[row.id]:
            differing.append(row.id)
        seen.add(row.id)
        digests.append(digest)
        in_order = in_order and place > last
        last = place
    return MigrationReport(
        rows=len(sent),
        new=new,
        there=len(digests),
        others=others,
        checksum=_checksum(sent.values()),
        checksum_there=_checksum(digests),
        missing=tuple([name for name in sent if name not in seen][:_NAMED]),
        differing=tuple(differing[:_NAMED]),
        in_order=in_order,
    )


def _digest(spelled: str) -> bytes:
    return hashlib.sha256(spelled.encode("ascii")).digest()


def _checksum(digests: Iterable[bytes]) -> str:
    """A sum: the same in any order, and another one with a row twice."""
    total = sum(int.from_bytes(digest, "big") for digest in digests) % 2**256
    return f"{total:064x}"


@dataclass(frozen=True, slots=True)
class ToolCount:
    """One tool's recordings."""

    transitions: int
    calls: int  # different calls: arguments, world and tenant
    errors: int  # answers that say the tool failed
    effect: Effect  # of the last recording


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts over all transitions of a store; the most frequent first."""

    transitions: int
    episodes: int
    tools: Mapping[str, ToolCount]
    environments: Mapping[str, int]
    tenants: Mapping[str, int]
    sources: Mapping[str, int]

    def to_json(self) -> dict[str, JsonValue]:
        """The same as JSON data, stable for machines."""
        return _STATS.write(self)


_STATS = Codec(StoreStats)


def count_transitions(store: TransitionStore) -> StoreStats:
    """Read a store to its end and count what is in it."""
    tools, errors, environments, tenants, sources = (Counter[str]() for _ in range(5))
    effects: dict[str, Effect] = {}
    episodes: set[tuple[str, str]] = set()
    calls: dict[str, set[tuple[str, str, str]]] = {}
    for row in store.scan():
        tool, environment = row.call.tool, str(row.environment)
        tools[tool] += 1
        errors[tool] += row.answer.error is not None
        environments[environment] += 1
        tenants[row.tenant] += 1
        sources[str(row.answer.source)] += 1
        effects[tool] = row.effect
        episodes.add((row.tenant, row.episode))
        calls.setdefault(tool, set()).add((row.tenant, environment, row.call.key))
    return StoreStats(
        transitions=tools.total(),
        episodes=len(episodes),
        tools={
            name: ToolCount(count, len(calls[name]), errors[name], effects[name])
            for name, count in tools.most_common()
        },
        environments=dict(environments.most_common()),
        tenants=dict(tenants.most_common()),
        sources=dict(sources.most_common()),
    )
