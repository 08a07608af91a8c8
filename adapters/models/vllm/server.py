"""A server from start to stop: started, ready, drained, gone.

Ready is `/health` answering 200, which takes minutes with a large model. Stopping is in this order, for a
server that is asked to go while it answers leaves its clients hanging until their own time is up: nothing new
is let in, what runs is waited for, then it is asked to go, then its whole group is made to.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.adapters.models.vllm.launch import Launch
from dreamgym_kit.adapters.models.vllm.looking import (
    ServerMetrics,
    listens,
    look,
    read_metrics,
    read_under_way,
)
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import masked

READY_S = 1800.0
DRAIN_S = 120.0
GRACE_S = 15.0
_POLL_S = 0.25
_END_POLL_S = 0.1
_LAST_LINES = 20
UNDER_WAY = "/dreamgym/under-way"  # answered by the door
_QUIET = 2  # looks in a row that find nothing under way

Tell = Callable[[float, str], None]
"""Is told the seconds since the start, and the server's last word."""


class ServerProcess:
    """A started server: processes that are logged and ended as one, by `end`.

    A signal to this process's own group does not reach them.

    `log`: where their words go; appended to, readable by its owner only.
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

    def last_lines(self, most: int = _LAST_LINES) -> list[str]:
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
            time.sleep(_END_POLL_S)
        return self.code is not None

    def end(self, grace_s: float) -> bool:
        """Ask it to go, then make the whole group go; whether asking was enough (0 s: it is not asked)."""
        if grace_s > 0 and self.code is None:
            self._started.terminate()
        gone = self.wait(grace_s)
        self.kill_group()
        self._started.wait()
        return gone

    def kill_group(self) -> None:
        """Make all of it go, also what the first process left behind; returns at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ServerStop:
    """How a stop went."""

    left: int  # requests that were cut off
    gracefully: bool  # it went when it was asked to


class VllmServer:
    """One running server."""

    def __init__(self, launch: Launch, log: Path, *, environ: Mapping[str, str] | None = None) -> None:
        self.launch = launch
        if listens(launch.url):  # its words would be taken for the new server's
            raise UserError(
                f"serve: something answers at {launch.url} already; stop it, or name another --port."
            )
        self._folder = tempfile.TemporaryDirectory(prefix="dreamgym-serve-")
        self._draining = Path(self._folder.name) / "draining"
        environment = launch.environment(os.environ if environ is None else environ, draining=self._draining)
        self._started = time.monotonic()
        self.process = ServerProcess(launch.line(), environment, log)

    def wait_ready(self, *, within_s: float = READY_S, tell: Tell = lambda *_: None) -> None:
        """Wait until it answers.

        Raises:
            UserError: it ended before, or did not get ready in time; with the last lines of its log.
        """
        while True:
            if self.process.code is not None:
                raise UserError(self.failure(f"vLLM ended with code {self.process.code} before it was ready"))
            if look(self.launch.url, "/health").status == 200:
                return
            seconds = time.monotonic() - self._started
            if seconds > within_s:
                raise UserError(self.failure(f"vLLM was not ready within {within_s:g} s"))
            tell(seconds, next(iter(self.process.last_lines(1)), ""))
            time.sleep(_POLL_S)

    def metrics(self) -> ServerMetrics | None:
        """What it counts; None where it does not say."""
        seen = look(self.launch.url, "/metrics", key=self.launch.key)
        return read_metrics(seen.text) if seen.status == 200 else None

    def under_way(self) -> int | None:
        """How many requests it has let in and not answered; None where it does not say.

        The door counts what it let into its own process, the page what all engines have taken up.
        """
        seen = look(self.launch.url, UNDER_WAY, key=self.launch.key)
        counted, page = read_under_way(seen.text) if seen.status == 200 else None, self.metrics()
        if counted is None or page is None:
            return None
        return max(counted, page.running + page.waiting)

    def close_door(self) -> None:
        """Let nothing new in from here on."""
        self._draining.touch()

    def drain(self, within_s: float = DRAIN_S) -> int:
        """Let nothing new in and wait for what runs; how many requests were left when time was up."""
        self.close_door()
        until, quiet, left = time.monotonic() + within_s, 0, 0
        while self.process.code is None:
            now = self.under_way()
            if now is not None:
                left = now
                quiet = 0 if left else quiet + 1
            if quiet >= _QUIET:
                return 0
            if time.monotonic() >= until:
                return left
            time.sleep(_POLL_S)
        return 0

    def stop(self, *, drain_s: float = DRAIN_S, grace_s: float = GRACE_S) -> ServerStop:
        """Drain, then end the whole group; interrupted, it is ended at once. Twice does no harm."""
        try:
            left = self.drain(drain_s) if self.process.code is None else 0
            gracefully = self.process.end(grace_s)
        finally:
            self.kill()
        return ServerStop(left, gracefully)

    def kill(self) -> None:
        """End the whole group at once."""
        self.process.end(0.0)
        with suppress(OSError):
            self._folder.cleanup()

    def failure(self, problem: str) -> str:
        """What went wrong, with the last lines of the log."""
        lines = "\n".join(f"  {masked(line)}" for line in self.process.last_lines())
        ending = f"; the end of {self.process.log}:\n{lines}" if lines else f"; {self.process.log} is empty"
        return f"serve: {problem}{ending}"
