"""A fine-tuning in a process of its own: `sft_child.py BASE FOLDER LORA [KILL_AT PHASE]`.

With KILL_AT it kills itself with SIGKILL in that step: in it, while its checkpoint is written, when that
stands, or ("end") when the model is to be written.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dreamgym_kit.adapters.trainers import checkpoints, sft
from dreamgym_kit.adapters.trainers.options import LoraOptions
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftRow, SftStep, train_sft

STEPS = 6
ROWS = [
    SftRow([3 + (7 * row + place) % 40 for place in range(4 + row)], [1.0] * (4 + row)) for row in range(7)
]


def main(base: Path, folder: Path, lora: bool, kill_at: int = 0, phase: str = "") -> None:
    """Train, and die where that is asked for."""
    now = 0

    def die(where: str, step: int) -> None:
        if (where, step) == (phase, kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(step: SftStep) -> None:
        nonlocal now
        now = step.step
        print(f"step {now}", flush=True)
        die("step", now)

    settled, committed, written = checkpoints.settle, checkpoints.Checkpoints.commit, sft.write_model

    def settle(made: Path) -> None:
        settled(made)
        die("save", now)

    def commit(self: checkpoints.Checkpoints, made: Path, step: int, made_of: dict) -> checkpoints.Checkpoint:
        done = committed(self, made, step, made_of)
        die("saved", step)
        return done

    def write(*given: object, **named: object) -> None:
        die("end", now)
        written(*given, **named)

    checkpoints.settle, checkpoints.Checkpoints.commit, sft.write_model = settle, commit, write
    options = SftOptions(
        steps=STEPS,
        batch=4,
        pieces=2,
        learning_rate=1e-2,
        warmup_steps=2,
        lora=LoraOptions(2, 4) if lora else None,
        save_every=2,
    )
    told = train_sft(base, ROWS, folder / "model", options, checkpoints=folder / "checkpoints", tell=heard)
    print(hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest())
    print([[one.step, one.loss] for one in told])


if __name__ == "__main__":
    base, folder, lora, *rest = sys.argv[1:]
    main(Path(base), Path(folder), lora == "lora", *([int(rest[0]), rest[1]] if rest else []))
