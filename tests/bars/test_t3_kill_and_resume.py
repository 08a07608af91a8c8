"""T3: a training that was killed in rollout, update, sync and save, and resumed, is the unbroken one."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from training.real_parts import command, environment, project, run

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


def in_rollout(run_: Path) -> bool:
    return any((run_ / "rollouts").glob("step-000002-*"))


def in_update(run_: Path) -> bool:
    log = run_ / "events.jsonl"
    return log.exists() and '"event":"step_collected","step":3' in log.read_text()


def in_sync(run_: Path) -> bool:
    return any((run_ / "weights").glob("*step-000004*"))


def in_save(run_: Path) -> bool:
    return (run_ / "checkpoints" / ".incoming").exists() and (run_ / "checkpoints" / "step-000004").exists()


PHASES: list[Callable[[Path], bool]] = [in_rollout, in_update, in_sync, in_save]


def killed_when(there: Callable[[Path], bool], folder: Path, arguments: list[str], place: Path) -> None:
    process = subprocess.Popen(
        command(folder, *arguments),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        runs = list(place.iterdir()) if place.is_dir() else []
        if runs and there(runs[0]):
            break
        time.sleep(0.001)
    process.kill()
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"it ended before {there.__name__}: {said}"


def of_doubles(folder: Path, die_at: str = "") -> str:
    """Train the doubles with rollouts that overlap updates; gives their parameters."""
    script = Path(__file__).parents[1] / "training" / "loop_run.py"
    done = subprocess.run(
        [sys.executable, script, folder, "1", "1"],
        env=environment(DIE_AT=die_at, PYTHONPATH=str(script.parents[1])),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if die_at else 0), done.stderr
    return done.stdout


def test_t3_a_loop_that_forgets_what_it_collected_ahead_is_found_out(tmp_path: Path) -> None:
    whole = of_doubles(tmp_path / "whole")
    for name in ("kept", "forgotten"):
        of_doubles(tmp_path / name, "update 4")
    shutil.rmtree(tmp_path / "forgotten" / "state")
    assert of_doubles(tmp_path / "kept") == whole
    assert of_doubles(tmp_path / "forgotten") != whole


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [(), ("--overlap",)], ids=["in turn", "overlapped"])
def test_t3_killed_in_every_phase_and_resumed_it_is_the_unbroken_training(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    pytest.importorskip("trl", reason="the extra train is not installed")
    folder = project(tmp_path)
    asked = ["train", "--plain", "--steps", str(STEPS), *how]
    whole = run(folder, *asked, "--runs", "whole")
    assert whole.returncode == 0, whole.stderr
    (unbroken,) = (folder / "whole").iterdir()
    resume: list[str] = []
    for phase in PHASES:
        killed_when(phase, folder, [*asked, "--runs", "killed", *resume], folder / "killed")
        (killed,) = (folder / "killed").iterdir()
        resume = ["--resume", str(killed)]
    done = run(folder, *asked, *resume)
    assert done.returncode == 0, done.stderr
    assert told(killed) == told(unbroken)
    assert weights(killed) == weights(unbroken)
    print(f"T3 {how or 'in turn'}: {len(PHASES)} kills, parameters equal")
