"""Every way out of a Python process that bar G5 tries, run by test_g5_second_wall.py in a process of its own.

usage: python g5_ways.py PLAN.json RESULT.json

A way gets its own port on loopback and its own folder; the parent sees whether either was touched. A
way written as a generator does what happens before the dream, yields, and then acts inside it.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import http.client
import inspect
import json
import logging
import multiprocessing
import os
import pty
import queue
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zipfile
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Canary:
    """What a way must not touch."""

    port: int
    folder: Path
    scratch: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def file(self) -> Path:
        return self.folder / "canary.txt"

    @property
    def new(self) -> Path:
        return self.folder / "new"


STOPPED: dict[str, Callable[[Canary], object]] = {}
GAPS: dict[str, Callable[[Canary], object]] = {}


def stopped(act: Callable[[Canary], object]) -> Callable[[Canary], object]:
    STOPPED[act.__name__] = act
    return act


def gap(act: Callable[[Canary], object]) -> Callable[[Canary], object]:
    GAPS[act.__name__] = act
    return act


# Network ------------------------------------------------------------------------------------------


@stopped
def socket_connect(canary: Canary) -> None:
    with socket.socket() as door:
        door.settimeout(60)
        door.connect(canary.address)


@stopped
def socket_connect_ex(canary: Canary) -> None:
    with socket.socket() as door:
        door.connect_ex(canary.address)


@stopped
def socket_connect_by_name(canary: Canary) -> None:
    with socket.socket() as door:
        door.connect(("localhost", canary.port))


@stopped
def socket_create_connection(canary: Canary) -> None:
    socket.create_connection(("localhost", canary.port), timeout=60).close()


@stopped
def socket_mapped_address(canary: Canary) -> None:
    with socket.socket(socket.AF_INET6) as door:
        door.connect(("::ffff:127.0.0.1", canary.port))


@stopped
def socket_in_a_thread(canary: Canary) -> None:
    in_a_thread(lambda: socket.create_connection(canary.address, timeout=60).close())


@stopped
def socket_made_before(canary: Canary) -> Generator[None]:
    door = socket.socket()
    yield
    door.connect(canary.address)


@stopped
def udp_sendto(canary: Canary) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as door:
        door.sendto(b"x", canary.address)


@stopped
def udp_sendmsg(canary: Canary) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as door:
        door.sendmsg([b"x"], [], 0, canary.address)


@stopped
def udp_connect_and_send(canary: Canary) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as door:
        door.connect(canary.address)
        door.send(b"x")


@stopped
def unix_socket(canary: Canary) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(str(canary.folder / "door"))


@stopped
def listen_to_everyone(canary: Canary) -> None:
    with socket.socket() as door:
        door.bind(("0.0.0.0", 0))


@stopped
def look_up_a_name(canary: Canary) -> None:
    socket.getaddrinfo("canary.invalid", 443)


@stopped
def look_up_by_gethostbyname(canary: Canary) -> None:
    socket.gethostbyname("canary.invalid")


@stopped
def httpx_get(canary: Canary) -> None:
    import httpx

    httpx.get(canary.url, timeout=60)


@stopped
def httpx_async(canary: Canary) -> None:
    import httpx

    async def get() -> None:
        async with httpx.AsyncClient() as client:
            await client.get(canary.url, timeout=60)

    asyncio.run(get())


@stopped
def httpx_under_except_exception(canary: Canary) -> None:
    import httpx

    with contextlib.suppress(Exception):
        httpx.get(canary.url, timeout=60)


@stopped
def httpx_retried_under_bare_except(canary: Canary) -> None:
    import httpx

    for _ in range(3):
        with contextlib.suppress(BaseException):
            httpx.get(canary.url, timeout=60)


@stopped
def requests_get(canary: Canary) -> None:
    import requests

    requests.get(canary.url, timeout=60)


@stopped
def urllib_urlopen(canary: Canary) -> None:
    urllib.request.urlopen(canary.url, timeout=60).close()


@stopped
def http_client(canary: Canary) -> None:
    http.client.HTTPConnection("127.0.0.1", canary.port, timeout=60).request("GET", "/")


@stopped
def asyncio_open_connection(canary: Canary) -> None:
    asyncio.run(asyncio.wait_for(asyncio.open_connection(*canary.address), 60))


@stopped
def asyncio_open_connection_by_name(canary: Canary) -> None:
    asyncio.run(asyncio.wait_for(asyncio.open_connection("localhost", canary.port), 60))


# Programs -----------------------------------------------------------------------------------------


@stopped
def subprocess_run(canary: Canary) -> None:
    subprocess.run(["touch", canary.new], check=True)


@stopped
def subprocess_shell(canary: Canary) -> None:
    subprocess.run(f"touch {canary.new}", shell=True, check=True)


@stopped
def asyncio_subprocess(canary: Canary) -> None:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec("touch", str(canary.new))
        await process.wait()

    asyncio.run(run())


@stopped
def os_system(canary: Canary) -> None:
    os.system(f"touch {canary.new}")


@stopped
def os_popen(canary: Canary) -> None:
    os.popen(f"touch {canary.new}").close()


@stopped
def os_posix_spawn(canary: Canary) -> None:
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", f"touch {canary.new}"], {}), 0)


@stopped
def os_spawn(canary: Canary) -> None:
    os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", f"touch {canary.new}"])


@stopped
def os_exec(canary: Canary) -> None:
    os.execv("/bin/sh", ["sh", "-c", f"touch {canary.new}"])


@stopped
def os_fork(canary: Canary) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    canary.new.touch()


@stopped
def pty_fork(canary: Canary) -> None:
    child, _ = pty.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@stopped
def multiprocessing_spawn(canary: Canary) -> None:
    process = multiprocessing.get_context("spawn").Process(target=os.mkdir, args=(str(canary.new),))
    process.start()
    process.join()


@stopped
def process_pool(canary: Canary) -> None:
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.mkdir, str(canary.new)).result()


@stopped
def signal_to_another_process(canary: Canary) -> None:
    os.kill(os.getppid(), signal.SIGCONT)


@stopped
def special_file(canary: Canary) -> None:
    os.mkfifo(canary.new)


@stopped
def pidfd(canary: Canary) -> None:
    parent = os.pidfd_open(os.getppid())
    signal.pidfd_send_signal(parent, signal.SIGCONT)
    os.close(parent)


@stopped
def cffi_library(canary: Canary) -> None:
    from cffi import FFI

    libc = FFI()
    libc.cdef("int system(const char *line);")
    libc.dlopen(None).system(f"touch {canary.new}".encode())


@stopped
def tcl(canary: Canary) -> Generator[None]:
    import tkinter

    yield
    tkinter.Tcl().eval(f"exec touch {canary.new}")


@stopped
def ctypes_library(canary: Canary) -> None:
    ctypes.CDLL(None).system(f"touch {canary.new}".encode())


@stopped
def ctypes_library_loaded_before(canary: Canary) -> Generator[None]:
    library = ctypes.CDLL(None)
    yield
    library.system(f"touch {canary.new}".encode())


@stopped
def ctypes_pythonapi(canary: Canary) -> None:
    ctypes.pythonapi.system(f"touch {canary.new}".encode())


# Files --------------------------------------------------------------------------------------------


@stopped
def open_for_write(canary: Canary) -> None:
    canary.file.open("w").close()


@stopped
def open_for_append(canary: Canary) -> None:
    with canary.file.open("a") as file:
        file.write("more")


@stopped
def open_for_update(canary: Canary) -> None:
    with canary.file.open("r+b") as file:
        file.write(b"X")


@stopped
def open_in_a_thread(canary: Canary) -> None:
    in_a_thread(lambda: canary.new.write_text("x"))


@stopped
def os_open(canary: Canary) -> None:
    os.close(os.open(canary.new, os.O_CREAT | os.O_WRONLY))


@stopped
def path_touch(canary: Canary) -> None:
    canary.new.touch()


@stopped
def os_remove(canary: Canary) -> None:
    os.remove(canary.file)


@stopped
def remove_in_an_open_folder(canary: Canary) -> None:
    folder = os.open(canary.folder, os.O_RDONLY)
    os.unlink("canary.txt", dir_fd=folder)


@stopped
def os_rename(canary: Canary) -> None:
    os.rename(canary.file, canary.new)


@stopped
def os_replace_from_scratch(canary: Canary) -> None:
    (canary.scratch / "other").write_text("other")
    os.replace(canary.scratch / "other", canary.file)


@stopped
def os_mkdir(canary: Canary) -> None:
    os.makedirs(canary.new)


@stopped
def os_rmdir(canary: Canary) -> None:
    os.rmdir(canary.folder / "empty")


@stopped
def os_symlink(canary: Canary) -> None:
    os.symlink("/", canary.new)


@stopped
def os_link(canary: Canary) -> None:
    os.link(canary.file, canary.new)


@stopped
def write_through_a_hard_link_in_scratch(canary: Canary) -> None:
    os.link(canary.file, canary.scratch / "hard")
    (canary.scratch / "hard").write_text("x")


@stopped
def write_through_a_symlink_in_scratch(canary: Canary) -> None:
    (canary.scratch / "soft").symlink_to(canary.file)
    (canary.scratch / "soft").write_text("x")


@stopped
def write_by_a_dotted_path(canary: Canary) -> None:
    (canary.scratch / ".." / canary.folder.name / "new").write_text("x")


@stopped
def os_truncate(canary: Canary) -> None:
    os.truncate(canary.file, 0)


@stopped
def os_chmod(canary: Canary) -> None:
    os.chmod(canary.file, 0o777)


@stopped
def chmod_an_open_file(canary: Canary) -> None:
    with canary.file.open() as file:
        os.fchmod(file.fileno(), 0o777)


@stopped
def os_utime(canary: Canary) -> None:
    os.utime(canary.file, (1, 1))


@stopped
def shutil_copy(canary: Canary) -> None:
    shutil.copy("/dev/null", canary.new)


@stopped
def shutil_move(canary: Canary) -> None:
    shutil.move(canary.file, canary.scratch)


@stopped
def shutil_rmtree(canary: Canary) -> None:
    shutil.rmtree(canary.folder)


@stopped
def temporary_file_outside_scratch(canary: Canary) -> None:
    tempfile.mkstemp(dir=canary.folder)


@stopped
def zip_file(canary: Canary) -> None:
    with zipfile.ZipFile(canary.new, "w") as archive:
        archive.writestr("a", "b")


@stopped
def logging_to_a_file(canary: Canary) -> None:
    logging.FileHandler(canary.new).close()


@stopped
def sqlite_file(canary: Canary) -> None:
    with contextlib.closing(sqlite3.connect(canary.folder / "real.db")) as database, database:
        database.execute("delete from orders")


@stopped
def sqlite_uri(canary: Canary) -> None:
    with (
        contextlib.closing(sqlite3.connect(f"file:{canary.folder}/real.db?mode=rw", uri=True)) as database,
        database,
    ):
        database.execute("delete from orders")


# Known gaps ---------------------------------------------------------------------------------------


@gap
def open_connection(canary: Canary) -> Generator[None]:
    import httpx

    client = httpx.Client(timeout=60, limits=httpx.Limits(keepalive_expiry=None))  # however slow
    client.get(canary.url)
    yield
    client.get(canary.url + "again")


@gap
def open_file(canary: Canary) -> Generator[None]:
    file = canary.file.open("a")
    yield
    file.write("more")
    file.close()


@gap
def earlier_child(canary: Canary) -> Generator[None]:
    child = subprocess.Popen(["sh"], stdin=subprocess.PIPE)
    yield
    child.communicate(f"touch {canary.new}\n".encode())


@gap
def earlier_thread(canary: Canary) -> Generator[None]:
    orders: queue.Queue[str] = queue.Queue()
    with canary.file.open("a") as file:
        thread = threading.Thread(target=lambda: file.write(orders.get()))
        thread.start()
        yield
        orders.put("more")
        thread.join()


@gap
def c_function(canary: Canary) -> Generator[None]:
    system = ctypes.CDLL(None).system
    yield
    system(f"touch {canary.new}".encode())


@gap
def cffi(canary: Canary) -> Generator[None]:
    from cffi import FFI

    libc = FFI()
    libc.cdef("int system(const char *line);")
    loaded = libc.dlopen(None)
    yield
    loaded.system(f"touch {canary.new}".encode())


@gap
def grpc(canary: Canary) -> None:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{canary.port}") as channel, contextlib.suppress(grpc.RpcError):
        channel.unary_unary("/service/method")(b"", timeout=60)


@gap
def libpq(canary: Canary) -> None:
    import psycopg

    with contextlib.suppress(psycopg.Error):
        psycopg.connect(f"host=127.0.0.1 port={canary.port} connect_timeout=60")


@gap
def rust_client(canary: Canary) -> None:
    import primp

    primp.Client(timeout=60).get(canary.url)


@gap
def uvloop(canary: Canary) -> None:
    import uvloop

    async def connect() -> None:
        _, writer = await asyncio.wait_for(asyncio.open_connection(*canary.address), 60)
        writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connect())


@gap
def sqlite_attach(canary: Canary) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.execute("attach ? as outside", (str(canary.folder / "real.db"),))
        database.execute("delete from outside.orders")


@gap
def name_lookup(canary: Canary) -> None:
    with socket.socket() as door, contextlib.suppress(socket.gaierror):
        door.connect(("canary.invalid", 443))
        raise AssertionError("the name was not looked up")


@gap
def folder_descriptor(canary: Canary) -> None:
    os.chdir(canary.scratch)
    folder = os.open(canary.folder, os.O_RDONLY)
    os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=folder))


# The run ------------------------------------------------------------------------------------------


def in_a_thread(act: Callable[[], object]) -> None:
    def run() -> None:
        with contextlib.suppress(BaseException):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def main(plan_file: str, result_file: str) -> None:
    plan = json.loads(Path(plan_file).read_text())
    result = open(result_file, "w")  # noqa: SIM115 - opened before the dream: writing stays possible
    from dreamgym_kit.guard import audit_events, egress

    for event in plan["blind"]:  # the planted bug
        del audit_events.READERS[event]
    root = Path(plan["root"])
    ways = {**STOPPED, **GAPS}
    acts: dict[str, Callable[[], object]] = {}
    report: dict[str, dict[str, object]] = {}
    for name in plan["ways"]:
        canary = Canary(plan["ports"][name], root / name, root / "scratch")
        try:
            acts[name] = prepared(ways[name], canary)
        except ImportError as absent:
            report[name] = {"absent": str(absent)}
    print("armed", flush=True)
    sys.stdin.readline()  # the parent has taken stock
    egress.arm(egress.Allowance(paths=(root / "scratch",)), lambda trip: None)
    for name, act in acts.items():
        report[name] = attempt(act, egress.trips)
    egress.disarm()
    json.dump(report, result)
    result.close()


def prepared(way: Callable[[Canary], object], canary: Canary) -> Callable[[], object]:
    if not inspect.isgeneratorfunction(way):
        return lambda: way(canary)
    steps = way(canary)
    next(steps)
    return lambda: next(steps, None)


def attempt(act: Callable[[], object], trips: Callable[[], list[object]]) -> dict[str, object]:
    before = len(trips())
    raised = ""
    try:
        act()
    except ImportError as absent:
        return {"absent": str(absent)}
    except BaseException as error:
        raised = f"{type(error).__name__}: {error}"
    return {"trips": [dataclasses.asdict(trip) for trip in trips()[before:]], "raised": raised}


if __name__ == "__main__":
    main(*sys.argv[1:])
