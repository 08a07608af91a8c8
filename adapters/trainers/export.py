"""A trained policy for others: merged weights, the LoRA adapter where there is one, and a card on both."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

MERGED, ADAPTER, CARD = "merged", "adapter", "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a person who finds the weights has to know."""

    name: str
    base: str  # the model that training began with: a directory or a name
    data: str  # what it learned from
    seed: int
    scores: Mapping[str, str] = field(default_factory=dict)  # what was measured -> what came of it
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Exported:
    """Where everything lies."""

    merged: Path
    adapter: Path | None  # None: all weights were trained


def export(trainer: TrlTrainer, folder: Path, card: Card) -> Exported:
    """Write `merged` and, for LoRA, `adapter` below `folder`, each with the card; replaces what was there."""
    trainer.write_weights(folder / MERGED, texts={CARD: rendered(card, steps=trainer.step, merged=True)})
    texts = {CARD: rendered(card, steps=trainer.step, merged=False)}
    there = trainer.write_adapter(folder / ADAPTER, base=card.base, texts=texts)
    return Exported(folder / MERGED, folder / ADAPTER if there else None)


def rendered(card: Card, *, steps: int, merged: bool) -> str:
    """The card as Markdown; texts in it are data, none of their marks count."""
    library = "transformers" if merged else "peft"
    kit = version("dreamgym-kit")
    what = "weights" if merged else "a LoRA adapter"
    lines = [
        *("---", f"library_name: {library}", "tags: [dreamgym-kit, grpo, tool-use]", "---", ""),
        *(f"# {_plain(card.name)}", ""),
        f"These are {what}, trained with dreamgym-kit {kit} on rollouts of a LangGraph agent.",
        "",
        f"- Base: {_plain(card.base)}",
        f"- Data: {_plain(card.data)}",
        f"- Seed: {card.seed}",
        f"- Steps: {steps}",
        "",
    ]
    if card.scores:
        lines += ["| measured | result |", "| --- | --- |"]
        lines += [f"| {_plain(name)} | {_plain(score)} |" for name, score in card.scores.items()]
        lines.append("")
    if card.notes:
        lines += [_plain(card.notes), ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """One line whose characters mean themselves in Markdown."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return re.sub(r"([\\`*_{}\[\]<>#|!&])", r"\\\1", line)
