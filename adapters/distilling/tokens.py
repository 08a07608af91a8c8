"""Lessons as token ids, as a server of the model will read and write them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.adapters.trainers.sft import SftRow
from dreamgym_kit.errors import UserError
from dreamgym_kit.training.distil.lessons import Lesson


@dataclass(frozen=True, slots=True)
class Rows:
    """What is learned from, and what was too long for it."""

    rows: list[SftRow]
    too_long: int
    tokens: int  # of all rows
    longest: int


def rows_of(lessons: Iterable[Lesson], folder: Path, *, most: int | None = None) -> Rows:
    """The prompt by the model's own chat template, given; then the answer with its end, learned.

    Args:
        lessons: what is to be learned.
        folder: the model's directory.
        most: tokens of a row; longer ones are left out. None: as many as the model reads.

    Raises:
        UserError: the directory is none, or its tokenizer cannot say where in a text its tokens stand.
    """
    from dreamgym_kit.adapters.models.local_directory import read_files
    from dreamgym_kit.adapters.models.local_loading import load_tokenizer
    from dreamgym_kit.adapters.models.local_prompts import Prompts, whole_characters

    files = read_files(folder)
    tokenizer = load_tokenizer(files)
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: its tokenizer is not a fast one (tokenizer.json); convert it.")
    end = tokenizer.eos_token_id
    ends = files.ends or ({end} if isinstance(end, int) else set())
    if not ends:
        raise UserError(f"{folder}: names no end token (eos_token_id); a model of it would never stop.")
    last = end if end in ends else min(ends)
    inner = files.config.get("text_config")
    context = files.config.get("max_position_embeddings") or (inner or {}).get("max_position_embeddings")
    most = min(one for one in (most, context, 2**31) if isinstance(one, int))
    prompts = Prompts(tokenizer)
    found, too_long = [], 0
    for lesson in lessons:
        prompt = prompts.encode(prompts.render(lesson.messages, ()))
        text = whole_characters(lesson.answer)
        answer = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        weights = _weights(answer["offset_mapping"], lesson.unlearned)
        if len(prompt) + len(weights) + 1 > most:
            too_long += 1
            continue
        found.append(SftRow([*prompt, *answer["input_ids"], last], [*[0.0] * len(prompt), *weights, 1.0]))
    sizes = [len(row.ids) for row in found]
    return Rows(found, too_long, sum(sizes), max(sizes, default=0))


def _weights(offsets: Sequence[tuple[int, int]], unlearned: Sequence[tuple[int, int]]) -> list[float]:
    return [
        0.0 if any(start < last and end > first for first, last in unlearned) else 1.0
        for start, end in offsets
    ]
