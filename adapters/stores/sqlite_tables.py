"""The tables of the file: what search keeps beside the rows, and how older files become new ones.

Beside the rows are places, words, vectors and rows that left. All of it can be made again from the rows, and
is written in the same transaction as they are. Held-out rows get a place (eviction counts them) but no words
and no vector, so that no search can find them. Vectors cover the rows up to some row and none after it, so
that a process without the embedder may add rows and another fills the rest in.

The tables are created in one transaction with the marks in the header, so a killed process leaves either
nothing or a buffer, or a journal beside the file that makes it one of these when it is next written to. Older
buffers become new ones in one pass over their rows, all in one transaction: a killed migration leaves the
old buffer. Reading needs none; the first write makes it, or the first search.
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

# `words` keeps no text and no positions: a tenth of the size, and nothing that we ask for is missing. Our
# own terms go in, so SQLite only has to split at blanks. `gone` tells other processes which rows left.
_MERGE_LATER = (
    "insert into words (words, rank) values ('automerge', 8)"  # 4 merges, and so writes, more often
)
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
_MARK = "§"  # no term has it: a question cannot ask for another tenant's rows


def create(path: Path, *, lock_wait_s: float) -> None:
    """Make an absent, empty or unsettled file into a buffer; does nothing when another process was first."""
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
    """What is kept for search of one transition, apart from its vector."""

    place: tuple[object, ...]  # without seq
    words: str | None  # None: never found
    text: str


def searchable(transition: Transition, payload: str) -> Searchable:
    """Make what is kept for search of a transition that is written as this payload."""
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
    """Write what is kept of new rows, within the caller's transaction.

    Vectors only where no earlier row waits for its own, and where the file keeps those of this embedder.
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
    """Write vectors that were missing, unless another process was first or took one of the rows out."""
    waiting = connection.execute(f"{_WITHOUT_VECTOR} limit ?", (len(vectors),)).fetchall()
    if [seq for (seq,) in waiting] == [seq for seq, _ in vectors] and _keeps(connection, embedder):
        _add_vectors(connection, vectors)


def _add_vectors(connection: sqlite3.Connection, vectors: Iterable[tuple[int, Vector]]) -> None:
    connection.executemany(_ADD_VECTOR, ((seq, in_halves(vector)) for seq, vector in vectors))


def in_halves(vector: Vector) -> bytes:
    """Spell a vector as the file keeps it: a dot product of 256 halves is right to 3 digits."""
    return vector.astype("<f2").tobytes()


def stored_embedder(facts: Sequence[tuple[Any, ...]]) -> tuple[str, int] | None:
    """Name and dimension of the embedder whose vectors a file keeps, from its facts; None: none yet.

    Raises:
        sqlite3.DatabaseError: the fact is damaged, as SQLite says of its own pages.
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
    """Whether the file keeps the vectors of this embedder; says so in it where it kept none."""
    stored = stored_embedder(connection.execute("select name, value from facts").fetchall())
    if stored is None:
        value = json.dumps({"name": embedder.name, "dimension": embedder.dimension})
        connection.execute("insert into facts values ('embedder', ?)", (value,))
    return stored in (None, (embedder.name, embedder.dimension))


def all_stay(connection: sqlite3.Connection, room: Room) -> bool:
    """Whether a look at two counts tells that all rows have room: no dreamt ones, and no more than may be."""
    dreamt = connection.execute("select 1 from places where provenance <> 'real' limit 1").fetchone()
    if dreamt is not None:
        return False
    count = "select count(*) from transitions"  # by its shortest index
    return room.rows is None or connection.execute(count).fetchone()[0] <= room.rows


def drop(connection: sqlite3.Connection, rows: Iterable[tuple[int, Transition]]) -> int:
    """Take rows out of every table, within the caller's transaction."""
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
    """A word that just the rows of one tenant (and tool, or world) have, real and dreamt ones apart."""
    parts = json.dumps([tenant, real, tool, environment])
    return _MARK + hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()


# A put is quicker when SQLite merges seldom (`_MERGE_LATER`), a question when there is little to look into.
# So who opens a search of a file that it may write merges what others left; whoever cannot, asks the parts.
_PARTS = 4  # with so many nothing is merged: one of each size is what merging leaves
_PAGES = 500  # of some 4 KB, written at once: others wait for a put's time, not for the whole

_COUNT = "select count(*) from (select distinct segid from words_idx)"
_ALL_SIZES = "insert into words (words, rank) values ('usermerge', 2)"  # two of a size are merged already
_MERGE = f"insert into words (words, rank) values ('merge', {_PAGES})"  # noqa: S608  # our own number


def scattered(select: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> bool:
    """Whether the index lies in more parts than merging would leave."""
    return int(select(_COUNT, ())[0][0]) > _PARTS


def merge_some(writer: sqlite3.Connection) -> bool:
    """Merge some pages' worth; False where nothing was left to merge."""
    writer.execute(_ALL_SIZES)
    before = writer.total_changes
    writer.execute(_MERGE)
    return writer.total_changes - before > 1  # SQLite counts one for the command itself


_PAGE = 256
_OLD_ROWS = """select seq, id, tenant, world, tool, key, payload from old_transitions
    where seq > ? order by seq limit ?"""


def migrate(writer: sqlite3.Connection, path: Path) -> None:
    """Bring a buffer to the newest version; does nothing where it is, also by another process.

    Raises:
        StoreError: a row cannot be read; the buffer is left as it was.
    """
    if _version(writer) >= SCHEMA:
        return
    writer.execute("begin immediate")
    try:
        version = _version(writer)  # asked again: now nobody else can write
        if version < SCHEMA:
            _write_anew(writer, path, version)
            writer.execute(f"pragma user_version = {SCHEMA}")
        writer.execute("commit")
    except BaseException:
        if writer.in_transaction:
            writer.execute("rollback")
        raise


def _write_anew(writer: sqlite3.Connection, path: Path, version: int) -> None:
    """Put all rows into the tables of today.

    Version 1 kept nothing to search by; vectors come with the first search. Version 2 had names and digests
    as text where there are 16 bytes of an id now, and one number for where a call belongs.
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
                raise damaged(path, f"row {seq}: no id") from error
        writer.executemany("insert into transitions values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if searched:
            add(writer, searched, None)
    writer.execute("drop table old_transitions")
    writer.execute("delete from sqlite_sequence where name = 'transitions'")
    writer.execute("insert into sqlite_sequence values ('transitions', ?)", (last,))


def _old_pages(writer: sqlite3.Connection, path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of an older buffer, some at a time."""
    seq = 0
    while page := writer.execute(_OLD_ROWS, (seq, _PAGE)).fetchall():
        for number, *_ in page:
            if not isinstance(number, int) or number <= seq:
                raise damaged(path, f"row {number} after row {seq}")
            seq = number
        yield page


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])
