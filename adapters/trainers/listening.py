"""What the kit hears of TRL's loop: gradients before they are taken, and each step before it is kept.

Imported only where TRL is there.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from dreamgym_kit.adapters.trainers.grpo import KitGrpo, Noted
from dreamgym_kit.errors import TrainingStopped
from dreamgym_kit.turns import Batch, UpdateFacts

_ALARM = "not_finite"


class Listener(TrainerCallback):  # type: ignore[misc]  # their types are not read
    """Turns what TRL reports into `UpdateFacts`, one for each batch."""

    def __init__(
        self, trainer: KitGrpo, after: Callable[[UpdateFacts], None], kl: Callable[[Batch], float]
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

    def _facts(self, noted: Noted) -> UpdateFacts:
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
