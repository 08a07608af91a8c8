"""Is an update what its loss says? Weights after two optimiser steps against plain PyTorch, row by row.

Episodes of 1 to 4 samples (forks) with 1 to 3 turns each, of several lengths and weights,
computed in 1, 4 and 7 pieces. The loop it is held against takes every row alone, without padding, and takes
the mean over episodes of the mean over their tokens. `max_abs_diff` is the larger of two in float64: gradient
descent at a rate of 0.1 on a model drawn by chance, and AdamW as the kit sets it on the nano policy. The same
in float32 is shown beside them. There the last bit of a weight above 1 is 1.2e-7, of one above 2 2.4e-7; and
where a gradient is near Adam's epsilon of 1e-8, its last bit decides how far a weight goes, in any two loops
that add up in another order.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.append(str(Path(__file__).parents[1]))  # `trainers` lies beside this folder

STEPS = 2
PIECES = (1, 4, 7)


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return _figures(seed, PIECES)


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same with one number of pieces."""
    return _figures(seed, PIECES[1:2])


def _figures(seed: int, pieces: tuple[int, ...]) -> list[tuple[str, float, str]]:
    from nano_double import save_untrained
    from trainers.tiny_model import write_tiny_model

    from dreamgym_kit.adapters.trainers.options import GrpoOptions

    adam = GrpoOptions()
    plain = replace(adam, optimizer="sgd", learning_rate=0.1, warmup_steps=1)
    with _one_thread(), tempfile.TemporaryDirectory() as scratch:
        nano, drawn = Path(scratch) / "nano", Path(scratch) / "drawn"
        save_untrained(nano, seed=seed)
        write_tiny_model(drawn, seed=seed, scale=2.0)
        found = {
            name: _compared(base, Path(scratch) / name, seed, options, pieces)
            for name, base, options in (
                ("sgd", drawn, replace(plain, dtype="float64")),
                ("sgd_float32", drawn, plain),
                ("adamw_float64", nano, replace(adam, dtype="float64")),
                ("nano_sgd", nano, plain),
                ("nano_adamw", nano, adam),
            )
        }
    figures = [("max_abs_diff", max(found["sgd"][0], found["adamw_float64"][0]), "")]
    figures += [(f"{name}_diff", gap, "") for name, (gap, _) in found.items()]
    return [*figures, *((f"{name}_change", change, "") for name, (_, change) in found.items())]


def _compared(
    base: Path, folder: Path, seed: int, options: Any, pieces: tuple[int, ...]
) -> tuple[float, float]:
    """How far any number of pieces is from the loop by hand, and how far that went from the start."""
    from trainers.bare_loop import furthest

    from dreamgym_kit.adapters.models.folders import load_model

    by_hand = _by_hand(base, seed, options)
    found = (_ours(base, folder / f"{n}", seed, replace(options, micro_batches=n)) for n in pieces)
    gap = max(furthest(by_hand, ours) for ours in found)
    return gap, furthest(load_model(base, dtype=options.dtype), by_hand)


def _batch(step: int, seed: int) -> Any:
    from trainers.bare_loop import mixed_batch

    return mixed_batch(step, seed=seed, episodes=8)  # of tokens that both models have


def _by_hand(base: Path, seed: int, options: Any) -> Any:
    import torch
    from trainers.bare_loop import episode_mean_loss, step_by_hand

    from dreamgym_kit.adapters.models.folders import load_model

    model = load_model(base, dtype=options.dtype)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=options.learning_rate)
    if options.optimizer != "sgd":
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=options.learning_rate, betas=options.betas, weight_decay=0.0
        )
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * min(1.0, step / options.warmup_steps)
        step_by_hand(model, optimizer, episode_mean_loss(model, _batch(step, seed)))
    return model


def _ours(base: Path, folder: Path, seed: int, options: Any) -> Any:
    from dreamgym_kit.adapters.models.folders import load_model
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

    trainer = TrlTrainer(base, folder / "run", options)
    trainer.fit(lambda step: _batch(step, seed), steps=STEPS, after=lambda _: None)
    trainer.write_weights(folder / "weights")
    return load_model(folder / "weights", dtype=options.dtype)


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
