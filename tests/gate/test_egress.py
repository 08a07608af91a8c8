"""The egress guard: what it lets pass, what it says, and that it leaves no trace when disarmed."""

import asyncio
import contextlib
import ctypes
import logging
import multiprocessing
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from ports import own_port

from dreamgym_kit.errors import RealCallBlocked, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.egress import Allowance, Trip
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session


@pytest.fixture
def guard() -> Iterator[Callable[..., list[Trip]]]:
    """Arm with the given allowance; returns the list that on_trip fills."""

    def arm(
        hosts: tuple[str, ...] = (),
        paths: tuple[Path, ...] = (),
        commands: tuple[str, ...] = (),
        owner: Session | None = None,
    ) -> list[Trip]:
        seen: list[Trip] = []
        egress.arm(Allowance(frozenset(hosts), paths, commands), seen.append, lambda: owner)
        return seen

    yield arm
    egress.disarm()


@pytest.fixture
def server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def connect(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as door:  # create_connection would leak its socket when the guard refuses
        door.connect((host, port))


def test_loopback_is_refused_like_any_other_host(guard, server: int) -> None:
    seen = guard()
    with pytest.raises(RealCallBlocked):
        connect("127.0.0.1", server)
    assert [trip.target for trip in seen] == [f"127.0.0.1:{server}"]


def test_an_allowed_address_passes_and_its_neighbour_port_does_not(guard, server: int) -> None:
    seen = guard(hosts=(f"127.0.0.1:{server}",))
    connect("127.0.0.1", server)
    assert seen == []
    with pytest.raises(RealCallBlocked):
        connect("127.0.0.1", server + 1)


def test_a_host_without_a_port_is_allowed_on_every_port(guard, server: int) -> None:
    guard(hosts=("127.0.0.1",))
    connect("127.0.0.1", server)


def test_an_allowed_name_passes_at_the_addresses_it_resolves_to(guard, server: int) -> None:
    guard(hosts=(f"localhost:{server}",))
    socket.create_connection(("localhost", server), timeout=60).close()
    connect("127.0.0.1", server)  # a client that resolved the name by itself, or earlier
    asyncio.run(open_and_close("localhost", server))


def test_an_address_passes_only_on_the_ports_of_the_name_it_came_from(guard, server: int) -> None:
    guard(hosts=(f"localhost:{server}",))
    socket.getaddrinfo("localhost", server)
    with pytest.raises(RealCallBlocked):
        connect("127.0.0.1", server + 1)


def test_what_the_caller_was_told_counts_not_what_a_second_look_up_says(
    guard, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names behind load balancers resolve to another address each time."""
    answers = iter([("127.0.0.1", server), *[("192.0.2.7", server)] * 9])
    kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    monkeypatch.setattr(egress._doors, "getaddrinfo", lambda *_, **__: [(*kind, next(answers))])
    seen = guard(hosts=(f"model.example:{server}",))
    socket.create_connection(("model.example", server), timeout=60).close()
    assert seen == []


def test_a_name_is_compared_without_case_and_final_dot(guard, server: int) -> None:
    guard(hosts=(f"LocalHost.:{server}",))
    connect("LOCALHOST", server)


def test_looking_up_another_name_is_refused_before_anybody_is_asked(guard) -> None:
    seen = guard(hosts=("model.example",))
    with pytest.raises(RealCallBlocked, match=r'allow_hosts = \["canary.invalid"\]'):
        socket.getaddrinfo("canary.invalid", 443)
    assert seen[0].event == "socket.getaddrinfo"


async def open_and_close(host: str, port: int) -> None:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    await writer.wait_closed()


def test_files_below_an_allowed_folder_can_be_made_changed_and_removed(guard, tmp_path: Path) -> None:
    seen = guard(paths=(tmp_path,))
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("x")
    (tmp_path / "a" / "file").rename(tmp_path / "a" / "b" / "file")
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file, tempfile.TemporaryDirectory(dir=tmp_path):
        file.write(b"x")
    sqlite3.connect(tmp_path / "a.db").close()
    shutil.rmtree(tmp_path / "a")
    assert seen == []


def test_a_sibling_whose_name_begins_alike_is_not_in_the_folder(guard, tmp_path: Path) -> None:
    guard(paths=(tmp_path / "run",))
    with pytest.raises(RealCallBlocked):
        (tmp_path / "running").write_text("x")


def test_a_folder_allowed_through_a_link_is_allowed_by_its_own_name(guard, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    guard(paths=(tmp_path / "link",))
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link" / "file").write_text("y")


@pytest.mark.parametrize("name", ["mkfifo", "mknod"])
def test_a_special_file_is_judged_by_the_folder_that_it_is_made_in(
    guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    monkeypatch.chdir(inside)
    folders = [os.open(folder, os.O_RDONLY) for folder in (inside, outside)]
    guard(paths=(inside,))
    make = getattr(os, name)
    try:
        make("here", stat.S_IFIFO | 0o600, dir_fd=folders[0])
        with pytest.raises(RealCallBlocked, match="make the special file"):
            make("there", stat.S_IFIFO | 0o600, dir_fd=folders[1])
    finally:
        for folder in folders:
            os.close(folder)
    assert (os.listdir(inside), os.listdir(outside)) == (["here"], [])


def test_only_bytecode_may_lie_where_bytecode_lies(guard, tmp_path: Path) -> None:
    guard()
    (tmp_path / "__pycache__").mkdir()
    for name in ("agent.cpython-311.pyc", "agent.cpython-311.pyc.139912"):
        (tmp_path / "__pycache__" / name).write_text("x")
    for name in ("agent.pyc.txt", "orders.pycsv", "agent.pyc.139912.db"):
        with pytest.raises(RealCallBlocked):
            (tmp_path / "__pycache__" / name).write_text("x")


def test_the_systems_log_is_not_written_to(guard) -> None:
    syslog = pytest.importorskip("syslog")
    guard()
    with pytest.raises(RealCallBlocked, match=r'allow_paths = \["/dev/log"\]'):
        syslog.syslog("told from a dream")


def test_reading_is_free(guard, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    sqlite3.connect(tmp_path / "real.db").close()
    seen = guard()
    assert (tmp_path / "data").read_text() == "x"
    sqlite3.connect(f"file:{tmp_path}/real.db?mode=ro", uri=True).close()
    sqlite3.connect(":memory:").close()
    list(tmp_path.iterdir())
    assert seen == []


def test_folders_that_are_there_may_be_asked_for_again(guard, tmp_path: Path) -> None:
    seen = guard()
    tmp_path.mkdir(exist_ok=True)
    assert seen == []


def test_an_allowed_program_runs_by_its_name_and_by_its_path(guard) -> None:
    path = shutil.which("true")
    assert path is not None
    guard(commands=("true",))
    subprocess.run(["true"], check=True)
    subprocess.run([path], check=True)
    with pytest.raises(RealCallBlocked):
        subprocess.run(["false"], check=False)


def test_a_program_elsewhere_with_an_allowed_name_is_refused(guard, tmp_path: Path) -> None:
    guard(commands=("true",))
    with pytest.raises(RealCallBlocked):
        subprocess.run([tmp_path / "true"], check=False)


def test_ordinary_work_does_not_trip(guard, caplog: pytest.LogCaptureFixture) -> None:
    seen = guard()
    logging.getLogger("agent").warning("to stderr")
    print("to stdout", file=sys.stderr)
    asyncio.run(asyncio.to_thread(lambda: None))
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda number: number, range(9))) == 36
    left, right = socket.socketpair()
    left.send(b"x")
    left.close(), right.close()
    Path(os.devnull).write_text("x")
    os.kill(os.getpid(), 0)
    assert seen == []


def test_a_trip_says_what_where_and_how_to_allow_it_in_one_line(guard, tmp_path: Path) -> None:
    target = tmp_path / "ledger.csv"
    seen = guard(owner=Session(CallRouter(Mode.DREAM)))
    with pytest.raises(RealCallBlocked) as refused:
        target.write_text("x")
    line = test_a_trip_says_what_where_and_how_to_allow_it_in_one_line.__code__.co_firstlineno + 4
    where = f"test_egress.py:{line} in test_a_trip_says_what_where_and_how_to_allow_it_in_one_line"
    assert str(refused.value) == (
        f"refused to write {target}: nothing outside is touched in a dream ({where}); "
        f'add to dreamgym.toml: [functions."{__name__}:{where.split()[-1]}"] effect = "write" '
        "(a dream answers its calls from what was recorded, and it does not run); or "
        f'[guard] allow_paths = ["{target}"] (it is really touched, in every dream)'
    )
    assert seen == egress.trips()
    assert seen == [Trip("open", str(target), "MainThread", str(refused.value))]


def test_a_name_from_the_agent_cannot_drive_the_terminal(guard, tmp_path: Path) -> None:
    guard()
    with pytest.raises(RealCallBlocked) as refused:
        (tmp_path / "a\x1b[2Jb\nc").write_text("x")
    assert str(refused.value).isprintable()


def test_a_trip_in_another_thread_is_reported_though_the_thread_swallows_it(guard) -> None:
    seen = guard()

    def swallow() -> None:
        with contextlib.suppress(BaseException):
            os.system("true")

    thread = threading.Thread(target=swallow, name="worker-7")
    thread.start()
    thread.join()
    assert [(trip.target, trip.thread) for trip in seen] == [("/bin/sh", "worker-7")]


def test_a_report_that_fails_still_refuses(guard, tmp_path: Path) -> None:
    def broken(trip: Trip) -> None:
        raise ValueError("disk full")

    egress.arm(Allowance(), broken)
    with pytest.raises(RealCallBlocked):
        (tmp_path / "file").write_text("x")


def test_the_report_may_write_without_tripping_again(guard, tmp_path: Path) -> None:
    log = tmp_path / "trips.log"
    egress.arm(Allowance(), lambda trip: log.write_text(trip.target) and None)
    with pytest.raises(RealCallBlocked):
        (tmp_path / "file").write_text("x")
    assert log.read_text() == str(tmp_path / "file")
    assert len(egress.trips()) == 1


def test_exempt_code_passes_and_the_guard_stands_again_after_it(guard, tmp_path: Path) -> None:
    guard()
    with egress.exempt():
        (tmp_path / "journal").write_text("x")
    with pytest.raises(RealCallBlocked):
        (tmp_path / "journal").write_text("y")


def test_a_thread_that_exempt_code_starts_is_not_exempt(guard, tmp_path: Path) -> None:
    seen = guard()

    def act() -> None:
        with contextlib.suppress(RealCallBlocked):
            os.system("true")

    with egress.exempt():
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
    assert [trip.target for trip in seen] == ["/bin/sh"]


def test_disarmed_everything_passes(guard, tmp_path: Path, server: int) -> None:
    guard()
    assert egress.armed()
    egress.disarm()
    egress.disarm()
    assert not egress.armed()
    (tmp_path / "file").write_text("x")
    with socket.create_connection(("127.0.0.1", server)) as client:
        assert client.send(b"x") == 1
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert egress.trips() == []


def test_a_second_dream_in_the_same_process_is_refused(guard) -> None:
    guard()
    with pytest.raises(UserError, match="already runs in this process"):
        egress.arm(Allowance(), lambda trip: None)


@each_row("entry", ["http://api.example", "user@host", "host:", "host:https", "", "*.example"])
def test_an_entry_that_is_no_host_is_named(entry: str) -> None:
    with pytest.raises(UserError, match=r"\[guard\] allow_hosts: "):
        egress.arm(Allowance(hosts=frozenset({entry})), lambda trip: None)
    assert not egress.armed()


@pytest.mark.parametrize("entry", ["::1", "[::1]", "[::1]:{port}"])
def test_ipv6_addresses_are_understood_in_every_spelling(guard, entry: str) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as absent:
        pytest.skip(f"this machine has no IPv6 loopback: {absent}")
    with listener:
        port = listener.getsockname()[1]
        guard(hosts=(entry.format(port=port),))
        connect("::1", port)


async def test_the_standard_loop_is_accepted() -> None:
    egress.refuse_uvloop()


def test_a_uvloop_loop_is_refused() -> None:
    uvloop = pytest.importorskip("uvloop", reason="CI installs it")

    async def ask() -> None:
        egress.refuse_uvloop()

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(UserError, match="uvloop"),
    ):
        runner.run(ask())


@pytest.mark.slow
def test_importing_and_running_an_agent_trips_nothing(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    done = subprocess.run(
        [sys.executable, "-I", script, tmp_path / "scratch", str(own_port())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


AGENT = """
import sys, tempfile
from pathlib import Path
from typing import Any
from dreamgym_kit.guard import egress
Path(sys.argv[1]).mkdir()
tempfile.tempdir = sys.argv[1]  # as a run has it: libraries ask for it while they are imported
nobody = f"127.0.0.1:{sys.argv[2]}"
allowed = egress.Allowance(frozenset({nobody}), (Path(sys.argv[1]),))
egress.arm(allowed, lambda trip: print(trip.message))
import asyncio, contextlib, ctypes, importlib, logging, multiprocessing, platform, sqlite3, ssl, uuid
for optional in ("numpy", "torch", "anthropic", "grpc", "psycopg"):
    with contextlib.suppress(ImportError):
        importlib.import_module(optional)
import openai, httpx
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
logging.basicConfig()
logging.warning("to stderr")
uuid.uuid1(), uuid.uuid4(), platform.platform(), multiprocessing.Lock()
with contextlib.suppress(openai.APIConnectionError):  # nobody listens there, but it may be asked
    ChatOpenAI(model="m", api_key="none", base_url=f"http://{nobody}", max_retries=0).invoke("hi")
model = FakeListChatModel(responses=["hello"])
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_edge(START, "model")
compiled = graph.compile()
compiled.invoke({"messages": [("user", "hi")]})
asyncio.run(compiled.ainvoke({"messages": [("user", "hi")]}))
print("done" if not egress.trips() else "tripped")
egress.disarm()
"""


def _subinterpreter(file: Path) -> None:
    interpreters = pytest.importorskip("_xxsubinterpreters")  # `_interpreters` from Python 3.13 on
    interpreters.run_string(interpreters.create(), f"open({str(file)!r}, 'w').write('x')")


def _subinterpreter_for_tests(file: Path) -> None:
    tests = pytest.importorskip("_testcapi")
    egress.announce("_testcapi")  # as the gate does where it is loaded
    tests.run_in_subinterp(f"open({str(file)!r}, 'w').write('x')")


def _program_of_memory(file: Path) -> None:
    descriptor = os.memfd_create("program")
    os.write(descriptor, b"#!/bin/sh\ntouch " + bytes(file))
    os.execve(descriptor, ["program"], {})


def _spawned(file: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=os.mkdir, args=(str(file),))
    process.start()
    process.join()


WAYS_OUT = {
    "a subinterpreter": _subinterpreter,
    "a subinterpreter, by Python's own tests": _subinterpreter_for_tests,
    "a program in memory": _program_of_memory,
    "multiprocessing": _spawned,
    "os.posix_spawn": lambda file: os.posix_spawn("/bin/touch", ["touch", str(file)], {}),
    "a raw system call": lambda file: ctypes.CDLL(None).syscall(83, bytes(file), 0o755),
    "another C library": lambda file: ctypes.CDLL("libc.so.6").mkdir(bytes(file), 0o755),
    "the interpreter's own C functions": lambda file: ctypes.pythonapi.PyRun_SimpleString(
        f"open({str(file)!r}, 'w')".encode()
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="programs in memory and system calls by number")
@each_row("way", WAYS_OUT.values(), ids=WAYS_OUT)
def test_a_way_out_of_the_interpreter_is_refused(guard, tmp_path: Path, way: Callable[[Path], Any]) -> None:
    seen = guard()
    with contextlib.suppress(Exception, RealCallBlocked):  # what becomes of the refusal is up to the C code
        way(tmp_path / "mark")
    egress.disarm()
    assert len(seen) == 1
    assert not (tmp_path / "mark").exists()
