"""Plain supervised training of a nano experience model on lessons: only what it is to say counts.

Its tokenizer has a token for each of its words, bytes for the rest: records and decisions are lines of closed
words (`dream.learned.vocabulary`), each after a space, so one word is one token and a call costs some thirty
of them. Any other text still goes there and back unharmed.

Lessons are drawn by tool and outcome, each kind by the square root of how many there are, so that rare
refusals are met often enough. Where nobody looked what a call changed, nothing after the outcome counts.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dreamgym_kit.dream.learned.training_data import DecisionLesson
from dreamgym_kit.errors import UserError
from dreamgym_kit.recipes.nano.learn import descend
from dreamgym_kit.recipes.nano.lessons import Progress, Schedule
from dreamgym_kit.recipes.nano.tokens import END, START, byte_level_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3ForCausalLM

CONTEXT = 512
TEMPLATE_FILE = Path(__file__).parent / "chat_template.jinja"


def build_word_tokenizer(words: Sequence[str]) -> "PreTrainedTokenizerFast":
    """Build the tokenizer of these words with its chat template; equal for equal words."""
    plain = ("user\n", "assistant\n", *(f" {word}" for word in words))
    return byte_level_tokenizer(plain, template=TEMPLATE_FILE, context=CONTEXT)


def asked_text(record: Sequence[str]) -> str:
    """What a model reads, up to where it begins to decide; as the chat template renders a record."""
    return f"{START}user\n {' '.join(record)}{END}\n{START}assistant\n"


def decided_text(words: Sequence[str]) -> str:
    """What a model says, without its end."""
    return f" {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class LessonRow:
    """One lesson as tokens: what is read, what is said, and whether its end is known."""

    ids: tuple[int, ...]
    length: int  # tokens that are read


def tokenized(lesson: DecisionLesson, tokenizer: "PreTrainedTokenizerBase") -> LessonRow:
    """A lesson as tokens."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    prompt, decision = encode(asked_text(lesson.record)), encode(decided_text(lesson.label.words()))
    end = [tokenizer.eos_token_id] if lesson.label.changes is not None else []
    return LessonRow((*prompt, *decision, *end), len(prompt))


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
    batches = (_batch([next(drawn) for _ in range(course.rows)], tokenizer.pad_token_id) for _ in count())
    descend(model, batches, _loss, course, tell)


def _drawn(
    lessons: Sequence[DecisionLesson], tokenizer: "PreTrainedTokenizerBase", chance: random.Random
) -> Iterator[LessonRow]:
    """Lessons without end, by kind."""
    kinds: dict[tuple[str, str], list[DecisionLesson]] = defaultdict(list)
    for lesson in lessons:
        kinds[lesson.tool, lesson.label.outcome].append(lesson)
    names = sorted(kinds)
    weights = [math.sqrt(len(kinds[name])) for name in names]
    known: dict[DecisionLesson, LessonRow] = {}
    while True:
        lesson = chance.choice(kinds[chance.choices(names, weights)[0]])
        if lesson not in known:
            known[lesson] = tokenized(lesson, tokenizer)
        yield known[lesson]


def _loss(model: "Qwen3ForCausalLM", ids: Tensor, counts: Tensor) -> tuple[Tensor, float]:
    """The mean loss of what is said, and how much of it was foretold."""
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    counted = counts[:, 1:]
    logits, wanted = model.lm_head(states[counted]), ids[:, 1:][counted]
    right = (logits.detach().argmax(-1) == wanted).float().mean().item()
    return cross_entropy(logits, wanted), right


def _batch(drawn: Sequence[LessonRow], pad: int) -> tuple[Tensor, Tensor]:
    rows = sorted(drawn, key=lambda row: len(row.ids))
    longest = len(rows[-1].ids)
    ids = torch.tensor([[*row.ids, *[pad] * (longest - len(row.ids))] for row in rows])
    counts = torch.tensor([[row.length <= place < len(row.ids) for place in range(longest)] for row in rows])
    return ids, counts
