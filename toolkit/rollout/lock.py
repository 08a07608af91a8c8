"""Locks on files and folders that the system gives back when their owner dies, however it dies.

`flock` on a file that stays, so there is no stale lock to clear. The file of a `RunLock` names its owner for
the message only; whether it is held is the system's word.
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.rollout.atomic_files import open_plain, refused, write_whole

_HELD = (errno.EWOULDBLOCK, errno.EACCES)


def take_lock(path: Path, descriptor: int, *, wait: bool = False) -> bool:
    """Lock what is open as `descriptor` until it is closed; False where somebody else holds it.

    Raises:
        RunDirectoryError: it cannot be locked at all.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _HELD and not wait:
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


class RunLock:
    """Holds `path` from construction to `release`.

    Raises:
        RunDirectoryError: somebody else holds it (named), or it cannot be locked at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        try:
            if not take_lock(path, self._descriptor):
                owner = _owner(self._descriptor)
                raise RunDirectoryError(
                    f"{path.parent}: in use by {owner}; wait until it is done, or stop it."
                )
            self.sign(os.getpid())
        except OSError as error:
            self.release()
            raise refused(path, "cannot be locked", error) from error
        except RunDirectoryError:
            self.release()
            raise

    @property
    def descriptor(self) -> int:
        """Whoever inherits it holds the lock too, until it ends."""
        return self._descriptor

    def sign(self, pid: int) -> None:
        """Name the process that holds the lock from now on."""
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        owner = {"pid": pid, "host": socket.gethostname(), "since": since}
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        write_whole(self._descriptor, json.dumps(owner).encode("ascii"))

    def release(self) -> None:
        """Give the lock back; calling it twice does no harm. The file stays: removing it would let two in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _owner(descriptor: int) -> str:
    """Who holds the lock, as its file says; the file may be empty for the moment before it is signed."""
    try:
        owner = read_json(os.pread(descriptor, 1000, 0))
        return f"process {owner['pid']:d} on {owner['host']!a} since {owner['since']!a}".replace("'", "")
    except (NotSerializable, OSError, KeyError, TypeError, ValueError):
        return "another process"
