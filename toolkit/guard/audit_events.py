"""What an audit event asks for, in the words of the guard's settings.

Python announces what it is about to do as an event name and arguments (PEP 578). A reader per event
says which hosts, paths or programs that would touch; an event that touches nothing outside reads as
no attempt at all. Whether an attempt may pass is decided in `egress`.
"""

import ipaddress
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from dreamgym_kit.guard import thread_owners

__all__ = ["READERS", "AuditedAction", "Setting", "plain_address"]


class Setting(StrEnum):
    """The key of `[guard]` in dreamgym.toml that lets an attempt pass."""

    HOSTS = "allow_hosts"
    PATHS = "allow_paths"
    COMMANDS = "allow_commands"


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """One thing outside the process that is about to be touched."""

    setting: Setting
    target: str  # as a person would write it into that setting
    deed: str  # "connect to db:5432", "run git"
    host: str = ""
    port: int | None = None  # None: no port is involved (a name is looked up)
    over: socket | int | None = None  # a connection that stands already, or its descriptor


Reader: TypeAlias = Callable[[Sequence[Any]], Sequence[AuditedAction]]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TERMINAL = frozenset({"/dev/null", "/dev/tty", "/dev/stdout", "/dev/stderr"})
_BYTECODE = re.compile(r"\.pyc(\.\d+)?$")
# C functions that act on the outside. Looking up any other one is how packages are wired.
# fmt: off
_ACTING = frozenset(
    {
        "connect", "bind", "send", "sendto", "sendmsg", "sendmmsg", "socket", "syscall", "system",
        "popen", "fork", "vfork", "clone", "execl", "execlp", "execle", "execv", "execvp", "execve",
        "execvpe", "fexecve", "posix_spawn", "posix_spawnp", "open", "open64", "openat", "openat64",
        "creat", "creat64", "fopen", "fopen64", "freopen", "freopen64", "unlink", "unlinkat", "remove",
        "rename", "renameat", "renameat2", "rmdir", "mkdir", "mkdirat", "link", "linkat", "symlink",
        "symlinkat", "truncate", "truncate64", "chmod", "fchmodat", "chown", "lchown", "fchownat", "kill",
        "dlopen", "dlmopen",
    }
)
# fmt: on


def plain_address(host: str) -> str | None:
    """The one spelling of an IP address, or None for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


# Sockets ------------------------------------------------------------------------------------------


def _to_address(deed: str, address: Any) -> list[AuditedAction]:
    if isinstance(address, str | bytes):
        name = _text(address)
        target = "@" + name[1:] if name.startswith("\0") else os.path.realpath(name)
        return [AuditedAction(Setting.PATHS, target, f"{deed} the socket {target}")]
    if isinstance(address, tuple) and len(address) >= 2 and isinstance(address[0], str | bytes):
        return [_to_host(deed, address[0], address[1])]
    return [AuditedAction(Setting.HOSTS, repr(address), f"{deed} {address!r}")]


def _to_host(deed: str, host: str | bytes, port: int | None) -> AuditedAction:
    name = _host_text(host)
    shown = f"[{name}]" if ":" in name and port is not None else name
    target = shown if port is None else f"{shown}:{port}"
    return AuditedAction(Setting.HOSTS, target, f"{deed} {target}", host=name, port=port)


def _host_text(host: str | bytes) -> str:
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str.__str__(host)
    name = text.lower().rstrip(".")
    return plain_address(name) or name


def _send(args: Sequence[Any]) -> Sequence[AuditedAction]:
    return _send_over(args) if args[1] is None else _to_address("send to", args[1])


def _send_over(args: Sequence[Any]) -> Sequence[AuditedAction]:
    """What goes over a connection that stands; a socket pair has no name at either end."""
    try:
        peer = args[0].getpeername()
    except OSError:  # not connected: the call itself fails
        return ()
    return [replace(action, over=args[0]) for action in _to_address("send to", peer)] if peer else ()


def _write_over(args: Sequence[Any]) -> Sequence[AuditedAction]:
    """What is written to a descriptor, where that is a connection's."""
    descriptor = args[0]
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return ()
        with socket(fileno=os.dup(descriptor)) as line:
            return [replace(action, over=descriptor) for action in _send_over((line,))]
    except (OSError, TypeError):  # nothing open there: the call itself fails
        return ()


def _look_up(args: Sequence[Any]) -> Sequence[AuditedAction]:
    host = args[0][0] if isinstance(args[0], tuple) else args[0]
    if not host or not isinstance(host, str | bytes) or _is_loopback(_host_text(host)):
        return ()
    return [_to_host("look up", host, None)]


def _look_up_name(args: Sequence[Any]) -> Sequence[AuditedAction]:
    """Turning an address literal into itself asks nobody; the other look-ups ask about addresses too."""
    return [attempt for attempt in _look_up(args) if plain_address(attempt.host) is None]


def _is_loopback(host: str) -> bool:
    address = plain_address(host)
    return host == "localhost" if address is None else ipaddress.ip_address(address).is_loopback


# Files --------------------------------------------------------------------------------------------


def _text(path: Any) -> str:
    """The path as an exact str, so that no method of a user's own subclass is asked later."""
    return str.__str__(os.fsdecode(path))


def _at(path: Any, folder: int = -1, *, follow: bool = False) -> str | None:
    """The absolute path meant by `path` (a path or an open file) under the open folder `folder`.

    The last name is resolved only where the call itself would follow a link. None: the system does not tell.
    """
    if isinstance(path, int):
        return _of_descriptor(path)
    name = _text(path)
    if folder >= 0 and not name.startswith("/"):
        root = _of_descriptor(folder)
        if root is None:
            return None
        name = f"{root}/{name}"
    if follow:
        return os.path.realpath(name)
    parent, last = os.path.split(name.rstrip("/") or "/")
    return os.path.normpath(os.path.join(os.path.realpath(parent), last))  # noqa: PTH118 - Path.resolve is slow


def _of_descriptor(descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - called for every file
    except OSError:
        return None


def _touch(deed: str, *paths: str | None) -> list[AuditedAction]:
    return [
        AuditedAction(
            Setting.PATHS, path or "(an open folder)", f"{deed} {path or 'a file in an open folder'}"
        )
        for path in paths
        if path is None or not _is_harmless(path)
    ]


def _is_harmless(path: str) -> bool:
    if path in _TERMINAL:
        return True
    # Importing a module writes its bytecode beside it: <folder>/__pycache__/name.cpython-311.pyc.1234
    parent, last = os.path.split(path)
    return last == "__pycache__" or (parent.endswith("/__pycache__") and bool(_BYTECODE.search(last)))


def _open(args: Sequence[Any]) -> Sequence[AuditedAction]:
    path, mode, flags = args
    writes = flags & _WRITING if isinstance(flags, int) else any(letter in (mode or "r") for letter in "wax+")
    if isinstance(path, int):
        return _write_over(args) if writes else ()
    if not writes or _text(path) in _TERMINAL:
        return ()
    return _touch("write", _at(path, follow=True))


def _make_folder(args: Sequence[Any]) -> Sequence[AuditedAction]:
    path = _at(args[0], args[2])
    # makedirs(exist_ok=True) asks for folders that are there; such a call changes nothing.
    return () if path is not None and os.path.lexists(path) else _touch("make the folder", path)


def _make_special(path: Any, folder: int | None = None) -> Sequence[AuditedAction]:
    return _touch("make the special file", _at(path, -1 if folder is None else folder))


def _open_database(args: Sequence[Any]) -> Sequence[AuditedAction]:
    name = _text(args[0])
    if name in ("", ":memory:"):
        return ()
    if name.startswith("file:"):
        url = urlsplit(name)
        mode = parse_qs(url.query).get("mode", [""])[-1]
        if mode in ("memory", "ro") or url.path in ("", ":memory:"):
            return ()
        name = unquote(url.path)
    return _touch("open the database", _at(name, follow=True))


# Programs -----------------------------------------------------------------------------------------


def _run(program: str, line: str = "") -> list[AuditedAction]:
    return [AuditedAction(Setting.COMMANDS, program, f"run {line or program}")]


def _hand_work(args: Sequence[Any]) -> Sequence[AuditedAction]:
    """What an episode gives to a pool, pipe or queue of processes; a pool of threads stays in the episode."""
    of_threads = getattr(sys.modules.get("multiprocessing.pool"), "ThreadPool", ())
    if thread_owners.owner() is None or isinstance(args[0], of_threads):
        return ()
    return _run("fork", f"work in another process ({type(args[0]).__name__})")


def _command_line(argv: Any) -> str:
    words = [argv] if isinstance(argv, str | bytes | os.PathLike) else argv
    line = " ".join(_text(word) for word in words if isinstance(word, str | bytes | os.PathLike))
    printable = "".join(letter if letter.isprintable() else " " for letter in line)
    return printable if len(printable) <= 80 else printable[:79] + "…"


def _run_program(args: Sequence[Any]) -> Sequence[AuditedAction]:
    program = f"/proc/self/fd/{args[0]}" if isinstance(args[0], int) else _text(args[0])
    return _run(program, _command_line(args[1]))


def _kill(args: Sequence[Any]) -> Sequence[AuditedAction]:
    process, number = args
    if number == 0 or process == os.getpid() or _is_child(process):
        return ()
    return _run("kill", f"kill -{signal.Signals(number).name} {process}")


def _is_child(process: int) -> bool:
    """Children were judged when they were started; asyncio and subprocess end them by signal."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(status.rpartition(")")[2].split()[1]) == os.getpid()
    except (OSError, ValueError, IndexError):
        return False


# C libraries --------------------------------------------------------------------------------------


def _load_library(args: Sequence[Any]) -> Sequence[AuditedAction]:
    if _importing():
        return ()  # ctypes itself, numpy, torch: a package wires its own library
    if args[0] is None:
        return [
            AuditedAction(Setting.PATHS, "(the C library)", "load the C library of this process (ctypes)")
        ]
    name = _text(args[0])
    return [AuditedAction(Setting.PATHS, os.path.realpath(name), f"load the C library {name}")]


def _look_up_function(args: Sequence[Any]) -> Sequence[AuditedAction]:
    library, name = args
    if name not in _ACTING:
        return ()
    source = getattr(library, "_name", None) or "(the C library)"
    return [AuditedAction(Setting.PATHS, str(source), f"take the C function {name} of {source} (ctypes)")]


def _importing() -> bool:
    return any(frame.f_code.co_filename == "<frozen importlib._bootstrap>" for frame in _frames())


def _frames() -> Iterable[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


READERS: dict[str, Reader] = {
    "socket.connect": lambda args: _to_address("connect to", args[1]),
    "socket.sendto": _send,
    "socket.sendmsg": _send,
    "socket.bind": lambda args: [
        attempt for attempt in _to_address("listen on", args[1]) if not _is_loopback(attempt.host)
    ],
    "socket.getaddrinfo": _look_up_name,
    "socket.gethostbyname": _look_up_name,
    "socket.gethostbyaddr": _look_up,
    "socket.getnameinfo": _look_up,
    "syslog.syslog": lambda _: [AuditedAction(Setting.PATHS, "/dev/log", "write to the system's log")],
    "open": _open,
    "os.remove": lambda args: _touch("remove", _at(args[0], args[1])),
    "os.rmdir": lambda args: _touch("remove", _at(args[0], args[1])),
    "os.mkdir": _make_folder,
    "os.rename": lambda args: _touch("rename", _at(args[0], args[2]), _at(args[1], args[3])),
    # both ends: writing to the new name changes the old file
    "os.link": lambda args: _touch("link", _at(args[0], args[2]), _at(args[1], args[3])),
    "os.symlink": lambda args: _touch("link", _at(args[1], args[2])),
    "os.truncate": lambda args: (
        () if isinstance(args[0], int) else _touch("truncate", _at(args[0], follow=True))
    ),
    "dreamgym_kit.mkfifo": lambda args: _make_special(args[0], *args[2:]),
    "dreamgym_kit.mknod": lambda args: _make_special(args[0], *args[3:]),
    # of these three the folder comes last
    "os.chmod": lambda args: _touch("change", _at(args[0], args[-1], follow=True)),
    "os.chown": lambda args: _touch("change", _at(args[0], args[-1], follow=True)),
    "os.utime": lambda args: _touch("change", _at(args[0], args[-1], follow=True)),
    "os.setxattr": lambda args: _touch("change", _at(args[0], follow=True)),
    "os.removexattr": lambda args: _touch("change", _at(args[0], follow=True)),
    "sqlite3.connect": _open_database,
    "sqlite3.load_extension": lambda args: _touch("load the SQLite extension", _at(args[1], follow=True)),
    "subprocess.Popen": _run_program,
    "os.posix_spawn": _run_program,
    "os.exec": _run_program,
    "os.spawn": lambda args: _run_program(args[1:]),
    "os.startfile": lambda args: _run("/bin/sh", _command_line(args[0])),
    "os.system": lambda args: _run("/bin/sh", _command_line(args[0])),
    "os.fork": lambda _: _run("fork", "a copy of this process (fork)"),
    "os.forkpty": lambda _: _run("fork", "a copy of this process (fork)"),
    # audit hooks see their own interpreter only: whatever runs in another one is beyond this guard
    "cpython.PyInterpreterState_New": lambda _: _run(
        "interpreter", "another Python interpreter in this process"
    ),
    "os.kill": _kill,
    "os.killpg": _kill,
    "dreamgym_kit.spawn": _run_program,
    "dreamgym_kit.exit": lambda _: _run("exit", "end this process (os._exit)"),
    "dreamgym_kit.pidfd": lambda _: _run("kill", "kill (pidfd_send_signal)"),
    "dreamgym_kit.tcl": lambda _: _run("tclsh", "a Tcl interpreter in this process"),
    "dreamgym_kit.work": _hand_work,
    "dreamgym_kit.send": _send_over,
    "dreamgym_kit.write": _write_over,
    "dreamgym_kit.splice": lambda args: _write_over(args[1:]),
    "ctypes.dlopen": _load_library,
    "ctypes.dlsym": _look_up_function,
}
"""What the guard listens to: event name -> reader of its arguments."""
