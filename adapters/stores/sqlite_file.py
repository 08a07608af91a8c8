"""Which file is a buffer: its marks, its tables, and how a connection to it is opened.

A path is looked at without SQLite first, since opening somebody else's database can already write to
it (journals, checkpoints). Only an absent or empty file is made into a buffer. The tables are created in
one transaction with the marks in the header, so a killed process leaves either nothing or a buffer, or a
journal beside the file that makes it one of these when it is next written to.

Older buffers become what this version writes by one named function a version, all in one transaction: a
killed migration leaves the old buffer. Reading needs none; the first write makes it, or the first search.
"""

import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

from dreamgym_kit.adapters.stores.sqlite_errors import damaged, named
from dreamgym_kit.adapters.stores.sqlite_places import (
    COUNT_DREAMT,
    MERGE_LATER,
    SEARCH_TABLES,
    add,
    searchable,
)
from dreamgym_kit.adapters.stores.sqlite_rows import ROW_TABLES, exact_number, packed
from dreamgym_kit.errors import NotSerializable, StoreError
from dreamgym_kit.replay.records import load_transition

APPLICATION_ID = 0x44524D47  # "DRMG", in the file header at byte 68
SCHEMA = 3  # `user_version`, in the file header at byte 60
CACHE_KIB = 64 * 1024  # of pages; no memory map, whose reader dies when another cuts the file short
LOG_PAGES = 4096  # of 4 KiB, then the log is copied back: pages of the indexes change with nearly every put
_MAGIC = b"SQLite format 3\x00"
_LOGS = ("wal", "journal")  # what is written before it is in the file; what was in the file before

_TABLES = (
    *ROW_TABLES,
    *SEARCH_TABLES,
    f"pragma application_id = {APPLICATION_ID}",
    f"pragma user_version = {SCHEMA}",
)


def is_new(path: Path) -> bool:
    """Whether `path` is free to become a buffer; touches nothing.

    Raises:
        StoreError: there is something else, or a buffer of a newer version.
    """
    header = _header(path)
    if not header:
        return True
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise StoreError(
            f"{path}: is not a buffer (no SQLite database); nothing was touched: name another file"
        )
    _check_marks(path, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))
    return False


def is_unsettled(path: Path) -> bool:
    """Whether a buffer may be one only until it is next written to: the process that made it was killed."""
    return _lies_beside(path, "journal")


def create(path: Path, *, lock_wait_s: float) -> None:
    """Make an absent, empty or unsettled file into a buffer; does nothing when another process was first."""
    with named(path), closing(connect(path, "rwc", lock_wait_s=lock_wait_s)) as connection:
        connection.execute("begin immediate")
        if not connection.execute("select count(*) from sqlite_master").fetchone()[0]:
            for statement in _TABLES:
                connection.execute(statement)
        connection.execute("commit")
        write_ahead(connection, lock_wait_s)


def connect(path: Path, mode: str, *, lock_wait_s: float) -> sqlite3.Connection:
    """Open a connection without implicit transactions, for use by one thread at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=lock_wait_s,
        isolation_level=None,
        check_same_thread=False,
    )
    # A damaged or planted file must not run code of its schema, nor lead SQLite outside a page.
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    return connection


def connect_to_read(path: Path, *, read_only: bool, lock_wait_s: float) -> sqlite3.Connection:
    """Open a buffer for reading and check its marks again, now as SQLite sees them."""
    with named(path):
        if read_only:
            connection = _connect_read_only(path, lock_wait_s)
        else:
            connection = connect(path, "rw", lock_wait_s=lock_wait_s)
            connection.execute("pragma query_only = on")
        connection.execute(f"pragma cache_size = {-CACHE_KIB}")
    try:
        with named(path):
            marks = [
                connection.execute(f"pragma {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            ]
            connection.execute("select seq, id, tenant, world, tool, key, payload from transitions limit 0")
        _check_marks(path, *marks)
        check_own(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def check_own(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file with triggers or views: no buffer has any, and one of them can eat what is recorded.

    Raises:
        StoreError: names one.
    """
    with named(path):
        row = connection.execute(
            "select type, name from sqlite_master where type in ('trigger', 'view') order by name limit 1"
        ).fetchone()
    if row is not None:
        kind, name = row
        raise StoreError(
            f"{path}: has a {kind} {str(name)[:60]!a} that dreamgym-kit did not make, which can change what "
            "is recorded; nothing was touched: remove it (sqlite3 FILE 'drop ...'), or name another file"
        )


def write_ahead(connection: sqlite3.Connection, lock_wait_s: float) -> None:
    """Switch to a write-ahead log; SQLite does not wait for locks here by itself."""
    deadline = time.monotonic() + lock_wait_s
    if connection.execute("pragma journal_mode").fetchone()[0] == "wal":
        return
    while True:
        try:
            connection.execute("pragma journal_mode = wal").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return  # a file system that cannot have it keeps the rollback journal: as safe, slower


def _connect_read_only(path: Path, lock_wait_s: float) -> sqlite3.Connection:
    connection = connect(path, "ro", lock_wait_s=lock_wait_s)
    try:
        connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        # In a folder that cannot be written SQLite cannot share a log. Without a log nobody writes here.
        shut = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if error.sqlite_errorcode & 0xFF not in shut or any(_lies_beside(path, log) for log in _LOGS):
            raise
        return connect(path, "ro&immutable=1", lock_wait_s=lock_wait_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _lies_beside(path: Path, log: str) -> bool:
    """Whether a log with something in it lies beside the database."""
    beside = path.with_name(f"{path.name}-{log}")
    return beside.exists() and beside.stat().st_size > 0


def _header(path: Path) -> bytes:
    """The first 100 bytes of a regular file; empty when there is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a folder" if path.is_dir() else "no regular file"
            raise StoreError(f"{path}: is {kind}; a buffer is a file: name one")
        with path.open("rb") as file:
            return file.read(100)
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"{path}: cannot be read ({reason}); nothing was touched") from error


def _check_marks(path: Path, application: int, schema: int) -> None:
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path}: is an SQLite database of something else; nothing was touched: name another file"
        )
    if schema > SCHEMA:
        raise StoreError(
            f"{path}: was written by a newer dreamgym-kit (schema {schema}, this one knows {SCHEMA}); "
            "nothing was touched: update dreamgym-kit"
        )
    if schema < 1:
        raise damaged(path, f"schema {schema}")


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
            except (NotSerializable, TypeError) as error:
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
