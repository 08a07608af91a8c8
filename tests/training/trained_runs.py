"""Run directories of trainings over doubles, as the command leaves them."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from training.loop_doubles import Planted
from training.loop_run import QUICK, run_loop

from dreamgym_kit.report.training import Training, training_of
from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.settings.schema import AlarmSettings


def trained_run(
    root: Path, *, name: str = "a-training", steps: int = 8, planted: Planted | None = None, **more: Any
) -> Path:
    """Train the doubles and keep what came of it; gives the directory."""
    alarms = AlarmSettings(max_kl=0.3)
    matters = {"mode": "train", "graph": "desk"}
    manifest = Manifest("7f3a", 1.8e9, matters, {"alarms": asdict(alarms), "steps": steps})
    settings = replace(QUICK, steps=steps, eval_every=4, eval_n=16)
    with RunDirectory.create(root, name, manifest) as directory:
        done = run_loop(directory.path, settings, planted=planted, alarms=alarms, **more).trained
        alarm = done.alarm
        directory.write_report(
            {
                "kind": "train",
                "kept": done.checkpoint,
                "weights": None if done.weights is None else str(done.weights.relative_to(directory.path)),
                "alarm": None
                if alarm is None
                else {"alarm": alarm.alarm, "text": alarm.text, "step": alarm.step},
                "stopped": done.stopped,
            }
        )
        return directory.path


def training_in(path: Path) -> Training:
    return training_of(RunDirectory.open(path))
