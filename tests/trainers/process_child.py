"""One of several processes that train together, begun by torchrun: `process_child.py BASE FOLDER [HOW]`.

HOW is "fail", or an algorithm; it learns by GRPO unless it is one.
"""

import atexit
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainers.algorithms_by_hand import paired_batch, rewarded_batch, success_batch
from trainers.bare_loop import mixed_batch

from dreamgym_kit.adapters.trainers.options import GrpoOptions
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.turns import Batch, UpdateFacts

base, folder, *rest = sys.argv[1:]


def last_words() -> None:
    """Asked for before the kit's own end is, so that it comes after it."""
    from torch.distributed import is_initialized

    left = "still in the group" if is_initialized() else "left the group"
    Path(folder, f"ended-{os.environ['RANK']}.txt").write_text(left, encoding="utf-8")


atexit.register(last_words)
if os.environ["RANK"] != "0":  # as `train` does: what torchrun sends it must not outrun the first one's news
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
asked: list[int] = []
heard: list[UpdateFacts] = []


def source(step: int) -> Batch:
    """Collect, or give up."""
    if rest == ["fail"] and step == 2:
        raise RuntimeError("no more")
    asked.append(step)
    return BATCHES[algorithm](step)


BATCHES = {"grpo": mixed_batch, "ppo": rewarded_batch, "dpo": paired_batch, "sft": success_batch}
algorithm = rest[0] if rest and rest[0] in BATCHES else "grpo"
beta = 0.1 if algorithm == "grpo" else 0.0
options = GrpoOptions(
    algorithm=algorithm,
    learning_rate=1e-3,
    warmup_steps=2,
    beta=beta,
    micro_batches=2,
    minibatches=1,
    dtype="float64",  # what differs there is no rounding, on whatever processor
)
trainer = TrlTrainer(Path(base), Path(folder), options)
trainer.fit(source, steps=2, after=heard.append)
trainer = TrlTrainer(Path(base), Path(folder), options)
assert trainer.step == 2
trainer.fit(source, steps=3, after=heard.append)
rank = 0 if trainer.first else 1
said = [f"rank {rank} asked {asked} heard {[one.step for one in heard]}"]
if trainer.first:
    trainer.write_weights(Path(folder) / "weights")
    said += [f"facts {one.loss} {one.entropy} {one.clipped} {one.logprob_gap} {one.kl}" for one in heard]
# A file for each: both write to the same pipe, and there a line may end in the other's.
Path(folder, f"said-{rank}.txt").write_text("\n".join(said), encoding="utf-8")
