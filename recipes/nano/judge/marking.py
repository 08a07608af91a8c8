"""Teaches a nano model to mark checklists, and marks with it: all candidates of a scene in one pass.

The model is an ordinary Qwen3 directory (see `start`), whose words stand in its tokenizer and whose fields
in `judge.json` beside it. It is taught by what recorded successes wrote, with what they never read drawn
anew; no label is made by hand.
"""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dreamgym_kit.dream.checklist.features import Fields
from dreamgym_kit.dream.checklist.labels import Example
from dreamgym_kit.dream.checklist.learning import Lessons
from dreamgym_kit.dream.checklist.patterns import Candidate, Scene, candidates_in
from dreamgym_kit.recipes.nano.experience.words import build_word_tokenizer
from dreamgym_kit.recipes.nano.judge.words import MATCH, NOT, Asked, in_words, vocabulary
from dreamgym_kit.recipes.nano.lessons import Progress, Shape
from dreamgym_kit.recipes.nano.start import new_model, save_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

MANIFEST = "judge.json"
_VOCABULARY_FROM = 600  # filled examples that words are collected of


@dataclass(frozen=True, slots=True)
class Course:
    """How the model is taught."""

    steps: int = 400
    rows: int = 16  # scenes in a step
    rate: float = 2e-3  # learning rate at its height
    warm_up: int = 20  # steps
    final_rate: float = 0.05  # of `rate`, at the end of the linear decay
    shape: Shape = field(default_factory=lambda: Shape(width=64, layers=2, inner=128))


class NanoMarks:
    """Implements `dream.checklist.marks.Marks` by a nano model."""

    def __init__(
        self, model: "Qwen3ForCausalLM", tokenizer: "PreTrainedTokenizerBase", fields: Fields
    ) -> None:
        self.model, self.tokenizer, self._fields = model, tokenizer, fields
        self._reader = _Reader(tokenizer)

    def mark(self, scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
        """See `Marks.mark`."""
        ids, places = self._reader.read(in_words(scene, candidates, self._fields))
        with torch.no_grad():
            said = _said(self.model, torch.tensor([ids]), [places], self._reader)
        return [float(one) for one in torch.softmax(said, -1)[:, 1]]

    def save(self, folder: Path) -> None:
        """Write the model directory, and beside it what its words are made with."""
        save_model(self.model, self.tokenizer, folder)
        kept = {
            "closed": sorted(map(list, self._fields.closed)),
            "numbers": sorted(map(list, self._fields.numbers)),
            "cuts": [[*key, list(cuts)] for key, cuts in sorted(self._fields.cuts.items())],
        }
        (folder / MANIFEST).write_text(json.dumps({"form": 1, "fields": kept}) + "\n", encoding="utf-8")


def load_marks(folder: Path) -> NanoMarks:
    """The judge of a directory that `NanoMarks.save` wrote."""
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    kept = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["fields"]
    fields = Fields(
        frozenset((kind, name) for kind, name in kept["closed"]),
        {(kind, name): tuple(cuts) for kind, name, cuts in kept["cuts"]},
        frozenset((kind, name) for kind, name in kept["numbers"]),
    )
    model = Qwen3ForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    return NanoMarks(model, AutoTokenizer.from_pretrained(folder, local_files_only=True), fields)


def teach_marks(
    lessons: Lessons,
    *,
    course: Course | None = None,
    seed: int = 0,
    tell: Callable[[Progress], None] | None = None,
) -> NanoMarks:
    """A nano judge taught by these lessons; equal lessons and seeds give equal weights."""
    wanted = course or Course()
    filled = [example for filling in lessons.fillings for example in filling]
    words = vocabulary(filled[:_VOCABULARY_FROM], lessons.patterns, lessons.fields)
    tokenizer = build_word_tokenizer(words)
    model = new_model(tokenizer, seed=seed, shape=wanted.shape)
    _teach(model, _Reader(tokenizer), filled, lessons, wanted, seed, tell or (lambda _: None))
    return NanoMarks(model, tokenizer, lessons.fields)


class _Reader:
    """Turns words into ids, and says where each candidate ends."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._ids = {
            token[1:]: place for token, place in tokenizer.get_added_vocab().items() if token[0] == " "
        }
        self.pad: int = tokenizer.pad_token_id
        self._turn: int = tokenizer.eos_token_id
        self.answers = torch.tensor([self._ids[NOT], self._ids[MATCH]])

    def read(self, asked: Asked) -> tuple[list[int], list[int]]:
        """The ids of a scene, and the place of each candidate's last word."""
        ids = [self._ids[word] for word in asked.shared if word in self._ids] + [self._turn]
        places = []
        for candidate in asked.candidates:
            ids += [self._ids[word] for word in candidate if word in self._ids]
            places.append(len(ids) - 1)
        return ids, places


def _said(model: "Qwen3ForCausalLM", ids: Tensor, places: Sequence[Sequence[int]], reader: _Reader) -> Tensor:
    """Logits of not and match at each place, row after row, shape [places, 2]."""
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state
    rows = torch.tensor([row for row, some in enumerate(places) for _ in some])
    columns = torch.tensor([place for some in places for place in some])
    logits: Tensor = model.lm_head(states[rows, columns])[:, reader.answers]
    return logits


def _teach(
    model: "Qwen3ForCausalLM",
    reader: _Reader,
    examples: Sequence[Example],
    lessons: Lessons,
    course: Course,
    seed: int,
    tell: Callable[[Progress], None],
) -> None:
    chance = random.Random(f"marks {seed}")  # noqa: S311  not secret
    optimiser = torch.optim.AdamW(model.parameters(), lr=course.rate, betas=(0.9, 0.98), weight_decay=0.01)
    began = time.process_time()
    model.train()
    for step in range(1, course.steps + 1):
        height = min(1.0, step / course.warm_up) * max(course.final_rate, 1 - (step - 1) / course.steps)
        for group in optimiser.param_groups:
            group["lr"] = course.rate * height
        ids, places, matches = _batch(chance.choices(examples, k=course.rows), reader, lessons, chance)
        said = _said(model, ids, places, reader)
        loss = cross_entropy(said, matches)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        right = (said.argmax(-1) == matches).float().mean().item()
        tell(Progress(step, loss.item(), right, time.process_time() - began))
    model.eval()


def _batch(
    examples: Sequence[Example], reader: _Reader, lessons: Lessons, chance: random.Random
) -> tuple[Tensor, list[list[int]], Tensor]:
    """Scenes as ids, the places of their candidates, and which of these match; candidates in any order."""
    rows, places, matches = [], [], []
    for example in examples:
        candidates = candidates_in(example.scene, lessons.patterns)
        chance.shuffle(candidates)
        ids, at = reader.read(in_words(example.scene, candidates, lessons.fields))
        rows.append(ids)
        places.append(at)
        matches += [int(one.write in example.expected) for one in candidates]
    longest = max(map(len, rows))
    padded = torch.tensor([ids + [reader.pad] * (longest - len(ids)) for ids in rows])
    return padded, places, torch.tensor(matches)
