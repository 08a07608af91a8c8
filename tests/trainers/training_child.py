"""A training in a process of its own: `training_child.py BASE FOLDER STEPS LORA [KILL_AT PHASE]`.

Prints a digest of all weights at the end. With KILL_AT it kills itself with SIGKILL in that step: while
collecting, in the update, before the checkpoint, while it is written, or right after it stands.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainers.bare_loop import mixed_batch

from dreamgym_kit.adapters.trainers import checkpoints
from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.turns import Batch, UpdateFacts

PHASES = ("rollout", "update", "after", "save", "saved")


def main(base: Path, folder: Path, steps: int, lora: bool, kill_at: int = 0, phase: str = "") -> None:
    """Train, and die where that is asked for."""
    options = GrpoOptions(
        learning_rate=1e-3,
        warmup_steps=2,
        micro_batches=2,
        minibatches=2,
        keep=2,
        beta=0.1,
        lora=LoraOptions(4, 8) if lora else None,
    )

    def die(now: str, step: int) -> None:
        if (step, now) == (kill_at, phase):
            os.kill(os.getpid(), signal.SIGKILL)

    def source(step: int) -> Batch:
        die("saved", step - 1)
        die("rollout", step)
        return mixed_batch(step)

    def after(facts: UpdateFacts) -> None:
        die("after", facts.step)

    trainer = TrlTrainer(base, folder, options)
    settled = checkpoints.settle

    def settle(made: Path) -> None:
        settled(made)
        die("save", trainer.step)

    checkpoints.settle = settle
    if phase == "update":
        import dreamgym_kit.adapters.trainers.trl_trainers as listening

        on_gradient = listening.Listener.on_pre_optimizer_step

        def dying(self: listening.Listener, *given: object, **named: object) -> None:
            die("update", trainer.step + 1)
            on_gradient(self, *given, **named)

        listening.Listener.on_pre_optimizer_step = dying
    trainer.fit(source, steps=steps, after=after)
    if trainer.first:
        trainer.write_weights(folder / "weights")
        print(hashlib.sha256((folder / "weights" / "model.safetensors").read_bytes()).hexdigest())


if __name__ == "__main__":
    base, folder, steps, lora, *rest = sys.argv[1:]
    main(Path(base), Path(folder), int(steps), lora == "lora", *([int(rest[0]), rest[1]] if rest else []))
