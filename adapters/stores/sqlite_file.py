"""Recognize buffer files, open connections to them, and translate SQLite's errors.

A path is checked without SQLite first, since opening another program's database can already write to it
(journals, checkpoints). Only an absent or empty file becomes a buffer.

All SQLite calls of the store run inside `named`, which turns their errors into one line that names the file,
what happened and what to do; no `sqlite3` exception leaves the store. In each case the transaction was
rolled back: acknowledged rows are still there.
"""

import sqlite3
import stat
import time
from pathlib import Path
from types import TracebackType

from dreamgym_kit.errors import StoreError

APPLICATION_ID = 0x44524D47  # "DRMG", in the file header at byte 68
SCHEMA = 3  # `user_version`, in the file header at byte 60
CACHE_KIB = 64 * 1024  # page cache; no memory map: it kills its reader if another process truncates the file
LOG_PAGES = 4096  # of 4 KiB until a checkpoint: nearly every put changes index pages
_MAGIC = b"SQLite format 3\x00"
_LOGS = ("wal", "journal")  # changes not yet in the file; the file's old pages
_READ_ONLY = "to read it, pass read_only=True"
_NOTHING_LOST = "acknowledged rows are kept"
_WORDS = {
    sqlite3.SQLITE_BUSY: f"is locked by another process; stop that process or try again ({_READ_ONLY})",
    sqlite3.SQLITE_LOCKED: f"is locked by another process; stop that process or try again ({_READ_ONLY})",
    sqlite3.SQLITE_READONLY: f"cannot be written: it or its folder is read-only; {_READ_ONLY}",
    sqlite3.SQLITE_PERM: "cannot be opened: access denied; get read and write access",
    sqlite3.SQLITE_CANTOPEN: f"cannot be opened: read-only folder, or too many open files; {_READ_ONLY}",
    sqlite3.SQLITE_FULL: f"could not grow: the disk is full; {_NOTHING_LOST}: free some space and repeat",
    sqlite3.SQLITE_IOERR: f"I/O error on the disk; {_NOTHING_LOST}: check the disk and repeat",
    sqlite3.SQLITE_NOMEM: f"out of memory; {_NOTHING_LOST}: repeat with fewer rows at once",
    sqlite3.SQLITE_TOOBIG: f"a row is too large for SQLite; {_NOTHING_LOST}: remove that row",
}
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # ERROR: "no such column"
_PRIMARY = 0xFF  # the low byte of an extended result code is the primary code


class named:  # noqa: N801  a context manager; as a class it costs half of a generator on each read
    """Turn SQLite errors in the block into `StoreError`s that name `path`."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, sqlite3.Error):
            raise StoreError(f"{self._path}: {_words(error)}") from error
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes bytes of a damaged schema in its messages
            raise damaged(self._path, "text that is not UTF-8") from error


def damaged(path: Path, problem: object) -> StoreError:
    """Return the error for a damaged file."""
    return StoreError(f"{path}: {_damaged(problem)}")


def _words(error: sqlite3.Error) -> str:
    code = (
        getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & _PRIMARY
    )  # no code: text that is not UTF-8
    if code in _DAMAGE:
        return _damaged(error)
    return _WORDS.get(code) or f"failed ({_short(error)}); {_NOTHING_LOST}: repeat"


def _short(problem: object) -> str:
    return " ".join(str(problem).split())[:200]


def _damaged(problem: object) -> str:
    return f"is damaged ({_short(problem)}); nothing was changed: import your last export into a new buffer"


def is_new(path: Path) -> bool:
    """Return whether `path` may become a buffer; changes nothing.

    Raises:
        StoreError: the path is something else, or a newer buffer.
    """
    header = _header(path)
    if not header:
        return True
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise StoreError(
            f"{path}: is not a buffer (not an SQLite database); nothing was changed: choose another file"
        )
    _check_marks(path, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))
    return False


def is_unsettled(path: Path) -> bool:
    """Return whether the process that created a buffer was killed midway."""
    return _has_log(path, "journal")


def connect(path: Path, mode: str, *, lock_wait_s: float) -> sqlite3.Connection:
    """Open a connection without implicit transactions; one thread may use it at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=lock_wait_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        # A damaged or planted file must not run code from its schema or make SQLite read outside a page.
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma cell_size_check = on")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path, *, read_only: bool, lock_wait_s: float) -> sqlite3.Connection:
    """Open a buffer for reading and check its header again, as SQLite reads it."""
    with named(path):
        if read_only:
            connection = _connect_read_only(path, lock_wait_s)
        else:
            connection = connect(path, "rw", lock_wait_s=lock_wait_s)
    try:
        with named(path):
            if not read_only:
                connection.execute("pragma query_only = on")
            connection.execute(f"pragma cache_size = {-CACHE_KIB}")
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
    """Refuse a file with triggers or views: no buffer has any, and a trigger can delete recordings.

    Raises:
        StoreError: names the first of them.
    """
    with named(path):
        row = connection.execute(
            "select type, name from sqlite_master where type in ('trigger', 'view') order by name limit 1"
        ).fetchone()
    if row is not None:
        kind, name = row
        raise StoreError(
            f"{path}: has a {kind} {str(name)[:60]!a} that dreamgym-kit did not create; it can change "
            "recordings. Nothing was changed: remove it (sqlite3 FILE 'drop ...'), or choose another file"
        )


def write_ahead(connection: sqlite3.Connection, lock_wait_s: float) -> None:
    """Switch to a write-ahead log; SQLite itself does not wait for locks here."""
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
            return  # not every file system can: the rollback journal is as safe, but slower


def _connect_read_only(path: Path, lock_wait_s: float) -> sqlite3.Connection:
    connection = connect(path, "ro", lock_wait_s=lock_wait_s)
    try:
        connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        # SQLite cannot share a log in a read-only folder. Without a log nothing writes here.
        shut = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if error.sqlite_errorcode & 0xFF not in shut or any(_has_log(path, log) for log in _LOGS):
            raise
        return connect(path, "ro&immutable=1", lock_wait_s=lock_wait_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _has_log(path: Path, log: str) -> bool:
    """Return whether the database has a non-empty log file."""
    beside = path.with_name(f"{path.name}-{log}")
    return beside.exists() and beside.stat().st_size > 0


def _header(path: Path) -> bytes:
    """The first 100 bytes of a regular file; empty if there is no file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise StoreError(f"{path}: is {kind}; a buffer is a file: choose one")
        with path.open("rb") as file:
            return file.read(100)
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"{path}: cannot be read ({reason}); nothing was changed") from error


def _check_marks(path: Path, application: int, schema: int) -> None:
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path}: is an SQLite database of another program; nothing was changed: choose another file"
        )
    if schema > SCHEMA:
        raise StoreError(
            f"{path}: was written by a newer dreamgym-kit (schema {schema}, this version reads {SCHEMA}); "
            "nothing was changed: update dreamgym-kit"
        )
    if schema < 1:
        raise damaged(path, f"schema {schema}")
