"""`train` under torchrun: the first process runs the training, the second learns its share of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from training.real_parts import begun, command, environment, finished, project, run

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from trainers.bare_loop import furthest

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.trainers.ranks import _learn
from dreamgym_kit.errors import TrainingStopped

pytestmark = pytest.mark.slow


def torchrun(folder: Path, *arguments: str) -> list[str]:
    asked = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--no-python"]
    asked += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    return [*asked, *command(folder, *arguments)]


def together(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return finished(folder, torchrun(folder, *arguments))


def steps_of(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]


@pytest.mark.nightly
def test_two_processes_are_one_training_and_come_to_the_weights_of_one(tmp_path: Path) -> None:
    folder = project(tmp_path)
    done = together(folder, "train", "--json", "--steps", "2")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)  # one result, not two
    two = Path(told["directory"])
    assert list((folder / "runs").iterdir()) == [two]
    assert done.stderr.count("HELD OUT after step 2") == 1
    alone = json.loads(run(folder, "train", "--json", "--steps", "2").stdout)
    one = Path(alone["directory"])
    for ours, theirs in zip(steps_of(one), steps_of(two), strict=True):
        assert ours["facts"] == theirs["facts"]
        assert ours["kl"] == pytest.approx(theirs["kl"], abs=1e-6)
    assert furthest(load_model(one / alone["weights"]), load_model(two / told["weights"])) <= 1e-5
    assert furthest(load_model(folder / "policy"), load_model(two / told["weights"])) > 1e-4

    further = together(folder, "train", "--json", "--steps", "3", "--resume", str(two))
    assert further.returncode == 0, further.stderr
    assert json.loads(further.stdout)["kept"] == 3
    fewer = run(folder, "train", "--steps", "4", "--resume", str(two))
    assert fewer.returncode == 2
    assert "was made with processes = 2, this training has 1" in fewer.stderr


@pytest.mark.nightly
def test_what_the_first_process_refuses_is_said_once_and_ends_both(tmp_path: Path) -> None:
    folder = project(tmp_path)
    done = together(folder, "train", "--policy", "nowhere")
    assert done.returncode != 0
    assert done.stderr.count("no such directory; name a directory with config.json") == 1
    refused = together(folder, "s2r", "--yes", "--max-calls", "5")
    assert refused.returncode != 0
    assert "s2r: runs in one process, and was started as 2" in refused.stderr


def test_an_alarm_ends_both_and_is_said_once(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "dreamgym.toml").write_text(
        (folder / "dreamgym.toml").read_text() + "[alarms]\nmax_kl = 1e-9\n"
    )
    done = together(folder, "train", "--json")
    assert done.returncode != 0
    told = json.loads(done.stdout)
    assert (told["alarm"]["alarm"], told["kept"]) == ("kl", 0)
    assert done.stderr.count("ALARM kl") == 1
    assert "exitcode  : 1 " in done.stderr
    assert "local_rank: 1" not in done.stderr


class FindsNoNumberDouble:
    def fit(self, *_: object, **__: object) -> None:
        raise TrainingStopped("not_finite", "the loss is nan", step=2)


def test_a_process_that_finds_no_number_itself_goes_on_listening_to_the_first() -> None:
    _learn(FindsNoNumberDouble(), 3)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "whom",
    ["all, softly", "the first", "the second"],
)
def test_stopped_or_killed_it_goes_on(tmp_path: Path, whom: str) -> None:
    folder = project(tmp_path)
    asked = torchrun(folder, "train", "--steps", "5000", "--set", "train.eval_every=0")
    with begun(asked, folder, environment()) as process:
        assert process.stderr is not None
        assert any("step 2/5000" in line for line in process.stderr)
        (directory,) = (folder / "runs").iterdir()
        first = json.loads((directory / "lock").read_text())["pid"]
        others = [one.pid for one in psutil.Process(process.pid).children() if one.pid != first]
        assert len(others) == 1
        if whom == "all, softly":
            process.terminate()
        else:
            os.kill(first if whom == "the first" else others[0], signal.SIGKILL)
        _, said = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "a fault in dreamgym-kit itself" not in said
    kept = max(int(path.name[-6:]) for path in (directory / "checkpoints").glob("step-*"))
    on = together(folder, "train", "--json", "--steps", str(kept + 1), "--resume", str(directory))
    assert on.returncode == 0, on.stderr
    assert json.loads(on.stdout)["kept"] == kept + 1


def test_an_alarm_passes_from_process_to_process_whole() -> None:
    import pickle

    came = pickle.loads(pickle.dumps(TrainingStopped("kl", "too far", step=3)))
    assert (str(came), came.alarm, came.text, came.step) == ("step 3: kl: too far", "kl", "too far", 3)
