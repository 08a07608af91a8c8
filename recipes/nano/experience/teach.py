"""Plain supervised training of a nano experience model on lessons: only what it is to say counts.

Lessons are drawn by tool and outcome, each kind by the square root of how many there are, so that rare
refusals are met often enough. Where nobody looked what a call changed, nothing after the outcome counts.
"""

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dreamgym_kit.dream.learned.teaching import Lesson
from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.experience.course import Course
from dreamgym_kit.recipes.nano.experience.words import asked_text, decided_text
from dreamgym_kit.recipes.nano.lessons import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class Told:
    """One lesson as tokens: what is read, what is said, and whether its end is known."""

    ids: tuple[int, ...]
    asked: int  # tokens that are read


def told(one: Lesson, tokenizer: "PreTrainedTokenizerBase") -> Told:
    """A lesson as tokens."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    asked, said = encode(asked_text(one.record)), encode(decided_text(one.said.words()))
    end = [tokenizer.eos_token_id] if one.said.changes is not None else []
    return Told((*asked, *said, *end), len(asked))


def teach(
    model: "Qwen3ForCausalLM",
    tokenizer: "PreTrainedTokenizerBase",
    lessons: Sequence[Lesson],
    *,
    course: Course,
    seed: int = 0,
    tell: Callable[[Progress], None] | None = None,
) -> None:
    """Teach a model these lessons; it is changed in place. Equal inputs and seeds give equal weights.

    Raises:
        UserError: there are no lessons.
    """
    if not lessons:
        raise UserError("there is nothing to learn from: no recorded call has an outcome that recurs")
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=course.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    drawn = _drawn(lessons, tokenizer, random.Random(f"lessons {seed}"))  # noqa: S311  not secret
    began = time.process_time()
    model.train()
    for step in range(1, course.steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = course.rate * _height(step, course)
        rows = sorted((next(drawn) for _ in range(course.rows)), key=lambda row: len(row.ids))
        loss, right = _loss(model, *_padded(rows, tokenizer.pad_token_id))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if tell is not None:
            tell(Progress(step, loss.item(), right, time.process_time() - began))
    model.eval()


def _height(step: int, course: Course) -> float:
    return min(1.0, step / course.warm_up) * max(course.final_rate, 1 - (step - 1) / course.steps)


def _drawn(
    lessons: Sequence[Lesson], tokenizer: "PreTrainedTokenizerBase", chance: random.Random
) -> Iterator[Told]:
    """Lessons without end, by kind."""
    kinds: dict[tuple[str, str], list[Lesson]] = defaultdict(list)
    for one in lessons:
        kinds[one.tool, one.said.outcome].append(one)
    names = sorted(kinds)
    weights = [math.sqrt(len(kinds[name])) for name in names]
    known: dict[Lesson, Told] = {}
    while True:
        one = chance.choice(kinds[chance.choices(names, weights)[0]])
        if one not in known:
            known[one] = told(one, tokenizer)
        yield known[one]


def _loss(model: "Qwen3ForCausalLM", ids: Tensor, counts: Tensor) -> tuple[Tensor, float]:
    """The mean loss of what is said, and how much of it was foretold."""
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    counted = counts[:, 1:]
    logits, wanted = model.lm_head(states[counted]), ids[:, 1:][counted]
    right = (logits.detach().argmax(-1) == wanted).float().mean().item()
    return cross_entropy(logits, wanted), right


def _padded(rows: Sequence[Told], pad: int) -> tuple[Tensor, Tensor]:
    longest = max(len(row.ids) for row in rows)
    ids = torch.tensor([[*row.ids, *[pad] * (longest - len(row.ids))] for row in rows])
    counts = torch.tensor([[row.asked <= place < len(row.ids) for place in range(longest)] for row in rows])
    return ids, counts
