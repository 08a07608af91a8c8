"""SFT, DPO and PPO as subclasses of `KitGrpo` with another loss, and the choice of the trainer.

Import it only if TRL is installed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from dreamgym_kit.adapters.trainers.grpo import KitGrpo
from dreamgym_kit.adapters.trainers.tensors import VALUE_HEAD, Piece, pieces_of_pairs
from dreamgym_kit.training.samples import generalised_advantages
from dreamgym_kit.turns import Batch, Sample

_FILE = f"{VALUE_HEAD}.safetensors"
_EPSILON = 1e-4  # in units of reward: smaller differences of advantages carry no signal
_TINY = 1e-12


class KitSft(KitGrpo):
    """SFT on successes (rejection sampling, RAFT: arXiv 2304.06767).

    The loss is the mean over episodes of the mean negative log-prob of their sampled tokens. Batches have
    successes only, with equal weights; no ratio, clip or advantage.
    """

    def _objective(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        logps = self._logps(model, inputs)
        return -(logps * inputs["tool_mask"]).sum() / self._tokens_a_share(inputs)


class KitDpo(KitGrpo):
    """DPO (arXiv 2305.18290) on pairs of repeats, with the sampled token IDs.

    The loss is `-log sigmoid(beta * (log-ratio of the better episode - that of the worse one))`. A log-ratio
    is the sum over an episode's sampled tokens of log pi - log pi_start. All pairs have equal weights.

    TRL's `DPOTrainer` needs prompt and answers as text, or one row per side, and counts tool answers as the
    policy's tokens. Here a side is an episode: all of its samples (forks), only its sampled tokens.
    """

    def _cut(self, samples: Sequence[Sample]) -> list[Piece]:
        return pieces_of_pairs(
            samples, self._options.micro_batches, rank=self.ranks.rank, ranks=self.ranks.number
        )

    def _prepare_piece(self, piece: Piece, tensors: dict[str, Any], samples: Sequence[Sample]) -> None:
        super()._prepare_piece(piece, tensors, samples)
        tensors["kit_sides"] = tensors["advantages"]
        tensors["advantages"] = torch.zeros_like(tensors["kit_sides"])  # unused: nothing is clipped
        names = list(dict.fromkeys(row.pair for row in piece)) or [""]
        numbers = {name: number for number, name in enumerate(names)}
        places = [numbers[row.pair] for row in piece] or [0]
        tensors["kit_pairs"] = torch.tensor(places, device=self.accelerator.device)
        tensors["kit_pairs_here"] = len(names) if piece else 0
        tensors["kit_pairs_in_all"] = len({row.pair for row in samples})

    def _objective(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        logps = self._logps(model, inputs)
        moved = ((logps - inputs["ref_per_token_logps"]) * inputs["sampled"]).sum(-1)
        margins = torch.zeros(max(1, inputs["kit_pairs_here"]), dtype=moved.dtype, device=moved.device)
        margins = self.beta * margins.index_add(0, inputs["kit_pairs"], moved * inputs["kit_sides"])
        here = torch.arange(len(margins), device=margins.device) < inputs["kit_pairs_here"]
        losses = -torch.nn.functional.logsigmoid(margins) * here
        whole = max(1, inputs["kit_pairs_in_all"])
        if self.noted is not None:
            part = 1 / (whole * self._options.minibatches)
            actual = margins.detach()[here]
            self.noted.tell("margin", float(actual.sum()) * part)
            self.noted.tell("preferred", float((actual > 0).sum()) * part)
        return losses.sum() * self.ranks.number / whole


class KitPpo(KitGrpo):
    """PPO with a value head (arXiv 1707.06347): the baseline is learned, not taken from repeats.

    It trains on `Sample.reward`; expected values come from the weights before the update. The policy loss is
    TRL's clipped one, with an advantage per token. The value head is one linear layer on the last hidden
    state before a token. During training it is part of the model, so that optimizer and processes treat it
    alike; a checkpoint has it in its own file, and served weights lack it. TRL has no PPO trainer since 1.14.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        model = self._whole_model()
        width = model.get_output_embeddings().weight.shape[1]
        head = torch.nn.Linear(width, 1, dtype=self._numbers, device=model.device)
        torch.nn.init.zeros_(head.weight)  # not random: it starts with equal values everywhere
        torch.nn.init.zeros_(head.bias)
        setattr(model, VALUE_HEAD, head)
        self._head = head

    def _whole_model(self) -> Any:
        """Return the model without accelerate's and PEFT's wrappers."""
        bare = self.accelerator.unwrap_model(self.model)
        return bare.get_base_model() if isinstance(bare, PeftModel) else bare

    # Values and advantages

    def _begin(self, batch: Batch) -> None:
        """Start with the first batch's mean reward; from zero the head would need long."""
        if self.kit_step == 0:
            rewards = {row.episode: row.reward for row in batch.samples}
            torch.nn.init.constant_(self._head.bias, math.fsum(rewards.values()) / len(rewards))

    def _prepare_piece(self, piece: Piece, tensors: dict[str, Any], samples: Sequence[Sample]) -> None:
        super()._prepare_piece(piece, tensors, samples)
        ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
        with torch.no_grad(), self._hidden() as hidden, self.accelerator.autocast():
            self._whole_model().base_model(input_ids=ids, use_cache=False)  # rows are padded at the right
            values = self._values(hidden, tensors["sampled"].size(1))
        advantages = torch.zeros_like(tensors["old_per_token_logps"])
        for place, row in enumerate(piece):
            own = tensors["sampled"][place]
            estimates = generalised_advantages(
                values[place][own].tolist(),
                row.reward,
                discount=self._options.discount,
                decay=self._options.gae,
            )
            advantages[place][own] = torch.tensor(estimates, dtype=advantages.dtype, device=advantages.device)
        tensors["advantages"] = advantages
        tensors["returns"] = (advantages + values) * tensors["sampled"]

    def _prepare_batch(self, made: Sequence[tuple[Piece, dict[str, Any]]]) -> None:
        """Normalize the batch's advantages to mean 0 and deviation 1, with equal weights of episodes.

        If all rewards are equal, they stay in units of reward: scaling would turn the value head's error
        into signal.
        """
        weight, mean, square = self._moments([(part["advantages"], part["tool_mask"]) for _, part in made])
        _, average, spread = self._moments([(part["returns"], part["tool_mask"]) for _, part in made])
        deviation = max(0.0, square - mean * mean) ** 0.5
        # every process has the whole batch, so all agree on whether its rewards differ
        differ = self.noted is None or len({row.reward for row in self.noted.batch.samples}) > 1
        for _, tensors in made if differ else ():
            tensors["advantages"] = (tensors["advantages"] - mean) / (deviation + _EPSILON)
            tensors["advantages"] = tensors["advantages"] * tensors["sampled"]
        spread -= average * average
        if self.noted is not None and weight and spread > _EPSILON:  # 0: all values are equal
            self.noted.tell("value_explains", (1 - square / spread) / self.ranks.number)

    def _moments(self, pairs: Sequence[tuple[Any, Any]]) -> tuple[float, float, float]:
        """Return the sum of weights, weighted mean and weighted mean square over all processes."""
        sums = [0.0, 0.0, 0.0]
        for values, weights in pairs:
            sums[0] += float(weights.sum())
            sums[1] += float((values * weights).sum())
            sums[2] += float((values * values * weights).sum())
        whole, first, second = self.ranks.total(sums)
        return whole, first / max(whole, _TINY), second / max(whole, _TINY)

    @contextmanager
    def _hidden(self) -> Iterator[list[Any]]:
        """Collect the last hidden states of the model's passes inside the block."""
        seen: list[Any] = []
        hook = self._whole_model().base_model.register_forward_hook(
            lambda _module, _given, output: seen.append(output.last_hidden_state)
        )
        try:
            yield seen
        finally:
            hook.remove()

    def _values(self, hidden: Sequence[Any], width: int) -> Any:
        """Return the expected values before each of the last `width` tokens: (rows, width)."""
        return self._head(hidden[-1][:, -width - 1 : -1].to(self._head.weight.dtype))[..., 0]

    # The loss

    def _objective(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        with self._hidden() as hidden:
            loss = super()._objective(model, inputs)
        missed = (self._values(hidden, inputs["sampled"].size(1)) - inputs["returns"]) ** 2
        missed = (missed * inputs["tool_mask"]).sum() / self._tokens_a_share(inputs) / 2
        if self.noted is not None:
            self.noted.tell(
                "value_loss", float(missed.detach()) / (self._options.minibatches * self.ranks.number)
            )
        return loss + self._options.value_weight * missed

    def create_optimizer(self, *given: Any, **named: Any) -> Any:
        """Give the value head its own learning rate, because it starts untrained."""
        optimizer = super().create_optimizer(*given, **named)
        own = set(map(id, self._head.parameters()))
        for group in optimizer.param_groups:
            group["params"] = [param for param in group["params"] if id(param) not in own]
        optimizer.add_param_group(
            {"params": list(self._head.parameters()), "lr": self._options.value_rate, "weight_decay": 0.0}
        )
        return optimizer

    # Checkpoints

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if not isinstance(self.accelerator.unwrap_model(self.model), PeftModel):
            whole = state_dict if state_dict is not None else self._whole_model().state_dict()
            state_dict = {
                name: tensor for name, tensor in whole.items() if not name.startswith(f"{VALUE_HEAD}.")
            }
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            save_file(self._head.state_dict(), Path(output_dir or self.args.output_dir) / _FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self._head.load_state_dict(load_file(Path(resume_from_checkpoint) / _FILE))

    def _extras(self) -> set[str]:
        return {f"{VALUE_HEAD}.{name}" for name in self._head.state_dict()}


_LEARNERS = {"grpo": KitGrpo, "ppo": KitPpo, "dpo": KitDpo, "sft": KitSft}


def learner_of(algorithm: str) -> type[KitGrpo]:
    """Return the trainer class of a checked algorithm."""
    return _LEARNERS[algorithm]
