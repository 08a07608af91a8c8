"""A batch as the tensors of TRL's loss; merging a model's weights, and scoring with it.

A batch has minibatches (an optimizer step each), a minibatch has shares (one per process) and these have
pieces (one forward and backward pass each). Episodes are assigned to minibatches whole and randomly; within a
minibatch rows are sorted by length, to reduce padding.

All rows of a piece are split at the same place, their smallest `start`: the rest of a longer prompt is part
of the completion with weight 0. So nothing is padded on the left, and no attention mask is needed.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import torch

from dreamgym_kit.turns import Batch, Sample

T = TypeVar("T")
Piece = tuple[Sample, ...]
VALUE_HEAD = "value_head"
"""Name of PPO's value head in a model."""

_TOKENS_A_PASS = 16_384  # including padding
_NUMBERS_A_PASS = 2**28  # logits per pass
_NOTHING = Sample("", (0, 0), 1, (0,), (0.0,), (), (), weight=0.0)


def minibatches_of(batch: Batch, number: int, *, seed: int) -> list[list[Sample]]:
    """Distribute a batch's episodes to minibatches evenly; pairs stay together."""
    if number == 1:
        return [list(batch.samples)]
    units = list(dict.fromkeys(sample.pair or sample.episode for sample in batch.samples))
    random.Random(f"minibatches:{seed}:{batch.step}").shuffle(units)  # noqa: S311 - an order, no secret
    place = {unit: index % number for index, unit in enumerate(units)}
    dealt: list[list[Sample]] = [[] for _ in range(number)]
    for sample in batch.samples:
        dealt[place[sample.pair or sample.episode]].append(sample)
    return dealt


def pieces_of(samples: Sequence[Sample], number: int, *, rank: int = 0, ranks: int = 1) -> list[Piece]:
    """Split one process's share of a minibatch into `number` pieces; a piece may be empty.

    All processes have pieces with equal numbers of rows, as their collectives require: missing rows are added
    without a trained token.
    """
    share = sorted(samples, key=lambda sample: -len(sample.ids))[rank::ranks]
    if ranks > 1 and len(share) < -(-len(samples) // ranks):
        row = share[-1] if share else _NOTHING
        share.append(replace(row, mask=(0,) * len(row.mask), weight=0.0, advantage=0.0))
    return [tuple(piece) for piece in _in_pieces(share, number)]


def pieces_of_pairs(samples: Sequence[Sample], number: int, *, rank: int = 0, ranks: int = 1) -> list[Piece]:
    """Like `pieces_of`, with both sides of a pair in one piece."""
    pairs: dict[str, list[Sample]] = {}
    for sample in samples:
        pairs.setdefault(sample.pair, []).append(sample)
    share = sorted(pairs.values(), key=lambda rows: -max(len(row.ids) for row in rows))[rank::ranks]
    return [tuple(chain.from_iterable(piece)) for piece in _in_pieces(share, number)]


def _in_pieces(share: Sequence[T], number: int) -> Iterator[Sequence[T]]:
    """Yield `number` pieces of similar size, the larger ones first."""
    size, more = divmod(len(share), number)
    for index in range(number):
        begin = index * size + min(index, more)
        yield share[begin : begin + size + (index < more)]


def tensors_of(
    piece: Piece, *, tokens: int, numbers: Any = torch.float32, device: Any = "cpu"
) -> dict[str, Any]:
    """Return TRL's tensors for one piece. An empty piece is a row of two tokens without weight.

    `tokens`: number of trained tokens of the whole batch, the divisor of token losses. `numbers`: the dtype
    of weights, log-probs and advantages.
    """
    rows = piece or (_NOTHING,)
    cut = min(row.start for row in rows)
    width = max(len(row.ids) for row in rows)

    def right(values: Sequence[Sequence[float]], dtype: Any) -> Any:
        return torch.tensor([[*given, *[0] * (width - cut - len(given))] for given in values], dtype=dtype)

    def sampled(values: Sequence[Sequence[float]], dtype: Any) -> Any:
        """Return values after a row's start."""
        return right([[*[0] * (row.start - cut), *v] for row, v in zip(rows, values, strict=True)], dtype)

    tensors = {
        "prompt_ids": torch.tensor([row.ids[:cut] for row in rows]),
        "prompt_mask": torch.ones(len(rows), cut, dtype=torch.long),
        "completion_ids": right([row.ids[cut:] for row in rows], torch.long),
        "completion_mask": right([[1] * (len(row.ids) - cut) for row in rows], torch.long),
        "tool_mask": sampled([[own * row.weight for own in row.mask] for row in rows], numbers),
        "sampled": sampled([row.mask for row in rows], torch.bool),
        "old_per_token_logps": sampled([row.logprobs for row in rows], numbers),
        "advantages": torch.tensor([row.advantage for row in rows], dtype=numbers),
        "num_items_in_batch": torch.tensor(float(tokens), dtype=numbers),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def check(batch: Batch, tokens: int, vocabulary: int) -> None:
    """Refuse a batch that cannot be trained on, before computing."""
    if not tokens:
        raise ValueError(f"step {batch.step}: a batch in which nothing was sampled")
    for sample in batch.samples:
        if sample.start < 1:
            raise ValueError(f"step {batch.step}: a sample of {sample.episode} without a prompt")
        if not len(sample.mask) == len(sample.logprobs) == len(sample.ids) - sample.start:
            raise ValueError(f"step {batch.step}: a sample of {sample.episode} whose parts do not fit")
        if min(sample.ids) < 0 or max(sample.ids) >= vocabulary:
            raise ValueError(
                f"step {batch.step}: a sample of {sample.episode} with the token {max(sample.ids)}, but the "
                f"model has {vocabulary}"
            )


def merged(model: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return the model without its adapter, and the weights to write; None: its own weights.

    Merged in a copy, not in the model: removing an adapter again leaves rounding errors.
    """
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer

    if not isinstance(model, PeftModel):
        return model, _without_value_head(model)
    base = model.get_base_model()
    tensors = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in base.state_dict().items()
        if ".lora_" not in name and not name.startswith(f"{VALUE_HEAD}.")
    }
    with torch.no_grad():
        for name, module in base.named_modules():
            if isinstance(module, LoraLayer):
                weight = module.get_base_layer().weight
                delta = module.get_delta_weight(model.active_adapter)
                tensors[f"{name}.weight"] = weight + delta.to(weight.dtype)
    return base, tensors


def _without_value_head(model: Any) -> dict[str, Any] | None:
    if not hasattr(model, VALUE_HEAD):
        return None
    state = model.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith(f"{VALUE_HEAD}.")}


def without_dropout(model: Any) -> Any:
    """Return the model without dropout, as it samples: dropout would change the ratios to the sampler.

    Some layers have dropout as a module, others as a number. The config stays unchanged.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


def score(model: Any, ids: Sequence[Sequence[int]], *, temperature: float = 1.0) -> list[list[float]]:
    """Return the natural log-prob of each ID after the first; right padding needs no mask."""
    order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
    tokens = min(_TOKENS_A_PASS, _NUMBERS_A_PASS // model.config.get_text_config().vocab_size)
    scores: list[list[float]] = [[] for _ in ids]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            while order:
                rows = max(1, tokens // max(1, len(ids[order[0]])))
                taken, order = order[:rows], order[rows:]
                for place, logprobs in zip(
                    taken, _pass(model, [ids[place] for place in taken], temperature), strict=True
                ):
                    scores[place] = logprobs
    finally:
        model.train(training)
    return scores


def _pass(model: Any, rows: Sequence[Sequence[int]], temperature: float) -> list[list[float]]:
    width = max(len(row) for row in rows)
    if width < 2:
        return [[] for _ in rows]
    padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=model.device)
    logits = model(input_ids=padded, use_cache=False).logits[:, :-1].float() / temperature
    logprobs = logits.log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0].tolist()
    return [scored[: max(0, len(row) - 1)] for scored, row in zip(logprobs, rows, strict=True)]
