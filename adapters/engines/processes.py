"""Workers as processes of this machine: each a fresh interpreter that imports the agent itself.

Never a fork (threads and clients live in the driver) and never the caller's own main module again (a script
without `if __name__ == "__main__"` would run twice): `python -m dreamgym_kit.adapters.engines.process_main`.
Requests go over a socket that the process inherits, nothing stands on its command line. What it prints goes
to stderr, so that a result on stdout stays one. It ends with its driver, however that ends.
"""

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

from dreamgym_kit.errors import UserError, WorkerLost
from dreamgym_kit.guard import egress

REQUEST, RESULT = b"c", b"r"  # the driver's request, and the worker's answer to it with its number
ASK, ANSWER = b"a", b"b"  # the worker's question, and the driver's answer to it
HEAD = struct.Struct(">cQQ")  # of a frame: kind, number, length of the message

_MAIN = "dreamgym_kit.adapters.engines.process_main"
_STDERR = 2  # descriptor
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LEAVE_S = 0.5  # from the end of its socket to its death
_TOLD_S = 5.0  # from the end of its socket until the system says how it ended, which takes a processor


def framed(kind: bytes, number: int, message: bytes) -> bytes:
    """One frame of the stream."""
    return HEAD.pack(kind, number, len(message)) + message


class Processes:
    """Implements `interfaces.WorkerHost` on this machine."""

    def __init__(self) -> None:
        self._workers: list[ProcessWorker] = []
        self._closed = False

    async def start(self, number: int, answer: Callable[[bytes], bytes]) -> "ProcessWorker":
        """See `WorkerHost.start`."""
        if self._closed:
            raise WorkerLost("the workers are being ended")
        ours, theirs = socket.socketpair()
        try:
            process = _started(theirs.fileno())
        except OSError as error:
            ours.close()
            raise UserError(f"worker {number} cannot be started: {error}.") from error
        finally:
            theirs.close()
        worker = ProcessWorker(number, process, answer)
        self._workers.append(worker)
        await worker.connect(ours)
        return worker

    async def close(self) -> None:
        """See `WorkerHost.close`."""
        self._closed = True
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.end() for worker in workers))


def _started(descriptor: int) -> "subprocess.Popen[bytes]":
    # One thread for each worker's arithmetic: as many workers as cores are what there are threads for.
    environment = {**dict.fromkeys(_THREADS, "1"), **os.environ}
    return subprocess.Popen(  # noqa: S603  ourselves
        [sys.executable, "-P", "-m", _MAIN, str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        pass_fds=(descriptor,),
        env=environment,
        start_new_session=True,  # Ctrl-C in a terminal is the driver's: what runs here is finished
    )


class ProcessWorker:
    """Implements `interfaces.Worker`: one process, and the socket to it."""

    def __init__(
        self, number: int, process: "subprocess.Popen[bytes]", answer: Callable[[bytes], bytes]
    ) -> None:
        self.name = f"worker {number}, process {process.pid}"
        self.pid = process.pid
        self._process, self._answer = process, answer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._last = 0
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._gone = ""

    async def connect(self, ours: socket.socket) -> None:
        """Begin to listen to it."""
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader))

    async def call(self, request: bytes) -> bytes:
        """See `Worker.call`."""
        if self._gone or self._writer is None:
            raise WorkerLost(self._gone or f"{self.name} is not there yet")
        self._last += 1
        number = self._last
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(framed(REQUEST, number, request))
            answer: bytes = await waiting
        except OSError as error:
            raise WorkerLost(f"{self.name} cannot be reached: {error}") from error
        finally:
            self._waiting.pop(number, None)
        return answer

    async def end(self) -> None:
        """See `Worker.end`."""
        if self._writer is not None:
            self._writer.close()  # it leaves by itself as it hears of that
        with egress.exempt():
            await asyncio.to_thread(self._reap)
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._lose(f"{self.name} was ended")

    def _reap(self) -> None:
        try:
            self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                kind, number, length = HEAD.unpack(await reader.readexactly(HEAD.size))
                message = await reader.readexactly(length)
                self._take(kind, number, message)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._lose(f"{self.name} ended{await self._how()}")

    def _take(self, kind: bytes, number: int, message: bytes) -> None:
        if kind == ASK and self._writer is not None:
            self._writer.write(framed(ANSWER, number, self._answer(message)))
        elif kind == RESULT and (waiting := self._waiting.get(number)) is not None and not waiting.done():
            waiting.set_result(message)

    async def _how(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S):
                while (code := self._process.poll()) is None:  # noqa: ASYNC110  the system tells nobody
                    await asyncio.sleep(0.01)
            return f" by signal {-code}" if code < 0 else f" with code {code}"
        return ""

    def _lose(self, why: str) -> None:
        self._gone = self._gone or why
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(WorkerLost(self._gone))
