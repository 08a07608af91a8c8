"""The server's processes: three that hang together, started, logged and ended as one."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dreamgym_kit.errors import UserError

_LAST_LINES = 20
_POLL_S = 0.1


class ServerProcess:
    """A started server. Ended by `end`; a signal to this process's own group does not reach it.

    Args:
        line: the command line.
        environment: the whole environment.
        log: where its words go; appended to, readable by its owner only.
    """

    def __init__(self, line: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise UserError(
                f"{log}: cannot be written ({error.strerror}); name another with --log."
            ) from None
        self._from = os.fstat(descriptor).st_size
        try:
            self._started = subprocess.Popen(  # noqa: S603  the program that a person named
                line,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{line[0]}: cannot be run ({error.strerror}).") from None
        finally:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        """Of the first process, which is the group's name too."""
        return self._started.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._started.poll()

    def said(self, most: int = _LAST_LINES) -> list[str]:
        """The last lines of its log, since this start."""
        with suppress(OSError), self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._from, size - 200 * most))
            lines = log.read().decode("utf-8", "replace").splitlines()
            return [line.rstrip() for line in lines if line.strip()][-most:]
        return []

    def wait(self, within_s: float) -> bool:
        """Whether it ends within that time."""
        until = time.monotonic() + within_s
        while self.code is None and time.monotonic() < until:
            time.sleep(_POLL_S)
        return self.code is not None

    def end(self, grace_s: float) -> bool:
        """Ask it to go, then make the whole group go; whether asking was enough (0 s: it is not asked)."""
        if grace_s > 0 and self.code is None:
            self._started.terminate()
        gone = self.wait(grace_s)
        with suppress(ProcessLookupError, PermissionError):  # also what it left behind
            os.killpg(self.pid, signal.SIGKILL)
        self._started.wait()
        return gone
