"""Doors that stand open in a dream: connections from before it, and what the egress guard cannot see."""

import os
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A socket of this process that is connected to somebody."""

    fd: int
    kind: str  # "tcp", "udp", "unix"
    remote: str  # "10.0.0.5:5432", "/run/docker.sock"
    socket: int = field(default=0, compare=False, repr=False)  # the system's number: never two at a time

    @property
    def port(self) -> int | None:
        """At the far end; None of one that has none."""
        digits = self.remote.rpartition(":")[2]
        return int(digits) if self.kind != "unix" and digits.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.kind} connection to {self.remote} (descriptor {self.fd})"


def open_connections() -> list[OpenConnection]:
    """Every connected socket of this process, by descriptor; [] where the system keeps no list of them.

    Socket pairs, by which event loops wake themselves, have no name at either end and are left out.
    """
    if not _DESCRIPTORS.is_dir():
        return []
    descriptors = sorted(int(entry) for entry in os.listdir(_DESCRIPTORS))  # noqa: PTH208 - names are numbers
    return [connection for fd in descriptors if (connection := _connection(fd)) is not None]


_KITS: set[tuple[int, int]] = set()  # descriptors and the sockets behind them


@contextmanager
def of_the_kit(ports: Collection[int]) -> Iterator[None]:
    """What is opened to these ports in the block, to a server that settings name, is the kit's own.

    By socket, not by address: the agent may have a connection to the same server. One that it opens there
    during the block, in another thread, is taken for the kit's.
    """
    before = {(open_connection.fd, open_connection.socket) for open_connection in open_connections()}
    try:
        yield
    finally:
        new = [connection for connection in open_connections() if connection.port in ports]
        _KITS.update({(connection.fd, connection.socket) for connection in new} - before)


def claim_open() -> None:
    """Take all that is open now for the kit's own: in a worker that a cluster made for it."""
    _KITS.update((connection.fd, connection.socket) for connection in open_connections())


def foreign_connections() -> list[OpenConnection]:
    """Those of `open_connections` that nobody has named the kit's own."""
    return [
        connection for connection in open_connections() if (connection.fd, connection.socket) not in _KITS
    ]


def _connection(fd: int) -> OpenConnection | None:
    # Gone meanwhile, not connected: an OSError each, and nothing to report.
    with suppress(OSError):
        status = os.fstat(fd)
        if not stat.S_ISSOCK(status.st_mode):
            return None  # socket.socket would fail on a copy of it, and leave that copy open
        return _named(fd, status.st_ino)
    return None


def _named(fd: int, number: int) -> OpenConnection | None:
    with socket.socket(fileno=os.dup(fd)) as door:
        remote = door.getpeername()
        if door.family == socket.AF_UNIX:
            name = os.fsdecode(remote)
            shown = "@" + name[1:] if name.startswith("\0") else name
            return OpenConnection(fd, "unix", shown, number) if name else None
        host, port = remote[:2]
        kind = "udp" if door.type == socket.SOCK_DGRAM else "tcp"
        return OpenConnection(fd, kind, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", number)


KNOWN_GAPS: dict[str, str] = {
    "open_connection": "A connection that was open before the dream began can still be used by C libraries "
    "(a database driver), through its descriptor, through a method saved "
    "before the dream, or a method of the C socket class, and by code that belongs to no episode; `doctor` "
    "and the run's warnings list those that are open.",
    "open_file": "A file that was opened for writing before the dream began can still be written to.",
    "earlier_child": "A process that was started before the dream began runs on, and can be sent work "
    "through its standard input, a file or shared memory; queues and pools of processes refuse it.",
    "earlier_thread": "A thread, a signal handler or an exit handler from before the dream takes work from "
    "memory, and does it over a connection that it has open.",
    "c_function": "A C function that was looked up with ctypes before the dream began can still be called.",
    "cffi": "C extensions, and cffi libraries that were compiled or loaded before, do their own input and "
    "output without telling Python.",
    "grpc": "gRPC connects in its C core without telling Python (Weaviate's client, many cloud clients).",
    "libpq": "psycopg connects through libpq, in C, without telling Python.",
    "rust_client": "HTTP clients written in Rust connect without telling Python.",
    "uvloop": "A uvloop event loop connects and starts programs through libuv without telling Python; "
    "the kit's own loop refuses to be one.",
    "sqlite_attach": "SQL can attach and write a second database file on an allowed SQLite connection, "
    "also on one in memory.",
    "name_lookup": "socket.connect((name, port)) looks the name up before Python tells; "
    "the connection itself is refused.",
    "folder_descriptor": "os.open(name, flags, dir_fd=...) is judged as if `name` lay in the working "
    "directory, which matters only where that is allowed.",
}
"""What the guard cannot see, one plain sentence each; bar G5 shows that each is really open."""
