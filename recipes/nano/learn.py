"""Supervised training of nano models: `learn` teaches a policy episodes, `teach` an experience model lessons.

Of an episode every token counts, the agent's own the most; what weighs how much is declared in `build`.
Random sequences that say the same three times are among the rows: a model that copies can foretell them.

The experience model's tokenizer has a token for each of its words, bytes for the rest: records and decisions
are lines of closed words (`dream.learned.vocabulary`), each after a space, so one word is one token and a
call costs some thirty of them. Only what it is to say counts. Its lessons are drawn by tool and outcome, each
kind by the square root of how many there are, so that rare refusals are met often enough.
"""

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dreamgym_kit.dream.learned.training_data import DecisionLesson
from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.build import Lessons, Progress, Schedule
from dreamgym_kit.recipes.nano.tokens import END, START, Stream, TokenRow, byte_level_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3ForCausalLM

_TIMES = 3
_SHORTEST, _LONGEST = 3, 14
_WORD_CONTEXT = 512
_WORD_TEMPLATE = Path(__file__).parent / "experience" / "chat_template.jinja"


class WeightedRow(NamedTuple):
    """Tokens, and what each counts in the loss; from 1 on it counts as foretold or not."""

    ids: Sequence[int]
    weights: Sequence[float]


@dataclass(frozen=True, slots=True)
class Repetition:
    """One sequence; `ids[start_of_copy:]` can be predicted by copying; the ids before it cannot."""

    ids: tuple[int, ...]
    start_of_copy: int


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
    _descend(model, stream.pad, chain(islice(early, turning), late), lessons, tell)


def _batches(
    stream: Stream, rows: Sequence[TokenRow], lessons: Lessons, chance: random.Random
) -> Iterator[list[WeightedRow]]:
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
                copies = [repetition(pool, stream.pad, chance) for _ in range(repeated)]
                yield [
                    *(weigh(row, stream, lessons) for row in batch),
                    *(_read_then_said(copy.ids, copy.start_of_copy) for copy in copies),
                ]


def weigh(row: TokenRow, stream: Stream, lessons: Lessons) -> WeightedRow:
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
    return WeightedRow(row.ids, weights)


def build_word_tokenizer(words: Sequence[str]) -> "PreTrainedTokenizerFast":
    """Build the tokenizer of these words with its chat template; equal for equal words."""
    plain = ("user\n", "assistant\n", *(f" {word}" for word in words))
    return byte_level_tokenizer(plain, template=_WORD_TEMPLATE, context=_WORD_CONTEXT)


def asked_text(record: Sequence[str]) -> str:
    """What a model reads, up to where it begins to decide; as the chat template renders a record."""
    return f"{START}user\n {' '.join(record)}{END}\n{START}assistant\n"


def decided_text(words: Sequence[str]) -> str:
    """What a model says, without its end."""
    return f" {' '.join(words)}"


def tokenized(lesson: DecisionLesson, tokenizer: "PreTrainedTokenizerBase") -> WeightedRow:
    """A lesson as tokens, with its end."""
    prompt, decision = (
        tokenizer.encode(text, add_special_tokens=False)
        for text in (asked_text(lesson.record), decided_text(lesson.label.words()))
    )
    return _read_then_said((*prompt, *decision, tokenizer.eos_token_id), len(prompt))


def teach(
    model: "Qwen3ForCausalLM",
    tokenizer: "PreTrainedTokenizerBase",
    lessons: Sequence[DecisionLesson],
    *,
    course: Schedule,
    seed: int = 0,
    tell: Callable[[Progress], None] | None = None,
) -> None:
    """Teach a model these lessons; it is changed in place. Equal inputs and seeds give equal weights.

    Raises:
        UserError: there are no lessons.
    """
    if not lessons:
        raise UserError("there is nothing to learn from: no recorded call has an outcome that recurs")
    drawn = _drawn(lessons, tokenizer, random.Random(f"lessons {seed}"))  # noqa: S311  not secret
    batches = ([next(drawn) for _ in range(course.rows)] for _ in count())
    _descend(model, tokenizer.pad_token_id, batches, course, tell)


def _drawn(
    lessons: Sequence[DecisionLesson], tokenizer: "PreTrainedTokenizerBase", chance: random.Random
) -> Iterator[WeightedRow]:
    """Lessons without end, by kind."""
    kinds: dict[tuple[str, str], list[DecisionLesson]] = defaultdict(list)
    for lesson in lessons:
        kinds[lesson.tool, lesson.label.outcome].append(lesson)
    names = sorted(kinds)
    weights = [math.sqrt(len(kinds[name])) for name in names]
    rows: dict[DecisionLesson, WeightedRow] = {}
    while True:
        lesson = chance.choice(kinds[chance.choices(names, weights)[0]])
        if lesson not in rows:
            rows[lesson] = tokenized(lesson, tokenizer)
        yield rows[lesson]


def _read_then_said(ids: Sequence[int], read: int) -> WeightedRow:
    """Tokens of which the first `read` do not count."""
    return WeightedRow(ids, [0.0] * read + [1.0] * (len(ids) - read))


def _descend(
    model: "Qwen3ForCausalLM",
    pad: int,
    batches: Iterator[Sequence[WeightedRow]],
    course: Schedule,
    tell: Callable[[Progress], None] | None,
) -> None:
    """Take the steps of a course, one batch each; the model is changed in place."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=course.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    began = time.process_time()
    model.train()
    for step in range(1, course.steps + 1):
        rest = 1 - (step - 1) / course.steps
        for group in optimizer.param_groups:
            group["lr"] = course.rate * min(1.0, step / course.warm_up) * max(course.final_rate, rest)
        loss, accuracy = _loss(model, *_padded(next(batches), pad))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if tell is not None:
            tell(Progress(step, loss.item(), accuracy, time.process_time() - began))
    model.eval()


def _loss(model: "Qwen3ForCausalLM", ids: Tensor, weights: Tensor) -> tuple[Tensor, float]:
    """The weighted mean loss of the tokens after the first, and how many of the model's were foretold."""
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    wanted, weight = ids[:, 1:], weights[:, 1:]
    counted = weight > 0
    logits = model.lm_head(states[counted])
    losses = cross_entropy(logits, wanted[counted], reduction="none")
    weight = weight[counted]
    right = (logits.detach().argmax(-1) == wanted[counted])[weight >= 1].float().mean().item()
    return (losses * weight).sum() / weight.sum(), right


def _padded(rows: Sequence[WeightedRow], pad: int) -> tuple[Tensor, Tensor]:
    longest = max(len(row.ids) for row in rows)
    ids = torch.tensor([[*row.ids, *[pad] * (longest - len(row.ids))] for row in rows])
    weights = torch.tensor([[*row.weights, *[0.0] * (longest - len(row.ids))] for row in rows])
    return ids, weights
