"""How files of a run directory are opened and written: never through a link, never half.

Every refusal of the system becomes a `RunDirectoryError` that names the file. Only plain files are
opened: a link would lead out of the run directory, a named pipe would wait for ever.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dreamgym_kit.errors import RunDirectoryError

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


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a reader, or a crash, finds the old file or the new one.

    Raises:
        RunDirectoryError: it cannot be written; what stood there still does.
    """
    with replacing(path) as descriptor:
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
