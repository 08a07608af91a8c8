"""Older buffers become what this version writes: one named function a version, each in one transaction.

A killed migration leaves the old buffer. Reading needs none; the first write makes it, or the first search.
"""

import sqlite3
from pathlib import Path

from dreamgym_kit.adapters.stores.sqlite_errors import damaged
from dreamgym_kit.adapters.stores.sqlite_file import SCHEMA
from dreamgym_kit.adapters.stores.sqlite_places import (
    COUNT_DREAMT,
    MERGE_LATER,
    SEARCH_TABLES,
    add,
    searchable,
)
from dreamgym_kit.adapters.stores.sqlite_rows import ROW_TABLES, exact_number, packed
from dreamgym_kit.errors import NotJson
from dreamgym_kit.replay.records import load_transition

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
        if version < 2:
            add_search(writer, path)
        if version < 3:
            shorten_indexes(writer, path)
        writer.execute(f"pragma user_version = {SCHEMA}")
        writer.execute("commit")
    except BaseException:
        if writer.in_transaction:
            writer.execute("rollback")
        raise


def add_search(writer: sqlite3.Connection, path: Path) -> None:
    """Version 1 to 2: places, words and the tables of vectors; the vectors come with the first search."""
    for statement in SEARCH_TABLES:
        writer.execute(statement)
    seq = 0
    while True:
        page = writer.execute(
            "select seq, payload from transitions where seq > ? order by seq limit ?", (seq, _PAGE)
        ).fetchall()
        rows = []
        for number, payload in page:
            if not isinstance(number, int) or number <= seq:
                raise damaged(path, f"row {number} after row {seq}")
            seq = number
            try:
                transition = load_transition(payload)
                rows.append((number, None, searchable(transition, payload)))
            except (NotJson, TypeError) as error:
                raise damaged(path, f"row {number}: {error}") from error
        add(writer, rows, None)
        if len(page) < _PAGE:
            return


def shorten_indexes(writer: sqlite3.Connection, path: Path) -> None:
    """Version 2 to 3: ids of 16 bytes and one number for where a call belongs, where there was text."""
    sequence = "select coalesce(max(seq), 0) from sqlite_sequence where name = 'transitions'"
    (last,) = writer.execute(sequence).fetchone()
    writer.execute("drop index transitions_exact")
    writer.execute("alter table transitions rename to old_transitions")
    for statement in ROW_TABLES:
        writer.execute(statement)
    seq = 0
    while True:
        page = writer.execute(_OLD_ROWS, (seq, _PAGE)).fetchall()
        rows = []
        for number, name, *names, payload in page:
            if not isinstance(number, int) or number <= seq:
                raise damaged(path, f"row {number} after row {seq}")
            seq = number
            try:
                rows.append((number, packed(name), exact_number(*names), *names, payload))
            except (ValueError, AttributeError) as error:
                raise damaged(path, f"row {number}: no id") from error
        writer.executemany("insert into transitions values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if len(page) < _PAGE:
            break
    writer.execute("drop table old_transitions")
    writer.execute("delete from sqlite_sequence where name = 'transitions'")
    writer.execute("insert into sqlite_sequence values ('transitions', ?)", (last,))
    writer.execute(MERGE_LATER)
    writer.execute(COUNT_DREAMT)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])
