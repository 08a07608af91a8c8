"""What TRL's trainers are given of ours, and told to leave; imported only where TRL is there.

Options in TRL's words: what TRL would do by itself (sample, reward, shuffle, recompute activations, log
everywhere) is switched off. Checkpoints in our form: made beside their place, sealed, renamed into it. What
the kit hears of TRL's loop: gradients before they are taken, and each step before it is kept.
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
    """Rows of TRL's own data set, so that each of its epochs is one batch of ours."""
    return processes() * options.minibatches * options.micro_batches


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


def _activation_checkpointing(wanted: bool) -> dict[str, Any]:
    """The training argument of that name, as the transformers that is there calls it; TRL switches it on."""
    renamed = "activation_checkpointing" in TrainingArguments.__dataclass_fields__
    return {"activation_checkpointing" if renamed else "gradient_checkpointing": wanted}


class WeightedSft(SealsCheckpoints, SFTTrainer):  # type: ignore[misc]  # their types are not read
    """TRL's `SFTTrainer` with a weight for each token: one pass over a table of input_ids and weights.

    Rows come in the order given and are padded at their right end, so that no attention mask is needed: what
    stands after a row's end is never looked at from within it.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        table: Mapping[str, Any],
        options: SftOptions,
        hear: Callable[[SftStep], None],
        saved: tuple[Checkpoints, Mapping[str, JsonValue]] | None,
    ) -> None:
        """Switch off everything that `options` do not name; `saved`: its checkpoints."""
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            learned, lr=options.learning_rate, betas=options.betas, weight_decay=options.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _sft_rate_of(options))
        super().__init__(
            model=model,
            args=SFTConfig(
                output_dir=tempfile.gettempdir(),  # nothing is written there: no checkpoints, no logs
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
        self._hear = hear
        self.remove_callback(PrinterCallback)
        if saved is not None:
            self.kit_checkpoints, self.kit_made_of = saved
        self.model_accepts_loss_kwargs = False  # so that the losses of a batch's pieces are averaged

    @property
    def kit_steps(self) -> list[SftStep]:
        """All steps so far, those before a checkpoint included."""
        return [_sft_step(logs) for logs in self.state.log_history if "grad_norm" in logs]

    def log(self, logs: dict[str, float], *rest: Any) -> None:
        """Tell of a step, too."""
        super().log(logs, *rest)
        if "grad_norm" in self.state.log_history[-1]:
            self._hear(_sft_step(self.state.log_history[-1]))

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
        """Mean over the tokens of the batch by their weights; of a piece, its part of that."""
        logits = model(input_ids=inputs["input_ids"], use_cache=False).logits
        ids, weights = inputs["input_ids"][:, 1:], inputs["weights"][:, 1:]
        learned = weights > 0
        losses = torch.nn.functional.cross_entropy(logits[:, :-1][learned], ids[learned], reduction="none")
        loss = (losses * weights[learned]).sum() / inputs["of"][0]
        return (loss, {"logits": logits}) if return_outputs else loss


def _sft_step(logs: Mapping[str, Any]) -> SftStep:
    return SftStep(logs["step"], float(logs["loss"]), float(logs["grad_norm"]), float(logs["learning_rate"]))


def _sft_rate_of(options: SftOptions) -> Callable[[int], float]:
    """The share of the learning rate at a step (0-based)."""

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
