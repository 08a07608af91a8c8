"""CPU seconds of the kit's update against a bare PyTorch loop on the same batches; a part of `step_cost`.

The nano policy and 128 episodes as long as the desk's. The bare loop is a good one: rows by length in as many
pieces, padded at the right, the head on sampled tokens only, AdamW, no log, no check. Both take turns, a
step each, and their medians are compared: only ratios mean anything on a shared machine.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit.turns import Batch, Sample

os.environ.setdefault("HF_HUB_OFFLINE", "1")

EPISODES = 128
ROUNDS = 9


def update_ratio(seed: int, *, episodes: int = EPISODES, rounds: int = ROUNDS) -> tuple[float, float]:
    """The ratio, and the kit's CPU seconds a step."""
    import torch

    from dreamgym_kit.adapters.models.folders import load_model
    from dreamgym_kit.adapters.trainers.options import GrpoOptions
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
    from dreamgym_kit.recipes.nano.start import save_untrained

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            base = Path(scratch) / "base"
            save_untrained(base, seed=seed)
            options = GrpoOptions(save_every=rounds + 1)
            bare = bare_loop(load_model(base), options)
            ours: list[float] = []
            theirs: list[float] = []

            def source(step: int) -> Batch:
                batch = synthetic_batch(step, seed, episodes)
                began = time.thread_time()
                bare(batch)
                theirs.append(time.thread_time() - began)
                return batch

            trainer = TrlTrainer(base, Path(scratch) / "run", options)
            trainer.fit(source, steps=rounds + 1, after=lambda facts: ours.append(facts.cpu_seconds))
    finally:
        torch.set_num_threads(before)
    kit = statistics.median(ours[1:])  # the first step warms everything up
    return kit / statistics.median(theirs[1:]), kit


def synthetic_batch(step: int, seed: int, episodes: int) -> Batch:
    """Episodes of 60 to 220 tokens, half of them sampled, one in eight in two samples."""
    chance = random.Random(f"{seed}:{step}")
    rows: list[Sample] = []
    for episode in range(episodes):
        for _ in range(2 if chance.random() < 1 / 8 else 1):
            start, mask = chance.randint(12, 30), [1] * 8
            while len(mask) < chance.randint(48, 190):
                mask += [0] * chance.randint(6, 20) + [1] * chance.randint(8, 22)
            rows.append(
                Sample(
                    episode=f"e{episode}",
                    ids=tuple(chance.randint(3, 700) for _ in range(start + len(mask))),
                    start=start,
                    mask=tuple(mask),
                    logprobs=tuple(-6.5 * own for own in mask),
                    turns=(0,),
                    versions=(f"step-{step - 1:06d}",),
                    advantage=chance.gauss(0, 1),
                )
            )
    of: dict[str, int] = {}
    for row in rows:
        of[row.episode] = of.get(row.episode, 0) + row.trained
    total = sum(of.values())
    weighed = (replace(row, weight=total / (len(of) * of[row.episode])) for row in rows)
    return Batch(step, tuple(weighed))


def bare_loop(model: Any, options: Any) -> Callable[[Batch], None]:
    """Learns from one batch after the other, and nothing else."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, betas=options.betas, weight_decay=0.0
    )

    def step(batch: Batch) -> None:
        rows = sorted(batch.samples, key=lambda row: -len(row.ids))
        total, size = sum(row.trained for row in rows), -(-len(rows) // options.micro_batches)
        for begin in range(0, len(rows), size):
            _backward(model, rows[begin : begin + size], total)
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _backward(model: Any, rows: list[Sample], total: int) -> None:
    import torch

    width = max(len(row.ids) for row in rows)

    def padded(values: list[list[float]], dtype: Any) -> Any:
        return torch.tensor([[*one, *[0] * (width - len(one))] for one in values], dtype=dtype)

    ids = padded([list(row.ids) for row in rows], torch.long)
    own = padded([[0] * row.start + list(row.mask) for row in rows], torch.bool)[:, 1:]
    old = padded([[0] * row.start + list(row.logprobs) for row in rows], torch.float32)[:, 1:][own]
    per_row = torch.tensor([[row.advantage, row.weight] for row in rows])[:, :, None]
    per_row = per_row.expand(-1, -1, width - 1)
    advantage, weight = per_row[:, 0][own], per_row[:, 1][own]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][own]
    told = model.lm_head(hidden).log_softmax(-1)
    ratio = (told.gather(1, ids[:, 1:][own][:, None])[:, 0] - old).exp()
    losses = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) * weight
    (losses.sum() / total).backward()
