"""What SQLite says, as one line that names the file, what happened and what to do.

Every call into SQLite that the store makes stands inside `named`; nothing of `sqlite3` leaves the
store. In each of these cases the transaction was rolled back: acknowledged rows are still there.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dreamgym_kit.errors import StoreError

_READ_ONLY = "to only read it: read_only=True"
_KEPT = "what was acknowledged before is kept"
_WORDS = {
    sqlite3.SQLITE_BUSY: f"is locked by another process; end that one or try again ({_READ_ONLY})",
    sqlite3.SQLITE_LOCKED: f"is locked by another process; end that one or try again ({_READ_ONLY})",
    sqlite3.SQLITE_READONLY: f"cannot be written: it or its folder is read-only; {_READ_ONLY}",
    sqlite3.SQLITE_PERM: "cannot be opened, access is denied; ask for read and write access to it",
    sqlite3.SQLITE_CANTOPEN: f"cannot be opened: read-only folder, or too many open files; {_READ_ONLY}",
    sqlite3.SQLITE_FULL: f"could not grow, the disk is full; {_KEPT}: free some space and repeat",
    sqlite3.SQLITE_IOERR: f"the disk failed while it was used; {_KEPT}: check the disk and repeat",
    sqlite3.SQLITE_NOMEM: f"memory ran out while it was used; {_KEPT}: repeat with fewer rows at once",
    sqlite3.SQLITE_TOOBIG: f"a row is too large for SQLite; {_KEPT}: leave that row out",
}
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # ERROR: "no such column"
_PRIMARY = 0xFF  # the low byte of an extended result code names its family


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into `StoreError`s that name `path`."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_words(error)}") from error
    except UnicodeDecodeError as error:  # SQLite quotes bytes of a damaged schema in its own messages
        raise damaged(path, "text that is not UTF-8") from error


def damaged(path: Path, problem: object) -> StoreError:
    """Say that the file is not what was written into it."""
    return StoreError(f"{path}: {_damaged(problem)}")


def _words(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & _PRIMARY  # none: text is not UTF-8
    if code in _DAMAGE:
        return _damaged(error)
    return _WORDS.get(code) or f"failed ({_short(error)}); {_KEPT}: repeat"


def _short(problem: object) -> str:
    return " ".join(str(problem).split())[:200]


def _damaged(problem: object) -> str:
    return f"is damaged ({_short(problem)}); nothing was changed: import your last export into a new one"
