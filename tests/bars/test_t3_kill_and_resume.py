"""T3: a training that was killed in rollout, update, sync and save, and resumed, is the unbroken one."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bars.killed_training import PHASES
from training.real_parts import environment, project, run
from warm import TRAINERS, shared

STEPS = 6


def told(folder: Path) -> list[str]:
    """Lines of steps and evaluations without what depends on the clock."""
    lines = []
    for name in ("steps.jsonl", "evaluations.jsonl"):
        for line in (folder / name).read_text().splitlines():
            record = json.loads(line)
            for clock in ("seconds", "cpu_seconds"):
                record.pop(clock, None)
            lines.append(json.dumps(record))
    return lines


def weights(folder: Path) -> str:
    (last,) = (folder / "weights").iterdir()
    assert last.name == f"step-{STEPS:06d}"
    return hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()


def killed(phase: str, folder: Path, arguments: list[str]) -> None:
    """Train into the runs `killed`, with a process that kills itself in the phase."""
    program = Path(__file__).with_name("killed_training.py")
    asked = [phase, str(folder / "killed"), *arguments, "--set", "runs=killed"]
    done = shared(*TRAINERS).run(asked, folder, environment(), within_s=600, program=program)
    assert done.returncode == -signal.SIGKILL, f"it ended before {phase}: {done.stderr}"


def of_doubles(folder: Path, die_at: str = "") -> str:
    """Train the doubles with rollouts that overlap updates; gives their parameters."""
    script = Path(__file__).parents[1] / "training" / "loop_run.py"
    done = subprocess.run(
        [sys.executable, script, folder, "1", "1"],
        env=environment(DIE_AT=die_at, PYTHONPATH=str(script.parents[1])),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if die_at else 0), done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_t3_a_loop_that_forgets_what_it_collected_ahead_is_found_out(tmp_path: Path) -> None:
    whole = of_doubles(tmp_path / "whole")
    for name in ("kept", "forgotten"):
        of_doubles(tmp_path / name, "update 4")
    shutil.rmtree(tmp_path / "forgotten" / "state")
    assert of_doubles(tmp_path / "kept") == whole
    assert of_doubles(tmp_path / "forgotten") != whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        pytest.param((), id="in turn"),
        pytest.param(
            (
                "--set",
                "train.staleness=1",
            ),
            id="overlapped",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_t3_killed_in_every_phase_and_resumed_it_is_the_unbroken_training(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    asked = ["train", "--steps", str(STEPS), *how]
    whole = run(folder, *asked, "--set", "runs=whole")
    assert whole.returncode == 0, whole.stderr
    (unbroken,) = (folder / "whole").iterdir()
    resume: list[str] = []
    for phase in PHASES:
        killed(phase, folder, [*asked, *resume])
        (there,) = (folder / "killed").iterdir()
        resume = ["--resume", str(there)]
    done = run(folder, *asked, *resume)
    assert done.returncode == 0, done.stderr
    assert told(there) == told(unbroken)
    assert weights(there) == weights(unbroken)
    print(f"T3 {how or 'in turn'}: {len(PHASES)} kills, parameters equal")
