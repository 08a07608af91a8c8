"""`--engine ray`: the commands as they are, over a real cluster of their own."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

FLAGS = ("agent:graph", "--tasks", "tasks.jsonl", "-n", "10", "--concurrency", "4")
RAY = ("--engine", "ray", "--workers", "2")
CANARY = "sk-canary-8d1f4c7a92b35e60d1f4c7a92b35"


@pytest.fixture
def variables(environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user with a home and a secret; nothing that was given it may be left behind."""
    home = tmp_path / "home"
    home.mkdir()
    folders = set(Path("/tmp").glob("dg*"))
    yield environment | {"HOME": str(home), "OPENAI_API_KEY": CANARY}
    assert _left(home, within_s=120) == []
    assert list(home.iterdir()) == []
    assert set(Path("/tmp").glob("dg*")) == folders


def _left(home: Path, within_s: float) -> list[psutil.Process]:
    until = time.monotonic() + within_s
    while (left := [one for one in psutil.process_iter() if _is_of(one, home)]) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def _is_of(process: psutil.Process, home: Path) -> bool:
    try:
        return process.environ().get("HOME") == str(home)
    except psutil.Error:
        return False


def _finished(command: list[str], folder: Path, variables: dict[str, str]) -> tuple[str, str]:
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_run_in_a_cluster_is_the_run_of_one_process(
    recorded: Path, variables: dict[str, str], command: str
) -> None:
    here, _ = _finished([command, "simulate", *FLAGS, "--json"], recorded, variables)
    there, said = _finished([command, "simulate", *FLAGS, *RAY, "--json"], recorded, variables)
    figures = [json.loads(out) for out in (here, there)]
    for one in figures:
        assert one["cost"].pop("seconds") > 0
        one.pop("manifest")
    assert figures[0] == figures[1]
    assert "20/20  0 success  20 failure" in said
    assert "not guarded" not in said
    assert not (recorded / "REAL").exists()
    written = [file for file in recorded.rglob("*") if file.is_file()]
    assert [file for file in written if CANARY.encode() in file.read_bytes()] == []
    assert CANARY not in there + said


def test_ctrl_c_finishes_what_runs_in_the_cluster_and_it_goes_on_without_one(
    recorded: Path, variables: dict[str, str], command: str
) -> None:
    running = subprocess.Popen(
        [command, "simulate", *FLAGS, *RAY],
        cwd=recorded,
        env=variables | {"HELD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
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
    said, _ = _finished([command, *again[1:], "--engine", "local", "--json"], recorded, variables)
    assert json.loads(said)["episodes"]["total"] == 20


def test_recordings_of_real_tools_are_made_in_a_cluster_each_once(
    project: Path, variables: dict[str, str], command: str
) -> None:
    flags = ("agent:graph", "--tasks", "tasks.jsonl", "-n", "2", "--yes")
    _finished([command, "record", *flags, *RAY], project, variables)
    assert (project / "REAL").read_text() == "x" * 8  # 2 tasks x 2 episodes x 2 refunds
    said, _ = _finished([command, "doctor", "agent:graph"], project, variables)
    assert "12 calls in" in said
