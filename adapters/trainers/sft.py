"""Supervised fine-tuning on token IDs, without retokenizing, through TRL's `SFTTrainer`.

A row has a loss weight for each of its tokens; 0: given, not trained. Rows are taken in an order drawn from
the seed, each once before any is repeated.
"""

import hashlib
import math
import random
import shutil
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dreamgym_kit.adapters.models.folders import (
    calm,
    load_model,
    load_tokenizer,
    no_bars,
    require_extra,
    threads,
    write_model,
)
from dreamgym_kit.adapters.trainers.checkpoints import Checkpoint, Checkpoints
from dreamgym_kit.adapters.trainers.options import LoraOptions, weights_dtype
from dreamgym_kit.canonical import canonical
from dreamgym_kit.deployment.model_files import digest_of_folder
from dreamgym_kit.errors import TrainingStopped, UserError
from dreamgym_kit.serialization import JsonValue


@dataclass(frozen=True, slots=True)
class SftRow:
    """One conversation as token IDs."""

    ids: Sequence[int]
    weights: Sequence[float]  # loss weight of each ID, 0 or more; the first is never trained


@dataclass(frozen=True, slots=True)
class SftOptions:
    """Options of the training. The defaults are those of the nano models."""

    steps: int = 600
    batch: int = 20  # rows per step
    learning_rate: float = 2.5e-3  # after the warm-up; decays linearly to `final_share` of it
    final_share: float = 0.1
    warmup_steps: int = 30
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    seed: int = 0
    threads: int = 1  # of torch; 0: unchanged
    pieces: int = 1  # per batch; more need less memory and change nothing else
    lora: LoraOptions | None = None  # None: all weights are trained; else the written weights are merged
    dtype: str = "float32"  # of computation; with "bfloat16" trained weights stay float32
    checkpointing: bool = False  # recompute activations in the backward pass: less memory, more time
    save_every: int = 50  # steps between checkpoints, if there are any


@dataclass(frozen=True, slots=True)
class SftStep:
    """The figures of one step."""

    step: int  # 1-based
    loss: float
    grad_norm: float
    learning_rate: float


def train_sft(
    model_dir: Path,
    rows: Iterable[SftRow],
    out_dir: Path,
    options: SftOptions = SftOptions(),
    *,
    checkpoints: Path | None = None,
    tell: Callable[[SftStep], None] = lambda _: None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> list[SftStep]:
    """Train the model of `model_dir` on `rows` and write it to `out_dir`, with its tokenizer and `texts`.

    Equal arguments give equal weights, on one machine with one thread, even if the training was killed and
    resumed.

    Args:
        model_dir: the initial model; only read.
        rows: the training data.
        out_dir: receives the model at the end.
        options: see `SftOptions`.
        checkpoints: a folder for checkpoints: an interrupted training resumes from the last one; they are
            deleted after the model is written. None: no checkpoints.
        tell: called after each step.
        texts: more files for `out_dir`, by name.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        TrainingStopped: the loss or a gradient is not finite.
        UserError: no data, a row's weights do not fit its IDs, the model does not load, or the last
            checkpoint is of another training.
    """
    require_extra("train_sft")
    from dreamgym_kit.adapters.trainers.tensors import merged
    from dreamgym_kit.adapters.trainers.trl_trainers import WeightedSft

    if options.pieces < 1 or options.batch % options.pieces:
        raise UserError(f"a batch of {options.batch} rows cannot be cut into {options.pieces} equal pieces.")
    table = _table(list(rows), options)

    def report(step: SftStep) -> None:
        if not (math.isfinite(step.loss) and math.isfinite(step.grad_norm)):
            raise TrainingStopped(
                "not_finite", f"the loss is {step.loss}; nothing was written", step=step.step
            )
        tell(step)

    with threads(options.threads), calm():
        model, tokenizer = _opened(model_dir, options), load_tokenizer(model_dir)
        saved, last = None, None
        if checkpoints is not None:
            place, made_of = Checkpoints(checkpoints, keep=1), _made_of(model_dir, table, options)
            saved, last = (place, made_of), _last(place, made_of)
        trainer = WeightedSft(model, tokenizer, table, options, report, saved)
        with no_bars():
            trainer.train(resume_from_checkpoint=str(last.folder) if last is not None else None)
        whole, tensors = merged(model)
        write_model(out_dir, whole, tokenizer, tensors=tensors, texts=texts)
    if checkpoints is not None:
        shutil.rmtree(checkpoints, ignore_errors=True)
    return trainer.kit_steps


def _made_of(folder: Path, table: Mapping[str, Any], options: SftOptions) -> dict[str, JsonValue]:
    """Return the settings that a resumed training must share with its checkpoint."""
    free = {"threads", "save_every"}
    named = {name: canonical(value) for name, value in asdict(options).items() if name not in free}
    return {"model": digest_of_folder(folder), "lessons": _digest(table), **named}


def _last(place: Checkpoints, made_of: Mapping[str, JsonValue]) -> Checkpoint | None:
    last, _ = place.last()
    for name, before, now in last.differences(made_of) if last is not None else ():
        raise UserError(
            f"{place.folder}: a training that was broken off lies there, with {name} = {before}; this one "
            f"has {now}. Set it back to go on with that one, or remove the folder to begin anew."
        )
    return last


def _digest(table: Mapping[str, Any]) -> str:
    whole = hashlib.sha256()
    for ids, weights in zip(table["input_ids"], table["weights"], strict=True):
        whole.update(b"%d " % len(ids) + array("q", ids).tobytes() + array("d", weights).tobytes())
    return whole.hexdigest()[:32]


def _opened(folder: Path, options: SftOptions) -> Any:
    model = load_model(folder, dtype=weights_dtype(options.dtype, options.lora))
    if options.lora is None:
        return model
    import torch
    from peft import get_peft_model

    torch.manual_seed(options.seed)  # the adapter is initialized randomly
    try:
        return get_peft_model(model, options.lora.config())
    except ValueError as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise UserError(f"{folder}: cannot get an adapter like this: {reason}") from error


def _table(rows: Sequence[SftRow], options: SftOptions) -> dict[str, list[Any]]:
    """Return all rows of all steps, in order."""
    learned: list[SftRow] = []
    for number, row in enumerate(rows, 1):
        if len(row.ids) != len(row.weights):
            raise UserError(f"row {number}: {len(row.ids)} ids, but {len(row.weights)} weights.")
        if any(not math.isfinite(weight) or weight < 0 for weight in row.weights):
            raise UserError(f"row {number}: a weight is negative or not finite.")
        if any(row.weights[1:]):
            learned.append(row)
    if not learned:
        raise UserError("no row has a token to learn; give weights above 0 to what the model shall say.")
    chance = random.Random(f"sft:{options.seed}")  # noqa: S311 - an order, no secret
    taken: list[SftRow] = []
    while len(taken) < options.steps * options.batch:
        taken += chance.sample(learned, len(learned))
    del taken[options.steps * options.batch :]
    of = [
        sum(sum(map(float, row.weights[1:])) for row in taken[first : first + options.batch]) / options.pieces
        for first in range(0, len(taken), options.batch)
    ]
    return {
        "of": [of[place // options.batch] for place in range(len(taken))],
        "input_ids": [list(row.ids) for row in taken],
        "weights": [list(map(float, row.weights)) for row in taken],
    }
