"""`deploy` on the command line: its codes, what is in use, and the way back."""

import json
import sys
from pathlib import Path

import pytest
from deployment.evaluated_runs import evaluated_run, held_out_tasks, model_double

from dreamgym_kit.cli.main import _code
from dreamgym_kit.deployment.model_files import model_digest
from dreamgym_kit.rollout.tasks import read_tasks


@pytest.fixture
def measured(project: Path) -> Path:
    """A project with two models, and a run of each on held-out tasks."""
    tasks = held_out_tasks(12)
    lines = [{"id": task.id, "input": "x", "split": "held_out", "meta": dict(task.meta)} for task in tasks]
    (project / "held.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    tasks = read_tasks(project / "held.jsonl")
    (project / "runs").mkdir()
    for name, solved in (("old", 0), ("new", 4)):
        digest = model_digest(model_double(project / name, name))
        rows = dict.fromkeys((task.id for task in tasks), solved)
        evaluated_run(project / "runs" / name, tasks, rows, weights=digest)
    return project


@pytest.fixture
def told(measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command in this process: code, stdout, stderr."""
    monkeypatch.chdir(measured)

    def told(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dreamgym-kit", "deploy", *arguments])
        code = _code()
        said = capsys.readouterr()
        return code, said.out, said.err

    return told


COMPARED = ("--tasks", "held.jsonl", "--evaluation", "runs/new", "--baseline", "runs/old")


def test_promoted_told_and_rolled_back(told) -> None:
    assert told("promote", "old", "--force", "the first", "--name", "desk")[0] == 0
    code, out, _ = told("promote", "new", *COMPARED, "--record", "calls.db")
    assert code == 0
    assert out.startswith(" IN USE  Promoted: v002 is current (replaces v001). It solves 100 points")
    assert "  dreamgym-kit serve --from deployed\n" in out
    assert 'api_key=os.environ["VLLM_API_KEY"])' in out
    assert "  with dreamgym_kit.deployed('deployed'):\n" in out
    state = json.loads(told("status", "--json")[1])
    assert (state["in_use"], [one["deed"] for one in state["history"]]) == ("v002", ["forced", "promoted"])
    assert told("rollback")[1].startswith(" IN USE  Rolled back: v001 is current again")
    assert " IN USE  v001\n" in told("status")[1]
    assert told("rollback")[0] == 2


def test_calls_are_kept_at_an_address_too_and_never_at_one_with_a_key(told) -> None:
    address = "weaviate://h?tenant=a"
    assert told("promote", "old", "--force", "the first", "--record", address)[0] == 0
    kept = "".join(path.read_text("utf-8") for path in Path("deployed").rglob("*.json*"))
    assert f'"{address}"' in kept
    code, _, err = told("promote", "new", "--force", "x", "--record", "weaviate://me:hunter2@h")
    assert (code, "hunter2" in err) == (2, False)


def test_what_does_not_beat_it_is_code_1_and_without_a_comparison_code_2(told) -> None:
    told("promote", "new", "--force", "the first")
    code, out, _ = told(
        "promote", "old", "--tasks", "held.jsonl", "--evaluation", "runs/old", "--baseline", "runs/new"
    )
    assert code == 1
    assert out.startswith(" NOT PROMOTED  Not promoted: v001 stays current. The candidate solves 100")
    code, out, err = told("promote", "old")
    assert (code, out) == (2, "")
    assert "There is no evaluation of these weights: name the run of one (--evaluation RUN)." in err


def test_what_cannot_be_promoted_is_named(told) -> None:
    assert "is neither the run directory of a training nor a model directory" in told("promote", "nowhere")[2]
    assert "nothing is deployed there" in told("status")[2]
