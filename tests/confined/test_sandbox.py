"""The kernel sandbox: what gets out of it, what is told, and which one stands where."""

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confined.canary import Canary

from dreamgym_kit.errors import UserError
from dreamgym_kit.sandbox import confining
from dreamgym_kit.sandbox.broker import HostDoor, _Joined
from dreamgym_kit.sandbox.confining import LANDLOCK, LANDLOCK_GAPS, NAMESPACES, NONE, Confinement

KIT = str(Path(sys.executable).with_name("dreamgym-kit"))
REFUSED = [sys.executable, str(Path(__file__).with_name("no_namespaces.py"))]
SAFETY = Path(__file__).parents[2] / "docs" / "safety.md"
WAYS = {NAMESPACES: [], LANDLOCK: REFUSED}
KNOWN_OF_LANDLOCK = {
    *("change_mode", "change_owner", "change_times", "set_attribute"),
    *("shared_memory", "system_v_memory"),
}
AGENT = '''
import readline  # writes by the C library, which tells Python nothing

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def look(what: str) -> str:
    """Look."""
    return what


def node(state):
    try:
        readline.write_history_file("{file}")
    except OSError:
        pass
    return {{"messages": [AIMessage("done")]}}


builder = StateGraph(MessagesState)
builder.add_node("node", node)
builder.add_node("tools", ToolNode([look]))
builder.add_edge(START, "node")
graph = builder.compile()
'''


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """A kind of sandbox, and the command line below which it is the best one."""
    best, wanted = confining.available(), request.param
    if best.kind != NAMESPACES and wanted != best.kind:
        pytest.skip(f"this machine has no {wanted} sandbox: {best}")
    return wanted, WAYS[wanted]


def kit(
    folder: Path, *words: str, below: Sequence[str] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(
        [*below, KIT, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_nothing_gets_out_but_what_the_documentation_names(
    way: tuple[str, list[str]], tmp_path: Path
) -> None:
    kind, below = way
    (project := tmp_path / "project").mkdir()
    with Canary(tmp_path / "outside") as canary:
        outcome = canary.run([*below, KIT, "sandbox", "--"], project)
    held = set(outcome.tried) - set(outcome.escaped)
    assert len(outcome.tried) >= 40, outcome.errors
    assert set(outcome.escaped) <= (KNOWN_OF_LANDLOCK if kind == LANDLOCK else set())
    assert len(outcome.told) >= 0.8 * len(held), sorted(held - set(outcome.told))


def test_what_gets_out_is_seen(tmp_path: Path) -> None:
    """Without a sandbox, and only what harms nothing but the canary."""
    only = ("tcp", "tcp_loopback", "udp", "unix_socket", "abstract_socket", "overwrite", "write_new")
    only += (
        "unlink",
        "datagram_pair",
        "rename",
        "hard_link",
        "change_mode",
        "change_times",
        "set_attribute",
        "shared_memory",
    )
    with Canary(tmp_path / "outside") as canary:
        outcome = canary.run([], tmp_path, only=(*only, "signal_victim"))
    assert set(outcome.escaped) == {*only, "signal_victim"}, outcome.errors


def _others_can_enter(folder: Path) -> bool:
    return all(one.stat().st_mode & 0o001 for one in [folder, *folder.parents])


@pytest.mark.slow
def test_an_ordinary_user_gets_the_namespace_sandbox_too(request: pytest.FixtureRequest) -> None:
    python = shutil.which("python3", path="/usr/bin")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if os.getuid() != 0 or python is None or shutil.which("setpriv") is None:
        pytest.skip("to become another user: root, setpriv and a Python in /usr/bin")
    said = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout
    if f" {version}." not in said or confining.available().kind != NAMESPACES:
        pytest.skip(f"/usr/bin has {said.strip()}, here runs {version}; or {confining.available()}")
    paths = [
        str(Path(confining.__file__).parents[2]),
        *(path for path in sys.path if "site-packages" in path),
    ]
    closed = [path for path in paths if not _others_can_enter(Path(path))]
    if closed:
        pytest.skip(f"another user cannot read {closed[0]}")
    tmp_path = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    request.addfinalizer(lambda: shutil.rmtree(tmp_path))
    tmp_path.chmod(0o777)
    code = "import socket; socket.create_connection(('192.0.2.1', 9), 2)"
    done = subprocess.run(
        ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", python, "-P", "-m",
         "dreamgym_kit.cli.main", "sandbox", "--", python, "-c", code],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path),
             "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert "sandbox: namespace sandbox" in done.stderr, done.stderr
    assert "sandbox: blocked: connect to 192.0.2.1:9" in done.stderr


def test_what_the_kernel_stopped_fails_the_run_and_is_named(
    way: tuple[str, list[str]], tmp_path: Path
) -> None:
    kind, below = way
    (project := tmp_path / "project").mkdir()
    outside = tmp_path / "outside"
    (project / "agent.py").write_text(AGENT.format(file=outside))
    (project / "tasks.jsonl").write_text('{"id": "one", "input": "go"}\n')
    words = ("simulate", "agent:graph", "--tasks", "tasks.jsonl", "-o", "junit.xml")
    done = kit(project, *words, "--json", below=below)
    report = json.loads(done.stdout)
    assert (done.returncode, outside.exists()) == (1, False), done.stderr
    assert report["sandbox"]["kind"] == kind
    texts = [row["text"] for row in report["violations"]] + report["manifest"]["strays"]
    assert any(f"the sandbox refused to write {outside}" in text for text in texts), texts
    assert '<property name="guard" value="egress guard and ' in (project / "junit.xml").read_text()
    assert "Guard         egress guard and " in kit(project, "report").stdout
    without = kit(project, *words, "--set", "guard.sandbox=off")
    assert "egress guard only, no kernel sandbox: switched off" in " ".join(without.stdout.split())
    assert outside.exists()


def test_a_weaker_sandbox_than_required_runs_nothing(tmp_path: Path) -> None:
    done = kit(tmp_path, "sandbox", "--set", "guard.sandbox=require", "--", "touch", "made", below=REFUSED)
    assert done.returncode == 2
    assert done.stderr.startswith('error: settings: guard.sandbox = "require", but: ')
    assert "namespaces are refused" in done.stderr
    words = ("sandbox", "--set", "guard.sandbox=require", "--", "true")
    assert kit(tmp_path, *words, below=REFUSED, SANDBOX_OF_DREAMGYM_KIT="namespaces").returncode == 2
    (tmp_path / "tasks.jsonl").write_text('{"id": "one", "input": "go"}\n')
    ray = ("--set", "workers.backend=ray", "--set", "guard.sandbox=require")
    done = kit(tmp_path, "simulate", "agent:graph", "--tasks", "tasks.jsonl", *ray)
    assert (done.returncode, "a Ray cluster runs outside of it" in done.stderr) == (2, True), done.stderr


STOPS_NOTHING = """
import contextlib, os, sys
os.makedirs("there", exist_ok=True)
for call in (lambda: os.unlink("gone"), lambda: os.rmdir("gone")):
    with contextlib.suppress(FileNotFoundError):
        call()
with contextlib.suppress(OSError):
    os.rename("gone", "new")
for name in ("/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/1", "/dev/urandom"):
    open(name, "r+b", 0).close()
if sys.argv[1:]:
    os.rename("there", "new")
"""


def test_a_call_that_fails_everywhere_or_changes_nothing_is_not_told(
    way: tuple[str, list[str]], tmp_path: Path
) -> None:
    _, below = way
    (tmp_path / "there").mkdir()
    command = ("sandbox", "--", sys.executable, "-c", STOPS_NOTHING)
    done = kit(tmp_path, *command, below=below)
    assert (done.returncode, "blocked" in done.stderr) == (0, False), done.stderr
    assert f"blocked: rename {tmp_path / 'new'} " in kit(tmp_path, *command, "really", below=below).stderr


def test_a_buffer_may_be_a_symbolic_link(way: tuple[str, list[str]], tmp_path: Path) -> None:
    _, below = way
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "b.db", tmp_path / "dreamgym.db"
    with closing(sqlite3.connect(real)) as buffer:
        buffer.executescript("pragma journal_mode = wal; create table t (x)")
    link.symlink_to(real)
    code = (
        "import sqlite3; print(sqlite3.connect('dreamgym.db').execute('select count(*) from t').fetchone())"
    )
    done = kit(tmp_path, "sandbox", "--", sys.executable, "-c", code, below=below)
    assert (done.stdout, "blocked" in done.stderr) == ("(0,)\n", False), done.stderr


def test_what_may_be_written_and_is_not_there_is_made_and_its_folder_stays_closed(
    way: tuple[str, list[str]], tmp_path: Path
) -> None:
    _, below = way
    code = "for name in ('agent.log', 'deep/new/x.txt', 'beside.py'): open(name, 'w')"
    words = ("--set", "guard.allow_paths=agent.log", "--write", "deep/new")
    done = kit(tmp_path, "sandbox", *words, "--", sys.executable, "-c", code, below=below)
    assert f"blocked: write {tmp_path / 'beside.py'} " in done.stderr
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert names == ["agent.log", "deep/new/x.txt"]
    done = kit(tmp_path, "sandbox", "--write", "/", "--", "true", below=below)
    assert (done.returncode, "all files would be writable" in done.stderr) == (2, True), done.stderr


EXCHANGE = """
import json, os, sys
from pathlib import Path
from dreamgym_kit.sandbox import confining
inside, outside = map(Path, sys.argv[1:])
target = inside / "out.json"
confining.enter(confining.Plan(writable=[inside], delivered=[target, inside / "sub" / "r.json"]))
print(confining.deliver(target, b"x"))
target.symlink_to(outside / "out.json")
(inside / "sub").symlink_to(outside)
for path in (target, inside / "sub" / "r.json"):
    asked = {"path": str(path), "size": 1, "append": path == target}
    confining._delivery.sendall(json.dumps(asked).encode() + b"\\nx")
    confining._delivery.recv(100)
"""


def test_the_broker_follows_no_link_that_was_put_in_its_way(
    way: tuple[str, list[str]], tmp_path: Path
) -> None:
    _, below = way
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "out.json").touch()
    command = [*below, sys.executable, "-c", EXCHANGE, str(inside), str(outside)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
    assert [(path.name, path.stat().st_size) for path in outside.iterdir()] == [("out.json", 0)]
    with pytest.raises(OSError, match="leads elsewhere"):
        confining._write(inside / "sub" / "r.json", b"x", append=False)


@contextmanager
def answering(greeting: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that greets, and keeps the first words of each client."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                with line:
                    heard.append(line.recv(200))
                    line.sendall(greeting)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], heard


ASK = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 5) as line:
            line.sendall(b"hello")
            print(place, line.recv(100).decode())
    except OSError:
        print(place, "refused")
"""


def test_an_allowed_host_is_reached_by_name_and_no_other(way: tuple[str, list[str]], tmp_path: Path) -> None:
    _, below = way
    with answering(b"one") as (allowed, _), answering(b"two") as (other, _):
        places = [f"localhost:{allowed}", f"localhost:{other}"]
        code = ("--", sys.executable, "-c", ASK, *places)
        done = kit(tmp_path, "sandbox", "--allow", places[0], *code, below=below)
    assert done.stdout.splitlines() == [f"{places[0]} one", f"{places[1]} refused"], done.stderr
    assert f":{other}" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(("to", "variable"), [("443", "https_proxy"), ("80", "http_proxy")])
def test_a_name_is_reached_through_the_proxy_of_the_environment(
    tmp_path: Path, to: str, variable: str
) -> None:
    if confining.available().kind != NAMESPACES:
        pytest.skip(f"this machine has no namespace sandbox: {confining.available()}")
    with answering(b"HTTP/1.1 200 ok\r\n\r\nfrom afar") as (port, heard):
        proxy = f"http://user:pass@127.0.0.1:{port}"
        place = f"api.model.test:{to}"
        code = ("--", sys.executable, "-c", ASK, place)
        done = kit(tmp_path, "sandbox", "--allow", "api.model.test", *code, **{variable: proxy})
    assert done.stdout == f"{place} from afar\n", done.stderr
    assert heard[0].startswith(f"CONNECT {place} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in heard[0]


def test_a_proxy_that_refuses_is_passed_by() -> None:
    async def greeting(place: HostDoor, proxy: str) -> bytes:
        reader, writer = await _Joined(place, proxy)._connected()
        writer.write(b"hello")
        said = await reader.read(100)
        writer.close()
        await writer.wait_closed()
        return said

    with answering(b"HTTP/1.1 403 no\r\n\r\n") as (proxy, heard), answering(b"here") as (port, _):
        place = HostDoor("127.0.0.1", port, "127.0.0.1")
        assert asyncio.run(greeting(place, f"127.0.0.1:{proxy}")) == b"here"
    assert heard


@pytest.mark.parametrize(("endpoint", "code"), [("localhost:4317", 0), ("http://h:notaport", 2)])
def test_an_endpoint_of_opentelemetry_is_a_host_and_a_port(tmp_path: Path, endpoint: str, code: int) -> None:
    done = kit(tmp_path, "sandbox", "--", "cat", "/etc/hosts", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert (done.returncode, "127.77." in done.stdout) == (code, False), done.stderr
    assert code == 0 or f"'{endpoint}': is no address" in done.stderr


def test_the_command_is_the_one_that_was_started(way: tuple[str, list[str]], tmp_path: Path) -> None:
    _, below = way
    code = "import os, sys, tempfile; tempfile.TemporaryFile(); print(os.getpid()); sys.exit(7)"
    done = subprocess.Popen(
        [*below, KIT, "sandbox", "--write", ".", "--", sys.executable, "-c", code],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    said, _ = done.communicate()
    assert (done.returncode, int(said)) == (7, done.pid)


def test_a_system_without_a_kernel_sandbox_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confining.sys, "platform", "darwin")
    best = confining.available()
    assert best == Confinement(NONE, "no kernel sandbox on this system")
    with monkeypatch.context() as without:
        without.setattr(confining.sys, "platform", "linux")
        without.setattr(confining.Path, "is_dir", lambda _: False)
        assert confining.available() == Confinement(NONE, "/proc is not there")
    confining.check("auto", best=best, where="settings")
    with pytest.raises(UserError, match="no kernel sandbox on this system") as refused:
        confining.check("require", best=best, where="settings")
    assert refused.value.exit_code == 2


def test_the_documentation_names_what_landlock_leaves_open() -> None:
    text = " ".join(SAFETY.read_text("utf-8").split())
    assert [gap for gap in LANDLOCK_GAPS.values() if gap not in text] == []
