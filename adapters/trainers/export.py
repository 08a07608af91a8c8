"""A trained policy for others: merged weights, the LoRA adapter where there is one, and a card on both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.report.markdown import quiet

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
    steps, by = trainer.step, trainer.algorithm
    texts = {CARD: rendered(card, steps=steps, merged=True, algorithm=by)}
    trainer.write_weights(folder / MERGED, texts=texts)
    texts = {CARD: rendered(card, steps=steps, merged=False, algorithm=by)}
    there = trainer.write_adapter(folder / ADAPTER, base=card.base, texts=texts)
    return Exported(folder / MERGED, folder / ADAPTER if there else None)


def rendered(card: Card, *, steps: int, merged: bool, algorithm: str = "grpo") -> str:
    """The card as Markdown; texts in it are data, none of their marks count."""
    library = "transformers" if merged else "peft"
    kit = version("dreamgym-kit")
    kind = "weights" if merged else "a LoRA adapter"
    lines = [
        *("---", f"library_name: {library}", f"tags: [dreamgym-kit, {algorithm}, tool-use]", "---", ""),
        *(f"# {quiet(card.name)}", ""),
        f"These are {kind}, trained with dreamgym-kit {kit} on rollouts of a LangGraph agent.",
        "",
        f"- Base: {quiet(card.base)}",
        f"- Data: {quiet(card.data)}",
        f"- Seed: {card.seed}",
        f"- Steps: {steps}",
        "",
    ]
    if card.scores:
        lines += ["| measured | result |", "| --- | --- |"]
        lines += [f"| {quiet(name)} | {quiet(score)} |" for name, score in card.scores.items()]
        lines.append("")
    if card.notes:
        lines += [quiet(card.notes), ""]
    return "\n".join(lines)
