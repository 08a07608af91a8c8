"""Where a candidate's weights come from, as far as anybody wrote it down: for its card."""

from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.training import Training

UNKNOWN = "not known to dreamgym-kit: the weights were named as a directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How weights came to be, in (label, text) pairs and sentences."""

    base: str = UNKNOWN
    facts: tuple[tuple[str, str], ...] = ()  # seeds, steps, algorithm, ...
    data: tuple[str, ...] = (f"What it learned from is {UNKNOWN}.",)
    scores: tuple[tuple[str, str], ...] = ()  # what training measured -> what came of it
    lora: int | None = None  # rank of the adapter


def story_of(training: Training, *, run: str) -> Story:
    """The story of weights that a training of the kit made."""
    matters, about = _part(training.manifest, "matters"), _part(training.manifest, "about")
    real = matters.get("tools") == "record"
    calls = sum(step.facts.calls for step in training.steps)
    where = "on the real tools" if real else "in a dream, no real tool ran"
    facts = [
        ("algorithm", f"{matters.get('algorithm', 'grpo')}, loss {matters.get('loss')}"),
        ("optimiser steps", f"{len(training.steps)} of {max(training.planned, len(training.steps))}"),
        ("learning rate", str(matters.get("lr"))),
        ("seed", str(matters.get("seed"))),
        ("trained", where),
        ("training run", run),
        ("versions", ", ".join(f"{name} {said}" for name, said in _part(about, "versions").items())),
    ]
    lora = matters.get("lora")
    if isinstance(lora, int):
        facts.insert(1, ("LoRA rank", str(lora)))
    data = [
        f"{about.get('tasks')} tasks were learned from, {about.get('held_out')} kept back to measure with.",
        f"{calls:,} tool calls were made while it learned, {where}"
        + ("." if real else f"; they were answered from {about.get('recordings')} recorded calls."),
    ]
    return Story(
        base=str(matters.get("policy", UNKNOWN)),
        facts=tuple(facts),
        data=tuple(data),
        scores=(("while it was trained, on held-out tasks", training.sentence),),
        lora=lora if isinstance(lora, int) else None,
    )


def _part(record: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    part = record.get(name)
    return part if isinstance(part, Mapping) else {}
