"""What TRL's trainers are given of ours, and told to leave; imported only where TRL is there.

`GrpoOptions` in TRL's words: what TRL would do by itself (sample, reward, shuffle, recompute activations, log
everywhere) is switched off. Checkpoints in our form: made beside their place, sealed, renamed into it. What
the kit hears of TRL's loop: gradients before they are taken, and each step before it is kept.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from transformers import Trainer, TrainerCallback
from trl import GRPOConfig

from dreamgym_kit.adapters.trainers.checkpoints import Checkpoints
from dreamgym_kit.adapters.trainers.extra import activation_checkpointing
from dreamgym_kit.adapters.trainers.options import GrpoOptions
from dreamgym_kit.errors import RunDirectoryError, TrainingStopped
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.turns import Batch, UpdateFacts

if TYPE_CHECKING:
    from dreamgym_kit.adapters.trainers.grpo import KitGrpo, Noted

_ALARM = "not_finite"


def grpo_config(options: GrpoOptions, folder: Path, *, own_logs: bool) -> GRPOConfig:
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


class SealsCheckpoints(Trainer):  # type: ignore[misc]  # their types are not read
    """Mixed into a trainer; `kit_checkpoints` and `kit_made_of` are set before it trains."""

    kit_checkpoints: Checkpoints
    kit_made_of: Mapping[str, JsonValue]
    _place: Path | None = None

    @property
    def kit_step(self) -> int:
        """What a checkpoint is named after: steps so far."""
        return int(self.state.global_step)

    def _get_output_dir(self, trial: Any) -> Any:
        return str(self._place) if self._place is not None else super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        checkpoints = self.kit_checkpoints
        self._place = checkpoints.incoming
        try:
            if self.args.should_save:
                checkpoints.clear_incoming()
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                made = checkpoints.incoming / f"checkpoint-{self.state.global_step}"
                (made / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
                checkpoints.commit(made, self.kit_step, self.kit_made_of)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors raise their own
            raise RunDirectoryError(
                f"{checkpoints.folder}: the checkpoint of step {self.kit_step} cannot be written "
                f"({str(error).strip().partition(chr(10))[0][:200]}); free some space or mend the disk, "
                "then resume."
            ) from error
        finally:
            self._place = None
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: TRL's would say nothing of where the data comes from; ours is written with the weights."""


class Listener(TrainerCallback):  # type: ignore[misc]  # their types are not read
    """Turns what TRL reports into `UpdateFacts`, one for each batch."""

    def __init__(
        self, trainer: "KitGrpo", after: Callable[[UpdateFacts], None], kl: Callable[[Batch], float]
    ) -> None:
        self._trainer, self._after, self._kl = trainer, after, kl
        self._began = self._began_cpu = 0.0

    def began(self, batch: Batch) -> Batch:
        """A batch has come: from here on it is the update that takes time."""
        self._began, self._began_cpu = time.monotonic(), time.thread_time()
        return batch

    def on_pre_optimizer_step(
        self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any
    ) -> None:
        """Stop before the weights take a gradient that is no finite number."""
        step = self._trainer.kit_step + 1
        noted = self._trainer.noted
        if noted is not None and not math.isfinite(noted.loss):
            raise TrainingStopped(_ALARM, f"the loss is {noted.loss}", step=step)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                raise TrainingStopped(_ALARM, f"the gradient of {name} is not finite", step=step)

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Tell of a step; what `after` raises ends the training, and its checkpoint is not written."""
        noted = self._trainer.noted
        if not logs or "grad_norm" not in logs or noted is None:
            return
        noted.grad_norm = max(noted.grad_norm, float(logs["grad_norm"]))
        if self._trainer.state.global_step % self._trainer.minibatches:
            return
        facts = self._facts(noted)
        self._trainer.ranks.shared(lambda: self._after(facts))

    def _facts(self, noted: "Noted") -> UpdateFacts:
        ranks = self._trainer.ranks
        tokens, entropy, clipped, loss = ranks.total(
            [noted.tokens, noted.entropy, noted.clipped, noted.loss / ranks.number]
        )
        if not math.isfinite(loss):
            raise TrainingStopped(_ALARM, f"the loss is {loss}", step=noted.batch.step)
        return UpdateFacts(
            step=noted.batch.step,
            loss=loss,
            grad_norm=noted.grad_norm,
            entropy=entropy / max(1.0, tokens),
            kl=ranks.shared(lambda: self._kl(noted.batch)),
            clipped=clipped / max(1.0, tokens),
            logprob_gap=ranks.largest(noted.gap),
            seconds=time.monotonic() - self._began,
            cpu_seconds=time.thread_time() - self._began_cpu,
            figures=dict(zip(noted.figures, ranks.total(list(noted.figures.values())), strict=True)),
        )
