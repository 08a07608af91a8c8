"""TRL's `SFTTrainer` with a weight for each token; imported only where TRL is there.

Rows come in the order given and are padded at their right end, so that no attention mask is needed: what
stands after a row's end is never looked at from within it.
"""

import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from dreamgym_kit.adapters.trainers.checkpoints import Checkpoints
from dreamgym_kit.adapters.trainers.extra import activation_checkpointing
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftStep, shifted_loss
from dreamgym_kit.adapters.trainers.trl_trainers import SealsCheckpoints
from dreamgym_kit.serialization import JsonValue


class WeightedSft(SealsCheckpoints, SFTTrainer):  # type: ignore[misc]  # their types are not read
    """One pass over a dataset of input_ids, labels and weights."""

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any,
        dataset: Any,
        options: SftOptions,
        optimizers: tuple[Any, Any],
        hear: Callable[[SftStep], None],
        saved: tuple[Checkpoints, Mapping[str, JsonValue]] | None = None,
    ) -> Self:
        """Make it with everything that `options` do not name switched off; `saved`: its checkpoints."""
        trainer = cls(
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
                **activation_checkpointing(options.checkpointing),
                max_length=None,
                remove_unused_columns=False,
                dataset_kwargs={"skip_prepare_dataset": True},
                use_cpu=not torch.cuda.is_available(),
            ),
            train_dataset=dataset,
            processing_class=tokenizer,
            data_collator=_padded,
            optimizers=optimizers,
            callbacks=[_Heard(hear)],
        )
        trainer.remove_callback(PrinterCallback)
        if saved is not None:
            trainer.kit_checkpoints, trainer.kit_made_of = saved
        trainer.model_accepts_loss_kwargs = False  # so that the losses of a batch's pieces are averaged
        return trainer

    @property
    def kit_steps(self) -> list[SftStep]:
        """All steps so far, those before a checkpoint included."""
        return [step for logs in self.state.log_history if (step := _step_of(logs["step"], logs))]

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
        total, _ = shifted_loss(logits, inputs["input_ids"], inputs["weights"])
        loss = total / inputs["of"][0]
        return (loss, {"logits": logits}) if return_outputs else loss


class _Heard(TrainerCallback):  # type: ignore[misc]
    def __init__(self, hear: Callable[[SftStep], None]) -> None:
        self._hear = hear

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        step = _step_of(state.global_step, logs or {})
        if step is not None:
            self._hear(step)


def _step_of(step: int, logs: Mapping[str, Any]) -> SftStep | None:
    if "grad_norm" not in logs:
        return None
    return SftStep(step, float(logs["loss"]), float(logs["grad_norm"]), float(logs["learning_rate"]))


def _padded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    width = max(len(row["input_ids"]) for row in rows)

    def right(name: str, empty: float, dtype: Any) -> Any:
        return torch.tensor([row[name] + [empty] * (width - len(row[name])) for row in rows], dtype=dtype)

    return {
        "input_ids": right("input_ids", 0, torch.long),
        "labels": right("labels", -100, torch.long),
        "weights": right("weights", 0.0, torch.float32),
        "of": torch.tensor([row["of"] for row in rows], dtype=torch.float32),
    }
