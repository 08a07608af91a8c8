"""X12: what shows a run to a browser listens to nobody, and what is served turns browsers away.

The bar is about dashboards and local servers: host and origin checks, a token, loopback. Pages are files: no
module of the package can serve, and no command that makes a page binds a port. What `serve` starts is vLLM
behind the kit's door; key and loopback are bar V2, and tests/served/test_serving.py asks a real one.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bars.test_v2_closed_door import ask, door
from each_row import each_row
from pages.runs import run_directory, small_run

import dreamgym_kit

SERVERS = {
    *("http.server", "socketserver", "wsgiref", "xmlrpc.server", "uvicorn", "starlette", "fastapi", "flask"),
    *("aiohttp.web", "tornado", "hypercorn", "websockets.server"),
}
LISTENING = {"bind", "listen", "start_server", "start_unix_server", "create_server", "serve_forever"}
AMBIGUOUS = {"bind", "listen"}  # others do so too: only where a module has sockets are these ports
# Looks for free ports, which are another program's to listen on: binds, on this machine alone, and lets go.
LOOKS_FOR_PORTS = {"adapters/stores/weaviate.py": {"bind"}}
# Doors of the kernel sandbox: opened in a network namespace that nobody but the confined run is in.
DOORS = {"sandbox/confining.py": {"create_server", "bind"}, "sandbox/broker.py": {"start_server"}}
_ROOTS = "|".join({name.partition(".")[0] for name in SERVERS})
_MAY_SERVE = re.compile(rf"\.(?:{'|'.join(LISTENING)})\b|\bimport\b.*\b(?:{_ROOTS})\b|\bfrom (?:{_ROOTS})\b")
WATCH = """
import sys
sys.addaudithook(lambda event, args: event == "socket.bind" and print("bound", args[1], file=sys.stderr))
{start}
"""


def serving(source: str) -> Iterator[str]:
    """What a module imports or calls that could listen."""
    if not _MAY_SERVE.search(source):  # most modules: reading them as code takes a while
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if _serves(one.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            yield from (name for name in names if _serves(name))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LISTENING
        ):
            yield node.func.attr


def _serves(module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in SERVERS)


def test_x12_no_module_of_the_kit_can_serve() -> None:
    root = Path(dreamgym_kit.__file__).parent
    walk = os.walk(root, followlinks=True)  # an editable install is made of links
    files = [Path(folder) / name for folder, _, names in walk for name in names if name.endswith(".py")]
    found = {str(path.relative_to(root)): set(serving(path.read_text("utf-8"))) for path in files}
    print(f"x12: {len(files)} modules, {sum(map(bool, found.values()))} that listen")
    assert len(files) > 200
    assert {name for name, what in found.items() if what - AMBIGUOUS} == DOORS.keys()
    listening = {name: what for name, what in found.items() if what and _has_socket(root / name)}
    assert listening == LOOKS_FOR_PORTS | DOORS


def _has_socket(path: Path) -> bool:
    return "import socket" in path.read_text("utf-8")


@each_row(
    "planted",
    [
        "import http.server",
        "from http import server",
        "import uvicorn.main",
        "import asyncio\nasyncio.start_server(None, '127.0.0.1', 8000)",
        "import socket\nsocket.socket().listen()",
    ],
)
def test_x12_a_planted_server_is_found_out(planted: str) -> None:
    assert list(serving(planted))


@each_row("what", ["report", "compare"])
def test_x12_a_page_is_made_without_a_port(tmp_path: Path, what: str) -> None:
    run = str(run_directory(tmp_path, small_run()))
    page = str(tmp_path / "x.html")
    arguments = ["export", run, "-o", page] if what == "report" else ["compare", run, run, "-o", page]
    start = f"sys.argv = ['dreamgym-kit', *{arguments!r}]\nfrom dreamgym_kit.cli.main import main\nmain()"
    done = _watched(start)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "x.html").is_file()
    bound = _watched("import socket\nsocket.socket().bind(('127.0.0.1', 0))")
    assert bound.stderr.startswith("bound ('127.0.0.1', 0)")


def _watched(start: str) -> subprocess.CompletedProcess[str]:
    code = WATCH.format(start=start)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


HERE = ("127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST", "localhost.:8000")
REBOUND = (
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "",
    "[::2]",
)


def test_x12_a_name_that_was_rebound_to_this_machine_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    app = door(monkeypatch, DREAMGYM_HERE_ONLY="1")
    assert [ask(app, "/metrics", "GET", host=one) for one in HERE] == [200] * len(HERE)
    for path in ("/metrics", "/health"):
        assert [ask(app, path, "GET", host=one) for one in REBOUND] == [403] * len(REBOUND)


@each_row("origin", ["http://evil.example", "http://127.0.0.1:8000", "null", ""])
def test_x12_what_a_page_asks_is_turned_away_even_with_the_key(
    monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    app = door(monkeypatch, VLLM_API_KEY="k", DREAMGYM_HERE_ONLY="1")
    for method in ("GET", "POST", "OPTIONS"):
        assert ask(app, "/collective_rpc", method, origin=origin, authorization="Bearer k") == 403
