"""Ways out of a sandbox, each tried in a process of its own: `escapes.py HOST PORT FOLDER PROCESS [TRY...]`.

HOST:PORT+n is the n-th try's own canary, FOLDER holds its file, and PROCESS is a victim outside. A line of
JSON a try: {"try", "believes": text or null, "told": texts, one of which a report has}. What a try believes
counts only where nothing outside can show it (`BELIEVED`).
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
FAST_OPEN = 0x20000000
X86 = platform.machine() == "x86_64"


def call(number: int, *arguments: object) -> int:
    answer = LIBC.syscall(number, *arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


class Try:
    """One try; its canary's port, its file and the victim."""

    def __init__(self, name: str, host: str, port: int, folder: Path, victim: int) -> None:
        self.name, self.host, self.port, self.folder, self.victim = name, host, port, folder, victim
        self.file, self.new = folder / name, folder / f"{name}.new"

    @property
    def there(self) -> tuple[str, int]:
        return self.host, self.port

    def send(self, line: socket.socket) -> None:
        line.sendall(self.name.encode())
        line.close()


def tcp(t: Try) -> None:
    t.send(socket.create_connection(t.there, 2))


def tcp_loopback(t: Try) -> None:
    t.send(socket.create_connection(("127.0.0.1", t.port), 2))


def tcp_mapped_in_ipv6(t: Try) -> None:
    with socket.socket(socket.AF_INET6) as line:
        line.settimeout(2)  # expires: where it cannot get through
        line.connect((f"::ffff:{t.host}", t.port))
        line.sendall(t.name.encode())


def tcp_from_a_thread(t: Try) -> None:
    said: list[OSError] = []

    def work() -> None:
        try:
            tcp(t)
        except OSError as error:
            said.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if said:
        raise said[0]


def tcp_of_the_c_library(t: Try) -> None:
    line = LIBC.socket(2, 1, 0)
    address = struct.pack("=H", 2) + struct.pack(">H", t.port) + socket.inet_aton(t.host) + bytes(8)
    if LIBC.connect(line, address, 16):
        raise OSError(ctypes.get_errno(), "")
    os.write(line, t.name.encode())


def tcp_of_a_program(t: Try) -> None:
    code = f"import socket; s = socket.create_connection({t.there!r}, 2); s.sendall({t.name.encode()!r})"
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)


def tcp_of_a_shell(t: Try) -> None:
    subprocess.run(
        ["bash", "-c", f"echo {t.name} > /dev/tcp/{t.host}/{t.port}"], check=True, stderr=subprocess.DEVNULL
    )


def multipath_tcp(t: Try) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as line:
        line.settimeout(2)  # expires: where it cannot get through
        line.connect(t.there)
        line.sendall(t.name.encode())


def fast_open(t: Try) -> None:
    with socket.socket() as line:
        line.sendto(t.name.encode(), FAST_OPEN, t.there)


def fast_open_by_sendmsg(t: Try) -> None:
    with socket.socket() as line:
        line.sendmsg([t.name.encode()], [], FAST_OPEN, t.there)


def udp(t: Try) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(t.name.encode(), t.there)


def udp_connected(t: Try) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect(t.there)
        line.send(t.name.encode())


def udp_by_sendmsg(t: Try) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendmsg([t.name.encode()], [], 0, t.there)


def raw_socket(t: Try) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as line:
        line.sendto(t.name.encode(), (t.host, 0))


def packet_socket(_: Try) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def virtual_machine_socket(_: Try) -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


def unix_socket(t: Try) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(t.folder / "canary.sock"))
        line.sendall(t.name.encode())


def abstract_socket(t: Try) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"\0dreamgym-canary-{t.victim}")
        line.sendall(t.name.encode())


def datagram_pair(t: Try) -> None:
    line, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    line.sendto(t.name.encode(), str(t.folder / "canary.datagrams"))


def write_new(t: Try) -> None:
    t.new.write_text("x")


def overwrite(t: Try) -> None:
    t.file.write_text("x")


def append(t: Try) -> None:
    with t.file.open("a") as file:
        file.write("x")


def write_by_folder_descriptor(t: Try) -> None:
    folder = os.open(t.folder, os.O_RDONLY | os.O_DIRECTORY)
    os.close(os.open(t.name, os.O_WRONLY | os.O_TRUNC, dir_fd=folder))


def write_by_openat2(t: Try) -> None:
    how = struct.pack("QQQ", os.O_WRONLY | os.O_TRUNC, 0, 0)
    call(437, -100, os.fsencode(t.file), how, ctypes.c_size_t(len(how)))


def write_by_a_link_of_proc(t: Try) -> None:
    Path(f"/proc/self/root{t.file}").write_text("x")


def write_by_the_victims_root(t: Try) -> None:
    Path(f"/proc/{t.victim}/root{t.file}").write_text("x")


def write_mapped(t: Try) -> None:
    with t.file.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:1] = b"x"


def write_by_a_program(t: Try) -> None:
    subprocess.run(["sh", "-c", f"echo x > {t.file}"], check=True, stderr=subprocess.DEVNULL)


def truncate(t: Try) -> None:
    os.truncate(t.file, 0)


def unlink(t: Try) -> None:
    t.file.unlink()


def rename(t: Try) -> None:
    t.file.rename(t.new)


def hard_link(t: Try) -> None:
    os.link(t.file, t.new)


def symbolic_link(t: Try) -> None:
    t.new.symlink_to(t.file)


def make_folder(t: Try) -> None:
    t.new.mkdir()


def make_fifo(t: Try) -> None:
    os.mkfifo(t.new)


def change_mode(t: Try) -> None:
    t.file.chmod(0o600)


def change_times(t: Try) -> None:
    os.utime(t.file, (1, 1))


def change_owner(t: Try) -> None:
    os.chown(t.file, 12345, 12345)


def set_attribute(t: Try) -> None:
    os.setxattr(t.file, "user.x", b"1")


def set_core_pattern(_: Try) -> None:
    Path("/proc/sys/kernel/core_pattern").open("w").close()


def shared_memory(t: Try) -> None:
    Path("/dev/shm", f"dreamgym-{t.victim}").write_text("x")


def system_v_memory(_: Try) -> None:
    if LIBC.shmget(0x44524D47, 4096, 0o600) < 0:  # made outside
        raise OSError(ctypes.get_errno(), "")


def signal_victim(t: Try) -> None:
    os.kill(t.victim, signal.SIGUSR1)


def trace_victim(t: Try) -> None:
    call(101 if X86 else 117, 0x4206, t.victim, 0, 0)


def read_victims_memory(t: Try) -> None:
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(buffer), 8)
    call(310 if X86 else 270, t.victim, vector, 1, struct.pack("PN", 0x1000, 8), 1, 0)


def write_victims_memory(t: Try) -> None:
    Path(f"/proc/{t.victim}/mem").open("r+b").close()


def take_victims_descriptor(t: Try) -> None:
    call(438, call(434, t.victim, 0), 0, 0)


def enter_victims_network(t: Try) -> None:
    call(308 if X86 else 268, os.open(f"/proc/{t.victim}/ns/net", os.O_RDONLY), 0)


def new_user_namespace(_: Try) -> None:
    call(272 if X86 else 97, 0x10000000)


def clone_user_namespace(_: Try) -> None:
    if call(56 if X86 else 220, 0x10000000 | 17, 0, 0, 0, 0) == 0:
        os._exit(0)


def mount(_: Try) -> None:
    call(165 if X86 else 40, b"none", b"/mnt", b"tmpfs", 0, None)


def remount_writable(t: Try) -> None:
    call(165 if X86 else 40, None, b"/", None, 0x1020, None)
    overwrite(t)


def clear_read_only(t: Try) -> None:
    attributes = struct.pack("QQQQ", 0, 1, 0, 0)
    call(442, -100, b"/", 0x8000, attributes, ctypes.c_size_t(32))
    overwrite(t)


def unmount_hosts_file(_: Try) -> None:
    call(166 if X86 else 39, b"/etc/hosts", 2)


def change_root(_: Try) -> None:
    os.chroot("/proc/self/root")


def io_uring(_: Try) -> None:
    call(425, 4, ctypes.create_string_buffer(120))


def load_bpf(_: Try) -> None:
    call(321 if X86 else 280, 0, ctypes.create_string_buffer(120), 120)


def read_keys(_: Try) -> None:
    call(250 if X86 else 219, 0, -3, 0, 0, 0)


def load_module(_: Try) -> None:
    call(313 if X86 else 273, 0, b"", 0)


def open_by_handle(_: Try) -> None:
    call(304 if X86 else 265, 3, ctypes.create_string_buffer(128), 0)


def watch_faults(_: Try) -> None:
    os.close(call(323 if X86 else 282, 0))


def type_into_terminal(_: Try) -> None:
    fcntl.ioctl(0, 0x5412, b"x")


def ask_the_broker_for_another_file(t: Try) -> None:
    from dreamgym_kit.sandbox import confining

    for descriptor in range(3, 64):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
            line.settimeout(0.5)  # expires: no broker reads there
            line.sendall(json.dumps({"path": str(t.file), "size": 1, "append": False}).encode() + b"\nx")
    if not confining.deliver(t.file, b"x"):
        raise OSError(errno.EACCES, "not delivered")


SYSTEM_CALLS = {
    "trace_victim": "ptrace", "read_victims_memory": "process_vm_readv",
    "take_victims_descriptor": "pidfd_getfd",
    "enter_victims_network": "setns", "new_user_namespace": "unshare", "mount": "mount",
    "remount_writable": "mount", "clear_read_only": "mount_setattr", "unmount_hosts_file": "umount2",
    "change_root": "chroot", "io_uring": "io_uring_setup", "load_bpf": "bpf", "read_keys": "keyctl",
    "load_module": "finit_module", "open_by_handle": "open_by_handle_at", "watch_faults": "userfaultfd",
}  # fmt: skip
SOCKETS = {
    "multipath_tcp": "multipath TCP", "raw_socket": "socket: raw", "packet_socket": "socket: packet",
    "virtual_machine_socket": "vsock", "unix_socket": "Unix", "abstract_socket": "Unix",
    "datagram_pair": "Unix",
}  # fmt: skip
OTHERS = {
    "fast_open": "fast open", "fast_open_by_sendmsg": "fast open",
    "clone_user_namespace": "make a user namespace",
    "type_into_terminal": "type into the terminal", "set_core_pattern": "core_pattern",
    "write_victims_memory": "/mem", "write_by_the_victims_root": "write_by_the_victims_root",
}  # fmt: skip
BELIEVED = {*SYSTEM_CALLS, "packet_socket", "virtual_machine_socket", "set_core_pattern", "system_v_memory",
            "write_victims_memory", "clone_user_namespace", "raw_socket", "type_into_terminal"} - {
            "remount_writable", "clear_read_only"}  # fmt: skip
TRIES: list[Callable[[Try], None]] = [
    made for name, made in list(globals().items())
    if callable(made) and getattr(made, "__module__", "") == __name__ and name not in ("call", "Try")
]  # fmt: skip


def told(name: str, port: int) -> list[str]:
    """What a line that tells of this try has in it, one of these."""
    if name in SYSTEM_CALLS:
        return [f"system call {SYSTEM_CALLS[name]} "]
    if name.startswith(("tcp", "udp")):
        return [f":{port} ", *(["socket: UDP"] if name.startswith("udp") else [])]
    return [SOCKETS.get(name) or OTHERS.get(name) or name]


def main() -> None:
    host, port, folder, victim = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    only = sys.argv[5:]
    for number, attempt in enumerate(TRIES):
        if only and attempt.__name__ not in only:
            continue
        made = Try(attempt.__name__, host, port + number, folder, victim)
        sys.stdout.flush()
        if process := os.fork():
            os.waitpid(process, 0)
            continue
        signal.alarm(10)
        believes = None
        try:
            attempt(made)
            believes = "done"
        except BaseException as error:
            print(attempt.__name__, repr(error), file=sys.stderr)
        print(
            json.dumps({"try": made.name, "believes": believes, "told": told(made.name, made.port)}),
            flush=True,
        )
        os._exit(0)


if __name__ == "__main__":
    main()
