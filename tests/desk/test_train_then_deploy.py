"""The recipe in small: from recording to the weights that are to be served."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.adapters.langgraph.run.evaluation import evaluation_between
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.recipes.nano import build
from dreamgym_kit.recipes.train_then_deploy import QUICK, main
from dreamgym_kit.types import Split

pytest.importorskip("trl", reason="the extra train is not installed")


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shipped model; an untrained one that copies where none is shipped."""
    from nano_double import save_untrained

    if not (build.WEIGHTS / "model.safetensors").exists():
        save_untrained(tmp_path / "policy")
        monkeypatch.setattr(build, "WEIGHTS", tmp_path / "policy")
    return build.WEIGHTS


TINY = replace(
    QUICK,
    shipped=False,
    environments=12,
    recorded=1,
    steps=1,
    per_step=3,
    held_out=5,
    tries=1,
    gate=4,
    gate_low=0.0,
    real_calls=80,
)
PHASES = ("record", "distil", "start", "before", "dream", "dreamed", "real", "after", "deploy")
LEGS = """
import json, os, shutil, sys
from pathlib import Path
from dreamgym_kit.adapters.langgraph.s2r import api  # once, before the legs part
from dreamgym_kit.adapters.langgraph.training import train
from dreamgym_kit.adapters.models import local
from dreamgym_kit.adapters.trainers import trainer
from dreamgym_kit.recipes import whole_report, whole_way
from dreamgym_kit.recipes.nano import build
from dreamgym_kit.recipes.nano.experience import build as experience
from dreamgym_kit.recipes.whole_way import Phases
from dreamgym_kit.recipes.train_then_deploy import WholeWayPlan, train_then_deploy

base, plan, legs = Path(sys.argv[1]), eval(sys.argv[3]), json.loads(sys.argv[4])
build.WEIGHTS = Path(sys.argv[2])
now = {"phase": "", "writes": 0}  # of this leg
counts = {}


def teaching_double(shipped):
    # Leaves file by file what teaching from nothing leaves in minutes: the model that the package has.
    def build(out, plan):
        out.mkdir()
        for path in sorted(path for path in shipped().iterdir() if path.is_file()):
            (out / path.name).write_bytes(path.read_bytes())
        return {"parameters": 1, "lessons": 1, "data": {"episodes": 1}}

    return build


def watched(run):
    def leg(self, name, *args, **options):
        now.update(phase=name, writes=0)
        try:
            return run(self, name, *args, **options)
        finally:
            counts[name] = now["writes"]

    return leg


def killing(out, phase, at):
    def hook(event, args):
        if event == "open" and str(args[0]).startswith(str(out)) and args[2] & (os.O_WRONLY | os.O_RDWR):
            now["writes"] += 1
            if now["phase"] == phase and now["writes"] == at:
                os.kill(os.getpid(), 9)
        written = event == "os.rename" and str(args[1]).endswith("phases.json")
        if written and (now["phase"], "end") == (phase, at):
            os.kill(os.getpid(), 9)

    return hook


Phases.run = watched(Phases.run)
shipped = experience.WEIGHTS
build.build, experience.build = teaching_double(lambda: build.WEIGHTS), teaching_double(lambda: shipped)
for name, phase, share in legs:
    out, log = base / name, base / f"{name}.log"
    known = json.loads((base / "counts.json").read_text()) if phase else {}
    at = "end" if share == "end" else max(1, int(known[phase] * share)) if phase else 0
    child = os.fork()
    if not child:
        with log.open("a") as told:
            sys.addaudithook(killing(out, phase, at))
            try:
                train_then_deploy(out, plan, tell=lambda line: print(line, file=told, flush=True))
                if not phase:
                    (base / "counts.json").write_text(json.dumps(counts))
            except BaseException as error:
                print(repr(error), file=told, flush=True)
                os._exit(1)
        os._exit(0)
    print(json.dumps([name, phase, share, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
"""


def gone(base: Path, weights: Path, legs: list[tuple[str, str, object]]) -> list[int]:
    """Go the way in legs, each a process of its own; how each ended."""
    command = [sys.executable, "-c", LEGS, str(base), str(weights), repr(TINY), json.dumps(legs)]
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)[-1] for line in done.stdout.splitlines()]


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
        "gate": facts["real"]["gate"],
    }


@pytest.mark.slow
@pytest.mark.nightly
def test_the_whole_way_and_the_same_when_it_is_killed_in_every_phase(weights: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert gone(tmp_path, weights, [("whole", "", 0)]) == [0], (tmp_path / "whole.log").read_text()
    said = (tmp_path / "whole.log").read_text()
    assert [line.split()[0] for line in said.splitlines() if line[0] != " "] == [
        str(number) for number in range(1, 11)
    ]
    assert "0 real calls, " in next(line for line in said.splitlines() if line.startswith("5"))
    assert list(json.loads((whole / "phases.json").read_text())["done"]) == list(PHASES)
    # in the midst of each phase, and when its work is done and not written down yet
    kills = [("killed", phase, at) for phase in PHASES for at in (0.5, "end")]
    ends = gone(tmp_path, weights, [*kills, ("killed", "", 0)])
    said = (tmp_path / "killed.log").read_text()
    assert ends == [-9] * len(kills) + [0], said
    assert said.count("(done before)") >= len(PHASES)
    assert come_to(killed) == come_to(whole)
    page = (whole / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "It is not in use: the start stays." in page or "It is in use." in page
    # There is a way back only where something else was in use before.
    assert ("dreamgym-kit deploy rollback" in page) == ("It is in use." in page)
    assert "read the key from VLLM_API_KEY" in page
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
