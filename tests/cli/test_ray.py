"""`--engine ray`: the commands as they are, over a real cluster of their own."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = pytest.mark.ray
Begin = Callable[..., subprocess.Popen[str]]

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl", "-n", "10", "--set", "simulate.concurrency=4")
RAY = ("--set", "workers.backend=ray", "--set", "workers.count=2")
CANARY = "sk-canary-8d1f4c7a92b35e60d1f4c7a92b35"


@pytest.fixture
def begin(begin: Begin, tmp_path: Path) -> Iterator[Begin]:
    """Begin a command with a home and a secret; nothing that was given these may be left behind."""
    home, begun = tmp_path / "home", []
    home.mkdir()

    def begin_there(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        begun.append(begin(*arguments, HOME=str(home), OPENAI_API_KEY=CANARY, **variables))
        return begun[-1]

    yield begin_there
    wait_until(lambda: not any(_is_of(one, home) for one in psutil.process_iter()), "the cluster's end")
    assert list(home.iterdir()) == []
    sessions = [folder for one in begun for folder in Path("/tmp").glob(f"dg*/session_*_{one.pid}")]
    assert sessions == []  # of these clusters: others may run beside them


def _is_of(process: psutil.Process, home: Path) -> bool:
    try:
        return process.environ().get("HOME") == str(home)
    except psutil.Error:
        return False


def _finished(begun: subprocess.Popen[str]) -> tuple[str, str]:
    told, said = begun.communicate(timeout=600)
    assert begun.returncode in (0, 1), said  # whatever became of its tasks
    return told, said


def test_a_run_in_a_cluster_is_the_run_of_one_process(recorded: Path, begin: Begin) -> None:
    here, _ = _finished(begin("simulate", *FLAGS, "--json"))
    there, said = _finished(begin("simulate", *FLAGS, *RAY, "--json"))
    figures = [json.loads(out) for out in (here, there)]
    for one in figures:
        assert one["cost"].pop("seconds") > 0
        one.pop("manifest")
        one.pop("sandbox")  # a cluster is not confined
    assert figures[0] == figures[1]
    assert "20/20  0 passed, 20 failed" in said
    assert "open before the dream" not in said
    assert not (recorded / "REAL").exists()
    written = [file for file in recorded.rglob("*") if file.is_file()]
    assert [file for file in written if CANARY.encode() in file.read_bytes()] == []
    assert CANARY not in there + said


@pytest.mark.nightly
def test_ctrl_c_finishes_what_runs_in_the_cluster_and_it_goes_on_without_one(
    recorded: Path, begin: Begin
) -> None:
    running = begin("simulate", *FLAGS, *RAY, HELD="1")
    assert running.stderr is not None
    for line in running.stderr:
        if "/20  " in line:
            break
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: Ray's processes hear it, too
    assert any("stopping (SIGINT)" in line for line in running.stderr)
    (recorded / "GO").touch()  # only now: what runs can still be finished, and there is more to do
    said, errors = running.communicate(timeout=600)
    assert running.returncode == 130, errors
    assert " Stopped (SIGINT): " in said
    go_on = next(line for line in said.splitlines() if line.startswith(" Go on"))
    again = shlex.split(go_on.split(maxsplit=2)[2].split("   ")[0])
    said, _ = _finished(begin(*again[1:], "--set", "workers.backend=local", "--json"))
    assert json.loads(said)["counts"]["failed"] == 20


@pytest.mark.nightly
def test_recordings_of_real_tools_are_made_in_a_cluster_each_once(
    project: Path, begin: Begin, own_systems: Callable[[], None]
) -> None:
    own_systems()
    flags = ("agent:graph", "--tasks", "tasks.jsonl", "-n", "2", "--yes")
    _finished(begin("record", *flags, *RAY))
    assert (project / "REAL").read_text() == "x" * 8  # 2 tasks x 2 episodes x 2 refunds
    said, _ = _finished(begin("doctor", "agent:graph", "--tasks", "tasks.jsonl"))
    assert "12 calls in" in said
