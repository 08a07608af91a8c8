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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.stores.sqlite_errors import damaged, named
from dreamgym_kit.adapters.stores.sqlite_file import (
    connect,
    connect_to_read,
    create,
    is_new,
    is_unsettled,
    write_ahead,
)
from dreamgym_kit.adapters.stores.sqlite_migrations import migrate
from dreamgym_kit.adapters.stores.sqlite_places import (
    Searchable,
    Vectors,
    add,
    checksum,
    drop,
    embedder_of,
    fill_in,
    searchable,
    spelled,
)
from dreamgym_kit.adapters.stores.sqlite_search import Source, SqliteSearch
from dreamgym_kit.errors import NotJson, StoreError
from dreamgym_kit.jsonread import read_json
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Embedder, Hit, HybridQuery, Room
from dreamgym_kit.replay.eviction import Kept, to_evict
from dreamgym_kit.replay.records import dump_record, transition_from_record, transition_to_record
from dreamgym_kit.replay.retrieval import may_be_found
from dreamgym_kit.vocabulary import Provenance, Transition, World

LOCK_WAIT_S = 5.0
_PAGE = 256  # rows read at a time by `scan`: bounds memory and holds no snapshot between pages

_SELECT = "select seq, id, tenant, world, tool, key, payload from transitions"
_CHECKED = """select t.seq, t.payload, p.checksum from json_each(?) asked
    join transitions t on t.seq = asked.value join places p on p.seq = t.seq"""
_INSERT = """insert into transitions (id, tenant, world, tool, key, payload) values (?, ?, ?, ?, ?, ?)
    on conflict (id) do nothing"""


class SqliteStore:
    """Implements `ports.TransitionStore` in one file.

    Args:
        path: the file; made when it is absent (its folder must exist).
        read_only: never writes; works on files and folders that cannot be written.
        survive_power_cut: wait for the disk at every put (`synchronous=FULL`), slower.
        lock_wait_s: how long a put waits for other processes before it gives up.
        embedder: makes the vectors of `search`; the hashed one where the file's vectors are its own or
            there are none yet.

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
        embedder: Embedder | None = None,
    ) -> None:
        self._path = Path(path)
        self._read_only = read_only
        self._synchronous = "full" if survive_power_cut else "normal"
        self._lock_wait_s = lock_wait_s
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        if is_new(self._path) or (not read_only and is_unsettled(self._path)):
            self._make()
        self._reader = connect_to_read(self._path, read_only=read_only, lock_wait_s=lock_wait_s)
        self._chosen = embedder
        self._searching = threading.Lock()
        self._search: SqliteSearch | None = None
        if embedder is not None:
            try:
                self._check_embedder(embedder)
            except BaseException:
                self._reader.close()
                raise

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`."""
        if self._read_only:
            raise StoreError(f"{self._path}: was opened read-only; open it without read_only to add to it")
        rows = [self._row(transition) for transition in transitions]
        if not rows:
            return 0
        searched, vectors = self._searchable(transitions)
        with self._writing_by() as deadline:
            return self._insert(rows, searched, vectors, deadline)

    def exact(self, tool: str, key: str, world: World, *, tenant: str = "default") -> list[Transition]:
        """See `TransitionStore.exact`."""
        return list(self._scan(tool=tool, key=key, world=world, tenant=tenant))

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, world: World | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows that are put after the first one was asked for are left out."""
        return self._scan(tenant=tenant, tool=tool, world=world)

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`.

        Raises:
            StoreError: also where the vectors are those of an embedder that was not given, and a
                read-only buffer of an older version.
        """
        search = self._search
        if search is None or not (search.has_vectors or query.words_only):
            search = self._opened_search(words_only=query.words_only)
        found = search.best(query)
        rows = self._transitions([one.row for one in found])
        hits = [Hit(rows[one.row], one.score, one.places) for one in found if one.row in rows]
        for hit in hits:
            self._check_hit(hit.transition, query)
        return hits

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        if self._read_only:
            raise StoreError(f"{self._path}: was opened read-only; open it without read_only to evict rows")
        with self._writing_by() as deadline, self._transaction(deadline) as writer:
            rows = writer.execute("select seq, provenance, recorded_at from places order by seq").fetchall()
            kept = [Kept(seq, provenance == Provenance.REAL, at) for seq, provenance, at in rows]
            leaving = to_evict(kept, room, now=time.time() if now is None else now)
            return drop(writer, self._leaving(writer, leaving))

    @property
    def foreign_embedder(self) -> str | None:
        """Names the embedder of the file's vectors where it was not given: then search goes by words only."""
        kept = self._kept_embedder()
        return None if kept is None or self._embedder() is not None else kept[0]

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

    def _searchable(self, transitions: Sequence[Transition]) -> tuple[dict[str, Searchable], Vectors | None]:
        """What search keeps of rows, made before anybody has to wait for a lock."""
        rows = {transition.id: searchable(transition) for transition in transitions}
        embedder = self._embedder()
        if embedder is None or not embedder.local:
            return rows, None  # the first search makes the vectors: a put must not wait for a network
        vectors = embedder.embed([row.text for row in rows.values()])
        return rows, Vectors(embedder, dict(zip(rows, vectors, strict=True)))

    def _insert(
        self,
        rows: list[tuple[str, ...]],
        searched: Mapping[str, Searchable],
        vectors: Vectors | None,
        deadline: float,
    ) -> int:
        with self._transaction(deadline) as writer:
            (last,) = writer.execute("select coalesce(max(seq), 0) from transitions").fetchone()
            new = writer.executemany(_INSERT, rows).rowcount
            added = writer.execute(
                "select seq, id, payload from transitions where seq > ? order by seq", (last,)
            ).fetchall()
            known = [(seq, name, searched[name], text) for seq, name, text in added if name in searched]
            add(writer, known, vectors)
        return new

    def _keep_vectors(self, vectors: Sequence[tuple[int, NDArray[np.float32]]]) -> None:
        embedder = self._embedder()
        if self._read_only or embedder is None:
            return
        with self._writing_by() as deadline, self._transaction(deadline) as writer:
            fill_in(writer, embedder, vectors)

    def _leaving(self, writer: sqlite3.Connection, seqs: Iterable[int]) -> Iterator[tuple[int, Transition]]:
        for seq in seqs:
            found = writer.execute(f"{_SELECT} where seq = ?", (seq,)).fetchone()
            if found is None:
                raise damaged(self._path, f"row {seq}: it has a place and no content")
            yield seq, self._read(seq, found[1:])

    @contextmanager
    def _writing_by(self) -> Iterator[float]:
        """Hold this store's writing; gives the time by which locks of others must be had."""
        deadline = time.monotonic() + self._lock_wait_s
        if not self._writing.acquire(timeout=self._lock_wait_s):
            raise StoreError(
                f"{self._path}: other threads have been writing for {self._lock_wait_s:g} s; put less at once"
            )
        try:
            with named(self._path):
                yield deadline
        finally:
            self._writing.release()

    @contextmanager
    def _transaction(self, deadline: float) -> Iterator[sqlite3.Connection]:
        writer = self._open_writer()
        waiting_ms = max(0, round((deadline - time.monotonic()) * 1000))
        writer.execute(f"pragma busy_timeout = {waiting_ms}")
        try:
            # At once the writer: a read that becomes a write fails without waiting when another was first.
            writer.execute("begin immediate")
            yield writer
            writer.execute("commit")
        except BaseException:
            if writer.in_transaction:  # a full disk has rolled back by itself
                writer.execute("rollback")
            raise

    def _open_writer(self) -> sqlite3.Connection:
        if self._closed:
            raise self._is_closed()
        if self._writer is None:
            writer = connect(self._path, "rw", lock_wait_s=self._lock_wait_s)
            try:
                write_ahead(writer, self._lock_wait_s)
                writer.execute(f"pragma synchronous = {self._synchronous}")
                migrate(writer, self._path)
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _scan(
        self, *, tenant: str | None, tool: str | None, world: World | None, key: str | None = None
    ) -> Iterator[Transition]:
        wanted = {
            "tenant": None if tenant is None else spelled(tenant),
            "world": None if world is None else _world(world),
            "tool": None if tool is None else spelled(tool),
            "key": key,
        }
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " and ".join(["seq > ?", "seq <= ?", *(f"{column} = ?" for column in given)])
        # Without a key the pages follow the table, one pass in all; an index would be sorted for each page.
        way = "not indexed" if key is None else "indexed by transitions_exact"
        query = (  # made of our own words; what was asked for is bound
            f"{_SELECT} {way} where {where} order by seq limit {_PAGE}"
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

    def _opened_search(self, *, words_only: bool) -> SqliteSearch:
        if self._version() < 2:
            if self._read_only:
                raise StoreError(
                    f"{self._path}: was written by an older dreamgym-kit that kept nothing to search by; "
                    "open it once without read_only"
                )
            with self._writing_by():
                self._open_writer()
        embedder = self._embedder()
        if embedder is None and not words_only:
            name, dimension = self._kept_embedder() or ("", 0)
            raise StoreError(
                f"{self._path}: its vectors are of embedder '{name}' ({dimension} numbers), which was not "
                "given; open it with that one, or search by words only"
            )
        with self._searching:
            if self._search is None:
                source = Source(self._path, self._select, self._transitions, self._keep_vectors)
                self._search = SqliteSearch(source, embedder)
            return self._search

    def _embedder(self) -> Embedder | None:
        """The one that was given, or the hashed one where the file is free for it or already its own."""
        if self._chosen is None:
            from dreamgym_kit.adapters.embedders.hashed import HashedEmbedder

            hashed = HashedEmbedder()
            if self._kept_embedder() in (None, (hashed.name, hashed.dimension)):
                self._chosen = hashed
        return self._chosen

    def _check_embedder(self, embedder: Embedder) -> None:
        kept = self._kept_embedder()
        if kept is not None and kept != (embedder.name, embedder.dimension):
            raise StoreError(
                f"{self._path}: its vectors are of embedder '{kept[0]}' ({kept[1]} numbers), not "
                f"'{embedder.name}' ({embedder.dimension}); open it with that one, or export it and import "
                "the rows into a new buffer"
            )

    def _kept_embedder(self) -> tuple[str, int] | None:
        if self._version() < 2:
            return None
        facts = self._select("select name, value from facts", ())
        with named(self._path):
            return embedder_of(facts)

    def _version(self) -> int:
        return int(self._select("pragma user_version", ())[0][0])

    def _transitions(self, seqs: Sequence[int]) -> dict[int, Transition]:
        rows = self._select(_CHECKED, (json.dumps(list(seqs)),))
        found = {}
        for seq, payload, wanted in rows:
            if not isinstance(payload, str) or checksum(payload) != wanted:
                raise damaged(self._path, f"row {seq}: its content is not what was written")
            try:
                found[seq] = transition_from_record(read_json(payload), checked=True)
            except NotJson as error:
                raise damaged(self._path, f"row {seq}: {error}") from error
        return found

    def _check_hit(self, found: Transition, query: HybridQuery) -> None:
        """What the index says of a row is compared with the row itself."""
        right = (
            found.tenant == query.tenant
            and query.tool in (None, found.call.tool)
            and query.world in (None, found.world)
            and found.episode != query.not_episode
            and found.answer.provenance in query.provenances
            and may_be_found(found)
        )
        if not right:
            raise damaged(
                self._path, f"transition {found.id}: its place says something else than its content"
            )

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
    places = (spelled(transition.tenant), _world(transition.world), spelled(call.tool), call.key)
    return (record.get("id", ""), *places)


def _world(world: World) -> str:
    return spelled(str(world))
