"""What a worker's process runs: python -P -m dreamgym_kit.adapters.engines.process_main DESCRIPTOR."""

import ctypes
import io
import itertools
import os
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NoReturn

from dreamgym_kit.adapters.engines.processes import ANSWER, ASK, HEAD, REQUEST, RESULT, framed
from dreamgym_kit.guard import egress
from dreamgym_kit.rollout.worker import EpisodeWorker
from dreamgym_kit.rollout.worker_protocol import failure_to_bytes, read, read_spec

_PR_SET_PDEATHSIG = 1
_CANCELLED = failure_to_bytes(RuntimeError(), "its task in the worker was cancelled")


class Line:
    """The worker's end of the socket. Thread-safe; the process leaves at once when the driver is gone."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[bytes]] = {}

    def ask(self, question: bytes) -> bytes:
        """Put a question to the driver and wait for its answer."""
        number = next(self._numbers)
        waiting = self._waiting[number] = Future()
        self._send(ASK, number, question)
        return waiting.result()

    def serve(self, working: EpisodeWorker) -> None:
        """Hand requests on until the driver goes; then the process ends, whatever it does."""
        try:
            while True:
                kind, number, length = HEAD.unpack(self._receive(HEAD.size))
                message = self._receive(length)
                if kind == ANSWER:
                    self._waiting.pop(number).set_result(message)
                elif kind == REQUEST:
                    _take_paths(message)
                    working.submit(message).add_done_callback(self._answer_to(number))
        finally:
            _leave()

    def _answer_to(self, number: int) -> Any:
        def answer(done: "Future[bytes]") -> None:
            if done.cancelled():  # by code of the agent's that cancels every task it finds
                self._send(RESULT, number, _CANCELLED)
            elif done.exception() is None:
                self._send(RESULT, number, done.result())

        return answer

    def _send(self, kind: bytes, number: int, message: bytes) -> None:
        try:
            with self._sending:
                self._socket.sendall(framed(kind, number, message))
        except OSError:
            _leave()

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(min(size - len(received), 1 << 20))
            if not part:
                raise EOFError
            received += part
        return bytes(received)


def _tell_line_by_line() -> None:
    """What is printed here goes into a pipe, and the process ends without a last look at what it holds."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _leave() -> NoReturn:
    """End this process; the guard, which refuses that to the agent, lets the kit."""
    with egress.exempt():
        os._exit(0)


def _take_paths(message: bytes) -> None:
    """Import what the driver imports: its search path, before anything of the user's is looked for."""
    if message.startswith(b'{"do":"open"'):
        paths = read_spec(read(message)).paths
        if paths:
            sys.path[:] = paths


def _left_to_the_driver(_number: int, _frame: object) -> None:
    """A machine that shuts down tells all its processes: the driver lets running episodes end, and then us.

    Not SIG_IGN, which programs that an agent starts would inherit.
    """


def _die_with_driver() -> None:
    """Where code of the agent's holds the interpreter the socket's end is not heard: the system ends us."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve the driver at the other end of the descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _left_to_the_driver)
    _tell_line_by_line()
    if sys.platform == "linux":
        _die_with_driver()
    line = Line(int(sys.argv[1]))
    working = EpisodeWorker(line.ask)
    threading.Thread(target=line.serve, args=(working,), daemon=True, name="dreamgym-line").start()
    working.run()


if __name__ == "__main__":
    main()
