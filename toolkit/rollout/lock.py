"""One owner for a run directory: a lock that the system gives back when its owner dies.

`flock` on a file that stays: whoever dies, however, frees it at once, and there is no stale lock to
clear. The file names its owner for the message only; whether it is held is the system's word.
"""

import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Self

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, RunDirectoryError
from dreamgym_kit.rollout.atomic_files import open_plain, refused, write_whole

_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class RunLock:
    """Holds `path` from construction to `release`.

    Raises:
        RunDirectoryError: somebody else holds it (named), or it cannot be locked at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.sign(os.getpid())
        except OSError as error:
            owner = _owner(self._descriptor) if error.errno in _HELD else ""
            self.release()
            if owner:
                raise RunDirectoryError(
                    f"{path.parent}: in use by {owner}; wait until it is done, or stop it."
                ) from None
            raise refused(path, "cannot be locked", error) from error

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
