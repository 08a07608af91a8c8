"""TRL's `GRPOTrainer` on batches that the kit collected; import it only if TRL is installed.

The other algorithms (`algorithms`) are subclasses with another loss: they override `_objective` and its
preparation.

TRL provides the loss, the optimizer, the loggers, PEFT and accelerate. Overridden are the source of a
micro-step's tensors (`_prepare_inputs`), log-probs on a CPU (plain logits of the tokens that count, while
TRL's tiled head scores every position), saving of checkpoints, and the learning rate.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOTrainer
from trl.trainer.utils import use_adapter

from dreamgym_kit.adapters.trainers.checkpoints import Checkpoints
from dreamgym_kit.adapters.trainers.options import BY_ROWS, BY_TOKENS, GrpoOptions
from dreamgym_kit.adapters.trainers.ranks import Ranks
from dreamgym_kit.adapters.trainers.tensors import Piece, check, minibatches_of, pieces_of, tensors_of
from dreamgym_kit.adapters.trainers.trl_trainers import (
    SealsCheckpoints,
    grpo_config,
    no_reward,
    own_loggers,
    rows_a_step,
)
from dreamgym_kit.errors import UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.batching import version_of
from dreamgym_kit.turns import Batch, Sample


@dataclass(slots=True)
class Noted:
    """Figures of an update: sums over the batch's sampled tokens."""

    batch: Batch
    fresh: str  # version of the weights before the update
    tokens: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    gap: float = math.nan
    loss: float = 0.0
    grad_norm: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)  # figures of the algorithm, summed over pieces

    def tell(self, name: str, part: float) -> None:
        """Add the part of a piece or minibatch to a figure."""
        self.figures[name] = self.figures.get(name, 0.0) + part


class KitGrpo(SealsCheckpoints, GRPOTrainer):  # type: ignore[misc]  # their types are not read
    """Trains on `source(step)`; a step is one batch, with `options.minibatches` optimizer steps."""

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: Any,
        options: GrpoOptions,
        checkpoints: Checkpoints,
        made_of: Mapping[str, JsonValue],
        peft_config: Any = None,
        logs: Path | None = None,
    ) -> None:
        self._options = options
        self._numbers = torch.float64 if options.dtype == "float64" else torch.float32
        self.kit_checkpoints, self.kit_made_of = checkpoints, made_of
        self._pieces: list[list[tuple[Piece, dict[str, Any]]]] = []
        self._scored: dict[str, Any] | None = None
        self.noted: Noted | None = None
        self.lr_scheduler: Any = None
        self.source: Callable[[int], Batch] = _nothing
        super().__init__(
            model=model,
            reward_funcs=no_reward,
            args=grpo_config(options, checkpoints.folder, own_logs=logs is not None),
            train_dataset=Dataset.from_dict({"prompt": ["-"] * rows_a_step(options)}),
            processing_class=tokenizer,
            peft_config=peft_config,
            callbacks=own_loggers(options, logs),
        )
        self.ranks = Ranks(self.accelerator)
        self.plain_head = self.accelerator.device.type == "cpu"  # on a GPU TRL's tiled head takes less memory
        self.remove_callback(PrinterCallback)

    @property
    def minibatches(self) -> int:
        """Optimizer steps per batch."""
        return self._options.minibatches

    @property
    def kit_step(self) -> int:
        """Batches trained on so far."""
        return int(self.state.global_step) // self._options.minibatches

    # Where tensors come from

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Return the next piece; TRL's `generation_batch` is ignored."""
        del generation_batch
        minibatch, piece = divmod(self._step % self.args.steps_per_generation, self._options.micro_batches)
        if minibatch == piece == 0:
            self._take()
        return self._pieces[minibatch][piece][1]

    def _take(self) -> None:
        step = self.kit_step + 1
        batch = self.ranks.shared(lambda: self.source(step))
        self.noted = Noted(batch, version_of(step - 1))
        tokens = sum(sample.trained for sample in batch.samples)
        if batch.step != step:
            raise ValueError(f"a batch of step {batch.step} was given for step {step}")
        check(batch, tokens, self.accelerator.unwrap_model(self.model).config.get_text_config().vocab_size)
        for name, value in batch.facts.items():
            self._metrics["train"][name].append(float(value))
        self._pieces = []
        self._begin(batch)
        for samples in minibatches_of(batch, self._options.minibatches, seed=self._options.seed):
            made = [
                (
                    piece,
                    tensors_of(piece, tokens=tokens, numbers=self._numbers, device=self.accelerator.device),
                )
                for piece in self._cut(samples)
            ]
            for piece, tensors in made:
                self._prepare_piece(piece, tensors, samples)
            self._pieces.append(made)
        self._prepare_batch([pair for made in self._pieces for pair in made])

    # What an algorithm makes of a batch

    def _begin(self, batch: Batch) -> None:
        """Called with each new batch."""

    def _cut(self, samples: Sequence[Sample]) -> list[Piece]:
        """Return this process's share of a minibatch, in pieces."""
        return pieces_of(samples, self._options.micro_batches, rank=self.ranks.rank, ranks=self.ranks.number)

    def _prepare_piece(self, piece: Piece, tensors: dict[str, Any], samples: Sequence[Sample]) -> None:
        """Add the tensors that the loss of a piece needs; `samples`: of its minibatch."""
        del piece
        tensors["kit_share"] = self._share(tensors, samples)
        if self.beta != 0.0:
            tensors["ref_per_token_logps"] = self._reference(tensors)

    def _prepare_batch(self, made: Sequence[tuple[Piece, dict[str, Any]]]) -> None:
        """Add tensors that depend on all pieces of the batch."""

    def _objective(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """Return the loss of a piece: its part of the minibatch's, times the number of processes."""
        return super()._compute_loss(model, inputs) * inputs["kit_share"]

    def _logps(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """Return log-probs after the prompts, shape [rows, columns]; 0 for tokens that were not sampled."""
        return self._scores(model, inputs, compute_entropy=True).masked_fill(~inputs["sampled"], 0.0)

    def _scores(self, model: Any, tensors: Mapping[str, Any], **options: Any) -> Any:
        ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
        mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
        width = tensors["completion_ids"].size(1)
        return self._get_per_token_logps_and_entropies(model, ids, mask, width, **options)[0]

    def _tokens_a_share(self, inputs: Mapping[str, Any]) -> Any:
        """Return the divisor of sums over weighted tokens, which gives the mean over episodes."""
        return inputs["num_items_in_batch"] / (self.ranks.number * self._options.minibatches)

    # TRL's own parts

    def _share(self, tensors: Mapping[str, Any], samples: Sequence[Sample]) -> float:
        """Return the factor that turns TRL's loss of a piece into its part of the minibatch's loss.

        TRL averages over pieces as if they were equal; ours differ in rows and tokens.
        """
        pieces = self._options.micro_batches * self.ranks.number
        if self._options.loss in BY_TOKENS:
            return 1.0
        if self._options.loss in BY_ROWS:
            return len(tensors["advantages"]) * pieces / max(1, len(samples))
        whole = math.fsum(sample.weight * sample.trained for sample in samples)
        return max(1.0, float(tensors["tool_mask"].sum())) * pieces / max(1.0, whole)

    def _reference(self, tensors: Mapping[str, Any]) -> Any:
        """Return the log-probs under the initial weights."""
        with torch.no_grad(), self._scoring(tensors):
            if self.ref_model is not None:
                return self._scores(self.ref_model, tensors)
            with use_adapter(self.accelerator.unwrap_model(self.model), adapter_name=None):
                return self._scores(self.model, tensors)

    # The loss

    @contextmanager
    def _scoring(self, tensors: Mapping[str, Any]) -> Iterator[None]:
        self._scored = dict(tensors)
        try:
            yield
        finally:
            self._scored = None

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        with self._scoring(inputs):
            loss = self._objective(model, inputs)
        if self.noted is not None:
            self.noted.loss += float(loss.detach()) / self._options.minibatches
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: Any = None,
        compute_entropy: bool = False,
        **others: Any,
    ) -> Any:
        if self.plain_head and self._scored is not None and not others.get("compute_aux_loss"):
            scores = self._of_sampled(model, input_ids, logits_to_keep, self._scored["sampled"])
        else:
            scores = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, **others
            )
        if compute_entropy and self._scored is not None and self.noted is not None:
            self._note(self._scored, scores[0].detach(), scores[1].detach(), self.noted)
        return scores

    def _of_sampled(self, model: Any, ids: Any, width: int, sampled: Any) -> Any:
        """Return log-probs and entropies of sampled tokens from plain logits; 0 for given tokens.

        Rows are padded on the right only, so causal attention needs no mask.
        """
        bare = self.accelerator.unwrap_model(model)
        with _head_only_where(bare.get_output_embeddings(), sampled):
            logits = model(input_ids=ids, logits_to_keep=width + 1, use_cache=False).logits
        logprobs = (logits.to(self._numbers) / self.temperature).log_softmax(-1)
        chosen = logprobs.gather(-1, ids[:, -width:][sampled][:, None])[:, 0]
        for_entropy = logprobs if self._entropy_bonus_enabled else logprobs.detach()
        entropies = -(for_entropy.exp() * for_entropy).sum(-1)
        blank = torch.zeros(sampled.shape, dtype=logprobs.dtype, device=logprobs.device)
        return blank.masked_scatter(sampled, chosen), blank.masked_scatter(sampled, entropies), None

    def _note(self, tensors: Mapping[str, Any], logps: Any, entropies: Any, noted: Noted) -> None:
        sampled, advantages = tensors["sampled"], tensors["advantages"]
        if advantages.dim() == 1:
            advantages = advantages[:, None]
        moved = (logps - tensors["old_per_token_logps"])[sampled]
        ratio = moved.exp()
        high = self._options.clip_high if self._options.clip_high is not None else self._options.clip
        wanted = advantages.expand_as(sampled)[sampled]
        clipped = ((ratio < 1 - self._options.clip) & (wanted < 0)) | ((ratio > 1 + high) & (wanted > 0))
        noted.tokens += float(sampled.sum())
        noted.entropy += float(entropies[sampled].sum())
        noted.clipped += float(clipped.sum())
        minibatch, piece = divmod(self._step % self.args.steps_per_generation, self._options.micro_batches)
        rows = self._pieces[minibatch][piece][0]
        if minibatch or not rows:  # later minibatches see other weights than those that sampled
            return
        fresh = torch.tensor([row.versions == (noted.fresh,) for row in rows], device=sampled.device)
        same = sampled & fresh[:, None]
        if same.any():
            gap = float((logps - tensors["old_per_token_logps"])[same].abs().max())
            noted.gap = gap if math.isnan(noted.gap) else max(noted.gap, gap)

    # Checkpoints

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Refuse missing or extra weights, which mean another model; a tied head is stored once."""
        model = self.accelerator.unwrap_model(self.model)
        tied = model.config.get_text_config().tie_word_embeddings
        once = set(getattr(model, "_tied_weights_keys", None) or ()) if tied else set()
        wrong = (set(load_result.missing_keys) - once - self._extras()) | set(load_result.unexpected_keys)
        if wrong:
            where = self.kit_checkpoints.folder
            raise UserError(f"{where}: the last checkpoint does not fit the model ({min(wrong)}).")

    def _extras(self) -> set[str]:
        """Return the weights that are not in the model's own file."""
        return set()

    # The learning rate

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return a scheduler with one rate per batch, for all its minibatches; the first is not 0."""
        del num_training_steps  # the rate stays after the warm-up
        minibatches, warmup = self._options.minibatches, max(1, self._options.warmup_steps)
        if self.lr_scheduler is None:
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda done: min(1.0, (done // minibatches + 1) / warmup)
            )
        return self.lr_scheduler


def _nothing(step: int) -> Batch:
    raise ValueError(f"no source for step {step}")


@contextmanager
def _head_only_where(head: Any, wanted: Any) -> Iterator[None]:
    """Let the head compute only the positions before the wanted tokens, in order."""

    def chosen(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given[0][:, :-1][wanted], *given[1:])

    handle = head.register_forward_pre_hook(chosen)
    try:
        yield
    finally:
        handle.remove()
