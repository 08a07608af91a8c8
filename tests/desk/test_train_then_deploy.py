"""The recipe in small: from recording to the weights that are to be served."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.adapters.langgraph.evaluating import evaluation_between
from dreamgym_kit.deployment.digests import model_digest
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.recipes.nano import build
from dreamgym_kit.recipes.train_then_deploy import QUICK, main
from dreamgym_kit.vocabulary import Split

pytest.importorskip("trl", reason="the extra train is not installed")


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shipped model; an untrained one that copies where none is shipped."""
    from dreamgym_kit.recipes.nano.start import save_untrained

    if not (build.WEIGHTS / "model.safetensors").exists():
        save_untrained(tmp_path / "policy")
        monkeypatch.setattr(build, "WEIGHTS", tmp_path / "policy")
    return build.WEIGHTS


TINY = replace(
    QUICK,
    worlds=12,
    recorded=1,
    steps=1,
    per_step=3,
    held_out=5,
    tries=1,
    gate=4,
    gate_low=0.0,
    real_calls=80,
)
CHILD = """
import sys
from dataclasses import replace
from pathlib import Path
from dreamgym_kit.recipes.train_then_deploy import Plan, train_then_deploy
from dreamgym_kit.recipes.nano import build
build.WEIGHTS = Path(sys.argv[2])
train_then_deploy(Path(sys.argv[1]), eval(sys.argv[3]), tell=lambda line: print(line, flush=True))
"""


def begun(out: Path, weights: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, str(out), str(weights), repr(TINY)]
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done_phases(out: Path) -> list[str]:
    try:
        return list(json.loads((out / "phases.json").read_text())["done"])
    except FileNotFoundError:
        return []


def come_to(out: Path) -> dict[str, object]:
    """All that has to be the same: the weights of each phase, each task's outcome, the decision."""
    facts = json.loads((out / "phases.json").read_text())["done"]
    history = [json.loads(line) for line in (out / "deployed" / "history.jsonl").read_text().splitlines()]
    tasks = drawn_tasks(TINY.held_out, split=Split.HELD_OUT, seed=TINY.seed)
    return {
        **{name: model_digest(Path(facts[name]["weights"])) for name in ("dream", "real")},
        **{
            name: evaluation_between(out / name, None, tasks).b.outcomes
            for name in ("before", "dreamed", "after")
        },
        "deeds": [(event["deed"], event["weights"], event["reasons"]) for event in history],
        "recordings": facts["record"]["recordings"],
        "real_calls": facts["real"]["real_calls"] > 0,
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_way_and_the_same_when_it_is_killed_on_the_way(weights: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    unbroken = begun(whole, weights)
    said = unbroken.communicate()[0]
    assert unbroken.returncode == 0, said
    assert [line.split()[0] for line in said.splitlines() if line[0] != " "] == [
        str(number) for number in range(1, 11)
    ]
    assert "0 real calls, " in next(line for line in said.splitlines() if line.startswith("5"))
    for before, wait_s in (("", 1.5), ("before", 2.5), ("dreamed", 2.0)):  # in: record, dream, real
        child = begun(killed, weights)
        while before and before not in done_phases(killed):
            assert child.poll() is None, child.communicate()[0]
            time.sleep(0.02)
        time.sleep(wait_s)
        child.kill()
        child.communicate()
    last = begun(killed, weights)
    said = last.communicate()[0]
    assert last.returncode == 0, said
    assert "(done before)" in said
    assert come_to(killed) == come_to(whole)
    page = (whole / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "It is not in use: the start stays." in page or "It is in use." in page
    assert (
        (whole / "report.md").read_text().startswith("# The support desk: from recordings to weights in use")
    )
    assert "No difference can be seen" in page or "points more" in page or "points less" in page


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert main([str(tmp_path), "--quick"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: is there already; name another folder")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_help_needs_no_training_packages() -> None:
    code = (
        "import sys, runpy; sys.modules['torch'] = sys.modules['trl'] = None; sys.argv = ['x', '--help']; "
        "runpy.run_module('dreamgym_kit.recipes.train_then_deploy', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
