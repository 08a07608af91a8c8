"""The default store: one SQLite file that several processes can share.

Decides durability and concurrency. A put is one transaction in a write-ahead log: after it returns, a
killed process loses nothing of it. A power cut may lose the last puts unless `survive_power_cut` is set.
One connection writes and another reads, each with its own lock, so threads may share a store and readers
do not wait for writers. The payload of a row is authoritative: each read checks it against the row's ID and
columns, so that a damaged file raises an error and never answers for another call.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.adapters.embedders.choosing import FileEmbedder
from dreamgym_kit.adapters.stores.sqlite_file import (
    CACHE_KIB,
    LOG_PAGES,
    SCHEMA,
    check_own,
    connect,
    connect_to_read,
    damaged,
    is_new,
    is_unsettled,
    named,
    write_ahead,
)
from dreamgym_kit.adapters.stores.sqlite_rows import (
    CHECKED,
    INSERT,
    PAGE,
    column_filters,
    page_query,
    read_checked,
    read_row,
    row_of,
)
from dreamgym_kit.adapters.stores.sqlite_tables import (
    Searchable,
    add,
    all_stay,
    create,
    drop,
    fill_in,
    merge_some,
    migrate,
    scattered,
    searchable,
    stored_embedder,
)
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import Embedder, Hit, HybridQuery, Room
from dreamgym_kit.replay.eviction import Crowding, StoredRow, to_evict
from dreamgym_kit.replay.records import storable
from dreamgym_kit.replay.retrieval import Vector, fits
from dreamgym_kit.types import Environment, Source, Transition

if TYPE_CHECKING:
    from dreamgym_kit.adapters.stores.sqlite_search import SqliteSearch

LOCK_WAIT_S = 5.0
_LARGEST = 2**63 - 1


class SqliteStore:
    """Implements `interfaces.TransitionStore` in one file.

    Args:
        path: the file; created if absent (its folder must exist).
        read_only: write nothing; works on read-only files and folders.
        survive_power_cut: wait for the disk at every put (`synchronous=FULL`); slower.
        lock_wait_s: how long a put waits for other writers, in seconds, before it fails.
        embedder: computes the vectors of `search`; default: the hashed embedder, if the file has its vectors
        or
            none.
        room: size limits; rows beyond them are evicted after every 1,000 new rows and on closing. None: no
            limits.

    Raises:
        StoreError: not a buffer, newer, damaged or cannot be opened; nothing was changed.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        read_only: bool = False,
        survive_power_cut: bool = False,
        lock_wait_s: float = LOCK_WAIT_S,
        embedder: Embedder | None = None,
        room: Room | None = None,
    ) -> None:
        self.path = Path(path)
        self._read_only = read_only
        self._synchronous = "full" if survive_power_cut else "normal"
        self._lock_wait_s = lock_wait_s
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        if is_new(self.path) or (not read_only and is_unsettled(self.path)):
            if read_only:
                raise StoreError(f"{self.path}: the buffer does not exist; record or import first")
            if not self.path.parent.is_dir():
                raise StoreError(f"{self.path}: its folder does not exist; create it first")
            create(self.path, lock_wait_s=lock_wait_s)
        self._reader = connect_to_read(self.path, read_only=read_only, lock_wait_s=lock_wait_s)
        self._newest = False
        self._embedder = FileEmbedder(self.path, embedder, self._stored_embedder)
        self._searching = threading.Lock()
        self._search: SqliteSearch | None = None
        self._crowding = Crowding(self.evict, None if read_only else room)
        try:
            self._embedder.check()
        except BaseException:
            self._reader.close()
            raise

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`."""
        self._check_writable("add to it")
        if not transitions:
            return 0
        rows: list[tuple[object, ...]] = []  # built before taking the lock
        searched: dict[object, Searchable] = {}
        with storable(self.path):
            for transition in transitions:
                row = row_of(transition)
                if row[0] not in searched:  # of two rows with the same ID, keep the first
                    rows.append(row)
                    searched[row[0]] = searchable(transition, str(row[-1]))
        embedder, vectors = self._embedder.chosen(), {}
        if (
            embedder is not None and embedder.local
        ):  # remote ones embed at the first search, so that no put waits for a network
            made = embedder.embed([row.text for row in searched.values()])
            vectors = dict(zip(searched, made, strict=True))
        with self._transaction() as writer:
            (last,) = writer.execute("select coalesce(max(seq), 0) from transitions").fetchone()
            new = writer.executemany(INSERT, rows).rowcount
            added = writer.execute("select seq, id from transitions where seq > ? order by seq", (last,))
            search_rows = [(seq, searched[id_], vectors.get(id_)) for seq, id_ in added if id_ in searched]
            add(writer, search_rows, embedder if vectors else None)
        self._crowding.put(new)
        return new

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """See `TransitionStore.exact`."""
        return list(self._scan(column_filters(tenant=tenant, environment=environment, tool=tool, key=key)))

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows added during the scan are left out."""
        return self._scan(column_filters(tenant=tenant, environment=environment, tool=tool))

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`.

        Raises:
            StoreError: also if the vectors' embedder was not given, or for a read-only buffer of an older
                version.
        """
        search = self._search
        if search is None or not (search.has_vectors or query.words_only):
            search = self._opened_search(words_only=query.words_only)
        matches = search.best(query)
        rows = self._transitions([match.row for match in matches])
        hits = [Hit(rows[match.row], match.score, match.places) for match in matches if match.row in rows]
        for hit in hits:  # check the index entry against the row
            if not fits(hit.transition, query):
                problem = f"transition {hit.transition.id}: its index entry differs from its content"
                raise damaged(self.path, problem)
        return hits

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        self._check_writable("evict rows")
        moment = time.time() if now is None else now
        with self._transaction() as writer:
            if all_stay(writer, room):
                return 0
            rows = writer.execute("select seq, provenance, recorded_at from places order by seq").fetchall()
            candidates = [StoredRow(seq, source == Source.REAL, at) for seq, source, at in rows]
            return drop(writer, self._leaving(writer, to_evict(candidates, room, now=moment)))

    def remove(self, ids: Sequence[str]) -> int:
        """See `TransitionStore.remove`. The file keeps the bytes until SQLite overwrites the pages."""
        self._check_writable("remove rows")
        with self._transaction() as writer:
            seqs = [
                row[0]
                for name in ids
                for row in writer.execute("select seq from transitions where id = ?", (name,)).fetchall()
            ]
            return drop(writer, self._leaving(writer, seqs))

    def make_room(self) -> int:
        """Evict rows beyond the limits; return the number evicted since the store was opened."""
        return self._crowding.relieve()

    @property
    def foreign_embedder(self) -> str | None:
        """The missing embedder that made the file's vectors, or None; if missing, search uses words only."""
        return self._embedder.foreign

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return int(self._select("select count(*) from transitions", ())[0][0])

    def close(self) -> None:
        """See `TransitionStore.close`."""
        if not self._closed:
            self._crowding.relieve_if_it_can()
        with self._writing, self._reading:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
            self._reader.close()

    def _check_writable(self, purpose: str) -> None:
        if self._read_only:
            raise StoreError(f"{self.path}: was opened read-only; open it without read_only to {purpose}")

    def _keep_vectors(self, vectors: Sequence[tuple[int, Vector]]) -> None:
        embedder = self._embedder.chosen()
        if self._read_only or embedder is None:
            return
        with self._transaction() as writer:
            fill_in(writer, embedder, vectors)

    def _leaving(self, writer: sqlite3.Connection, seqs: Iterable[int]) -> Iterator[tuple[int, Transition]]:
        for seq in seqs:
            query, _ = page_query(SCHEMA, {})
            row = writer.execute(query, (seq - 1, seq)).fetchone()
            if row is None:
                raise damaged(self.path, f"row {seq}: has an index entry without content")
            yield seq, read_row(self.path, SCHEMA, row)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Take this store's write lock, then the file's, both within `lock_wait_s` seconds."""
        deadline = time.monotonic() + self._lock_wait_s
        if not self._writing.acquire(timeout=self._lock_wait_s):
            raise StoreError(
                f"{self.path}: other threads wrote for {self._lock_wait_s:g} s; put fewer rows at once"
            )
        try:
            with named(self.path):
                writer = self._open_writer()
                waiting_ms = max(0, round((deadline - time.monotonic()) * 1000))
                writer.execute(f"pragma busy_timeout = {waiting_ms}")
                try:
                    # Lock for writing now: upgrading a read fails without waiting if another wrote first.
                    writer.execute("begin immediate")
                    yield writer
                    writer.execute("commit")
                except BaseException:
                    if writer.in_transaction:  # SQLite rolls back a full disk itself
                        writer.execute("rollback")
                    raise
        finally:
            self._writing.release()

    def _open_writer(self) -> sqlite3.Connection:
        if self._closed:
            raise self._is_closed()
        if self._writer is None:
            writer = connect(self.path, "rw", lock_wait_s=self._lock_wait_s)
            try:
                check_own(writer, self.path)
                write_ahead(writer, self._lock_wait_s)
                writer.execute(f"pragma synchronous = {self._synchronous}")
                writer.execute(f"pragma cache_size = {-CACHE_KIB}")
                writer.execute(f"pragma wal_autocheckpoint = {LOG_PAGES}")
                migrate(writer, self.path)
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _scan(self, columns: Mapping[str, object]) -> Iterator[Transition]:
        version = self._version()
        query, values = page_query(version, columns)
        # A single call has few rows in one environment, and callers read all of them at once.
        few = columns["key"] is not None
        last = _LARGEST if few else self._select("select max(seq) from transitions", ())[0][0]
        seq = 0
        while last is not None:
            page = self._select(query, (seq, last, *values))
            for row in page:
                if row[0] <= seq:  # pages of a damaged file can point back and loop forever
                    raise damaged(self.path, f"row {row[0]} after row {seq}")
                seq = row[0]
                yield read_row(self.path, version, row)
            if len(page) < PAGE:
                return

    def _opened_search(self, *, words_only: bool) -> "SqliteSearch":
        if self._version() < 2:
            if self._read_only:
                raise StoreError(
                    f"{self.path}: was written by an older dreamgym-kit without a search index; "
                    "open it once without read_only"
                )
            with self._transaction():
                pass  # the first write transaction migrates the file
        embedder = self._embedder.to_search(words_only=words_only)
        with self._searching:
            if self._search is None:
                from dreamgym_kit.adapters.stores.sqlite_search import SqliteSearch

                self._merge_words()
                self._search = SqliteSearch(
                    self.path,
                    embedder,
                    select=self._select,
                    transitions=self._transitions,
                    keep_vectors=self._keep_vectors,
                )
            return self._search

    def _merge_words(self) -> None:
        """Merge index segments in steps, so that no other process waits long; read-only stores skip it."""
        if self._read_only or not scattered(self._select):
            return
        with suppress(StoreError):
            more = True
            while more:
                with self._transaction() as writer:
                    more = merge_some(writer)

    def _stored_embedder(self) -> tuple[str, int] | None:
        if self._version() < 2:
            return None
        facts = self._select("select name, value from facts", ())
        with named(self.path):
            return stored_embedder(facts)

    def _version(self) -> int:
        """Return the file's schema version; the newest one is cached."""
        if self._newest:
            return SCHEMA
        version = int(self._select("pragma user_version", ())[0][0])
        self._newest = version == SCHEMA
        return version

    def _transitions(self, seqs: Sequence[int]) -> dict[int, Transition]:
        rows = self._select(CHECKED, (json.dumps(list(seqs)),))
        return {row[0]: read_checked(self.path, row) for row in rows}

    def _select(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._reading, named(self.path):
            if self._closed:
                raise self._is_closed()
            return self._reader.execute(query, values).fetchall()

    def _is_closed(self) -> StoreError:
        return StoreError(f"{self.path}: this store was closed; open it again")
