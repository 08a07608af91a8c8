"""A real training with a curriculum, killed with kill -9 and resumed: the same tasks, the same weights."""

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from training.real_parts import environment, project, run

from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.types import Answer, Call, Effect, Transition

ASKED = (
    "train",
    "--steps",
    "4",
    "--set",
    "curriculum.enabled=true",
    "--set",
    "train.staleness=1",
    "--set",
    "train.eval_every=0",
)


LIKE = """
def like(pattern, count, seed):
    from dataclasses import replace
    fruit = ["apples", "pears", "plums", "figs", "limes", "dates", "kiwis"][seed % 7]
    said = {"role": "user", "content": f"Where are the {fruit} that I ordered?"}
    return [replace(pattern.task, input={"messages": [said]})]
"""
MAKES = '[curriculum]\ntask_generator = "agent:like"\nevery = 1\nseeds = 1\nsynthetic = 0.4\n'


def project_that_makes_tasks(folder: Path) -> Path:
    """The agent of `real_parts` with something recorded of its world, and rules to make tasks by."""
    project(folder)
    (folder / "agent.py").write_text((folder / "agent.py").read_text() + LIKE)
    (folder / "dreamgym.toml").write_text((folder / "dreamgym.toml").read_text() + MAKES)
    store = SqliteStore(folder / "dreamgym.db")
    store.put([Transition(Call("get_order", {"order_id": "O1"}), Answer("sent"), Effect.READ, "e", 1)])
    store.close()
    return folder


def weights(run_: Path) -> str:
    (last,) = (run_ / "weights").iterdir()
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()


DIES = """
import os, sys

place = sys.argv.pop(1)

def hook(event, args):
    if event == "open" and place in str(args[0]):
        os.kill(os.getpid(), 9)

sys.addaudithook(hook)
from dreamgym_kit.cli.main import main
main()
"""


def killed(folder: Path, place: str) -> Path:
    """Begin a training that kills itself where it first opens a file of that place."""
    done = subprocess.run(
        [sys.executable, "-c", DIES, place, *ASKED, "--set", "runs=killed"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (found,) = (folder / "killed").iterdir()
    return found


@pytest.mark.slow
@pytest.mark.nightly
def test_killed_and_resumed_it_chooses_and_learns_as_the_unbroken_one(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project_that_makes_tasks(tmp_path)
    whole = run(folder, *ASKED, "--set", "runs=whole")
    assert whole.returncode == 0, whole.stderr
    (unbroken,) = (folder / "whole").iterdir()
    broken = killed(folder, "/rollouts/step-000003-")
    done = run(folder, *ASKED, "--resume", str(broken))
    assert done.returncode == 0, done.stderr
    assert (broken / "curriculum.jsonl").read_bytes() == (unbroken / "curriculum.jsonl").read_bytes()
    assert weights(broken) == weights(unbroken)
    assert "~" in (unbroken / "curriculum.jsonl").read_text()
    assert "made tasks" in done.stdout
