"""Puts this process into the best sandbox that the system gives, and says which one stands.

    namespaces   user, network, mount and IPC namespace, read-only mounts, Landlock, seccomp: nothing outside
                 is written, and only the allowed hosts are reached, by name
    landlock     Landlock and seccomp, where namespaces are not allowed: hosts are held by port alone
    external     somebody else's (a container without network), as settings say
    none         only the egress guard

The process itself is confined, so that its number, its terminal, its signals and its exit code stay as they
are; the broker is a child that stays outside. Once confined, a process stays so.
"""

import contextlib
import errno
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dreamgym_kit.errors import UserError
from dreamgym_kit.sandbox import kernel
from dreamgym_kit.sandbox.broker import DEVICES, HostDoor, Rules, serve
from dreamgym_kit.sandbox.filters import confine, machine

NAMESPACES, LANDLOCK, EXTERNAL, NONE = "namespaces", "landlock", "external", "none"
_VARIABLE = "SANDBOX_OF_DREAMGYM_KIT"  # which sandbox a program was started in; not a setting
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_MAX_DOORS = 250  # descriptors that one message can carry
_HTTP_PORTS = (443, 80)
_HOSTS_FILE = Path("/etc/hosts")

LANDLOCK_GAPS: Mapping[str, str] = {
    "attributes": "Modes, owners, times and extended attributes of files outside can be changed.",
    "ports": "Any host can be reached by TCP on a port of an allowed host.",
    "udp": "UDP can be sent anywhere where a host is allowed by name, since names are looked up so.",
    "shared_memory": "POSIX and System V shared memory are the machine's.",
    "signals": "Before Linux 6.12: other processes of the same user can be signalled, from the namespace "
    "sandbox too.",
}
"""What the Landlock sandbox leaves open, one plain sentence each."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Which sandbox a process is in."""

    kind: str = NONE
    why: str = ""  # why it is not the strongest one
    more: str = ""  # one line that would give more

    def __str__(self) -> str:
        """As a report says it."""
        named = {
            NAMESPACES: "namespace sandbox",
            LANDLOCK: "Landlock sandbox, which holds hosts by port alone",
            EXTERNAL: "external sandbox, as the setting says",
            NONE: "no kernel sandbox",
        }[self.kind]
        return f"{named}: {self.why}" if self.why else named


@dataclass(frozen=True, slots=True)
class Plan:
    """What is allowed inside."""

    hosts: Sequence[str] = ()  # "host", "host:port", "[::1]:80"
    writable: Sequence[Path] = ()  # made where nothing is there: a file where the name has a suffix
    delivered: Sequence[Path] = ()  # files that the process may have replaced, by `deliver`, and not open
    buffer: Path | None = None  # an SQLite file that is read and locked
    temporary: bool = True  # make a folder for temporary files, which is removed at the end
    fresh: Sequence[Path] = ()  # folders made for this run: an empty one is removed at the end


_standing: Confinement | None = None
_lines: socket.socket | None = None
_delivery: socket.socket | None = None
_delivered: frozenset[str] = frozenset()
_report: Callable[[str, str], object] | None = None
_taking = threading.Lock()
_rest = b""


def standing() -> Confinement | None:
    """Return the sandbox of this process, or that of its start; None: no sandbox was requested."""
    if _standing is None and (kind := os.environ.get(_VARIABLE)) in (NAMESPACES, LANDLOCK):
        with contextlib.suppress(OSError):
            confined = kind == LANDLOCK or os.statvfs("/").f_flag & os.ST_RDONLY
            if confined and "Seccomp:\t2" in Path("/proc/self/status").read_text("ascii", "replace"):
                return Confinement(kind, "" if kind == NAMESPACES else "started in it")
    return _standing


def stands_for(wanted: str) -> Confinement:
    """Return the sandbox of a run in this process for the setting `wanted`."""
    if (inside := standing()) is not None:
        return inside
    if wanted == "external":
        return Confinement(EXTERNAL)
    if wanted == "off":
        return Confinement(NONE, "switched off")
    why = "a running process cannot be confined. Start it with: dreamgym-kit sandbox -- COMMAND"
    return Confinement(NONE, why)


def available() -> Confinement:
    """Return the best sandbox of this system, tested in another process; changes nothing here."""
    if sys.platform != "linux":
        return Confinement(NONE, "no kernel sandbox on this system")
    if not Path("/proc/self/task").is_dir():
        return Confinement(NONE, "/proc is not there")
    if machine() is None:
        return Confinement(NONE, f"system calls of {platform.machine()} are not known")
    failed = _tried(_try_namespaces)
    if not failed:
        return Confinement(NAMESPACES)
    why = f"namespaces are refused ({failed})"
    if kernel.landlock_abi() < 4:
        return Confinement(NONE, f"{why}, and the kernel has no Landlock for TCP", _more())
    failed = _tried(lambda: confine(udp=False))
    if failed:
        return Confinement(NONE, f"{why}, and so is seccomp ({failed})", _more())
    return Confinement(LANDLOCK, why, _more())


def _more() -> str:
    """Return a command that would allow namespaces."""
    apparmor = "apparmor_restrict_unprivileged_userns"
    switches = {
        apparmor: ("1", f"sudo sysctl -w kernel.{apparmor}=0"),
        "unprivileged_userns_clone": ("0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    }
    for name, (refuses, line) in switches.items():
        with contextlib.suppress(OSError):
            if Path("/proc/sys/kernel", name).read_text("ascii").strip() == refuses:
                return line
    with contextlib.suppress(OSError):
        if Path("/proc/sys/user/max_user_namespaces").read_text("ascii").strip() == "0":
            return "sudo sysctl -w user.max_user_namespaces=15000"
    if Path("/.dockerenv").exists():
        return "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined ..."
    return 'a container without network, and [guard] sandbox = "external"'


def _tried(attempt: Callable[[], object]) -> str:
    """Try a function in another process; return why it failed, or ""."""
    reader, writer = os.pipe()
    if not (process := os.fork()):
        try:
            attempt()
        except BaseException as error:  # noqa: BLE001  told, whatever it is
            os.write(writer, (str(error) or type(error).__name__).encode("utf-8", "replace")[:500])
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123  a descriptor
        why = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(process, 0)
    return why or ("" if status == 0 else f"ended with status {status}")


def _try_namespaces() -> None:
    kernel.new_namespaces()
    kernel.own_shared_memory()
    kernel.read_only_but([])
    kernel.drop_capabilities()
    confine(udp=True)


def check(wanted: str, *, best: Confinement, where: str) -> None:
    """Refuse a sandbox that is too weak; `where`: the setting that requires more.

    Raises:
        UserError: `wanted` is "require", and `best` is not the namespace sandbox.
    """
    if wanted == "require" and best.kind != NAMESPACES:
        more = f" For more: {best.more}" if best.more else ""
        raise UserError(f'{where}: guard.sandbox = "require", but: {best}.{more} Nothing was run.')


def enter(
    plan: Plan, *, wanted: str = "auto", where: str = "settings", on_stderr: bool = False
) -> Confinement:
    """Confine this process permanently; return the active sandbox.

    Args:
        plan: the permissions inside.
        wanted: as `guard.sandbox`.
        where: the setting, for messages.
        on_stderr: the broker prints stopped calls; otherwise `listen` reports them.

    Raises:
        UserError: "require" is not possible, or the plan failed.
    """
    global _standing
    if (inside := standing()) is not None:
        check(wanted, best=inside, where=where)
        return inside
    if wanted in ("off", "external"):
        _standing = stands_for(wanted)
        return _standing
    best = available()
    if best.kind != NONE and (threads := len(os.listdir("/proc/self/task"))) > 1:  # noqa: PTH208  names only
        best = Confinement(
            NONE, f"this process already runs {threads} threads", "dreamgym-kit sandbox -- COMMAND"
        )
    check(wanted, best=best, where=where)
    if best.kind != NONE:
        try:
            _confine(plan, best.kind, on_stderr=on_stderr)
        except OSError as error:
            raise UserError(
                f"the sandbox could not be entered ({error}). Nothing was run. "
                f"Run without it: --set {where.rpartition(':')[2].strip()}=off"
            ) from error
    _standing = best
    return best


def _confine(plan: Plan, kind: str, *, on_stderr: bool) -> None:
    global _lines, _delivery, _delivered
    doors = _doors(plan.hosts)
    buffer = Path(os.path.realpath(plan.buffer)) if plan.buffer else None  # as SQLite names its logs
    logs = [Path(f"{buffer}{suffix}") for suffix in ("", "-wal", "-shm")] if buffer else []
    writable = [_made(path) for path in plan.writable]
    temporary = Path(tempfile.mkdtemp(prefix="dreamgym-sandbox-")) if plan.temporary else None
    ours, theirs = socket.socketpair()
    delivery, taking = socket.socketpair()
    if temporary is not None:
        writable.append(temporary)
        os.environ["TMPDIR"] = str(temporary)
        tempfile.tempdir = None  # the cached folder
    _delivered = frozenset(
        path
        for path in map(os.path.realpath, plan.delivered)
        if not path.startswith(("/dev/", "/proc/"))
        and (Path(path).is_file() or not Path(path).exists())
        # A file in a writable folder could be replaced by a link, so the process writes it itself.
        and not any(folder.is_dir() and Path(path).is_relative_to(folder) for folder in writable)
    )
    devices = [Path("/dev", name) for name in DEVICES] + sorted(Path("/dev").glob("nvidia*"))
    ports = None if kind == NAMESPACES else tuple(sorted({door.port for door in doors}))
    proxied = _without_allowed_proxy(plan.hosts)
    rules = Rules(tuple(doors), tuple(str(path) for path in [*writable, *logs]), ports, proxied)
    if not (middle := os.fork()):
        if os.fork():
            os._exit(0)
        ours.close()
        delivery.close()
        _outside(theirs, taking, rules, buffer, temporary, plan.fresh, on_stderr=on_stderr)
    os.waitpid(middle, 0)
    theirs.close()
    taking.close()
    if buffer is not None:
        ours.recv(1)  # waits until the log exists, see `_outside`
    writable = [path for path in [*writable, *logs] if path.exists()]
    sockets = _enter_namespaces(doors, writable, proxied=proxied) if kind == NAMESPACES else []
    os.environ[_VARIABLE] = kind
    kernel.drop_capabilities()
    if kernel.landlock_abi():
        kernel.landlock([*writable, *devices], ports=ports)
    try:
        listener = confine(udp=kind == NAMESPACES or any(not _address(door.host) for door in doors))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBUSY):
            raise
        listener = confine(udp=kind == NAMESPACES, notify=False)
    descriptors = [listening.fileno() for listening in sockets] + ([listener] if listener is not None else [])
    socket.send_fds(ours, [b"y" if listener is not None else b"n"], descriptors)
    for listening in sockets:
        listening.close()
    if listener is not None:
        os.close(listener)
    _lines, _delivery = ours, delivery


def _made(path: Path) -> Path:
    with contextlib.suppress(OSError):  # then it is skipped
        if not path.exists():
            (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
            path.touch()
    if (real := Path(os.path.realpath(path))) == Path("/"):
        raise UserError(f"sandbox: {path}: all files would be writable; name a folder. Nothing was run.")
    return real


def _enter_namespaces(
    doors: Sequence[HostDoor], writable: Sequence[Path], *, proxied: bool
) -> list[socket.socket]:
    """Enter the namespaces and open the doors; return their sockets."""
    if proxied:  # by the broker
        for name in [name for name in os.environ if name.lower() in _PROXIES]:
            del os.environ[name]
    hosts = _HOSTS_FILE.read_bytes() if _HOSTS_FILE.exists() else b""
    kernel.new_namespaces()
    for number, address in enumerate(dict.fromkeys(door.address for door in doors if _address(door.host))):
        if address not in ("::1",) and not address.startswith("127."):
            kernel.add_address(address, number)
    sockets = [_opened(door) for door in doors]
    kernel.own_shared_memory()
    if _HOSTS_FILE.exists():
        for door in doors:
            if not _address(door.host) and door.host != "localhost":
                hosts += f"\n{door.address} {door.host}\n".encode()
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            file.write(hosts)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            kernel.bind(Path(file.name), _HOSTS_FILE)
    kernel.read_only_but(writable)
    return sockets


def _opened(door: HostDoor) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in door.address else socket.AF_INET
        return socket.create_server((door.address, door.port), family=family, backlog=128)
    except OSError:
        if door.address != "::1":
            raise
        return socket.socket()  # no IPv6 here: this door is unused


def _outside(
    lines: socket.socket,
    delivery: socket.socket,
    rules: Rules,
    buffer: Path | None,
    temporary: Path | None,
    fresh: Sequence[Path],
    *,
    on_stderr: bool,
) -> None:
    """Run as the process outside; never returns."""
    try:
        ends = contextlib.ExitStack()
        ends.callback(_remove_empty, [folder.absolute() for folder in fresh])
        if temporary is not None:
            ends.callback(shutil.rmtree, temporary, ignore_errors=True)
        if buffer is not None:
            # Keep the buffer's log open: a confined process can neither create nor remove its files.
            import sqlite3

            log = sqlite3.connect(f"{buffer.absolute().as_uri()}?mode=rw", uri=True, check_same_thread=False)
            with contextlib.suppress(sqlite3.Error):
                log.execute("select count(*) from sqlite_master").fetchone()
            lines.send(b"x")
            ends.callback(log.close)
        threading.Thread(target=_take_deliveries, args=(delivery,), daemon=True).start()
        serve(lines, replace(rules, at_end=ends.close), on_stderr=on_stderr)
    finally:
        os._exit(1)


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # not empty: the run uses it
            folder.rmdir()


def _take_deliveries(delivery: socket.socket) -> None:
    with delivery, delivery.makefile("rb") as stream:
        while line := stream.readline():
            request, problem = json.loads(line), "it may not be written"
            data = stream.read(request["size"])
            if request["path"] in _delivered:
                try:
                    _write(Path(request["path"]), data, append=request["append"])
                    problem = ""
                except OSError as error:
                    problem = error.strerror or str(error)
            delivery.sendall(problem.encode("utf-8", "replace") + b"\n")


def _write(path: Path, data: bytes, *, append: bool) -> None:
    if os.path.realpath(path) != str(path):
        raise OSError(errno.ELOOP, "it leads elsewhere by now")
    path.parent.mkdir(parents=True, exist_ok=True)
    if append:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o666), "ab") as file:  # noqa: PTH123
            file.write(data)
        return
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:  # noqa: PTH123
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def deliver(path: Path, data: bytes, *, append: bool = False) -> bool:
    """Let the broker write a file of the plan; return False for other files.

    Raises:
        OSError: it cannot be written.
    """
    name = os.path.realpath(path)
    if _delivery is None or name not in _delivered:
        return False
    with _taking:
        head = json.dumps({"path": name, "size": len(data), "append": append}).encode()
        _delivery.sendall(head + b"\n" + data)
        reply = b""
        while not reply.endswith(b"\n"):
            reply += _delivery.recv(1_000) or b"the process outside the sandbox has ended\n"
    if reply != b"\n":
        raise OSError(errno.EACCES, reply.decode("utf-8", "replace").strip(), name)
    return True


def listen(report: Callable[[str, str], object]) -> None:
    """Call `report(level, text)` for each stopped call from now on, in a separate thread."""
    global _report
    first, _report = _report is None, report
    if (lines := _lines) is None or not first:
        return

    def wait() -> None:
        while lines.recv(1, socket.MSG_PEEK):
            settle()

    threading.Thread(target=wait, daemon=True, name="dreamgym-sandbox").start()


def settle() -> None:
    """Report pending events. A stopped call is reported before it returns to its caller."""
    global _rest
    if _lines is None or _report is None:
        return
    with _taking:
        data = _rest
        with contextlib.suppress(BlockingIOError):
            while more := _lines.recv(65_536, socket.MSG_DONTWAIT):
                data += more
        *whole, _rest = data.split(b"\n")
    for line in whole:
        _report(*json.loads(line))


def _doors(hosts: Iterable[str]) -> list[HostDoor]:
    doors: dict[tuple[str, int], HostDoor] = {}
    names: dict[str, str] = {}
    for entry in hosts:
        host, port = split_host(entry)
        for each in [port] if port is not None else _ports(host):
            addresses = ["127.0.0.1", "::1"] if host == "localhost" else [host]
            if not _address(host) and host != "localhost":
                number = len(names) + 1
                addresses = [names.setdefault(host, f"127.77.{number >> 8}.{number & 255}")]
            for address in addresses:
                doors[address, each] = HostDoor(host, each, address)
    if len(doors) > _MAX_DOORS:
        raise UserError(
            f"[guard] allow_hosts: a sandbox opens {_MAX_DOORS} ports at most, and these are {len(doors)}; "
            "name ports (host:443)."
        )
    return list(doors.values())


def split_host(entry: str) -> tuple[str, int | None]:
    """Parse an entry of allow_hosts: "name:443", "[::1]:80", "::1"."""
    text = entry.strip().lower()
    if _address(text):
        return text, None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = text, ""
    if port and int(port) > 65_535:
        raise UserError(f"[guard] allow_hosts: '{entry}': a port is 65535 at most.")
    return host.strip("[]").rstrip("."), int(port) if port else None


def _ports(host: str) -> Sequence[int]:
    """Return the ports of a host without a port: HTTP's; of this machine all listening ports."""
    if host != "localhost" and not host.startswith("127.") and host != "::1":
        return _HTTP_PORTS
    ports = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path("/proc/net", name).read_text("ascii").splitlines()[1:]]
            ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    return sorted(ports)


def _address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False


def _without_allowed_proxy(hosts: Iterable[str]) -> bool:
    """Return whether the broker uses the environment's proxy: not if that proxy itself is allowed."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return True
    from urllib.request import getproxies_environment  # slow import

    allowed = {split_host(entry) for entry in hosts}
    for url in getproxies_environment().values():
        host, port = split_host(url.rpartition("@")[2].partition("://")[2].rstrip("/") or url)
        if (host, port) in allowed or (host, None) in allowed:
            return False
    return True
