"""Open, write and lock the files of a run directory: never through a link, never half-written.

Every system error becomes a `RunDirectoryError` that names the file. Only plain files are opened: a link
could lead out of the run directory, and a named pipe could block forever.

Locks are `flock` locks on files that stay: the system releases them when their owner ends in any way, so no
lock becomes stale. A `RunLock` file names its owner for error messages only. The package `filelock` would
only call `flock`: it cannot pass a descriptor to a server that outlives this process, cannot lock a folder or
an open file, and waits by polling every 50 ms.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.sandbox.confining import deliver

_WHAT_TO_DO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, then resume the run"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check who may write there"),
}


def refused(path: Path, problem: str, error: OSError) -> RunDirectoryError:
    """Return an error that names the file, the reason and what to do."""
    hint = _WHAT_TO_DO.get(error.errno or 0, "finished episodes are kept")
    return RunDirectoryError(f"{path}: {problem} ({error.strerror or type(error).__name__}); {hint}.")


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file and return its descriptor; `flags` as for `os.open`.

    Raises:
        FileNotFoundError: it does not exist and the flags do not create it.
        RunDirectoryError: it is a link, a folder or a pipe, or a system error.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise RunDirectoryError(f"{path}: is a link; files must be in the run's directory.") from None
        raise refused(path, "cannot be opened", error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunDirectoryError(f"{path}: is not a plain file; move it away.")
    return descriptor


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`, in one system call unless the disk accepts less.

    Raises:
        OSError: part of the data may have been written.
    """
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder; False for a name that is not valid."""
    try:
        return path.is_dir()
    except OSError:  # name too long: `Path` raises this error
        return False


def require_replaceable(path: Path) -> None:
    """Refuse a path that is not a plain file: renaming would replace a device or a pipe.

    Raises:
        RunDirectoryError: it is a device, a pipe, a socket or a folder.
    """
    try:
        mode = path.stat().st_mode
        descriptor = path.is_symlink() and str(path.readlink()).startswith("/proc/")  # /dev/stdout
    except OSError:  # absent; other errors appear on opening
        return
    if descriptor or not stat.S_ISREG(mode):
        raise RunDirectoryError(f"{path}: is not a plain file and is not replaced; choose another path.")


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one.

    Raises:
        RunDirectoryError: it cannot be written; the old file stays.
    """
    try:
        if deliver(path, data):
            return
    except OSError as error:
        raise refused(path, "cannot be written", error) from error
    with replacing(path) as descriptor:
        if mode is not None:
            os.fchmod(descriptor, mode)
        write_whole(descriptor, data)


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Yield a descriptor whose content replaces `path` when the block ends; on an error the old file stays.

    Raises:
        RunDirectoryError: it cannot be written, or the block raised an OSError.
    """
    require_replaceable(path)
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        descriptor = open_plain(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(path)
    except OSError as error:
        raise refused(path, "cannot be written", error) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def read_whole(path: Path, *, max_bytes: int = 64 * 2**20) -> bytes:
    """Return the content of a small file.

    Raises:
        FileNotFoundError: it does not exist.
        RunDirectoryError: it cannot be read, or exceeds `max_bytes`.
    """
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise refused(path, "cannot be read", error) from error
    if len(data) > max_bytes:
        raise RunDirectoryError(f"{path}: is larger than {max_bytes} bytes; it is not a run's file.")
    return data


def write_sealed(path: Path, body: bytes) -> None:
    """Write a file with a checksum on its first line, atomically.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    write_atomically(path, hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)


def read_sealed(path: Path, *, max_bytes: int = 64 * 2**20) -> bytes | None:
    """Return the body that `write_sealed` wrote; None if the file was changed.

    Raises:
        FileNotFoundError, RunDirectoryError: as `read_whole`.
    """
    head, _, body = read_whole(path, max_bytes=max_bytes).partition(b"\n")
    return body if hashlib.sha256(body).hexdigest().encode("ascii") == head else None


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder, then replace `folder` by it atomically."""
    beside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    settle(beside)
    if folder.exists():
        gone = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        beside.rename(folder)
        shutil.rmtree(gone)
    else:
        beside.rename(folder)
    sync_folder(folder.parent)


def settle(folder: Path) -> None:
    """Give all files below `folder` default permissions, and flush them to the disk."""
    mask = os.umask(0)
    os.umask(mask)
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        path.chmod(0o666 & ~mask)  # safetensors makes its files readable by the owner only
        sync_folder(path)
    for path in [folder, *(inner for inner in folder.rglob("*") if inner.is_dir())]:
        sync_folder(path)


def sync_folder(folder: Path) -> None:
    """Flush a folder's names, or a file's content, to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Closing:
    """Base class: a `with` block closes the object at its end."""

    def close(self) -> None:
        """Close it; safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def take_lock(path: Path, descriptor: int, *, wait: bool = False) -> bool:
    """Lock the open file `descriptor` until it is closed; False if another process has the lock.

    Raises:
        RunDirectoryError: it cannot be locked at all.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if isinstance(error, BlockingIOError | PermissionError) and not wait:
            return False
        raise refused(path, "cannot be locked", error) from error
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder, or a file (created if absent), for the block; waits for the lock.

    Raises:
        RunDirectoryError: it cannot be opened or locked.
    """
    descriptor = os.open(path, os.O_RDONLY) if path.is_dir() else open_plain(path, os.O_RDWR | os.O_CREAT)
    try:
        take_lock(path, descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


class RunLock(Closing):
    """Lock the file at `path` from construction until `close`.

    Attributes:
        descriptor: a process that inherits it shares the lock until it ends.

    Raises:
        RunDirectoryError: another process has it (named), or it cannot be locked at all.
    """

    def __init__(self, path: Path) -> None:
        self.descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        try:
            if not take_lock(path, self.descriptor):
                owner = _owner(self.descriptor)
                raise RunDirectoryError(f"{path.parent}: in use by {owner}; wait for it to end, or stop it.")
            self.sign(os.getpid())
        except OSError as error:
            self.close()
            raise refused(path, "cannot be locked", error) from error
        except RunDirectoryError:
            self.close()
            raise

    def sign(self, pid: int) -> None:
        """Record the process that owns the lock from now on."""
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        owner = {"pid": pid, "host": socket.gethostname(), "since": since}
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        write_whole(self.descriptor, json.dumps(owner).encode("ascii"))

    def close(self) -> None:
        """Release the lock. The file stays: removing it would let two processes lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _owner(descriptor: int) -> str:
    """Describe the lock's owner from its file, which may be empty for a moment after locking."""
    try:
        owner = read_json(os.pread(descriptor, 1000, 0))
        return f"process {owner['pid']:d} on {owner['host']!a} since {owner['since']!a}".replace("'", "")
    except (NotSerializable, OSError, KeyError, TypeError, ValueError):
        return "another process"
