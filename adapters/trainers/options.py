"""Options of the policy update: algorithm and hyperparameters.

The defaults are those of the nano models. There are only options for the kit's own rollouts: TRL's options of
sampling, rewards and scaling do not apply.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

from dreamgym_kit.errors import UnknownName, UserError

BY_TOKENS = frozenset({"dapo", "cispo", "vespo"})
"""Losses that sum over tokens and divide by our number: all episodes have equal weight."""
BY_ROWS = frozenset({"grpo", "gspo", "sapo", "dr_grpo", "luspo"})
"""Losses that average over rows: an episode with more samples has more weight."""
_BY_SEQUENCE = frozenset({"gspo", "luspo"})
LOSSES = BY_TOKENS | BY_ROWS | {"bnpo"}
ALGORITHMS = ("grpo", "ppo", "dpo", "sft")
DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """LoRA: train small matrices in addition to the frozen weights."""

    rank: int = 8
    alpha: int = 16  # the adapter is scaled by alpha / rank
    targets: str | tuple[str, ...] = "all-linear"  # modules by name; never the head

    def config(self) -> Any:
        """Return PEFT's `LoraConfig`."""
        from peft import LoraConfig

        targets = self.targets if isinstance(self.targets, str) else list(self.targets)
        return LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=targets, task_type="CAUSAL_LM")


def weights_dtype(dtype: str, lora: LoraOptions | None) -> str:
    """Return the dtype of trained weights for computation in `dtype`: 16 bits lose small updates."""
    return "float32" if dtype == "bfloat16" and lora is None else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoOptions:
    """Options of an update."""

    algorithm: str = "grpo"  # decides the content of a batch, see `training.samples`
    loss: str = "dapo"
    learning_rate: float = 2e-4
    warmup_steps: int = 5  # linear: the first step has 1/5 of the rate, the fifth all of it
    optimizer: str = "adamw_torch"  # as transformers names them
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip: float = 0.2  # lower clip of the ratio to the sampler's log-probs
    clip_high: float | None = None  # upper clip; None: equal to `clip`. "cispo" needs about 5
    beta: float = 0.0  # weight of the divergence from the initial weights
    discount: float = 1.0  # ppo: gamma, per token
    gae: float = 1.0  # ppo: lambda, per token
    value_rate: float = 2e-3  # ppo: learning rate of the value head
    value_weight: float = 0.1  # ppo: weight of the value loss
    dpo_beta: float = 0.1  # dpo: scale of the log-ratio to the initial weights
    entropy: float = 0.0  # weight of the entropy bonus
    max_grad_norm: float = 1.0
    temperature: float = 1.0  # of sampling; log-probs are at this temperature
    minibatches: int = 1  # optimizer steps per batch, each on a part of the episodes
    micro_batches: int = 4  # pieces per minibatch; more need less memory
    max_completion: int = 512  # length by which "dr_grpo" divides
    lora: LoraOptions | None = None  # None: all weights are trained
    adapter_beside: bool = False  # also write the adapter alone, which servers swap faster
    dtype: str = "float32"  # of computation; with "bfloat16" trained weights stay float32
    checkpointing: bool = False  # recompute activations in the backward pass: less memory, more time
    seed: int = 0
    save_every: int = 1  # steps between checkpoints; the last step always has one
    keep: int = 2  # checkpoints
    report_to: tuple[str, ...] = ()  # loggers that transformers knows: "tensorboard", "wandb", ...
    threads: int = 1  # of torch; 0: unchanged

    @property
    def level(self) -> str:
        """The level of probability ratios: token or sequence."""
        return "sequence" if self.loss in _BY_SEQUENCE else "token"

    def check(self, source: str = "[train]") -> None:
        """Refuse options that TRL would refuse late, or not at all.

        Raises:
            UserError: names the option and its valid values.
        """
        for kind, name, valid in (
            ("algorithm", self.algorithm, ALGORITHMS),
            ("loss", self.loss, sorted(LOSSES)),
            ("dtype", self.dtype, DTYPES),
        ):
            if name not in valid:
                raise UnknownName(kind, name, known=valid, source=source, where="what can be trained with")
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
        """Refuse options that the algorithm would ignore."""
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
