"""The search tables of the file, and the migration of older files.

Search stores index entries ("places"), words, vectors and the numbers of evicted rows. All of it can be
rebuilt from the rows, and is written in their transaction. Held-out rows have a place (eviction counts them)
but no words and no vector, so that no search can return them. Vectors cover the rows up to some row and none
after it: a process without the embedder may add rows, and another fills in their vectors.

The tables and the header marks are written in one transaction, so a killed process leaves either nothing, a
buffer, or a journal that the next write resolves to one of these. Migration is one pass over the rows in one
transaction: if killed, it leaves the old buffer. Reading needs no migration; the first write or search does
it.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.stores.sqlite_file import (
    APPLICATION_ID,
    SCHEMA,
    connect,
    damaged,
    named,
    write_ahead,
)
from dreamgym_kit.adapters.stores.sqlite_rows import ROW_TABLES, exact_number, packed, spelled
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import Embedder, Room
from dreamgym_kit.replay.records import load_transition
from dreamgym_kit.replay.retrieval import Vector, may_be_found, number_of, sameness, search_text, terms_of
from dreamgym_kit.types import Source, Transition

# `words` stores neither text nor positions: a tenth of the size, and we need neither. It is given our own
# terms, so SQLite only splits at spaces. `gone` tells other processes which rows were evicted.
_MERGE_LATER = "insert into words (words, rank) values ('automerge', 8)"  # the default 4 writes more often
_COUNT_DREAMT = "create index if not exists places_dreamt on places (seq) where provenance <> 'real'"
_SEARCH_TABLES = (
    """create table places (
        seq integer primary key,
        tenant text not null,
        world text not null,
        tool text not null,
        episode text not null,
        found integer not null,
        provenance text not null,
        recorded_at real not null,
        same integer not null,
        terms integer not null,
        checksum integer not null
    )""",
    """create virtual table words using fts5(
        text, content='', detail=none, columnsize=0, tokenize="ascii tokenchars '-_@.'"
    )""",
    _MERGE_LATER,
    _COUNT_DREAMT,
    "create virtual table vocabulary using fts5vocab(words, row)",
    "create table vectors (seq integer primary key, vector blob not null)",
    "create table gone (number integer primary key autoincrement, seq integer not null)",
    "create table facts (name text primary key, value text not null)",
)

_ADD_PLACE = "insert into places values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_WORDS = "insert into words (rowid, text) values (?, ?)"
_DROP_WORDS = "insert into words (words, rowid, text) values ('delete', ?, ?)"
_ADD_VECTOR = "insert into vectors (seq, vector) values (?, ?)"
_WITHOUT_VECTOR = """select seq from places
    where seq > (select coalesce(max(seq), 0) from vectors) and found = 1 order by seq"""
_MARK = "§"  # not in any term: a query cannot reach another tenant's rows


def create(path: Path, *, lock_wait_s: float) -> None:
    """Create a buffer in an absent, empty or half-created file, unless another process was first."""
    with named(path), closing(connect(path, "rwc", lock_wait_s=lock_wait_s)) as connection:
        connection.execute("begin immediate")
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            for statement in (*ROW_TABLES, *_SEARCH_TABLES):
                connection.execute(statement)
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {SCHEMA}")
        connection.execute("commit")
        write_ahead(connection, lock_wait_s)


@dataclass(frozen=True, slots=True)
class Searchable:
    """The search data of one transition, except its vector."""

    place: tuple[object, ...]  # without seq
    words: str | None  # None: not searchable
    text: str


def searchable(transition: Transition, payload: str) -> Searchable:
    """Build the search data of a transition with this payload."""
    findable = may_be_found(transition)
    text = search_text(transition) if findable else ""
    terms = terms_of(text)
    real = transition.answer.source is Source.REAL
    tenant, environment = spelled(transition.tenant), spelled(str(transition.environment))
    tool = spelled(transition.call.tool)
    by_tool, by_environment = scope(tenant, real, tool=tool), scope(tenant, real, environment=environment)
    words = " ".join((scope(tenant, real), by_tool, by_environment, *terms))
    place: tuple[object, ...] = (tenant, environment, tool, spelled(transition.episode), int(findable))
    place += (transition.answer.source.on_disk, transition.recorded_at)
    place += (sameness(transition), len(terms), number_of(payload))
    return Searchable(place, words if findable else None, text)


def add(
    connection: sqlite3.Connection,
    rows: "Sequence[tuple[int, Searchable, Vector | None]]",
    embedder: Embedder | None,
) -> None:
    """Write the search data of new rows in the caller's transaction.

    Vectors are written only if no earlier row lacks one and the file's vectors come from this embedder.
    """
    waiting = connection.execute(f"{_WITHOUT_VECTOR} limit 1").fetchone()
    connection.executemany(_ADD_PLACE, ((seq, *row.place) for seq, row, _ in rows))
    worded = [(seq, row.words, vector) for seq, row, vector in rows if row.words is not None]
    connection.executemany(_ADD_WORDS, ((seq, words) for seq, words, _ in worded))
    if worded and waiting is None and embedder is not None and _keeps(connection, embedder):
        _add_vectors(connection, ((seq, vector) for seq, _, vector in worded if vector is not None))


def fill_in(
    connection: sqlite3.Connection,
    embedder: Embedder,
    vectors: Sequence[tuple[int, Vector]],
) -> None:
    """Write missing vectors, unless another process was first or evicted one of the rows."""
    waiting = connection.execute(f"{_WITHOUT_VECTOR} limit ?", (len(vectors),)).fetchall()
    if [seq for (seq,) in waiting] == [seq for seq, _ in vectors] and _keeps(connection, embedder):
        _add_vectors(connection, vectors)


def _add_vectors(connection: sqlite3.Connection, vectors: Iterable[tuple[int, Vector]]) -> None:
    connection.executemany(_ADD_VECTOR, ((seq, in_halves(vector)) for seq, vector in vectors))


def in_halves(vector: Vector) -> bytes:
    """Encode a vector as float16: a dot product of 256 of them is accurate to 3 digits."""
    return vector.astype("<f2").tobytes()


def stored_embedder(facts: Sequence[tuple[Any, ...]]) -> tuple[str, int] | None:
    """Return name and dimension of the embedder of a file's vectors, from its facts; None: no vectors yet.

    Raises:
        sqlite3.DatabaseError: the fact is damaged, like SQLite's own damaged pages.
    """
    for name, value in facts:
        if name == "embedder":
            try:
                fact = read_json(value)
                return str(fact["name"]), int(fact["dimension"])
            except (NotSerializable, TypeError, KeyError, ValueError) as error:
                raise sqlite3.DatabaseError(f"the embedder's name: {type(error).__name__}") from error
    return None


def _keeps(connection: sqlite3.Connection, embedder: Embedder) -> bool:
    """Return whether the file's vectors come from this embedder; a file without vectors adopts it."""
    stored = stored_embedder(connection.execute("select name, value from facts").fetchall())
    if stored is None:
        value = json.dumps({"name": embedder.name, "dimension": embedder.dimension})
        connection.execute("insert into facts values ('embedder', ?)", (value,))
    return stored in (None, (embedder.name, embedder.dimension))


def all_stay(connection: sqlite3.Connection, room: Room) -> bool:
    """Return whether two quick queries show that no row must be evicted."""
    dreamt = connection.execute("select 1 from places where provenance <> 'real' limit 1").fetchone()
    if dreamt is not None:
        return False
    count = "select count(*) from transitions"  # scans the smallest index
    return room.rows is None or connection.execute(count).fetchone()[0] <= room.rows


def drop(connection: sqlite3.Connection, rows: Iterable[tuple[int, Transition]]) -> int:
    """Delete rows from every table in the caller's transaction; return their number."""
    count = 0
    for seq, transition in rows:
        words = searchable(transition, "").words
        if words is not None:
            connection.execute(_DROP_WORDS, (seq, words))
        for table in ("transitions", "places", "vectors"):
            connection.execute(f"delete from {table} where seq = ?", (seq,))  # noqa: S608  # our own names
        connection.execute("insert into gone (seq) values (?)", (seq,))
        count += 1
    return count


@lru_cache(maxsize=4096)
def scope(tenant: str, real: bool, *, tool: str | None = None, environment: str | None = None) -> str:
    """Return a word that only rows of one tenant (and tool, or environment) have, real or dreamt."""
    parts = json.dumps([tenant, real, tool, environment])
    return _MARK + hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()


# SQLite writes faster if it merges index segments seldom (`_MERGE_LATER`), and searches faster with few.
# So a process that opens a writable file for search merges first; a read-only one searches all segments.
_PARTS = 4  # up to this many segments stay: merging leaves one of each size
_PAGES = 500  # of some 4 KB per transaction: others wait as long as for a put, not for the whole merge

_COUNT = "select count(*) from (select distinct segid from words_idx)"
_ALL_SIZES = "insert into words (words, rank) values ('usermerge', 2)"  # merge as soon as two have one size
_MERGE = f"insert into words (words, rank) values ('merge', {_PAGES})"  # noqa: S608  # a constant


def scattered(select: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> bool:
    """Return whether the index has more segments than merging would leave."""
    return int(select(_COUNT, ())[0][0]) > _PARTS


def merge_some(writer: sqlite3.Connection) -> bool:
    """Merge up to `_PAGES` pages; return False if nothing was left to merge."""
    writer.execute(_ALL_SIZES)
    before = writer.total_changes
    writer.execute(_MERGE)
    return writer.total_changes - before > 1  # SQLite counts one for the command itself


_PAGE = 256
_OLD_ROWS = """select seq, id, tenant, world, tool, key, payload from old_transitions
    where seq > ? order by seq limit ?"""


def migrate(writer: sqlite3.Connection, path: Path) -> None:
    """Migrate a buffer to the newest schema, unless it is current or another process was first.

    Raises:
        StoreError: a row cannot be read; the buffer is unchanged.
    """
    if _version(writer) >= SCHEMA:
        return
    writer.execute("begin immediate")
    try:
        version = _version(writer)  # read again under the write lock
        if version < SCHEMA:
            _write_anew(writer, path, version)
            writer.execute(f"pragma user_version = {SCHEMA}")
        writer.execute("commit")
    except BaseException:
        if writer.in_transaction:
            writer.execute("rollback")
        raise


def _write_anew(writer: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy all rows into tables of the current schema.

    Version 1 had no search data; the first search computes vectors. Version 2 had IDs and the exact-match key
    as text, which are 16 bytes and one number now.
    """
    sequence = "select coalesce(max(seq), 0) from sqlite_sequence where name = 'transitions'"
    (last,) = writer.execute(sequence).fetchone()
    writer.execute("drop index transitions_exact")
    writer.execute("alter table transitions rename to old_transitions")
    beside = _SEARCH_TABLES if version < 2 else (_MERGE_LATER, _COUNT_DREAMT)
    for statement in (*ROW_TABLES, *beside):
        writer.execute(statement)
    for page in _old_pages(writer, path):
        rows, searched = [], []
        for seq, name, *names, payload in page:
            try:
                rows.append((seq, packed(name), exact_number(*names), *names, payload))
                if version < 2:
                    searched.append((seq, searchable(load_transition(payload), payload), None))
            except (NotSerializable, TypeError) as error:
                raise damaged(path, f"row {seq}: {error}") from error
            except (ValueError, AttributeError) as error:
                raise damaged(path, f"row {seq}: not an ID") from error
        writer.executemany("insert into transitions values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if searched:
            add(writer, searched, None)
    writer.execute("drop table old_transitions")
    writer.execute("delete from sqlite_sequence where name = 'transitions'")
    writer.execute("insert into sqlite_sequence values ('transitions', ?)", (last,))


def _old_pages(writer: sqlite3.Connection, path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of an older buffer in pages."""
    seq = 0
    while page := writer.execute(_OLD_ROWS, (seq, _PAGE)).fetchall():
        for number, *_ in page:
            if not isinstance(number, int) or number <= seq:
                raise damaged(path, f"row {number} after row {seq}")
            seq = number
        yield page


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])
