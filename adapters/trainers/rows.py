"""A batch as the tensors that TRL's loss reads.

Decides which sample is learned from in which piece. A batch has minibatches (an optimiser step each), a
minibatch has shares (one a process) and these have pieces (one forward and backward each). Episodes are dealt
to minibatches whole, by chance; within a minibatch rows lie by their length, so that little is padding.

All rows of a piece are cut at the same place, the smallest `start` among them: what a longer prompt has
beyond it stands in the completion with weight 0. So nothing is padded at the left, and no attention mask is
needed.
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
_NOTHING = Sample("", (0, 0), 1, (0,), (0.0,), (), (), weight=0.0)


def minibatches_of(batch: Batch, number: int, *, seed: int) -> list[list[Sample]]:
    """Deal the episodes of a batch to minibatches, as evenly as they come; a pair stays together."""
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
    """One process's share of a minibatch, in `number` pieces; a piece may be empty.

    All processes have pieces of as many rows, as their collectives want it: a row that one lacks is there
    without any token to learn.
    """
    share = sorted(samples, key=lambda sample: -len(sample.ids))[rank::ranks]
    if ranks > 1 and len(share) < -(-len(samples) // ranks):
        row = share[-1] if share else _NOTHING
        share.append(replace(row, mask=(0,) * len(row.mask), weight=0.0, advantage=0.0))
    return [tuple(piece) for piece in _in_pieces(share, number)]


def pieces_of_pairs(samples: Sequence[Sample], number: int, *, rank: int = 0, ranks: int = 1) -> list[Piece]:
    """The same where rows are held against each other: both sides of a pair are in one piece."""
    pairs: dict[str, list[Sample]] = {}
    for sample in samples:
        pairs.setdefault(sample.pair, []).append(sample)
    share = sorted(pairs.values(), key=lambda rows: -max(len(row.ids) for row in rows))[rank::ranks]
    return [tuple(chain.from_iterable(piece)) for piece in _in_pieces(share, number)]


def _in_pieces(share: Sequence[T], number: int) -> Iterator[Sequence[T]]:
    """`number` pieces of like size, the larger ones first."""
    size, more = divmod(len(share), number)
    for index in range(number):
        begin = index * size + min(index, more)
        yield share[begin : begin + size + (index < more)]


def tensors_of(
    piece: Piece, *, tokens: int, numbers: Any = torch.float32, device: Any = "cpu"
) -> dict[str, Any]:
    """What TRL reads of one piece. An empty one is a row of two tokens that counts for nothing.

    `tokens`: how many of the whole batch are trained on: what losses by tokens divide by. `numbers`: the type
    of weights, log-probs and advantages.
    """
    rows = piece or (_NOTHING,)
    cut = min(row.start for row in rows)
    width = max(len(row.ids) for row in rows)

    def right(values: Sequence[Sequence[float]], dtype: Any) -> Any:
        return torch.tensor([[*given, *[0] * (width - cut - len(given))] for given in values], dtype=dtype)

    def sampled(values: Sequence[Sequence[float]], dtype: Any) -> Any:
        """Values of what follows a row's own start."""
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
    """Refuse a batch that cannot be learned from, before anything is computed."""
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
