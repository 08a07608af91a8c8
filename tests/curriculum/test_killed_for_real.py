"""A real training with a curriculum, killed with kill -9 and resumed: the same tasks, the same weights."""

import hashlib
import signal
import subprocess
import time
from pathlib import Path

import pytest
from training.real_parts import command, environment, project, run

ASKED = ("train", "--plain", "--steps", "4", "--curriculum", "--overlap", "--eval-every", "0")


def weights(run_: Path) -> str:
    (last,) = (run_ / "weights").iterdir()
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()


def killed(folder: Path, there: str) -> Path:
    """Begin a training and kill it once a path that matches is there."""
    process = subprocess.Popen(
        command(folder, *ASKED, "--runs", "killed"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        if any((folder / "killed").glob(f"*/{there}")):
            break
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    (found,) = (folder / "killed").iterdir()
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_and_resumed_it_chooses_and_learns_as_the_unbroken_one(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    whole = run(folder, *ASKED, "--runs", "whole")
    assert whole.returncode == 0, whole.stderr
    (unbroken,) = (folder / "whole").iterdir()
    broken = killed(folder, "rollouts/step-000003-*")
    done = run(folder, *ASKED, "--resume", str(broken))
    assert done.returncode == 0, done.stderr
    assert (broken / "curriculum.jsonl").read_bytes() == (unbroken / "curriculum.jsonl").read_bytes()
    assert weights(broken) == weights(unbroken)
