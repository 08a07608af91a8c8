"""Doors that stand open when a dream begins: connections the egress guard will not see being used."""

import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OpenConnection", "open_connections"]

_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A socket of this process that is connected to somebody."""

    fd: int
    kind: str  # "tcp", "udp", "unix"
    remote: str  # "10.0.0.5:5432", "/run/docker.sock"

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


def _connection(fd: int) -> OpenConnection | None:
    # Gone meanwhile, not connected: an OSError each, and nothing to report.
    with suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return None  # socket.socket would fail on a copy of it, and leave that copy open
        return _named(fd)
    return None


def _named(fd: int) -> OpenConnection | None:
    with socket.socket(fileno=os.dup(fd)) as door:
        remote = door.getpeername()
        if door.family == socket.AF_UNIX:
            name = os.fsdecode(remote)
            shown = "@" + name[1:] if name.startswith("\0") else name
            return OpenConnection(fd, "unix", shown) if name else None
        host, port = remote[:2]
        kind = "udp" if door.type == socket.SOCK_DGRAM else "tcp"
        return OpenConnection(fd, kind, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
