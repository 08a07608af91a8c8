"""Workers as processes of this machine: each a new interpreter that imports the agent itself.

Never a fork (the driver has threads and clients) and never the caller's main module again (a script without
`if __name__ == "__main__"` would run twice): `python -m dreamgym_kit.adapters.engines.processes`. Frames go
over an inherited socket; only its descriptor is on the command line. The process's output goes to stderr, so
that stdout has results only. It ends with its driver, in any case.
"""

import asyncio
import contextlib
import ctypes
import io
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from dreamgym_kit.errors import UserError, WorkerLost
from dreamgym_kit.guard import egress
from dreamgym_kit.rollout.worker import EpisodeWorker

_MAIN = "dreamgym_kit.adapters.engines.processes"
_LENGTH = struct.Struct(">Q")  # length of the next frame
_STDERR = 2  # descriptor
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LEAVE_S = 0.5  # time from the end of its socket until it is killed
_EXIT_STATUS_S = 5.0  # time until the system reports the exit status, on a busy machine
_PR_SET_PDEATHSIG = 1


class Processes:
    """Implements `interfaces.WorkerHost` on this machine."""

    def __init__(self) -> None:
        self._workers: list[ProcessChannel] = []
        self._closed = False

    async def start(self, number: int) -> "ProcessChannel":
        """See `WorkerHost.start`."""
        if self._closed:
            raise WorkerLost("the workers are being ended")
        ours, theirs = socket.socketpair()
        try:
            worker = ProcessChannel(number, _started(theirs.fileno()))
        except OSError as error:
            ours.close()
            raise UserError(f"worker {number} cannot be started: {error}.") from error
        finally:
            theirs.close()
        self._workers.append(worker)
        await worker.connect(ours)
        return worker

    async def close(self) -> None:
        """See `WorkerHost.close`."""
        self._closed = True
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.end() for worker in workers))


def _started(descriptor: int) -> "subprocess.Popen[bytes]":
    # One arithmetic thread per worker, because there are about as many workers as cores.
    environment = {**dict.fromkeys(_THREADS, "1"), **os.environ}
    return subprocess.Popen(  # noqa: S603  ourselves
        [sys.executable, "-P", "-m", _MAIN, str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        pass_fds=(descriptor,),
        env=environment,
        start_new_session=True,  # Ctrl-C is for the driver; running episodes are finished
    )


class ProcessChannel:
    """Implements `interfaces.WorkerChannel`: one process, and the socket to it."""

    origin: Sequence[str] = ()  # it shares the driver's files and variables
    lacks: Sequence[str] = ()

    def __init__(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        self.name, self.pid = f"worker {number}, process {process.pid}", process.pid
        self._process = process
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, ours: socket.socket) -> None:
        """Open the driver's end of the socket."""
        self._reader, self._writer = await asyncio.open_connection(sock=ours)

    async def send(self, frames: Sequence[bytes]) -> None:
        """See `WorkerChannel.send`."""
        assert self._writer is not None
        for frame in frames:
            self._writer.write(_LENGTH.pack(len(frame)) + frame)

    async def receive(self) -> Sequence[bytes]:
        """See `WorkerChannel.receive`."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return [await self._reader.readexactly(length)]
        except (asyncio.IncompleteReadError, OSError):
            raise WorkerLost(f"{self.name} ended{await self._how()}") from None

    async def end(self) -> None:
        """See `WorkerChannel.end`."""
        if self._writer is not None:
            self._writer.close()  # the worker ends itself when its socket closes
        with egress.exempt():
            await asyncio.to_thread(self._reap)

    def _reap(self) -> None:
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _how(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_STATUS_S):
                while (code := self._process.poll()) is None:  # noqa: ASYNC110  the system tells nobody
                    await asyncio.sleep(0.01)
            return f" by signal {-code}" if code < 0 else f" with code {code}"
        return ""


class _DriverLine:
    """The worker's end of the socket. Thread-safe; the process exits at once when the driver is gone."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._sending = threading.Lock()

    def send(self, frame: bytes) -> None:
        try:
            with self._sending:
                self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
        except OSError:
            _leave()

    def serve(self, worker: EpisodeWorker) -> None:
        """Pass frames to the worker until the driver is gone; then exit, even during work."""
        try:
            with self._socket.makefile("rb") as stream:
                while head := stream.read(_LENGTH.size):
                    worker.take(stream.read(*_LENGTH.unpack(head)))
        finally:
            _leave()


def _leave() -> NoReturn:
    """Exit this process; the guard blocks this for agents, but not for the kit."""
    with egress.exempt():
        os._exit(0)


def _left_to_the_driver(_number: int, _frame: object) -> None:
    """Ignore a shutdown signal: the driver lets running episodes finish, and then ends this process.

    Not SIG_IGN, which programs started by an agent would inherit.
    """


def main() -> None:
    """Serve the driver over the descriptor from the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _left_to_the_driver)
    for stream in (sys.stdout, sys.stderr):  # pipes that are not flushed at exit
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux there is no such thing
        # Where code of the agent's holds the interpreter the socket's end is not heard: the system ends us.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    line = _DriverLine(int(sys.argv[1]))
    worker = EpisodeWorker(line.send)
    threading.Thread(target=line.serve, args=(worker,), daemon=True, name="dreamgym-line").start()
    worker.run()


if __name__ == "__main__":
    main()
