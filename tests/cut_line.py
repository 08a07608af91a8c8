"""A line between clients and servers on this machine that can be cut in the middle of a word, and mended."""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ports import kept


class CutLine:
    """Passes bytes on to ports of this machine; each has a port of its own here, the same after mending.

    Args:
        ports: of the servers.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._behind = tuple(ports)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._kept = [kept() for _ in ports]  # nobody else's while it is cut
        self.ports = tuple(int(one.getsockname()[1]) for one in self._kept)
        self.cuts = 0
        self.mend()

    @property
    def is_cut(self) -> bool:
        """Whether nobody can connect now."""
        return not self._listening

    def cut(self) -> None:
        """End every connection at once, and refuse new ones; once cut, nothing."""
        with self._lock:
            if not self._listening:
                return
            self.cuts += 1
            for one in self._listening:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # ends its accept, which closing alone would not
                one.close()
            self._listening = []
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def mend(self) -> None:
        """Let clients connect again."""
        with self._lock:
            if self._listening:
                return
            for port, behind in zip(self.ports, self._behind, strict=True):
                listening = socket.create_server(("127.0.0.1", port))
                self._listening.append(listening)
                self._start(self._accept, listening, behind)

    def close(self) -> None:
        """Cut it for good; nothing of it is left."""
        self.cut()
        for thread in self._threads:
            thread.join()
        for one in self._kept:
            one.close()

    def _start(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, listening: socket.socket, behind: int) -> None:
        with suppress(OSError):  # cut
            while True:
                near, _ = listening.accept()
                self._start(self._connect, listening, near, behind)

    def _connect(self, listening: socket.socket, near: socket.socket, behind: int) -> None:
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", behind)) as far:
            with self._lock:
                if listening not in self._listening:  # cut while it connected
                    return
                self._open |= {near, far}
            back = self._start(_pass_on, far, near)
            _pass_on(near, far)
            back.join()
            with self._lock:
                self._open -= {near, far}


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Until one of them ends; then both do."""
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
