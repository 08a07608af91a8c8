"""`GrpoOptions` in TRL's words; imported only where TRL is there.

What TRL would do by itself (sample, reward, shuffle, recompute activations, log everywhere) is switched off.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from dreamgym_kit.adapters.trainers.extra import activation_checkpointing
from dreamgym_kit.adapters.trainers.options import GrpoOptions


def arguments_of(options: GrpoOptions, folder: Path, *, own_logs: bool) -> GRPOConfig:
    """TRL's arguments; `own_logs`: TensorBoard's logger is one of ours."""
    loggers = [name for name in options.report_to if not (own_logs and name == "tensorboard")]
    per_batch = options.minibatches * options.micro_batches
    return GRPOConfig(
        output_dir=str(folder),
        loss_type="grpo" if options.loss == "gspo" else options.loss,  # arXiv 2507.18071
        learning_rate=options.learning_rate,
        optim=options.optimizer,
        adam_beta1=options.betas[0],
        adam_beta2=options.betas[1],
        weight_decay=options.weight_decay,
        max_grad_norm=options.max_grad_norm,
        epsilon=options.clip,
        epsilon_high=options.clip_high,
        importance_sampling_level=options.level,
        beta=options.dpo_beta if options.algorithm == "dpo" else options.beta,  # above 0: with a reference
        entropy_coef=options.entropy,
        temperature=options.temperature,
        max_completion_length=options.max_completion,
        per_device_train_batch_size=2,  # of TRL's own data set, which nothing reads
        num_generations=2,
        gradient_accumulation_steps=options.micro_batches,
        steps_per_generation=per_batch,
        shuffle_dataset=False,
        max_steps=1,  # set when it is known
        seed=options.seed,
        bf16=options.dtype == "bfloat16",
        **activation_checkpointing(options.checkpointing),
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=options.save_every * options.minibatches,
        report_to=loggers,
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        ddp_find_unused_parameters=False,
        ddp_timeout=24 * 3600,  # the others wait while the first process collects
    )


def rate_of(options: GrpoOptions, steps: int) -> Callable[[int], float]:
    """The share of the learning rate after so many optimiser steps; all of one batch have the same."""

    def rate(done: int) -> float:
        step = done // options.minibatches
        rising = min(1.0, (step + 1) / max(1, options.warmup_steps))
        if options.schedule == "constant":
            return rising
        left = 1 - max(0, step - options.warmup_steps) / max(1, steps - options.warmup_steps)
        return rising * max(options.final_share, left)

    return rate


def rows_a_step(options: GrpoOptions) -> int:
    """Rows of TRL's own data set, so that each of its epochs is one batch of ours."""
    return int(os.environ.get("WORLD_SIZE", "1")) * options.minibatches * options.micro_batches


def own_loggers(options: GrpoOptions, logs: Path | None) -> list[Any]:
    """TensorBoard in a folder of our choice; transformers makes the others itself.

    Its writer is made when the training begins, as theirs are: a writer has a thread, and one that is begun
    before would be held to what an agent may write while episodes are dreamed.
    """
    if logs is None or "tensorboard" not in options.report_to:
        return []
    from transformers.integrations import TensorBoardCallback

    logger = TensorBoardCallback()
    logger.logging_dir = str(logs)
    return [logger]


def no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    """What TRL wants to have and never asks: advantages come with the batch."""
    return [0.0] * len(completions)
