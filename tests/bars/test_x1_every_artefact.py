"""Bar X1, the long way: training, the way to real tools, a deployment and a server, with canaries in them.

Whatever they leave is searched, compressed or not, and so is the command line of every process that they
start. `test_x1_secrets` has the short way, and the words on the screen.
"""

import gzip
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from bars.leak_search import leaking_files, leaks, spellings
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from training.real_parts import OPEN_GATE, SETTINGS, project
from waiting import wait_until

IN_TASK = 'canary-task/7Qx9+Wz="k4T~'
POLICY_KEY = "canarypolicykeyofaplainname"  # neither its variable nor its form gives it away
FILE_KEY = "canarykeythatliesinafile"
SERVER_KEY = "canary-server-5Lw1Xc7y"
SECRETS = [IN_TASK, POLICY_KEY, FILE_KEY, SERVER_KEY]
INPUTS = ("tasks.jsonl", "key.txt")
VLLM = """#!{python}
import os, pathlib, sys, time
print("serving", sys.argv[1:], sorted(os.environ), flush=True)
for _ in range(20_000):  # until its command line has been seen
    if pathlib.Path({seen!r}).exists():
        break
    time.sleep(0.05)
"""


class Lines:
    """The command lines of the processes that run below this one; makes a file once vLLM's is among them."""

    def __init__(self, told: Path) -> None:
        self.seen: set[str] = set()
        self._told = told
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        here = psutil.Process()
        while not self._stop.wait(0.05):  # expires: between two looks
            for child in here.children(recursive=True):
                with suppress(psutil.Error):
                    self.seen.add("\0".join(child.cmdline()))
            if any(map(of_vllm, self.seen)):
                self._told.touch()

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def of_vllm(line: str) -> bool:
    """Not the command that names it, whose place it takes."""
    return "vllm-double" in line and "--vllm" not in line


class Person:
    """Types commands in a folder; keeps what was said and which processes there were."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""
        self.lines = Lines(folder / "seen")

    def types(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DREAMGYM_")}
        environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "SHOP_API_KEY": IN_TASK}
        environ |= {"PLAIN_NAME": POLICY_KEY, "VLLM_API_KEY": SERVER_KEY}
        command = [str(Path(sys.executable).with_name("dreamgym-kit")), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        self.said += done.stdout + done.stderr
        assert done.returncode in codes, (arguments, done.stderr)
        return done.stdout


def directory_of(told: str) -> str:
    return str(json.loads(told)["directory"])


@pytest.fixture(scope="module")
def gone(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """The whole way, once for all tests here."""
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path_factory.mktemp("way"))
    rows = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    told = [{**row, "input": f"my key is {IN_TASK}, {row['input']}"} for row in rows]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    (folder / "dreamgym.toml").write_text(SETTINGS + OPEN_GATE)
    (folder / "vllm-double").write_text(VLLM.format(python=sys.executable, seen=str(folder / "seen")))
    (folder / "vllm-double").chmod(0o755)
    person = Person(folder)
    with person.lines.watched():
        trained = directory_of(person.types("train", "--json", "--steps", "1"))
        person.types("s2r", "--yes", "--json", "--steps", "1")
        person.types("view", trained, "--no-browser")
        person.types("simulate", "--json", "--set", "workers.count=2", codes=(0, 1, 3))
        person.types("export", "-o", "otel:spans.jsonl")
        person.types("view", "--no-browser")
        person.types("deploy", "promote", trained, "--force", f"since {IN_TASK} said so", "--name", "desk")
        (folder / "serve.log").write_text(person.types("serve", "--vllm", "./vllm-double"))
    return person


KINDS = (
    *("manifest.json", "episodes.jsonl", "events.jsonl", "report.json", "report.html", "audit.jsonl"),
    *("steps.jsonl", "learned_from.json", "optimizer.pt", "rng_state.pth", "trainer_state.json"),
    *("dreamgym.db", "spans.jsonl", "history.jsonl", "README.md", "serve.log"),
)


@pytest.mark.slow
@pytest.mark.nightly
def test_no_artefact_of_the_whole_way_holds_a_secret(gone: Person) -> None:
    names = {path.name for path in gone.folder.rglob("*")}
    assert set(KINDS) <= names
    assert leaking_files(gone.folder, SECRETS, inputs=INPUTS) == []
    assert leaks(gone.said.encode(), SECRETS) == []


@pytest.mark.slow
def test_no_process_of_the_whole_way_is_started_with_a_secret(gone: Person) -> None:
    # what the person typed is theirs: `--force WHY` held one, and its own process has it on its line
    ours = {line for line in gone.lines.seen if "--force" not in line}
    assert any(map(of_vllm, ours))
    assert leaks("\n".join(ours).encode(), SECRETS) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_leak_in_any_artefact_of_the_way_is_found(gone: Person, tmp_path: Path, kind: str) -> None:
    (tmp_path / kind).write_bytes(next(gone.folder.rglob(kind)).read_bytes())
    assert leaking_files(tmp_path, SECRETS, inputs=INPUTS) == []
    with (tmp_path / kind).open("ab") as file:
        file.write(spellings(IN_TASK)["base64 1"])
    assert leaking_files(tmp_path, SECRETS, inputs=INPUTS) != []


def test_a_leak_in_what_is_compressed_is_found(tmp_path: Path) -> None:
    text = b"before " + IN_TASK.encode() + b" after" * 100
    with zipfile.ZipFile(tmp_path / "weights.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", text)
    (tmp_path / "spans.json.gz").write_bytes(gzip.compress(text))
    found = leaking_files(tmp_path, SECRETS, inputs=())
    assert {one.partition(":")[0] for one in found} == {"weights.pt", "spans.json.gz"}


def test_a_secret_on_a_command_line_is_found(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "seen")
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", IN_TASK]
    with lines.watched(), subprocess.Popen(command, stdin=subprocess.PIPE):
        wait_until(lambda: leaks("\n".join(list(lines.seen)).encode(), SECRETS), "the command line")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ('[experience]\nkey_env = "PLAIN_NAME"\n', POLICY_KEY),
        ('[replay]\nembedder_key_file = "key.txt"\n', FILE_KEY),
    ],
    ids=["a variable", "a file"],
)
def test_what_settings_name_as_a_key_is_kept_nowhere(tmp_path: Path, said: str, secret: str) -> None:
    folder = project(tmp_path)
    (folder / "key.txt").write_text(f"{FILE_KEY}\n")
    (folder / "tasks.jsonl").write_text(json.dumps({"id": "a", "input": f"I was given {secret}."}) + "\n")
    head, _, tail = SETTINGS.partition("[policy]")
    (folder / "dreamgym.toml").write_text(head + tail[tail.index("[train]") :] + said)
    person = Person(folder)
    person.types("simulate", "--json", "--set", "workers.count=2", codes=(0, 1, 3))
    person.types("view", "--no-browser")
    assert leaking_files(folder, SECRETS, inputs=INPUTS) == []
    assert leaks(person.said.encode(), SECRETS) == []
    journal = "".join(path.read_text() for path in folder.glob("runs/*/episodes.jsonl"))
    assert "I was given <masked:" in journal


@pytest.mark.slow
def test_a_server_that_repeats_the_key_of_a_file_leaves_it_nowhere(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "key.txt").write_text(f"{FILE_KEY}\n")
    with serving(FaultyEndpointDouble()) as server:
        server.refuse = lambda body: f"bad key {FILE_KEY}, as {FILE_KEY!r}"
        head, _, tail = SETTINGS.partition("[policy]")
        asked = (
            f'[experience]\nurls = ["{server.url}"]\nmodel = "m"\nmax_attempts = 1\nkey_file = "key.txt"\n'
        )
        (folder / "dreamgym.toml").write_text(head + tail[tail.index("[train]") :] + asked)
        person = Person(folder)
        person.types("simulate", "--json", codes=(2,))
        assert f"bearer {FILE_KEY}".encode() in server.heads[0].lower()
    assert "cannot be asked" in person.said
    assert leaking_files(folder, SECRETS, inputs=INPUTS) == []
    assert leaks(person.said.encode(), SECRETS) == []
