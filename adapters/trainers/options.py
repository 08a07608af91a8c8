"""How the policy is to be changed: by which algorithm, and what a person may choose of it.

The defaults are those that trained the nano models. Only what acts on rollouts that the kit owns: how TRL
would sample, reward and scale does not apply here.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

from dreamgym_kit.errors import UnknownName, UserError

BY_TOKENS = frozenset({"dapo", "cispo", "vespo"})
"""Losses that sum over tokens and divide by a number that we give: every episode weighs the same."""
BY_ROWS = frozenset({"grpo", "gspo", "sapo", "dr_grpo", "luspo"})
"""Losses that are means over rows: an episode with more samples weighs more."""
_BY_SEQUENCE = frozenset({"gspo", "luspo"})
LOSSES = BY_TOKENS | BY_ROWS | {"bnpo"}
ALGORITHMS = ("grpo", "ppo", "dpo", "sft")
DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Train small matrices beside the frozen weights."""

    rank: int = 8
    alpha: int = 16  # the adapter is scaled by alpha / rank
    targets: str | tuple[str, ...] = "all-linear"  # modules by name; never the head

    def config(self) -> Any:
        """The same as PEFT's `LoraConfig`."""
        from peft import LoraConfig

        targets = self.targets if isinstance(self.targets, str) else list(self.targets)
        return LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=targets, task_type="CAUSAL_LM")


def held_dtype(dtype: str, lora: LoraOptions | None) -> str:
    """What trained weights are held in where it is computed in `dtype`: 16 bits lose small updates."""
    return "float32" if dtype == "bfloat16" and lora is None else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoOptions:
    """How to learn from batches."""

    algorithm: str = "grpo"  # what a batch holds follows from it, see `training.samples`
    loss: str = "dapo"
    learning_rate: float = 2e-4
    warmup_steps: int = 5  # the first has 1/5 of the rate, the fifth all of it
    optimizer: str = "adamw_torch"  # as transformers names them
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip: float = 0.2  # of the ratio to the log-probs of the sampler, below 1
    clip_high: float | None = None  # above 1; None: as below. "cispo" wants some 5
    beta: float = 0.0  # weight of the divergence from the weights that training began with
    discount: float = 1.0  # ppo: gamma, a token
    gae: float = 1.0  # ppo: lambda, a token
    value_rate: float = 2e-3  # ppo: learning rate of the value head
    value_weight: float = 0.1  # ppo: of its loss beside the policy's
    dpo_beta: float = 0.1  # dpo: of the log-ratio to the weights that training began with
    entropy: float = 0.0  # weight of a bonus for entropy
    max_grad_norm: float = 1.0
    temperature: float = 1.0  # at which the policy samples; its log-probs are those at this temperature
    minibatches: int = 1  # optimiser steps made of one batch, each on its part of the episodes
    micro_batches: int = 4  # pieces that a minibatch is computed in; more take less memory
    max_completion: int = 512  # the length that "dr_grpo" divides by
    lora: LoraOptions | None = None  # None: all weights are trained
    adapter_beside: bool = False  # written weights also hold the adapter alone, which servers swap faster
    dtype: str = "float32"  # computed in; "bfloat16" keeps trained weights in float32
    checkpointing: bool = False  # compute activations again in the backward pass: less memory, more time
    seed: int = 0
    save_every: int = 1  # steps between checkpoints; the last step always has one
    keep: int = 2  # checkpoints
    report_to: tuple[str, ...] = ()  # loggers that transformers knows: "tensorboard", "wandb", ...
    threads: int = 1  # of torch; 0: as they are

    @property
    def level(self) -> str:
        """What a ratio of probabilities is taken of."""
        return "sequence" if self.loss in _BY_SEQUENCE else "token"

    def check(self, source: str = "[train]") -> None:
        """Refuse what TRL would refuse late, or not at all.

        Raises:
            UserError: names the option, and what it may be.
        """
        for kind, name, known in (
            ("algorithm", self.algorithm, ALGORITHMS),
            ("loss", self.loss, sorted(LOSSES)),
            ("dtype", self.dtype, DTYPES),
        ):
            if name not in known:
                raise UnknownName(kind, name, known=known, source=source, where="what can be trained with")
        self._check_algorithm(source)
        for name in ("minibatches", "micro_batches", "save_every", "keep", "max_completion"):
            if getattr(self, name) < 1:
                raise UserError(f"{source}: {name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("learning_rate", "temperature", "max_grad_norm", "value_rate", "dpo_beta"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise UserError(f"{source}: {name} is {getattr(self, name)}; it must be above 0.")
        for name in ("beta", "value_weight"):
            if getattr(self, name) < 0 or not isfinite(getattr(self, name)):
                raise UserError(f"{source}: {name} is {getattr(self, name)}; it must be 0 or more.")

    def _check_algorithm(self, source: str) -> None:
        """Refuse what the algorithm would pass over in silence."""
        if self.algorithm == "ppo" and self.loss not in BY_TOKENS:
            raise UserError(
                f'{source}: loss "{self.loss}" is of "grpo"; "ppo" takes {", ".join(sorted(BY_TOKENS))}.'
            )
        if self.algorithm in ("dpo", "sft"):
            for name, usual in (("loss", "dapo"), ("beta", 0.0), ("entropy", 0.0)):
                if getattr(self, name) != usual:
                    raise UserError(
                        f'{source}: {name} is of "grpo" and "ppo"; "{self.algorithm}" has a loss of its own, '
                        "leave it out."
                    )
        for name in ("discount", "gae"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{source}: {name} is {getattr(self, name)}; it must lie between 0 and 1.")
