"""The second wall: while a dream runs, nothing in this process touches the outside unasked.

The gate answers the calls it knows. Code that it does not know (a side effect in a plain node, a
client in a closure) meets this guard: one audit hook (PEP 578), in every thread of the process, that
refuses connections, programs and changes to files unless a person allowed them. Reading files is free.

A tripwire, not a sandbox: `KNOWN_GAPS` says what it cannot see. Where a guarantee is needed, run the
dream in a container or a network namespace as well. What an event asks for is read in `audit_events`;
what is open already when a dream begins is listed by `connections`.
"""

import _socket
import asyncio
import functools
import importlib
import inspect
import os
import platform
import re
import shutil
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

from dreamgym_kit.errors import RealCallBlocked, UserError
from dreamgym_kit.guard import thread_owners
from dreamgym_kit.guard.audit_events import READERS, AuditedAction, Setting, plain_address
from dreamgym_kit.guard.connections import KNOWN_GAPS, foreign_connections
from dreamgym_kit.guard.thread_owners import IMPORTING, Caller, Owner, acting, caller, exempt
from dreamgym_kit.settings import advice

__all__ = [
    "KNOWN_GAPS", "UNANNOUNCED", "Allowance", "Trip", "announce", "arm", "armed", "disarm", "exempt",
    "listen", "models_at", "owner", "put_back", "reached_outside", "refuse_uvloop", "trips", "watching",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a person lets pass: `[guard]` in dreamgym.toml, the model's endpoint, the scratch folder.

    Nothing is allowed by itself, loopback and Unix sockets included.
    """

    hosts: frozenset[str] = frozenset()  # "host" for every port, or "host:port"; "[::1]:80" for IPv6
    paths: tuple[Path, ...] = ()  # a file, or a folder with all that is in it
    commands: tuple[str, ...] = ()  # a program's name or path; "fork" and "kill" for those


@dataclass(frozen=True, slots=True)
class Trip:
    """One refusal: what was attempted, in which thread."""

    event: str  # the audit event, "socket.connect"
    target: str  # "db.internal:5432", "/srv/app.db", "git"
    thread: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class _HostRule:
    host: str
    port: int | None  # None: every port


class _Guard:
    """One armed allowance, with what its names resolved to and what it refused."""

    def __init__(
        self, allowance: Allowance, on_trip: Callable[[Trip], None], owner: Callable[[], Owner | None]
    ) -> None:
        self.owner = owner
        self.rules = [_host_rule(entry) for entry in sorted(allowance.hosts)]
        self.paths = [os.path.realpath(path) for path in allowance.paths]
        self.commands = allowance.commands
        self.on_trip = on_trip
        self.trips: deque[Trip] = deque(maxlen=1000)
        self.outside: set[str] = set()  # hosts that were reached outside of episodes
        self.resolved: dict[str, set[int | None]] = {}  # address -> ports that its names may be reached on
        for (
            rule
        ) in self.rules:  # a connection that was made by name stays that name's, whatever it means by now
            for address in _addresses.get(rule.host, ()):
                self.resolved.setdefault(address, set()).add(rule.port)
        self.earlier = {connection.socket for connection in foreign_connections()}

    def permits(self, attempt: AuditedAction) -> bool:
        if attempt.over is not None and not self._judges(attempt.over):
            return True
        if attempt.setting is Setting.HOSTS:
            return self._permits_host(attempt)
        if attempt.setting is Setting.PATHS:
            return any(
                attempt.target == path or attempt.target.startswith(path.rstrip("/") + "/")
                for path in self.paths
            )
        return any(_same_program(entry, attempt.target) for entry in self.commands)

    def _judges(self, line: socket.socket | int) -> bool:
        """Whether what goes over a connection is judged: an episode's, where nobody judged the connecting.

        What belongs to no episode (a debugger, a server that this process is) goes on with what it has.
        """
        mine = owner()
        if mine is None or line in _kits:
            return False
        descriptor = line if isinstance(line, int) else line.fileno()
        return not mine.open or os.fstat(descriptor).st_ino in self.earlier  # a copy is the same socket

    def _permits_host(self, attempt: AuditedAction) -> bool:
        if any(rule.host == attempt.host and _covers(rule.port, attempt.port) for rule in self.rules):
            return True
        if attempt.port is None or plain_address(attempt.host) is None:
            return False
        if not self._reached_by_name(attempt):
            self._resolve(attempt.port)
        return self._reached_by_name(attempt)

    def _reached_by_name(self, attempt: AuditedAction) -> bool:
        return any(_covers(port, attempt.port) for port in self.resolved.get(attempt.host, ()))

    def learn(self, host: Any, resolved: Sequence[Any]) -> None:
        """Remember the addresses that an allowed name was resolved to, as the caller got them."""
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
        name = name.lower().rstrip(".")
        ports = {rule.port for rule in self.rules if rule.host == name}
        for *_, address in resolved if ports else ():
            plain = plain_address(address[0]) or address[0]
            self.resolved.setdefault(plain, set()).update(ports)
            _addresses.setdefault(name, set()).add(plain)

    def _resolve(self, port: int) -> None:
        """Ask for the allowed names ourselves: this address came from gethostbyname or a cache."""
        for rule in self.rules:
            if _covers(rule.port, port) and plain_address(rule.host) is None:
                try:
                    with exempt():
                        self.learn(rule.host, _doors.getaddrinfo(rule.host, port))
                except OSError:
                    continue

    def judge(self, event: str, attempt: AuditedAction) -> None:
        """Let an attempt pass, or answer one that is not permitted."""
        if not self.permits(attempt):
            self.meet(event, attempt)
        elif attempt.setting is Setting.HOSTS and attempt.over not in _kits:
            self.note(attempt)

    def meet(self, event: str, attempt: AuditedAction) -> None:
        """Answer an attempt that is not permitted: it is refused."""
        by = caller(sys._getframe(2))
        message = _printable(
            f"refused to {attempt.deed}: nothing outside is touched in a dream ({by.line}); "
            f"{advice.format_lines(*self._advice(attempt, by))}"
        )
        trip = Trip(event, attempt.target, threading.current_thread().name, message)
        self.trips.append(trip)
        try:
            with exempt():
                self.on_trip(trip)
        finally:
            raise RealCallBlocked(message)

    def _advice(self, attempt: AuditedAction, by: Caller) -> list[advice.Advice]:
        """What a person can do about it, the safest first."""
        names = self.names(attempt)
        if attempt.setting is Setting.HOSTS and not _models.isdisjoint(names):
            return [advice.model_allowed(attempt.target)]
        seal = thread_owners.seal()
        if seal is not None:  # what a tool's body does is stopped at the tool
            answered = advice.tool_answered(seal.tool, "write")
        else:
            if by.line.endswith(IMPORTING) or owner() is None or acting.get():  # no agent's function does it
                return [advice.allowed(attempt.setting, attempt.target)]
            answered = advice.function_answered(by.function or advice.SOME_FUNCTION)
        return [answered, advice.allowed(attempt.setting, attempt.target)]

    def names(self, attempt: AuditedAction) -> set[str]:
        """Return "host:port" for a host and for the allowed names that resolved to it."""
        aliases = {name for name, address in _addresses.items() if attempt.host in address}
        return {f"{name}:{attempt.port}" for name in {attempt.host, *aliases}}

    def note(self, attempt: AuditedAction) -> None:
        """Have an episode, or the run, tell of the host that it reaches, if no model is asked there."""
        names = self.names(attempt) if attempt.port is not None else set()
        if names and _models.isdisjoint(names):
            allowed = {rule.host for rule in self.rules}  # an earlier dream of this process had others
            reported = {name for name in names if name.rpartition(":")[0] in allowed} or names
            host, mine = min(reported, key=_by_name_first), owner()
            if mine is not None:
                mine.reached(host)
            else:
                self.outside.add(host)


class _Watch(_Guard):
    """Lets everything pass and notes what a dream would refuse."""

    def meet(self, event: str, attempt: AuditedAction) -> None:
        where = caller(sys._getframe(2)).line
        allow = advice.format_lines(advice.allowed(attempt.setting, attempt.target))
        message = _printable(
            f"loading the graph makes it {attempt.deed} ({where}), which a dry run refuses: move that "
            f"to where it is first used, or {allow}"
        )
        self.trips.append(Trip(event, attempt.target, threading.current_thread().name, message))


_SENDS = (
    (socket.socket, "send"), (socket.socket, "sendall"), (socket.socket, "sendfile"),
    (ssl.SSLSocket, "send"), (ssl.SSLSocket, "write"),
)  # fmt: skip


_OF_POSIX = {
    "mkfifo": "dreamgym_kit.mkfifo",
    "mknod": "dreamgym_kit.mknod",
    **dict.fromkeys(("sendfile", "write", "writev"), "dreamgym_kit.write"),
    "splice": "dreamgym_kit.splice",
}
_OF_PROCESSES = (
    ("connection", "Connection._send_bytes"), ("pool", "Pool._check_running"),
    ("queues", "Queue.put"), ("queues", "SimpleQueue.put"),
)  # fmt: skip
UNANNOUNCED = {
    ("_cffi_backend", "load_library"): "ctypes.dlopen",
    ("_testcapi", "run_in_subinterp"): "cpython.PyInterpreterState_New",
    ("_tkinter", "create"): "dreamgym_kit.tcl",
    ("concurrent.futures.process", "ProcessPoolExecutor.submit"): "dreamgym_kit.work",
    **{(f"multiprocessing.{module}", name): "dreamgym_kit.work" for module, name in _OF_PROCESSES},
    ("signal", "pidfd_send_signal"): "dreamgym_kit.pidfd",
    **{(module, name): event for module in ("os", "posix") for name, event in _OF_POSIX.items()},
}
"""Functions and methods by module and name, and the audit event that their replacements raise."""


class _Doors:
    """Functions that audit events show only half of or not at all, replaced while the guard is armed.

    `_socket.getaddrinfo` is announced with the name but never with the addresses that it found.
    `_posixsubprocess.fork_exec`, by which multiprocessing starts its processes, is not announced, nor is
    `os._exit`, by which a node would end the dry run with the code of a passed gate, nor are those in
    `UNANNOUNCED`. What is sent over a connection that stands is announced by two of the methods that send.
    After a dream they stay, for what an episode left running.
    """

    def __init__(self) -> None:
        self.replaced: list[tuple[Any, str, Any]] = []  # where, name, what stood there
        self.exit = os._exit
        self.pid = 0
        self.getaddrinfo = _socket.getaddrinfo
        try:
            self._posix: Any = importlib.import_module("_posixsubprocess")
        except ImportError:  # no such module where processes are not forked
            self._posix = None
        self.fork_exec = getattr(self._posix, "fork_exec", None)

    def shut(self) -> None:
        if self.replaced:
            return
        self.pid = os.getpid()
        self._replace(os, "_exit", self._announced_exit)
        self._replace(_socket, "getaddrinfo", self._remembered_getaddrinfo)
        for owner, name in _SENDS:
            self._replace(owner, name, _announced(getattr(owner, name), "dreamgym_kit.send"))
        for module in dict.fromkeys(module for module, _ in UNANNOUNCED):
            self.shut_in(module)
        if self.fork_exec is not None:
            self._replace(self._posix, "fork_exec", self._announced_fork_exec)

    def shut_in(self, module: str) -> None:
        """Have a module's functions announced, once it is loaded."""
        for (holder, path), event in UNANNOUNCED.items():
            kind, _, name = path.rpartition(".")
            owner = sys.modules.get(holder) if holder == module else None
            owner = getattr(owner, kind, None) if kind else owner
            real = getattr(owner, name, None)
            if real is not None and not hasattr(real, "__wrapped__"):
                self._replace(owner, name, _announced(real, event))

    def _replace(self, owner: Any, name: str, announced: Any) -> None:
        self.replaced.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, announced)

    def reopen(self) -> None:
        for owner, name, before in self.replaced:
            if before is not None:
                setattr(owner, name, before)
            elif name in vars(owner):  # inherited before
                delattr(owner, name)
        self.replaced.clear()

    def _remembered_getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        resolved = self.getaddrinfo(*args, **kwargs)
        if _guard is not None:
            _guard.learn(args[0] if args else kwargs.get("host"), resolved)
        return resolved

    def _announced_exit(self, status: int) -> NoReturn:
        if os.getpid() == self.pid:  # a forked child, where forks are allowed, ends in no other way
            sys.audit("dreamgym_kit.exit", status)
        self.exit(status)

    def _announced_fork_exec(self, argv: Any, programs: Any, *rest: Any) -> Any:
        assert self.fork_exec is not None
        sys.audit("dreamgym_kit.spawn", programs[0], argv)
        return self.fork_exec(argv, programs, *rest)


def _announced(real: Callable[..., Any], event: str) -> Callable[..., Any]:
    @functools.wraps(real)
    def announcing(*args: Any, **kwargs: Any) -> Any:
        sys.audit(event, *(_in_order(real, args, kwargs) if kwargs else args))
        return real(*args, **kwargs)

    return announcing


def _in_order(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call in the order of the parameters, however they are given."""
    try:
        bound = inspect.signature(real).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):  # a function of C may not tell; the call itself refuses wrong arguments
        return [*args, *kwargs.values()]
    bound.apply_defaults()
    return [*bound.args, *bound.kwargs.values()]


def announce(module: str) -> None:
    """A module was loaded: while a guard stands, what its C functions do not tell is told for them."""
    if _doors.replaced:
        _doors.shut_in(module)


_addresses: dict[str, set[str]] = {}
"""What the names that were ever allowed were resolved to while a guard stood."""
_models: set[str] = set()
"""Hosts, "name:port", that chat models are asked at."""
_doors = _Doors()
_guard: _Guard | None = None
_ended: _Guard | None = None
"""The last guard, once it is down: it still holds for what an episode left running."""
_kits: "WeakSet[socket.socket]" = WeakSet()
"""Connections that the kit's own client made, to what a person named; episodes do not hold them."""
_hooked = False
_arming = threading.Lock()


def _hook(event: str, args: tuple[Any, ...]) -> None:
    read = READERS.get(event)
    if read is None:
        return
    guard, seal = _guard or _ended, thread_owners.seal()
    if guard is None and seal is None:
        return
    if thread_owners.is_exempt(owned=owner() is not None):
        if event == "socket.connect":
            _kits.add(args[0])
        return
    stands = _guard is not None
    if _guard is None or (_ended is not None and isinstance(_guard, _Watch)):
        mine = owner()
        left = mine is not None and not mine.open  # of an episode that has ended
        guard, stands = (_ended or guard) if left else guard, stands or left
    for attempt in read(args) if stands or seal is not None else ():
        if seal is not None and attempt.setting is Setting.HOSTS:
            _break(seal, attempt)
        if stands and guard is not None:
            guard.judge(event, attempt)


def _break(seal: thread_owners.Seal, attempt: AuditedAction) -> NoReturn:
    """Answer a pure body that reaches for a host: it is refused."""
    message = _printable(
        f"refused to {attempt.deed}: {seal.tool} is pure, and what is pure reaches no host "
        f"({caller(sys._getframe(2)).line}); {advice.format_lines(advice.tool_answered(seal.tool, 'read'))}"
    )
    try:
        with exempt():
            seal.report(message)
    finally:
        raise RealCallBlocked(message)


def owner() -> Owner | None:
    """The episode that the running code belongs to: by its context, else by the thread it runs in."""
    for guard in (_guard, _ended):
        if guard is not None and (current := guard.owner()) is not None:
            return current
    return thread_owners.owner()


def arm(
    allowance: Allowance,
    on_trip: Callable[[Trip], None],
    owner: Callable[[], Owner | None] = lambda: None,
) -> None:
    """Refuse, from now on and in every thread, whatever `allowance` does not name.

    `owner` says to which episode the running context belongs. Each refusal calls `on_trip` in the thread
    that acted, before `RealCallBlocked` is raised there: code that swallows the exception has still been
    reported. `on_trip` must return at once.

    Raises:
        UserError: an entry of `allowance.hosts` is no host, or a guard is armed already.
    """
    _stand(_Guard(allowance, on_trip, owner))


@contextmanager
def watching(allowance: Allowance) -> Iterator[Sequence[Trip]]:
    """Let everything pass for the block, and note what `arm` would have refused; the notes are given.

    Raises:
        UserError: as `arm`.
    """
    watch = _Watch(allowance, lambda _: None, lambda: None)
    _stand(watch)
    try:
        yield watch.trips
    finally:
        disarm()


def _stand(guard: _Guard) -> None:
    global _guard
    _ = platform.uname().processor  # asks `uname -p` once; model clients put it into their headers
    with _arming:
        if _guard is not None:
            raise UserError("a dream already runs in this process; end it before another one begins")
        listen()
        _doors.shut()
        _guard = guard


def listen() -> None:
    """Have the interpreter tell of what is about to be touched, from now on."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_hook)


def disarm() -> None:
    """Let everything pass again but what an episode left running; harmless when nothing is armed.

    A task or thread that outlives its episode stays refused for the life of the process.
    """
    global _guard, _ended
    with _arming:
        if _guard is not None and not isinstance(_guard, _Watch):
            _ended = _guard
        _guard = None
        if _ended is None:  # else what an episode left running may come to them
            _doors.reopen()


def put_back() -> None:
    """Give Python its own functions back, where the gate is taken out: what episodes left is let go."""
    with _arming:
        if _guard is None:
            _doors.reopen()


def models_at(hosts: Iterable[str]) -> None:
    """Hosts ("name:port") of chat models: asking one is no effect of the agent's."""
    _models.update(hosts)


def armed() -> bool:
    """Whether a guard stands in this process."""
    return _guard is not None


def trips() -> list[Trip]:
    """What was refused since `arm`, oldest first; the last thousand."""
    guard = _guard
    return [] if guard is None else list(guard.trips)


def reached_outside() -> list[str]:
    """Allowed hosts, "name:port", that were reached since `arm` by what belongs to no episode; no models'."""
    return sorted(_guard.outside) if _guard is not None else []


def refuse_uvloop() -> None:
    """Raise a `UserError` when the running event loop is uvloop's, which the guard cannot see into."""
    loop = asyncio.get_running_loop()
    if type(loop).__module__.partition(".")[0] == "uvloop":
        raise UserError(
            "the running event loop is uvloop's, whose connections cannot be guarded; "
            "run the dream on asyncio's own loop (asyncio.run without uvloop.install())"
        )


_HOST = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[^:/@*\s\[\]]+))(?::(?P<port>\d{1,5}))?")


def _host_rule(entry: str) -> _HostRule:
    text = entry.strip().lower()
    bare = plain_address(text)  # an IPv6 address needs no brackets when no port follows
    if bare is not None:
        return _HostRule(bare, None)
    match = _HOST.fullmatch(text)
    if match is None:
        raise UserError(f'[guard] allow_hosts: \'{entry}\' is not a host; write "name" or "name:443"')
    host = match["address"] or match["name"].rstrip(".")
    return _HostRule(plain_address(host) or host, int(match["port"]) if match["port"] else None)


def _by_name_first(host: str) -> tuple[bool, str]:
    return plain_address(host.rpartition(":")[0]) is not None, host


def _covers(rule: int | None, port: int | None) -> bool:
    return rule is None or port is None or rule == port


def _same_program(entry: str, program: str) -> bool:
    if entry == program:
        return True
    path = shutil.which(entry) if "/" in program else None
    return path is not None and os.path.realpath(path) == os.path.realpath(program)


def _printable(text: str) -> str:
    """One line that no terminal obeys: names come from the agent."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
