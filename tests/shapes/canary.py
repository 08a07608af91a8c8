"""What a real tool body leaves behind when it runs: a line in a file and a connection to loopback.

A body that ran is seen twice, by the file system and by a server, so that a gate which only hides one
of the two traces is still found out.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_until


class Canary:
    """A file and a loopback server that real bodies leave traces in."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "canary.txt"
        self._server = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._address = self._server.getsockname()
        self._heard = 0
        self._open = True
        self._thread = threading.Thread(target=self._listen, name="canary-server", daemon=True)
        self._thread.start()

    def touch(self, name: str) -> None:
        """What every real body does first."""
        with self._file.open("a") as file:
            file.write(f"{name}\n")
        with socket.create_connection(self._address) as connection:
            connection.recv(1)  # until the server has counted it and hangs up

    def written(self) -> list[str]:
        """The names of the bodies that ran, by the file."""
        return self._file.read_text().split() if self._file.exists() else []

    def heard(self, at_least: int = 0) -> int:
        """How many connections came in; waits for those that are expected."""
        wait_until(lambda: self._heard >= at_least, f"{at_least} connections to the canary")
        return self._heard

    def clear(self) -> None:
        """Forget the traces so far."""
        self.heard(len(self.written()))
        self._file.unlink(missing_ok=True)
        self._heard = 0

    new_row = clear

    def close(self) -> None:
        """Stop listening."""
        self._open = False
        with socket.socket() as waker:
            waker.connect_ex(self._address)
        self._thread.join()
        self._server.close()

    def _listen(self) -> None:
        while True:
            connection, _ = self._server.accept()
            self._heard += self._open
            connection.close()
            if not self._open:
                return


_HERE: list[Canary] = []


@contextmanager
def canary_in(folder: Path) -> Iterator[Canary]:
    """Put up the canary that `touch` speaks to."""
    canary = Canary(folder)
    _HERE.append(canary)
    try:
        yield canary
    finally:
        _HERE.remove(canary)
        canary.close()


def touch(name: str) -> None:
    """Leave a trace: this real body ran."""
    _HERE[-1].touch(name)
