"""The default store: one SQLite file that several processes can share.

Decides durability and concurrency. A put is one transaction in a write-ahead log: once it returns, a
killed process loses nothing of it. A power cut may take the last puts unless `survive_power_cut`.
One connection writes and one reads, each behind its own lock, so threads may share a store and readers
do not wait for writers. What a row says is its payload; it is checked against its id and its columns
each time it is read, so that a damaged file is named and never answers for another call.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.stores.sqlite_errors import damaged, named
from dreamgym_kit.adapters.stores.sqlite_file import connect, connect_to_read, create, is_new, write_ahead
from dreamgym_kit.errors import NotJson, StoreError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.replay.records import dump_record, transition_from_record, transition_to_record
from dreamgym_kit.vocabulary import Transition, World

LOCK_WAIT_S = 5.0
_PAGE = 256  # rows read at a time by `scan`: bounds memory and holds no snapshot between pages

_INSERT = """insert into transitions (id, tenant, world, tool, key, payload) values (?, ?, ?, ?, ?, ?)
    on conflict (id) do nothing"""


class SqliteStore:
    """Implements `ports.TransitionStore` in one file.

    Args:
        path: the file; made when it is absent (its folder must exist).
        read_only: never writes; works on files and folders that cannot be written.
        survive_power_cut: wait for the disk at every put (`synchronous=FULL`), slower.
        lock_wait_s: how long a put waits for other processes before it gives up.

    Raises:
        StoreError: no buffer, a newer or damaged one, or one that cannot be opened; nothing was touched.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        read_only: bool = False,
        survive_power_cut: bool = False,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self._path = Path(path)
        self._read_only = read_only
        self._synchronous = "full" if survive_power_cut else "normal"
        self._lock_wait_s = lock_wait_s
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        if is_new(self._path):
            self._make()
        self._reader = connect_to_read(self._path, read_only=read_only, lock_wait_s=lock_wait_s)

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`."""
        if self._read_only:
            raise StoreError(f"{self._path}: was opened read-only; open it without read_only to add to it")
        rows = [self._row(transition) for transition in transitions]
        if not rows:
            return 0
        deadline = time.monotonic() + self._lock_wait_s
        if not self._writing.acquire(timeout=self._lock_wait_s):
            raise StoreError(
                f"{self._path}: other threads have been writing for {self._lock_wait_s:g} s; put less at once"
            )
        try:
            with named(self._path):
                return self._insert(rows, deadline)
        finally:
            self._writing.release()

    def exact(self, tool: str, key: str, world: World, *, tenant: str = "default") -> list[Transition]:
        """See `TransitionStore.exact`."""
        return list(self._scan(tool=tool, key=key, world=world, tenant=tenant))

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, world: World | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows that are put after the first one was asked for are left out."""
        return self._scan(tenant=tenant, tool=tool, world=world)

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return int(self._select("select count(*) from transitions", ())[0][0])

    def close(self) -> None:
        """See `TransitionStore.close`."""
        with self._writing, self._reading:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
            self._reader.close()

    def _make(self) -> None:
        if self._read_only:
            raise StoreError(f"{self._path}: there is no buffer to read; record or import one first")
        if not self._path.parent.is_dir():
            raise StoreError(f"{self._path}: its folder does not exist; make it first")
        create(self._path, lock_wait_s=self._lock_wait_s)

    def _row(self, transition: Transition) -> tuple[str, ...]:
        try:
            record = transition_to_record(transition)
            return (*_columns(record, transition), dump_record(record))
        except NotJson as error:
            raise StoreError(f"{self._path}: a transition cannot be stored, so none was: {error}") from error

    def _insert(self, rows: list[tuple[str, ...]], deadline: float) -> int:
        writer = self._open_writer()
        waiting_ms = max(0, round((deadline - time.monotonic()) * 1000))
        writer.execute(f"pragma busy_timeout = {waiting_ms}")
        try:
            # At once the writer: a read that becomes a write fails without waiting when another was first.
            writer.execute("begin immediate")
            new = writer.executemany(_INSERT, rows).rowcount
            writer.execute("commit")
        except BaseException:
            if writer.in_transaction:  # a full disk has rolled back by itself
                writer.execute("rollback")
            raise
        return new

    def _open_writer(self) -> sqlite3.Connection:
        if self._closed:
            raise self._is_closed()
        if self._writer is None:
            writer = connect(self._path, "rw", lock_wait_s=self._lock_wait_s)
            try:
                write_ahead(writer, self._lock_wait_s)
                writer.execute(f"pragma synchronous = {self._synchronous}")
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _scan(
        self, *, tenant: str | None, tool: str | None, world: World | None, key: str | None = None
    ) -> Iterator[Transition]:
        wanted = {
            "tenant": None if tenant is None else _ascii(tenant),
            "world": None if world is None else _world(world),
            "tool": None if tool is None else _ascii(tool),
            "key": key,
        }
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " and ".join(["seq > ?", "seq <= ?", *(f"{column} = ?" for column in given)])
        # Without a key the pages follow the table, one pass in all; an index would be sorted for each page.
        way = "not indexed" if key is None else "indexed by transitions_exact"
        query = (  # made of our own words; what was asked for is bound
            f"select seq, id, tenant, world, tool, key, payload from transitions {way} "  # noqa: S608
            f"where {where} order by seq limit {_PAGE}"
        )
        (last,) = self._select("select max(seq) from transitions", ())[0]
        seq = 0
        while last is not None:
            page = self._select(query, (seq, last, *given.values()))
            for row, *columns in page:
                if row <= seq:  # pages of a damaged file can point back: without this, for ever
                    raise damaged(self._path, f"row {row} after row {seq}")
                seq = row
                yield self._read(seq, columns)
            if len(page) < _PAGE:
                return

    def _select(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._reading, named(self._path):
            if self._closed:
                raise self._is_closed()
            return self._reader.execute(query, values).fetchall()

    def _read(self, seq: int, columns: Sequence[str]) -> Transition:
        """Turn a row into its transition, unless its columns say something else than its payload."""
        try:
            record = read_json(columns[-1])
            transition = transition_from_record(record)
        except (NotJson, TypeError) as error:  # TypeError: a number where a text was written
            raise damaged(self._path, f"row {seq}: {error}") from error
        if _columns(record, transition) != tuple(columns[:-1]):
            raise damaged(self._path, f"row {seq}: its columns say something else than its content")
        return transition

    def _is_closed(self) -> StoreError:
        return StoreError(f"{self._path}: this store was closed; open it again")


def _columns(record: Mapping[str, JsonValue], transition: Transition) -> tuple[str, ...]:
    """What a row can be found by: id, tenant, world, tool, key."""
    call = transition.call
    places = (_ascii(transition.tenant), _world(transition.world), _ascii(call.tool), call.key)
    return (record.get("id", ""), *places)


def _ascii(text: str) -> str:
    """Spell any text, also lone surrogates and NUL, so that SQLite keeps it; plain names stay as they are."""
    return json.dumps(text)[1:-1]


def _world(world: World) -> str:
    return _ascii(str(world))
