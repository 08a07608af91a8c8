"""`train --algorithm` and `--faults` as a person meets them."""

import json
from pathlib import Path

import pytest
from each_row import each_row
from training.real_parts import project, run

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_a_training_by_ppo_under_faults_says_what_its_value_head_learned(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    asked = (
        "train",
        "--json",
        "--steps",
        "2",
        "--algorithm",
        "ppo",
        "--set",
        "train.faults=0.5",
        "--set",
        "train.eval_every=0",
    )
    done = run(folder, *asked)
    assert done.returncode == 0, done.stderr
    directory = Path(json.loads(done.stdout)["directory"])
    steps = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]
    assert [{"value_loss"} <= step["figures"].keys() for step in steps] == [True, True]
    learned, examined = (
        json.loads((directory / name / "manifest.json").read_text())["matters"]
        for name in ("rollouts", "evaluations")
    )
    assert learned["faults"]["*"]["rate"] == 0.5
    assert "faults" not in examined
    other = run(folder, "train", "--steps", "3", "--algorithm", "sft", "--resume", str(directory))
    assert other.returncode == 2
    assert 'was begun with other settings: algorithm: "ppo" there, "sft" here' in other.stderr


@each_row(
    ("asked", "said"),
    [
        (
            ("--algorithm", "pppo"),
            "value 'pppo' is not in the choices for train.algorithm; did you mean 'ppo'?",
        ),
        (
            ("--algorithm", "sft", "--set", "train.beta=0.1"),
            'beta is of "grpo" and "ppo"; "sft" has a loss of its own',
        ),
    ],
)
def test_what_does_not_go_with_an_algorithm_is_said_in_one_line(
    tmp_path: Path, asked: tuple[str, ...], said: str
) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    done = run(project(tmp_path), "train", *asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
