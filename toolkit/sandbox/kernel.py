"""Linux calls that confine this process: namespaces, mounts, Landlock, capabilities; no policy.

Each function permanently changes the calling process and its later children; a second thread would stay
outside. System call numbers above 423 are equal on all architectures.
"""

import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
_BIND, _PRIVATE, _NOSUID_NODEV = 0x5000, 0x44000, 6  # MS_BIND | MS_REC, MS_REC | MS_PRIVATE
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_MOUNT_SETATTR, _RDONLY, _AT_RECURSIVE, _AT_FDCWD = 442, 1, 0x8000, -100
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_SIOCSIFFLAGS, _SIOCSIFADDR, _UP = 0x8914, 0x8916, 0x41
_FILE_CAPABILITIES = 0b11011  # chown, dac_override, fowner, fsetid: root reads and owns files as before
_CAPSET_VERSION = 0x20080522

# Landlock's write rights, by the ABI that introduced them; bits of linux/landlock.h.
_WRITES = {
    1: sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
    2: 1 << 13,  # rename to another folder
    3: 1 << 14,  # truncate
}
_OF_A_FILE = 1 << 1 | 1 << 14
_TCP_ABI, _SCOPES_ABI = 4, 6


def call(number: int, *args: Any) -> int:
    """Make a system call.

    Raises:
        OSError: the kernel's error.
    """
    return checked(_libc.syscall(number, *args), f"system call {number}")


def checked(answer: int, action: str) -> int:
    """Return an answer of libc, or raise its error."""
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{action}: {os.strerror(code)}")
    return answer


def prctl(option: int, *args: int) -> int:
    """Call prctl; raises as `call`."""
    words = [ctypes.c_ulong(word) for word in (*args, 0, 0, 0, 0)[:4]]
    return checked(_libc.prctl(option, *words), f"prctl {option}")


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0: none."""
    return max(int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)), 0)


def landlock(writable: Iterable[Path], *, ports: Sequence[int] | None) -> None:
    """Restrict file changes to these files and folders, TCP connections to these ports; None: all ports.

    Signals and abstract sockets stay among the confined processes if the kernel supports it (ABI 6).
    """
    abi = landlock_abi()
    rights = sum(bits for since, bits in _WRITES.items() if abi >= since)
    tcp = 3 if ports is not None and abi >= _TCP_ABI else 0  # bind, connect
    attributes = struct.pack("QQQ", rights, tcp, 3 if abi >= _SCOPES_ABI else 0)
    attributes = attributes[: 8 if abi < _TCP_ABI else 16 if abi < _SCOPES_ABI else 24]
    size = ctypes.c_size_t(len(attributes))
    rules = call(_LANDLOCK_CREATE, ctypes.create_string_buffer(attributes, len(attributes)), size, 0)
    try:
        for path in writable:
            with suppress(FileNotFoundError):
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                allowed = rights if path.is_dir() else rights & _OF_A_FILE
                rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place), 12)
                call(_LANDLOCK_ADD, rules, 1, rule, 0)
                os.close(place)
        for port in ports or () if tcp else ():
            rule = ctypes.create_string_buffer(struct.pack("QQ", 2, port), 16)
            call(_LANDLOCK_ADD, rules, 2, rule, 0)
        no_new_privileges()
        call(_LANDLOCK_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def no_new_privileges() -> None:
    """Prevent started programs from gaining privileges, as Landlock and seccomp require."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Keep only root's file capabilities, if present; drop all others."""
    for capability in range(64):
        if not _FILE_CAPABILITIES >> capability & 1:
            with suppress(OSError):  # the last capability of this kernel
                prctl(_PR_CAPBSET_DROP, capability)
    status = Path("/proc/self/status").read_text("ascii", "replace")
    has = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapPrm"))
    permitted = has & _FILE_CAPABILITIES if os.geteuid() == 0 else 0
    header = ctypes.create_string_buffer(struct.pack("II", _CAPSET_VERSION, 0), 8)
    data = ctypes.create_string_buffer(struct.pack("IIIIII", permitted, permitted, 0, 0, 0, 0), 24)
    checked(_libc.capset(header, data), "capset")


def new_namespaces() -> None:
    """Enter a user, network, mount and IPC namespace; the loopback device is up, users are the same."""
    uid, gid = os.geteuid(), os.getegid()
    with _mapping_all() as map_all:
        checked(_libc.unshare(_NEWUSER | _NEWNET | _NEWNS | _NEWIPC), "unshare")
        if not map_all():
            Path("/proc/self/setgroups").write_text("deny", "ascii")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", "ascii")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", "ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
    checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None), "make mounts private")


@contextmanager
def _mapping_all() -> Iterator[Callable[[], bool]]:
    """Yield a function that maps every user of the new namespace to itself, so that root can use all files.

    Only an outside process of root can do this; the function returns False if it failed.
    """
    if os.geteuid() != 0:
        yield lambda: False
        return
    process, (ours, theirs) = os.getpid(), socket.socketpair()
    if not (helper := os.fork()):
        ours.close()
        done = b"n"
        with suppress(OSError, ValueError):
            if theirs.recv(1):
                for name in ("uid_map", "gid_map"):
                    lines = [
                        line.split() for line in Path(f"/proc/self/{name}").read_text("ascii").splitlines()
                    ]
                    text = "".join(f"{inside} {inside} {count}\n" for inside, _, count in lines)
                    Path(f"/proc/{process}/{name}").write_text(text, "ascii")
                done = b"y"
            theirs.send(done)
        os._exit(0)
    theirs.close()

    def map_all() -> bool:
        ours.send(b"x")
        return ours.recv(1) == b"y"

    try:
        yield map_all
    finally:
        ours.close()
        os.waitpid(helper, 0)


def add_address(address: str, number: int) -> None:
    """Add an address to the loopback device of this network namespace."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        request = struct.pack("16sHH4s8x", f"lo:{number}".encode(), socket.AF_INET, 0, parsed.packed)
    else:
        request = struct.pack("16sIi", parsed.packed, 128, socket.if_nametoindex("lo"))
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, _SIOCSIFADDR, request)


def own_shared_memory() -> None:
    """Mount an empty /dev/shm over the machine's."""
    checked(
        _libc.mount(b"none", b"/dev/shm", b"tmpfs", ctypes.c_ulong(_NOSUID_NODEV), None), "mount /dev/shm"
    )


def bind(source: Path, target: Path) -> None:
    """Bind-mount `source` at `target`."""
    path = os.fsencode(source), os.fsencode(target)
    checked(_libc.mount(*path, None, ctypes.c_ulong(_BIND), None), f"bind {target}")


def read_only_but(writable: Sequence[Path]) -> None:
    """Make every mount read-only, also for chmod and similar, except these files and folders."""
    for path in writable:
        bind(path, path)
    _mount_attribute(Path("/"), _RDONLY, 0, _AT_RECURSIVE)
    for path in (*writable, Path("/dev/shm")):  # noqa: S108  its own, see `own_shared_memory`
        with suppress(PermissionError):  # already read-only
            _mount_attribute(path, 0, _RDONLY, 0)
    with suppress(FileNotFoundError):
        os.chdir(Path.cwd())  # switch to the writable mount


def _mount_attribute(path: Path, added: int, removed: int, flags: int) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", added, removed, 0, 0), 32)
    name, size = os.fsencode(path), ctypes.c_size_t(32)
    call(_MOUNT_SETATTR, _AT_FDCWD, name, ctypes.c_ulong(flags), attributes, size)
