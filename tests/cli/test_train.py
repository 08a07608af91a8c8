"""`train` as a person meets it: what it refuses, how it ends, what it leaves."""

import json
import signal
from pathlib import Path

import pytest
from each_row import each_row
from training.real_parts import AGENT, begun, command, environment, project, run
from typer.main import get_command
from waiting import wait_until

from dreamgym_kit.cli.main import app
from dreamgym_kit.errors import MissingExtra

TASK = '{"id": "%s", "input": "?", "split": "%s"}\n'


def small(folder: Path, more: str = "", *, tasks: str = TASK % ("a", "train")) -> Path:
    (folder / "agent.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text(tasks)
    (folder / "dreamgym.toml").write_text(f'graph = "agent.py:graph"\ntasks = "tasks.jsonl"\n{more}')
    return folder


def test_without_the_extra_it_says_which_one_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small(tmp_path))
    monkeypatch.setattr("dreamgym_kit.errors.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'dreamgym-kit\[train\]'"):
        get_command(app)(["train"], standalone_mode=False)


@pytest.mark.slow
@each_row(
    ("more", "tasks", "said"),
    [
        ("", TASK % ("a", "train"), "no policy to train: name a model directory"),
        (
            '[policy]\nmodel = "none"\n',
            TASK % ("a", "train"),
            "none: no such directory; name a directory with config.json",
        ),
        ('[policy]\nmodel = "."\n', TASK % ("a", "held_out"), "no task to learn from"),
        (
            '[policy]\nmodel = "m"\nurls = ["http://localhost:1/v1"]\n',
            TASK % ("a", "train"),
            "dreamgym.toml:5: a policy behind a server is trained from the directory",
        ),
        (
            '[policy]\nmodel = "."\n[train]\neval_tasks = "tasks.jsonl"\n',
            TASK % ("a", "train"),
            "task 'a' is to be learned from and to be measured with",
        ),
        (
            '[train]\nalgorithm = "pppo"\n',
            TASK % ("a", "train"),
            "value 'pppo' is not in the choices for train.algorithm; did you mean 'ppo'?",
        ),
        (
            '[policy]\nmodel = "."\n[train]\nalgorithm = "sft"\nbeta = 0.1\n',
            TASK % ("a", "train"),
            'beta is of "grpo" and "ppo"; "sft" has a loss of its own',
        ),
    ],
    ids=["no policy", "no directory", "nothing to learn", "a server", "both sides", "algorithm", "loss"],
)
def test_what_cannot_be_trained_is_said_in_one_line_and_leaves_no_run(
    tmp_path: Path, more: str, tasks: str, said: str
) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    done = run(small(tmp_path, more, tasks=tasks), "train")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").glob("*")) if (tmp_path / "runs").exists() else True


@pytest.mark.slow
def test_a_training_ends_with_its_result_and_is_shown_again(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    done = run(folder, "train", "--json", "--steps", "3", "--set", "train.report_to=tensorboard")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    directory = Path(told["directory"])
    assert (told["steps"], told["kept"], told["alarm"]) == (3, 3, None)
    assert [one["step"] for one in told["held_out"]] == [0, 2, 3]
    assert told["logprob_gap"] < 1e-4
    assert told["canary_gap"] < 1e-4
    assert (directory / told["weights"] / "model.safetensors").is_file()
    assert (directory / "plots" / "training.png").is_file()
    assert [path.name.split(".")[2] for path in (directory / "logs").iterdir()] == ["tfevents"]
    again = json.loads(run(folder, "report", str(directory), "--json").stdout)
    assert again["sentence"] == told["sentence"]
    page = run(folder, "view", "--no-browser")
    assert page.returncode == 0, page.stderr
    assert (directory / "report.html").is_file()
    refused = run(folder, "report", str(directory), "--list")
    assert refused.returncode == 2
    assert "is a training, which is shown whole" in refused.stderr
    used = run(folder, "evaluate", "--policy", str(directory / told["weights"]))
    assert used.returncode in (0, 1), used.stderr
    other = run(folder, "train", "--steps", "3", "--lr", "0.5", "--resume", str(directory))
    assert other.returncode == 2
    assert "was begun with other settings: lr: 0.001 there, 0.5 here" in other.stderr
    with (folder / "dreamgym.toml").open("a") as settings:
        settings.write("\n[alarms]\nmax_kl = 9.0\n")
    silenced = run(folder, "train", "--steps", "3", "--resume", str(directory))
    assert silenced.returncode == 2
    assert "was begun with other settings: alarms" in silenced.stderr
    (folder / "policy" / "config.json").rename(folder / "policy" / "gone.json")
    gone = run(folder, "train", "--steps", "3", "--resume", str(directory))
    assert gone.returncode == 2, gone.stderr
    after = json.loads(run(folder, "report", str(directory), "--json").stdout)
    assert (after["weights"], after["kept"]) == (told["weights"], 3)  # a refused leg takes nothing away


@pytest.mark.slow
def test_ctrl_c_ends_at_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)

    def steps() -> int:
        return sum(path.read_text().count("\n") for path in folder.glob("runs/*/steps.jsonl"))

    asked = command(folder, "train", "--steps", "5000", "--set", "train.eval_every=0")
    with begun(asked, folder, environment()) as process:
        wait_until(lambda: steps() >= 2 or process.poll() is not None, "two steps", within_s=600)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "NOT FINISHED" in out
    (directory,) = (folder / "runs").iterdir()
    assert f"dreamgym-kit train --steps 5000 --set train.eval_every=0 --resume runs/{directory.name}" in out
    checkpoints = sorted(path.name for path in (directory / "checkpoints").glob("step-*"))
    assert checkpoints[-1] == f"step-{steps():06d}"


@pytest.mark.slow
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
