"""Older buffers become what this version writes: one named function a version, each in one transaction.

A killed migration leaves the old buffer. Reading needs none; the first write makes it, or the first search.
"""

import sqlite3
from pathlib import Path

from dreamgym_kit.adapters.stores.sqlite_errors import damaged
from dreamgym_kit.adapters.stores.sqlite_places import SEARCH_TABLES, add, searchable
from dreamgym_kit.errors import NotJson
from dreamgym_kit.replay.records import load_transition

_PAGE = 256


def migrate(writer: sqlite3.Connection, path: Path) -> None:
    """Bring a buffer to the newest version; does nothing where it is, also by another process.

    Raises:
        StoreError: a row cannot be read; the buffer is left as it was.
    """
    if _version(writer) >= 2:
        return
    writer.execute("begin immediate")
    try:
        if _version(writer) == 1:  # asked again: now nobody else can write
            add_search(writer, path)
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
                rows.append((number, transition.id, searchable(transition), payload))
            except (NotJson, TypeError) as error:
                raise damaged(path, f"row {number}: {error}") from error
        add(writer, rows, None)
        if len(page) < _PAGE:
            break
    writer.execute("pragma user_version = 2")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])
