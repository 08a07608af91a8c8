"""Configuration and callbacks of TRL's trainers; import it only if TRL is installed.

Options are translated to TRL's; what TRL would do itself (sample, reward, shuffle, recompute activations,
log) is switched off. Checkpoints have our form: built in another folder, sealed, renamed. The kit hooks into
TRL's loop before gradients are applied, and after each step before it is saved.
"""

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from safetensors import SafetensorError
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from trl import GRPOConfig, SFTConfig, SFTTrainer

from dreamgym_kit.adapters.trainers.checkpoints import Checkpoints
from dreamgym_kit.adapters.trainers.options import GrpoOptions
from dreamgym_kit.adapters.trainers.ranks import processes
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftStep
from dreamgym_kit.errors import RunDirectoryError, TrainingStopped
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.turns import Batch, UpdateFacts

if TYPE_CHECKING:
    from dreamgym_kit.adapters.trainers.grpo import KitGrpo, Noted

_ALARM = "not_finite"


def grpo_config(options: GrpoOptions, folder: Path, *, own_logs: bool) -> GRPOConfig:
    """Return TRL's arguments; `own_logs`: we provide TensorBoard's logger."""
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
        per_device_train_batch_size=2,  # of TRL's own data set, which is not read
        num_generations=2,
        gradient_accumulation_steps=options.micro_batches,
        steps_per_generation=per_batch,
        shuffle_dataset=False,
        max_steps=1,  # set later
        seed=options.seed,
        bf16=options.dtype == "bfloat16",
        **_activation_checkpointing(options.checkpointing),
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


def rows_a_step(options: GrpoOptions) -> int:
    """Return the rows of TRL's own data set, so that each of its epochs is one of our batches."""
    return processes() * options.minibatches * options.micro_batches


def own_loggers(options: GrpoOptions, logs: Path | None) -> list[Any]:
    """Return TensorBoard's logger for our folder; transformers creates the other loggers.

    Its writer is created when training begins, like theirs: a writer has a thread, and an earlier one would
    fall under the egress guard while episodes are dreamed.
    """
    if logs is None or "tensorboard" not in options.report_to:
        return []
    from transformers.integrations import TensorBoardCallback

    logger = TensorBoardCallback()
    logger.logging_dir = str(logs)
    return [logger]


def no_reward(completions: Sequence[Any], **_: Any) -> list[float]:
    """TRL requires a reward function but never calls it: batches have advantages."""
    return [0.0] * len(completions)


class SealsCheckpoints(Trainer):  # type: ignore[misc]  # their types are not read
    """Mixin for a trainer; set `kit_checkpoints` and `kit_made_of` before it trains."""

    kit_checkpoints: Checkpoints
    kit_made_of: Mapping[str, JsonValue]
    _place: Path | None = None

    @property
    def kit_step(self) -> int:
        """Steps so far, which name a checkpoint."""
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
                (made / "training_args.bin").unlink(missing_ok=True)  # a pickle that is not read
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
        """Write no card here: TRL's lacks the data's origin; ours is written with the weights."""


class Listener(TrainerCallback):  # type: ignore[misc]  # their types are not read
    """Convert TRL's reports to `UpdateFacts`, one per batch."""

    def __init__(
        self, trainer: "KitGrpo", after: Callable[[UpdateFacts], None], kl: Callable[[Batch], float]
    ) -> None:
        self._trainer, self._after, self._kl = trainer, after, kl
        self._began = self._began_cpu = 0.0

    def began(self, batch: Batch) -> Batch:
        """Start timing the update of a batch."""
        self._began, self._began_cpu = time.monotonic(), time.thread_time()
        return batch

    def on_pre_optimizer_step(
        self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any
    ) -> None:
        """Stop before a gradient that is not finite is applied."""
        step = self._trainer.kit_step + 1
        noted = self._trainer.noted
        if noted is not None and not math.isfinite(noted.loss):
            raise TrainingStopped(_ALARM, f"the loss is {noted.loss}", step=step)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                raise TrainingStopped(_ALARM, f"the gradient of {name} is not finite", step=step)

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Report a step; an error of `after` ends the training before the checkpoint."""
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


def _activation_checkpointing(wanted: bool) -> dict[str, Any]:
    """Return the argument by the name of the installed transformers version; TRL's default is on."""
    renamed = "activation_checkpointing" in TrainingArguments.__dataclass_fields__
    return {"activation_checkpointing" if renamed else "gradient_checkpointing": wanted}


class WeightedSft(SealsCheckpoints, SFTTrainer):  # type: ignore[misc]  # their types are not read
    """TRL's `SFTTrainer` with a weight per token: one pass over a table of input_ids and weights.

    Rows come in the given order, padded on the right, so that no attention mask is needed: no token attends
    to the padding after its row.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        table: Mapping[str, Any],
        options: SftOptions,
        report: Callable[[SftStep], None],
        saved: tuple[Checkpoints, Mapping[str, JsonValue]] | None,
    ) -> None:
        """Switch off everything outside of `options`; `saved`: its checkpoints."""
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            learned, lr=options.learning_rate, betas=options.betas, weight_decay=options.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _sft_rate_of(options))
        super().__init__(
            model=model,
            args=SFTConfig(
                output_dir=tempfile.gettempdir(),  # not used: no checkpoints, no logs
                per_device_train_batch_size=options.batch // options.pieces,
                gradient_accumulation_steps=options.pieces,
                max_steps=options.steps,
                max_grad_norm=options.max_grad_norm,
                seed=options.seed,
                save_strategy="no" if saved is None else "steps",
                save_steps=options.save_every,
                report_to=[],
                logging_steps=1,
                logging_nan_inf_filter=False,
                disable_tqdm=True,
                bf16=options.dtype == "bfloat16",
                **_activation_checkpointing(options.checkpointing),
                max_length=None,
                remove_unused_columns=False,
                dataset_kwargs={"skip_prepare_dataset": True},
                use_cpu=not torch.cuda.is_available(),
            ),
            train_dataset=Dataset.from_dict(dict(table)),
            processing_class=tokenizer,
            data_collator=_padded,
            optimizers=(optimizer, schedule),
        )
        self._report = report
        self.remove_callback(PrinterCallback)
        if saved is not None:
            self.kit_checkpoints, self.kit_made_of = saved
        self.model_accepts_loss_kwargs = False  # so that the losses of a batch's pieces are averaged

    @property
    def kit_steps(self) -> list[SftStep]:
        """All steps so far, including those before a checkpoint."""
        return [_sft_step(logs) for logs in self.state.log_history if "grad_norm" in logs]

    def log(self, logs: dict[str, float], *rest: Any) -> None:
        """Also report the step."""
        super().log(logs, *rest)
        if "grad_norm" in self.state.log_history[-1]:
            self._report(_sft_step(self.state.log_history[-1]))

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        rows: Any = train_dataset if train_dataset is not None else self.train_dataset
        return SequentialSampler(rows)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002 - theirs
    ) -> Any:
        """Return the weighted mean over the batch's tokens, or a piece's part of it."""
        logits = model(input_ids=inputs["input_ids"], use_cache=False).logits
        ids, weights = inputs["input_ids"][:, 1:], inputs["weights"][:, 1:]
        learned = weights > 0
        losses = torch.nn.functional.cross_entropy(logits[:, :-1][learned], ids[learned], reduction="none")
        loss = (losses * weights[learned]).sum() / inputs["of"][0]
        return (loss, {"logits": logits}) if return_outputs else loss


def _sft_step(logs: Mapping[str, Any]) -> SftStep:
    return SftStep(logs["step"], float(logs["loss"]), float(logs["grad_norm"]), float(logs["learning_rate"]))


def _sft_rate_of(options: SftOptions) -> Callable[[int], float]:
    """Return a function of the step (0-based) that gives the share of the learning rate."""

    def rate(step: int) -> float:
        rising = min(1.0, (step + 1) / max(1, options.warmup_steps))
        return rising * max(options.final_share, 1 - step / options.steps)

    return rate


def _padded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    width = max(len(row["input_ids"]) for row in rows)

    def right(name: str, dtype: Any) -> Any:
        return torch.tensor([row[name] + [0] * (width - len(row[name])) for row in rows], dtype=dtype)

    return {
        "input_ids": right("input_ids", torch.long),
        "weights": right("weights", torch.float32),
        "of": torch.tensor([row["of"] for row in rows], dtype=torch.float32),
    }
