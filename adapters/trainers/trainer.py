"""`interfaces.Trainer` with TRL: from a model directory, or from the last complete checkpoint.

Model and trainer are rebuilt when a part of a training begins or fails: `step`, `score` and `write_weights`
always refer to the state of a checkpoint, or, while `fit` runs, to the state after it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.adapters.models.folders import (
    calm,
    load_model,
    load_tokenizer,
    no_bars,
    require_extra,
    threads,
    write_adapter,
    write_model,
)
from dreamgym_kit.adapters.trainers.checkpoints import Checkpoints
from dreamgym_kit.adapters.trainers.options import GrpoOptions, weights_dtype
from dreamgym_kit.adapters.trainers.ranks import in_touch, processes
from dreamgym_kit.deployment.model_files import ADAPTER, digest_of_folder
from dreamgym_kit.errors import TrainingStopped, UserError
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.turns import Batch, UpdateFacts

if TYPE_CHECKING:
    from dreamgym_kit.adapters.trainers.grpo import KitGrpo

_DEFAULTS = GrpoOptions()
_LOOKED_AT = 16  # one row in 16 is rescored after an update, to measure its size


class TrlTrainer:
    """Implements `interfaces.Trainer`.

    `model` is only read; checkpoints are in `folder`, TensorBoard's files in `logs` or below `folder`.
    `learning` is entered with the number of steps around each `fit`, so that other processes train along; its
    callback returns whether they know what ended the training.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: the model or the last checkpoint cannot be used; names the file.
    """

    def __init__(
        self,
        model: Path,
        folder: Path,
        options: GrpoOptions = _DEFAULTS,
        *,
        logs: Path | None = None,
        learning: Callable[[int, Callable[[], bool]], AbstractContextManager[None]] | None = None,
    ) -> None:
        require_extra("training")
        options.check()
        self._model, self._options, self._logs, self._learning = model, options, logs, learning
        self._checkpoints = Checkpoints(folder, keep=options.keep)
        self.ignored: tuple[Path, ...] = ()  # folders that are not complete checkpoints
        self._used = False
        self._others_know = True  # whether the other processes know what ended the last `fit`
        self._open()

    @property
    def step(self) -> int:
        """Batches trained on so far, including earlier parts."""
        return max(self._from, self._trl.kit_step)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the model."""
        return self._trl.processing_class

    @property
    def first(self) -> bool:
        """Whether this is the process that collects rollouts."""
        return self._trl.ranks.first

    def fit(
        self, source: Callable[[int], Batch], *, steps: int, after: Callable[[UpdateFacts], None]
    ) -> None:
        """See `interfaces.Trainer.fit`. With several processes `source` and `after` are called in the first.

        Raises:
            TrainingStopped: the loss or a gradient is not finite; that step is discarded.
        """
        together = self._learning(steps, lambda: self._others_know) if self._learning else nullcontext()
        with together:
            self._fit(source, steps, after)

    def _fit(self, source: Callable[[int], Batch], steps: int, after: Callable[[UpdateFacts], None]) -> None:
        if self._used:
            self._open()
        if steps <= self.step:
            return
        from dreamgym_kit.adapters.trainers.trl_trainers import Listener

        trl = self._trl
        listener = Listener(trl, after, self._kl)
        trl.source = lambda step: listener.began(source(step))
        trl.args.max_steps = steps * self._options.minibatches
        trl.add_callback(listener)
        self._used = True
        try:
            with in_touch(), threads(self._options.threads), no_bars():
                trl.train(resume_from_checkpoint=str(self._last.folder) if self._last else None)
        except BaseException as error:
            # all processes detect a non-finite update alike
            self._others_know = trl.ranks.shared_failure is error or isinstance(error, TrainingStopped)
            with suppress(UserError):  # the error that ended the training says more
                self._open()
            raise
        self._from = steps

    def write_weights(self, folder: Path) -> None:
        """See `interfaces.Trainer.write_weights`."""
        from dreamgym_kit.adapters.trainers.tensors import merged

        with threads(self._options.threads):
            model, tensors = merged(self._bare)
            write_model(folder, model, self.tokenizer, tensors=tensors)
        if self._options.adapter_beside:
            self.write_adapter(folder / ADAPTER, base=str(self._model))

    def write_adapter(self, folder: Path, *, base: str) -> bool:
        """Write the LoRA adapter alone, in the form of PEFT and vLLM; return False if there is none.

        `base`: its base model, a directory or a name.
        """
        if self._options.lora is None:
            return False
        with threads(self._options.threads):
            write_adapter(folder, self._bare, self.tokenizer, base=base)
        return True

    def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `interfaces.Trainer.score`."""
        from dreamgym_kit.adapters.trainers.tensors import score

        with threads(self._options.threads):
            return score(self._bare, ids)

    @property
    def _bare(self) -> Any:
        return self._trl.accelerator.unwrap_model(self._trl.model)

    def _kl(self, batch: Batch) -> float:
        """Return the size of the update in nats per token, from some of the batch's rows."""
        from dreamgym_kit.adapters.trainers.tensors import score

        rows = batch.samples[:: max(1, min(_LOOKED_AT, len(batch.samples) // 4))]
        logprobs = score(self._bare, [row.ids for row in rows], temperature=self._options.temperature)
        return distance(
            now[row.start - 1 + place] - sampled
            for row, now in zip(rows, logprobs, strict=True)
            for place, (own, sampled) in enumerate(zip(row.mask, row.logprobs, strict=True))
            if own
        )

    def _open(self) -> None:
        """Rebuild model and trainer from the last complete checkpoint."""
        self._last, ignored = self._checkpoints.last()
        self.ignored = tuple(ignored)
        made_of = self._made_of()
        if self._last is not None:
            for name, before, now in self._last.differences(made_of):
                raise UserError(
                    f"{self._last.folder}: was made with {name} = {before}, this training has {now}; "
                    "set it back, or train into another folder."
                )
        with threads(self._options.threads), no_bars(), calm():
            self._trl = self._built(made_of)
            if self._last is not None:
                self._trl._load_from_checkpoint(str(self._last.folder))
        self._from = self._last.step if self._last is not None else 0
        self._used = False

    def _built(self, made_of: Mapping[str, JsonValue]) -> "KitGrpo":
        from dreamgym_kit.adapters.trainers.algorithms import learner_of
        from dreamgym_kit.adapters.trainers.tensors import without_dropout

        lora = self._options.lora
        model = without_dropout(load_model(self._model, dtype=weights_dtype(self._options.dtype, lora)))
        tokenizer = load_tokenizer(self._model)
        try:
            return learner_of(self._options.algorithm)(
                model=model,
                tokenizer=tokenizer,
                options=self._options,
                checkpoints=self._checkpoints,
                made_of=made_of,
                peft_config=None if lora is None else lora.config(),
                logs=self._logs,
            )
        except (ValueError, ImportError, RuntimeError) as error:  # an unknown logger, optimizer or module
            reason = str(error).strip().partition("\n")[0][:300]
            raise UserError(f"[train]: cannot be trained like this: {reason}") from error

    def _made_of(self) -> dict[str, JsonValue]:
        lora = self._options.lora
        return {
            "model": digest_of_folder(self._model),
            "algorithm": self._options.algorithm,
            "lora": None if lora is None else [lora.rank, lora.alpha, str(lora.targets)],
            "minibatches": self._options.minibatches,
            "dtype": self._options.dtype,
            "seed": self._options.seed,
            "processes": processes(),
        }


def distance(log_ratios: Iterable[float]) -> float:
    """Return how far an update moved the policy: mean over its sampled tokens, in nats; NaN without tokens.

    For each token with log-ratio x = log p_now - log p_sampled: |x| - 1 + exp(-|x|). Near 0 that is x^2 / 2,
    a nearly unbiased estimator of the divergence (http://joschu.net/blog/kl-approx.html); far out it grows
    with |x| and not with its square or exponential. Normal training occasionally moves a token from a chance
    of one half to one in a hundred thousand: its square alone looked like a diverged policy (in three of ten
    trainings on the desk), as does r - 1 - log r for tokens that become likelier.
    """
    moved = [abs(ratio) for ratio in log_ratios]
    if not moved:
        return math.nan
    return math.fsum(size + math.expm1(-size) for size in moved) / len(moved)
