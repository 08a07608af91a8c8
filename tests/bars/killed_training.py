"""A command that kills itself in a phase of its training: `killed_training.py PHASE RUNS ARGUMENTS...`.

It looks for the phase itself, in the run directory under RUNS: who looks from outside may come too late, and
a save is over in a moment.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dreamgym_kit.adapters.trainers import checkpoints
from dreamgym_kit.cli.main import main
from dreamgym_kit.guard.egress import exempt


def in_rollout(run: Path) -> bool:
    return any((run / "rollouts").glob("step-000002-*"))


def in_update(run: Path) -> bool:
    log = run / "events.jsonl"
    return log.exists() and '"event":"step_collected","step":3' in log.read_text()


def in_sync(run: Path) -> bool:
    return any((run / "weights").glob("*step-000004*"))


def in_save(run: Path) -> bool:
    return (run / "checkpoints" / ".incoming").exists() and (run / "checkpoints" / "step-000004").exists()


PHASES: dict[str, Callable[[Path], bool]] = {
    there.__name__: there for there in (in_rollout, in_update, in_sync, in_save)
}


def die_in(phase: str, runs: Path) -> None:
    """Look again and again, and in every save, whose files are there then, unsealed."""

    def look() -> None:
        run = next(runs.iterdir(), None) if runs.is_dir() else None
        if run is not None and PHASES[phase](run):
            with exempt():
                os.kill(os.getpid(), signal.SIGKILL)

    def keep_looking() -> None:
        while True:
            look()
            time.sleep(0.02)

    settled = checkpoints.settle

    def settle(made: Path) -> None:
        settled(made)
        look()

    checkpoints.settle = settle
    threading.Thread(target=keep_looking, daemon=True).start()


if __name__ == "__main__":
    _, phase, runs, *arguments = sys.argv
    sys.argv = ["dreamgym-kit", *arguments]
    die_in(phase, Path(runs))
    sys.exit(main())
