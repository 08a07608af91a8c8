"""One seccomp filter: system calls that a confined process may not make, and calls that are only observed.

Refused and observed calls both wait for the listener's answer (see `broker`), which reports them. Calls are
refused by numbers in registers, which no thread can change meanwhile. Observed calls continue in the kernel,
where namespaces, mounts and Landlock decide; the listener reads their memory only for the report.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.sandbox.kernel import call, no_new_privileges

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_ALLOW, _NOTIFY, _ERRNO, _KILL = 0x7FFF0000, 0x7FC00000, 0x00050000, 0x80000000
_X32 = 0x40000000  # call numbers of another ABI of the processor
_ARGUMENT = 16  # offset of the first argument in a filter's data, 8 bytes each
_FAST_OPEN = 0x20000000  # connects without Landlock's check
_NEW_USER = 0x10000000
_TIOCSTI = 0x5412  # types into the terminal
_CHANGES_FILE = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_INET, _INET6, _NETLINK, _STREAM, _DGRAM, _TCP, _UDP = 2, 10, 16, 1, 2, 6, 17
_SET_FILTER, _NEW_LISTENER, _KILLABLE = 1, 8, 32


@dataclass(frozen=True, slots=True)
class PathCall:
    """The path arguments of a file-changing call, by number; None: the working directory."""

    name: str
    path: int
    folder: int | None = None
    landlock: bool = True  # Landlock also stops it


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of one architecture."""

    audit: int
    seccomp: int
    clone: int
    clone3: int
    ioctl: int
    socket: int
    socketpair: int
    connect: int
    sendto: int
    sendmsg: int
    sendmmsg: int
    openat: int
    openat2: int
    refused: dict[int, str]
    paths: dict[int, PathCall]


_REFUSED_EVERYWHERE = {
    425: "io_uring_setup", 426: "io_uring_enter", 427: "io_uring_register", 428: "open_tree",
    429: "move_mount", 430: "fsopen", 431: "fsconfig", 432: "fsmount", 433: "fspick", 438: "pidfd_getfd",
    442: "mount_setattr",
}  # fmt: skip
_AT = {
    "mkdirat": (1, 0), "mknodat": (1, 0), "unlinkat": (1, 0), "symlinkat": (2, 1), "linkat": (3, 2),
    "renameat": (3, 2), "renameat2": (3, 2), "truncate": (0, None),
}  # fmt: skip
_ATTRIBUTES = {
    "fchmodat": (1, 0), "fchmodat2": (1, 0), "fchownat": (1, 0), "utimensat": (1, 0), "setxattr": (0, None),
    "lsetxattr": (0, None), "removexattr": (0, None), "lremovexattr": (0, None), "chmod": (0, None),
    "chown": (0, None), "lchown": (0, None), "utime": (0, None), "utimes": (0, None), "futimesat": (1, 0),
}  # fmt: skip
_OLD = {"creat": (0, None), "mkdir": (0, None), "rmdir": (0, None), "unlink": (0, None), "rename": (1, None),
        "link": (1, None), "symlink": (1, None), "mknod": (0, None)}  # fmt: skip


def _paths(numbers: dict[str, int]) -> dict[int, PathCall]:
    forms = {**_AT, **_OLD, **_ATTRIBUTES}
    return {
        number: PathCall(name, *forms[name], landlock=name not in _ATTRIBUTES)
        for name, number in numbers.items()
    }


_X86 = _Machine(
    audit=0xC000003E, seccomp=317, clone=56, clone3=435, ioctl=16, socket=41, connect=42, sendto=44,
    sendmsg=46, socketpair=53, sendmmsg=307, openat=257, openat2=437,
    refused={
        101: "ptrace", 155: "pivot_root", 161: "chroot", 165: "mount", 166: "umount2", 169: "reboot",
        175: "init_module", 176: "delete_module", 246: "kexec_load", 248: "add_key", 249: "request_key",
        250: "keyctl", 272: "unshare", 298: "perf_event_open", 304: "open_by_handle_at", 308: "setns",
        310: "process_vm_readv", 311: "process_vm_writev", 313: "finit_module", 320: "kexec_file_load",
        321: "bpf", 323: "userfaultfd", **_REFUSED_EVERYWHERE,
    },
    paths=_paths({
        "creat": 85, "mkdir": 83, "rmdir": 84, "unlink": 87, "rename": 82, "link": 86, "symlink": 88,
        "mknod": 133, "truncate": 76, "mkdirat": 258, "mknodat": 259, "unlinkat": 263, "renameat": 264,
        "linkat": 265, "symlinkat": 266, "renameat2": 316, "chmod": 90, "chown": 92, "lchown": 94,
        "utime": 132, "utimes": 235, "futimesat": 261, "fchownat": 260, "fchmodat": 268, "utimensat": 280,
        "fchmodat2": 452, "setxattr": 188, "lsetxattr": 189, "removexattr": 197, "lremovexattr": 198,
    }),
)  # fmt: skip
_ARM = _Machine(
    audit=0xC00000B7, seccomp=277, clone=220, clone3=435, ioctl=29, socket=198, connect=203, sendto=206,
    sendmsg=211, socketpair=199, sendmmsg=269, openat=56, openat2=437,
    refused={
        117: "ptrace", 41: "pivot_root", 51: "chroot", 40: "mount", 39: "umount2", 142: "reboot",
        105: "init_module", 106: "delete_module", 104: "kexec_load", 217: "add_key", 218: "request_key",
        219: "keyctl", 97: "unshare", 241: "perf_event_open", 265: "open_by_handle_at", 268: "setns",
        270: "process_vm_readv", 271: "process_vm_writev", 273: "finit_module", 294: "kexec_file_load",
        280: "bpf", 282: "userfaultfd", **_REFUSED_EVERYWHERE,
    },
    paths=_paths({
        "truncate": 45, "mkdirat": 34, "mknodat": 33, "unlinkat": 35, "renameat": 38, "linkat": 37,
        "symlinkat": 36, "renameat2": 276, "fchownat": 54, "fchmodat": 53, "utimensat": 88, "fchmodat2": 452,
        "setxattr": 5, "lsetxattr": 6, "removexattr": 14, "lremovexattr": 15,
    }),
)  # fmt: skip
MACHINES = {"x86_64": _X86, "aarch64": _ARM}
_Step = tuple[int, int, int, int]  # operation, jump if true, jump if false, constant


def machine() -> _Machine | None:
    """Return the call numbers of this processor; None: unknown."""
    return MACHINES.get(platform.machine())


def confine(*, udp: bool, notify: bool = True) -> int | None:
    """Install the filter in this thread and its children; return the listener's descriptor.

    Args:
        udp: allow datagram sockets.
        notify: False: refuse without a listener, observe nothing and return None.

    Raises:
        OSError: the kernel rejects the filter; EINVAL or EBUSY: no listener.
    """
    here = machine()
    if here is None:
        raise OSError(errno.ENOSYS, f"system calls of {platform.machine()} are not known")
    no_new_privileges()
    program = _program(here, udp=udp, notify=notify)
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    steps = ctypes.create_string_buffer(code, len(code))
    given = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(steps)), 16)
    if not notify:
        call(here.seccomp, _SET_FILTER, 0, given)
        return None
    try:
        return call(here.seccomp, _SET_FILTER, _NEW_LISTENER | _KILLABLE, given)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return call(here.seccomp, _SET_FILTER, _NEW_LISTENER, given)  # before Linux 5.19


def _program(here: _Machine, *, udp: bool, notify: bool) -> list[_Step]:
    refuse = _NOTIFY if notify else _ERRNO | errno.EPERM
    look = [here.connect, here.openat2, *here.paths] if notify else []
    steps: list[_Step] = [
        (_LOAD, 0, 0, 4), (_EQUAL, 1, 0, here.audit), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        # clone3 has its flags in memory; glibc falls back to clone.
        (_EQUAL, 0, 1, here.clone3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]  # fmt: skip
    for number in here.refused:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    for number in look:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    bits = [
        (here.sendto, 3, _FAST_OPEN), (here.sendmsg, 2, _FAST_OPEN), (here.sendmmsg, 3, _FAST_OPEN),
        (here.clone, 0, _NEW_USER), (here.socketpair, 1, 0xE),  # all but _STREAM
    ]  # fmt: skip
    for number, argument, wrong in bits:
        steps += _if_argument(number, [(argument, _ANY_BIT, wrong, 0)], refuse)
    steps += _if_argument(here.ioctl, [(1, _EQUAL, _TIOCSTI, 0)], refuse)
    if notify:
        steps += _if_argument(here.openat, [(2, _ANY_BIT, _CHANGES_FILE, 0)], _NOTIFY)
        either_half = [(4, _ANY_BIT, 0xFFFFFFFF, 0), (4, _ANY_BIT, 0xFFFFFFFF, 4)]
        steps += _if_argument(here.sendto, either_half, _NOTIFY)
        if here is _X86:
            steps += _if_argument(2, [(1, _ANY_BIT, _CHANGES_FILE, 0)], _NOTIFY)  # open
    sockets = _sockets(udp=udp, refuse=refuse)
    return [*steps, (_EQUAL, 0, len(sockets), here.socket), *sockets, (_RETURN, 0, 0, _ALLOW)]


def _if_argument(number: int, tests: Sequence[tuple[int, int, int, int]], answer: int) -> list[_Step]:
    """Answer a call if one of (argument, operation, constant, byte) matches; else continue."""
    steps: list[_Step] = []
    for argument, operation, constant, byte in tests:
        steps += [(_LOAD, 0, 0, _ARGUMENT + 8 * argument + byte)]
        steps += [(operation, 0, 1, constant), (_RETURN, 0, 0, answer)]
    steps.append((_LOAD, 0, 0, 0))  # the number again
    return [(_EQUAL, 0, len(steps), number), *steps]


def _sockets(*, udp: bool, refuse: int) -> list[_Step]:
    """Allow TCP sockets, UDP if permitted, and netlink, which name resolution needs."""
    kinds = [(_STREAM, _TCP), *([(_DGRAM, _UDP)] if udp else [])]
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARGUMENT), (_EQUAL, 0, 1, _NETLINK), (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 2, 0, _INET), (_EQUAL, 1, 0, _INET6), (_RETURN, 0, 0, refuse),
    ]  # fmt: skip
    for kind, protocol in kinds:
        steps += [
            (_LOAD, 0, 0, _ARGUMENT + 8), (_AND, 0, 0, 0xF), (_EQUAL, 0, 5, kind),
            (_LOAD, 0, 0, _ARGUMENT + 16), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, protocol), (_RETURN, 0, 0,
            _ALLOW),
            (_RETURN, 0, 0, refuse),
        ]  # fmt: skip
    return [*steps, (_RETURN, 0, 0, refuse)]
