"""The process outside a sandbox: connects for confined processes, by host name, and reports stopped calls.

A door is a listening socket, created inside for one allowed host and port. A socket stays in the network
namespace of its creation, so this process accepts its connections and connects to the host outside. TLS and
the protocol are the client's. The seccomp listener receives each refused or observed call; namespaces, mounts
and Landlock decide, and an observed call always continues.
"""

import asyncio
import base64
import contextlib
import errno
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from dreamgym_kit.sandbox.filters import PathCall, machine

_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_CHUNK, _PATH, _ADDRESS = 65_536, 4_096, 128  # bytes
_INET, _INET6, _UNIX = 2, 10, 1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "kfd", "dri")
_HARMLESS = (*(f"/dev/{name}" for name in DEVICES), "/dev/nvidia")
# Its own open files and thread names; the C library writes those, but does not need to.
_OWN = re.compile(
    r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|thread-self)/fd/\d+"
    r"|/proc/(self|thread-self|\d+)/(task/\d+/)?(comm|oom_score_adj|timerslack_ns)"
)
_PROBED = ("io_uring_setup", "keyctl", "request_key", "add_key")  # libraries probe these and do not need them
_MAX_REPORTS = 1_000
BLOCKED, NOTED = "blocked", "noted"  # fails a run; is only reported


@dataclass(frozen=True, slots=True)
class HostDoor:
    """An allowed host and port, and its address inside the sandbox."""

    host: str
    port: int
    address: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules inside, for reporting stopped calls."""

    doors: tuple[HostDoor, ...]
    writable: tuple[str, ...]  # real paths
    ports: tuple[int, ...] | None  # allowed TCP ports of any host; None: only doors
    proxy: bool = True  # connect through HTTPS_PROXY if set
    at_end: Callable[[], object] = lambda: None


def serve(control: socket.socket, rules: Rules, *, on_stderr: bool) -> NoReturn:
    """Run the broker until no confined process is left; reports go to `control` or stderr."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # signals end the confined process, whose end ends this one
        os.setsid()
        shut = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, *(() if on_stderr else (2,))):
            os.dup2(shut, descriptor)
        start, descriptors, _, _ = socket.recv_fds(control, 1, 253)
        listener = descriptors.pop() if start == b"y" else None
        report = _Reports(control, on_stderr=on_stderr)
        if listener is not None:
            threading.Thread(target=_Watch(listener, rules, report).run, daemon=True).start()
        else:
            threading.Thread(target=_leave_with, args=(control,), daemon=True).start()
        asyncio.run(_keep_doors(rules, [socket.socket(fileno=descriptor) for descriptor in descriptors]))
    finally:
        os._exit(0)


def _leave_with(control: socket.socket) -> NoReturn:
    with contextlib.suppress(OSError):
        while control.recv(1):
            pass
    os._exit(0)


class _Reports:
    """Report each event once."""

    def __init__(self, control: socket.socket, *, on_stderr: bool) -> None:
        self._control, self._on_stderr = control, on_stderr
        self._seen: set[tuple[str, str]] = set()
        control.setblocking(False)  # a slow reader must not block the confined process

    def __call__(self, level: str, text: str, process: str) -> None:
        if (level, text) in self._seen or len(self._seen) >= _MAX_REPORTS:
            return
        self._seen.add((level, text))
        line = f"{text} ({process})"
        with contextlib.suppress(OSError):
            if self._on_stderr:
                shown = "".join(letter if letter.isprintable() else "?" for letter in line)
                os.write(2, f"sandbox: {level}: {shown}\n".encode("utf-8", "backslashreplace"))
            else:
                self._control.send(json.dumps([level, line]).encode() + b"\n")


class _Watch:
    """Answers the listener of a filter."""

    def __init__(self, listener: int, rules: Rules, report: Callable[[str, str, str], None]) -> None:
        here = machine()
        assert here is not None
        self._listener, self._rules, self._report, self._here = listener, rules, report, here
        self._doors = {(door.address, door.port) for door in rules.doors}
        self._names = {door.address: door.host for door in rules.doors}

    def run(self) -> NoReturn:
        """Answer until no confined process is left."""
        waiting = select.poll()
        waiting.register(self._listener, select.POLLIN)
        while True:
            (_, event), *_ = waiting.poll()
            if event & (select.POLLHUP | select.POLLERR):
                self._rules.at_end()
                os._exit(0)
            notification = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, notification)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):  # the caller was killed meanwhile
                    continue
                os._exit(1)
            identity, process, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
            refused = self._is_refused(number, arguments)
            answer = (0, -errno.EPERM, 0) if refused else (0, 0, _CONTINUE)
            try:
                self._tell(number, process, arguments, refused=refused)
                if not refused and self._is_missing(number, process, arguments):
                    answer = (0, -errno.ENOENT, 0)  # a read-only mount would say EROFS before it looks
            except (OSError, ValueError):
                pass  # the caller has ended, or what it names cannot be read
            except Exception as error:  # noqa: BLE001  a caller without an answer would wait for good
                self._report(
                    BLOCKED, f"a call that could not be told of ({error!r})", _name_of_process(process)
                )
            with contextlib.suppress(OSError):  # the caller was killed meanwhile
                fcntl.ioctl(self._listener, _SEND, struct.pack("QqiI", identity, *answer))

    def _is_refused(self, number: int, arguments: Sequence[int]) -> bool:
        here = self._here
        if number in here.refused or number in (here.socket, here.socketpair, here.ioctl, here.clone):
            return True
        flags = {here.sendto: 3, here.sendmsg: 2, here.sendmmsg: 3}.get(number)
        return flags is not None and bool(arguments[flags] & 0x20000000)

    def _tell(self, number: int, process: int, arguments: Sequence[int], *, refused: bool) -> None:
        here = self._here
        level, text = BLOCKED, ""
        if number == here.socket:
            family, kind, protocol = arguments[0], arguments[1] & 0xF, arguments[2]
            named = {_UNIX: "Unix", 17: "packet", 40: "vsock", 38: "kernel crypto"}.get(
                family, f"family {family}"
            )
            if family in (_INET, _INET6):
                named = (
                    "multipath TCP"
                    if protocol == 262
                    else {2: "UDP", 3: "raw"}.get(kind, f"protocol {protocol}")
                )
            # Name services and runtimes try these by themselves, and do without.
            tried = family == _UNIX or protocol == 262 or (family in (_INET, _INET6) and kind == 2)
            level, text = NOTED if tried else BLOCKED, f"make a socket: {named}"
        elif number in here.refused:
            name = here.refused[number]
            level, text = NOTED if name in _PROBED else BLOCKED, f"system call {name}"
        elif number == here.socketpair:
            level, text = NOTED, "make a socket: Unix, a pair for datagrams"
        elif refused:
            text = {here.ioctl: "type into the terminal", here.clone: "make a user namespace"}.get(
                number, "connect by TCP fast open"
            )
        elif number in (here.connect, here.sendto):
            text = self._connection(number, process, arguments)
        else:
            text = self._file(number, process, arguments)
        if text:
            self._report(level, text, _name_of_process(process))

    def _connection(self, number: int, process: int, arguments: Sequence[int]) -> str:
        at, size = (
            (arguments[1], arguments[2]) if number == self._here.connect else (arguments[4], arguments[5])
        )
        raw = _memory(process, at, min(size, _ADDRESS))
        family, port = int.from_bytes(raw[:2], sys.byteorder), int.from_bytes(raw[2:4], "big")
        if family == _INET:
            address = socket.inet_ntop(socket.AF_INET, raw[4:8])
        elif family == _INET6:
            address = socket.inet_ntop(socket.AF_INET6, raw[8:24])
            address = address.removeprefix("::ffff:") if "." in address else address
        else:
            return ""
        if self._rules.ports is not None:
            return "" if port in self._rules.ports or port == 53 else f"connect to {_shown(address, port)}"
        if (address, port) in self._doors or port == 0 or _listens(process, port):
            return ""
        if address in self._names and not address.startswith("127.0.0."):
            host = self._names[address]
            return f'connect to {host}:{port}; to allow it: [guard] allow_hosts = ["{host}:{port}"]'
        return f"connect to {_shown(address, port)}"

    def _is_missing(self, number: int, process: int, arguments: Sequence[int]) -> bool:
        """Whether a call removes a path that does not exist; paths that differ inside are left out."""
        path_call = self._here.paths.get(number)
        if path_call is None or not path_call.name.startswith(("unlink", "rmdir")):
            return False
        folder = arguments[path_call.folder] if path_call.folder is not None else None
        path = _path(process, arguments[path_call.path], folder)
        return bool(path) and not path.startswith(_HARMLESS) and not os.path.lexists(path)

    def _file(self, number: int, process: int, arguments: Sequence[int]) -> str:
        here = self._here
        path_call = here.paths.get(number)
        if path_call is None:
            old = number not in (here.openat, here.openat2)
            path_call = PathCall("open", 0) if old else PathCall("openat", 1, 0)
            if number == here.openat2:
                flags = int.from_bytes(_memory(process, arguments[2], 8), sys.byteorder)
                if not flags & 0o1103:
                    return ""
        elif self._rules.ports is not None and not path_call.landlock:
            return ""  # nothing stops it, so nothing was stopped
        folder = arguments[path_call.folder] if path_call.folder is not None else None
        path = _path(process, arguments[path_call.path], folder)
        if not path or path.startswith(_HARMLESS) or "/__pycache__" in path:
            return ""
        if any(
            path == allowed or path.startswith(allowed.rstrip("/") + "/") for allowed in self._rules.writable
        ):
            return ""
        action = "write" if path_call.name.startswith(("open", "creat")) else path_call.name
        return "" if _fails_everywhere(path_call, path, process, arguments) else f"{action} {path}"


def _fails_everywhere(path_call: PathCall, path: str, process: int, arguments: Sequence[int]) -> bool:
    if path_call.name.startswith(("open", "creat")):
        return not Path(path).parent.is_dir()
    if path_call.name.startswith("rename"):  # its source comes before its target
        folder = arguments[0] if path_call.folder is not None else None
        return not os.path.lexists(_path(process, arguments[path_call.path // 2], folder))
    return os.path.lexists(path) == path_call.name.startswith(("mkdir", "mknod", "link", "symlink"))


def _memory(process: int, at: int, size: int) -> bytes:
    with Path(f"/proc/{process}/mem").open("rb", 0) as memory:
        memory.seek(at)
        return memory.read(size) or b""


def _path(process: int, at: int, folder: int | None) -> str:
    raw = b""
    while b"\0" not in raw and len(raw) < _PATH:  # a page at a time: the next one may not be there
        raw += _memory(process, at + len(raw), 4_096 - (at + len(raw)) % 4_096)
    text = os.fsdecode(raw.partition(b"\0")[0])
    if _OWN.fullmatch(text):
        return ""
    if not text.startswith("/"):
        signed = -1 if folder is None else struct.unpack("i", struct.pack("I", folder & 0xFFFFFFFF))[0]
        base = f"/proc/{process}/cwd" if signed < 0 else f"/proc/{process}/fd/{signed}"
        text = str(Path(base).readlink() / text)
    parent, name = os.path.split(os.path.normpath(text))
    return os.path.join(os.path.realpath(parent), name)  # noqa: PTH118  of text, and most calls come by here


def _listens(process: int, port: int) -> bool:
    """Whether somebody inside listens there, or it is a datagram socket of theirs."""
    for name in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/net/{name}").read_text("ascii").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if int(local.rpartition(":")[2], 16) == port and state in ("0A", "07"):
                    return True
    return False


def _name_of_process(process: int) -> str:
    name = "a process that has ended"
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{process}/comm").read_text("utf-8", "replace").strip()
    return f"{name}, process {process}"


def _shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


async def _keep_doors(rules: Rules, sockets: Sequence[socket.socket]) -> None:
    from urllib.request import getproxies_environment, proxy_bypass  # heavy, and needed here alone

    proxies = getproxies_environment() if rules.proxy else {}
    doors = rules.doors if rules.ports is None else ()
    for door, listening in zip(doors, sockets, strict=True):
        local = door.host in ("localhost", "::1") or door.host.startswith("127.")
        through = proxies.get("http" if door.port == 80 else "https") if not local else None
        if through and proxy_bypass(f"{door.host}:{door.port}", proxies):
            through = None
        await asyncio.start_server(_Joined(door, through).join, sock=listening)
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class _Joined:
    """Joins what comes through a door to its host."""

    door: HostDoor
    proxy: str | None

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connected()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            writer.transport.abort()  # a reset: as near to "refused" as a connection that stands can come
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        for end in (writer, far_writer):
            end.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with contextlib.suppress(ConnectionError):  # the proxy refused
            if self.proxy is not None:
                return await self._through(self.proxy)
        return await asyncio.open_connection(self.door.host, self.door.port)

    async def _through(self, proxy: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        secure = True if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if secure else 80), ssl=secure
        )
        target = _shown(self.door.host, self.door.port)
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        if parts.username:
            key = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            head += f"Proxy-Authorization: Basic {base64.b64encode(key).decode()}\r\n"
        writer.write(f"{head}\r\n".encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).split(None, 2)
        if len(answer) < 2 or answer[1] != b"200":
            writer.close()
            raise ConnectionError("the proxy refused")
        return reader, writer


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
