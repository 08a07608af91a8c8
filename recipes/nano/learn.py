"""Supervised training of a nano model on recorded episodes: every token counts, the agent's own the most.

What weighs how much is said in `lessons`. Random sequences that say the same three times are among the rows:
a model that copies can foretell them.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.lessons import Lessons, Progress, Schedule
from dreamgym_kit.recipes.nano.tokens import Stream, TokenRow

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

_TIMES = 3
_SHORTEST, _LONGEST = 3, 14


@dataclass(frozen=True, slots=True)
class Repetition:
    """One sequence; `ids[known:]` can be foretold by copying, what is before it cannot."""

    ids: tuple[int, ...]
    known: int


def repetition(pool: Sequence[int], start: int, chance: random.Random) -> Repetition:
    """Draw a segment of tokens from `pool` and repeat it after `start`."""
    segment = [chance.choice(pool) for _ in range(chance.randint(_SHORTEST, _LONGEST))]
    # the first repeated token could be any; from the second on the one before says what follows
    return Repetition((start, *segment * _TIMES), len(segment) + 2)


def learn(
    model: "Qwen3ForCausalLM",
    stream: Stream,
    rows: Sequence[TokenRow],
    *,
    first: Sequence[TokenRow] = (),
    lessons: Lessons,
    seed: int = 0,
    tell: Callable[[Progress], None] | None = None,
) -> None:
    """Teach a model these rows; it is changed in place. Equal inputs and seeds give equal weights.

    Args:
        model: to be taught.
        stream: its tokens.
        rows: what it reads, over and over.
        first: what it reads instead at first, for as many steps as the lessons say.
        lessons: how.
        seed: of the order.
        tell: hears of every step.

    Raises:
        UserError: there are fewer rows than a step reads.
    """
    chance = random.Random(f"lessons {seed}")  # noqa: S311  not secret
    early, late = (_batches(stream, read, lessons, chance) for read in (first or rows, rows))
    turning = round(lessons.steps * lessons.seniors_first) if first else 0
    descend(model, chain(islice(early, turning), late), _loss, lessons, tell)


def descend(
    model: "Qwen3ForCausalLM",
    batches: Iterator[tuple[Tensor, Tensor]],
    loss_of: Callable[["Qwen3ForCausalLM", Tensor, Tensor], tuple[Tensor, float]],
    lessons: Lessons | Schedule,
    tell: Callable[[Progress], None] | None,
) -> None:
    """Take the steps of a course, one batch each; the model is changed in place."""
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=lessons.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    began = time.process_time()
    model.train()
    for step in range(1, lessons.steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = lessons.rate * _height(step, lessons)
        loss, accuracy = loss_of(model, *next(batches))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if tell is not None:
            tell(Progress(step, loss.item(), accuracy, time.process_time() - began))
    model.eval()


def _height(step: int, lessons: Lessons | Schedule) -> float:
    rest = 1 - (step - 1) / lessons.steps
    return min(1.0, step / lessons.warm_up) * max(lessons.final_rate, rest)


def _loss(model: "Qwen3ForCausalLM", ids: Tensor, weights: Tensor) -> tuple[Tensor, float]:
    """The weighted mean loss of the tokens after the first, and how many of the agent's were foretold."""
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    wanted, weight = ids[:, 1:], weights[:, 1:]
    counted = weight > 0
    logits = model.lm_head(states[counted])
    losses = cross_entropy(logits, wanted[counted], reduction="none")
    weight = weight[counted]
    mine = weight >= 1
    right = (logits.detach().argmax(-1) == wanted[counted])[mine].float().mean().item()
    return (losses * weight).sum() / weight.sum(), right


def _batches(
    stream: Stream, rows: Sequence[TokenRow], lessons: Lessons, chance: random.Random
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end; rows of like length stand together, so that little is padded."""
    pool = sorted(stream.copied)
    repeated = round(lessons.rows * lessons.repetitions)
    taken = lessons.rows - repeated
    if len(rows) < taken:
        raise UserError(f"{len(rows)} episodes are too few: a step reads {taken}; record more of them")
    heap = min(taken * 8, len(rows) // taken * taken)  # a multiple of what a step takes
    while True:
        order = list(rows)
        chance.shuffle(order)
        for start in range(0, len(order) - heap + 1, heap):
            near = sorted(order[start : start + heap], key=lambda row: len(row.ids))
            batches = [near[first : first + taken] for first in range(0, heap, taken)]
            chance.shuffle(batches)
            for batch in batches:
                weighed = [weigh(row, stream, lessons) for row in batch]
                copies = [repetition(pool, stream.pad, chance) for _ in range(repeated)]
                weighed += [
                    (list(copy.ids), [0.0] * copy.known + [1.0] * (len(copy.ids) - copy.known))
                    for copy in copies
                ]
                yield _padded(weighed, stream.pad)


def weigh(row: TokenRow, stream: Stream, lessons: Lessons) -> tuple[list[int], list[float]]:
    """An episode's tokens and what each counts in the loss."""
    weights, before = [], False
    for token, sampled in zip(row.ids, row.sampled, strict=True):
        if not sampled:
            weight = lessons.told_weight
        elif token in stream.copied:
            weight = lessons.copied_weight
        else:
            decides = not before or token in stream.tools
            weight = lessons.deciding_weight if decides else 1.0
        weights.append(weight)
        before = sampled
    return list(row.ids), weights


def _padded(rows: Sequence[tuple[list[int], list[float]]], pad: int) -> tuple[Tensor, Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows])
    weights = torch.tensor([weights + [0.0] * (longest - len(weights)) for _, weights in rows])
    return ids, weights
