"""How files of a run directory are opened, written and locked: never through a link, never half.

Every refusal of the system becomes a `RunDirectoryError` that names the file. Only plain files are
opened: a link would lead out of the run directory, a named pipe would wait for ever.

Locks are the system's, which gives them back when their owner dies, however it dies: `flock` on a file that
stays, so there is no stale lock to clear. The file of a `RunLock` names its owner for the message only. The
package `filelock` would do no more than call `flock`: its locks hand no descriptor to a server that outlives
us, hold no folder and no file that is open already, and wait by asking again every 50 ms.
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
    """Say which file could not be read or written, why, and what to do."""
    hint = _WHAT_TO_DO.get(error.errno or 0, "what was finished is kept")
    return RunDirectoryError(f"{path}: {problem} ({error.strerror or type(error).__name__}); {hint}.")


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file and give its descriptor; `flags` as for `os.open`.

    Raises:
        FileNotFoundError: there is none and the flags do not create it.
        RunDirectoryError: it is a link, a folder or a pipe, or the system refuses.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise RunDirectoryError(f"{path}: is a link; files of a run lie in its own directory.") from None
        raise refused(path, "cannot be opened", error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunDirectoryError(f"{path}: is not a plain file; move it away.")
    return descriptor


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`, in one system call unless the disk takes less.

    Raises:
        OSError: part of it may have been written.
    """
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def is_folder(path: Path) -> bool:
    """Whether a folder stands there; no for a name that nothing can have."""
    try:
        return path.is_dir()
    except OSError:  # too long: `Path` asks the system, and lets only some of its answers pass
        return False


def require_replaceable(path: Path) -> None:
    """Refuse to put a file where something else stands: renaming would do away with a device or a pipe.

    Raises:
        RunDirectoryError: a device, a pipe, a socket or a folder stands there.
    """
    try:
        mode = path.stat().st_mode
        descriptor = path.is_symlink() and str(path.readlink()).startswith("/proc/")  # /dev/stdout
    except OSError:  # nothing, or what opening it will say
        return
    if descriptor or not stat.S_ISREG(mode):
        raise RunDirectoryError(f"{path}: is not a plain file, and is not replaced; name another one.")


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Put `data` at `path` so that a reader, or a crash, finds the old file or the new one, with `mode`.

    Raises:
        RunDirectoryError: it cannot be written; what stood there still does.
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
    """Give a descriptor to write what stands at `path` once the block ends; where it fails, the old stays.

    Raises:
        RunDirectoryError: it cannot be written; an OSError of the block is taken for that, too.
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
    """Give the content of a small file.

    Raises:
        FileNotFoundError: there is none.
        RunDirectoryError: it cannot be read, or is larger than a file of its kind ever is.
    """
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise refused(path, "cannot be read", error) from error
    if len(data) > max_bytes:
        raise RunDirectoryError(f"{path}: is larger than {max_bytes} bytes; it is not one of a run.")
    return data


def write_sealed(path: Path, body: bytes) -> None:
    """Write a file with a checksum on its first line, in one step.

    Raises:
        RunDirectoryError: the disk refuses.
    """
    write_atomically(path, hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)


def read_sealed(path: Path, *, max_bytes: int = 64 * 2**20) -> bytes | None:
    """The body that `write_sealed` was given; None where the file is not what was written.

    Raises:
        FileNotFoundError, RunDirectoryError: as `read_whole`.
    """
    head, _, body = read_whole(path, max_bytes=max_bytes).partition(b"\n")
    return body if hashlib.sha256(body).hexdigest().encode("ascii") == head else None


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder, and put it in the place of `folder` in one step."""
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
    """Make all files below `folder` readable as other files are, and wait until the disk has them."""
    mask = os.umask(0)
    os.umask(mask)
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        path.chmod(0o666 & ~mask)  # safetensors writes its files for their owner alone
        sync_folder(path)
    for path in [folder, *(inner for inner in folder.rglob("*") if inner.is_dir())]:
        sync_folder(path)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in `folder`; of a file, what is in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Closing:
    """What a `with` block closes at its end."""

    def close(self) -> None:
        """Calling it twice does no harm."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def take_lock(path: Path, descriptor: int, *, wait: bool = False) -> bool:
    """Lock what is open as `descriptor` until it is closed; False where somebody else holds it.

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
    """Wait for a folder, or a file that is made where there is none, and hold it for the block.

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
    """Holds the file at `path` from construction until it is closed.

    Attributes:
        descriptor: whoever inherits it holds the lock too, until it ends.

    Raises:
        RunDirectoryError: somebody else holds it (named), or it cannot be locked at all.
    """

    def __init__(self, path: Path) -> None:
        self.descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        try:
            if not take_lock(path, self.descriptor):
                owner = _owner(self.descriptor)
                raise RunDirectoryError(
                    f"{path.parent}: in use by {owner}; wait until it is done, or stop it."
                )
            self.sign(os.getpid())
        except OSError as error:
            self.close()
            raise refused(path, "cannot be locked", error) from error
        except RunDirectoryError:
            self.close()
            raise

    def sign(self, pid: int) -> None:
        """Name the process that holds the lock from now on."""
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        owner = {"pid": pid, "host": socket.gethostname(), "since": since}
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        write_whole(self.descriptor, json.dumps(owner).encode("ascii"))

    def close(self) -> None:
        """Give the lock back. The file stays: removing it would let two in."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _owner(descriptor: int) -> str:
    """Who holds the lock, as its file says; the file may be empty for the moment before it is signed."""
    try:
        owner = read_json(os.pread(descriptor, 1000, 0))
        return f"process {owner['pid']:d} on {owner['host']!a} since {owner['since']!a}".replace("'", "")
    except (NotSerializable, OSError, KeyError, TypeError, ValueError):
        return "another process"
