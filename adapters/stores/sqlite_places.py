"""What the file keeps for search beside the rows themselves: places, words, vectors, rows that left.

Everything here can be made again from the rows, and is written in the same transaction as they are. Held-out
rows get a place (eviction counts them) but no words and no vector, so that no search can find them.
Vectors cover the rows up to some row and none after it, so that a process without the embedder may add rows
and another fills the rest in.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dreamgym_kit.adapters.stores.sqlite_rows import checksum, spelled
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import Embedder, Room
from dreamgym_kit.replay.retrieval import Vector, may_be_found, sameness
from dreamgym_kit.replay.terms import search_text, terms_of
from dreamgym_kit.types import Source, Transition

# `words` keeps no text and no positions: a tenth of the size, and nothing that we ask for is missing. Our
# own terms go in, so SQLite only has to split at blanks. `gone` tells other processes which rows left.
MERGE_LATER = "insert into words (words, rank) values ('automerge', 8)"  # 4 merges, and so writes, more often
COUNT_DREAMT = "create index if not exists places_dreamt on places (seq) where provenance <> 'real'"
SEARCH_TABLES = (
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
    MERGE_LATER,
    COUNT_DREAMT,
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


@dataclass(frozen=True, slots=True)
class Searchable:
    """What is kept for search of one transition, apart from its vector."""

    place: tuple[object, ...]  # without seq
    words: str | None  # None: never found
    text: str


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of new rows by their id, and who made them."""

    embedder: Embedder
    of: Mapping[object, Vector]


def searchable(transition: Transition, payload: str) -> Searchable:
    """Make what is kept for search of a transition that is written as this payload."""
    findable = may_be_found(transition)
    text = search_text(transition) if findable else ""
    terms = terms_of(text)
    real = transition.answer.source is Source.REAL
    tenant, environment = spelled(transition.tenant), spelled(str(transition.environment))
    tool = spelled(transition.call.tool)
    scopes = (
        scope(tenant, real),
        scope(tenant, real, tool=tool),
        scope(tenant, real, environment=environment),
    )
    place = (
        *(tenant, environment, tool, spelled(transition.episode), int(findable)),
        *(
            transition.answer.source.on_disk,
            transition.recorded_at,
            sameness(transition),
            len(terms),
            checksum(payload),
        ),
    )
    return Searchable(place, " ".join((*scopes, *terms)) if findable else None, text)


def add(
    connection: sqlite3.Connection, rows: Sequence[tuple[int, object, Searchable]], vectors: Vectors | None
) -> None:
    """Write what is kept of new rows (number, id, this), within the caller's transaction.

    Vectors only where no earlier row waits for its own, and where the file keeps those of this embedder.
    """
    whole = vectors is not None and not any_without_vector(connection)
    connection.executemany(_ADD_PLACE, ((seq, *row.place) for seq, _, row in rows))
    worded = [(seq, name, row.words) for seq, name, row in rows if row.words is not None]
    connection.executemany(_ADD_WORDS, ((seq, words) for seq, _, words in worded))
    if whole and worded and vectors is not None and _keeps(connection, vectors.embedder):
        _add_vectors(connection, ((seq, vectors.of[name]) for seq, name, _ in worded))


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


def any_without_vector(connection: sqlite3.Connection) -> bool:
    """Whether a row that may be found has no vector yet."""
    return connection.execute(f"{_WITHOUT_VECTOR} limit 1").fetchone() is not None


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


# A put is quicker when SQLite merges seldom (`MERGE_LATER`), a question when there is little to look into. So
# who opens a search of a file that it may write merges what others left; whoever cannot, asks the parts.
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
