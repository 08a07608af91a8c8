"""The card that lies with deployed weights: what they are, what was measured, what was not, and who decided.

Text of people, tasks and runs is data: none of its marks count.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed
from typing import TYPE_CHECKING

from dreamgym_kit.deployment.model_registry import KEY, Pointing, RegistryAction, RegistryEvent, Version
from dreamgym_kit.report.evaluation import Evaluation
from dreamgym_kit.report.markdown import quiet
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.outcomes import Share
from dreamgym_kit.trust.promotion import Promotion
from dreamgym_kit.types import Split, Task

if TYPE_CHECKING:
    from dreamgym_kit.report.training import Training  # whose readers go with the rooms of training

UNKNOWN = "not known to dreamgym-kit: the weights were named as a directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How weights came to be, in (label, text) pairs and sentences."""

    base: str = UNKNOWN
    facts: tuple[tuple[str, str], ...] = ()  # seeds, steps, algorithm, ...
    data: tuple[str, ...] = (f"What it learned from is {UNKNOWN}.",)
    scores: tuple[tuple[str, str], ...] = ()  # what training measured -> what came of it
    lora: int | None = None  # rank of the adapter


def story_of(training: "Training", *, run: str) -> Story:
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
        ("versions", ", ".join(f"{name} {version}" for name, version in _part(about, "versions").items())),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """All that a card tells."""

    name: str  # of what is deployed, as the server names it
    version: Version
    event: RegistryEvent
    story: Story
    evaluation: Evaluation | None
    promotion: Promotion | None
    untested: tuple[str, ...]
    pointing: Pointing


_CARD = """\
---
library_name: {library}
tags: [dreamgym-kit, tool-use]
---

# {name} {version}

{decided}

## What it is

{facts}

## Data

{data}

{scores}## What it was not tested on

{untested}

## Use

{use}

Server and agent read the key from `{key}`: set it to a secret of your own. Back to the version before:

    dreamgym-kit deploy rollback --registry {shelf}
"""


def rendered(facts: CardFacts, *, merged: bool = True) -> str:
    """The card as Markdown, for the merged weights or for the adapter."""
    return _CARD.format(
        library="transformers" if merged else "peft",
        name=quiet(facts.name),
        version=quiet(facts.version.name),
        decided=_decided(facts.event),
        facts=_table(("", ""), _what(facts)),
        data=_list(facts.story.data),
        scores=_scores(facts),
        untested=_list(facts.untested),
        use="\n".join(f"    {line}" for line in facts.pointing.lines),
        key=KEY,
        shelf=facts.pointing.shelf,
    )


def _decided(event: RegistryEvent) -> str:
    day = datetime.fromtimestamp(event.at, UTC).date().isoformat()
    if event.deed is not RegistryAction.FORCED:
        return f"Promoted on {day}. {quiet(event.sentence)}"
    forced = f"**Forced on {day}** by a person, who said: {quiet(event.why)}"
    return f"{forced}\n\nWhat spoke against it:\n\n{_list(event.reasons)}"


def _what(facts: CardFacts) -> list[tuple[str, str]]:
    rows = [
        ("weights", facts.version.weights),
        ("taken from", facts.version.source),
        ("in place of", facts.event.before or "nothing that was deployed here"),
        ("base", facts.story.base),
        *facts.story.facts,
        ("made with", f"dreamgym-kit {installed('dreamgym-kit')}"),
    ]
    return [(quiet(label), quiet(text)) for label, text in rows]


def _scores(facts: CardFacts) -> str:
    measured = facts.evaluation
    parts = []
    if measured is not None:
        rows = [("this one", measured.b)] + ([("what it is held against", measured.a)] if measured.a else [])
        cells = [
            (name, quiet(side.agent), "the real tools" if side.real else "a dream", f"{len(side.outcomes)}",
             f"{side.episodes}", share(side.once), quiet(side.run))
            for name, side in rows
        ]  # fmt: skip
        parts.append(_table(("", "agent", "on", "tasks", "episodes", "solved (95 %)", "run"), cells))
    if facts.promotion is not None and facts.promotion.families:
        parts.append(_families(facts.promotion))
    parts += [f"{quiet(label)}: {quiet(text)}" for label, text in facts.story.scores]
    return "## Scores\n\n" + "\n\n".join(parts) + "\n\n" if parts else ""


def _families(promotion: Promotion) -> str:
    rows = [
        (
            quiet(name),
            f"{paired.tasks}",
            f"{100 * paired.a:.0f} %",
            f"{100 * paired.b:.0f} %",
            f"{100 * paired.change:+.0f} ({100 * paired.low:+.0f} to {100 * paired.high:+.0f})",
        )
        for name, paired in ((each.name, each.paired) for each in promotion.families)
    ]
    sure = 100 * (1 - 0.05 / max(1, len(rows)))
    return _table(("kind of task", "tasks", "before", "now", f"points ({sure:.1f} % interval)"), rows)


def share(value: Share | None) -> str:
    """A share with its interval, in a cell."""
    if value is None:
        return "not known"
    return f"{100 * value.mean:.0f} % ({100 * value.low:.0f} to {100 * value.high:.0f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {quiet(sentence)}" for sentence in sentences)


_SHOWN = 12  # names in a sentence


def untested(evaluation: Evaluation | None, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Sentences, the most telling first; `tasks` are all that there are, on both sides of the line."""
    if evaluation is None:
        return ("Everything: it was deployed without an evaluation on the real tools.",)
    return tuple(_sentences(evaluation, tasks))


def _sentences(evaluation: Evaluation, tasks: Sequence[Task]) -> Iterator[str]:
    summary, tried = evaluation.b.summary, {outcome.task for outcome in evaluation.b.outcomes}
    environments = sorted({task.environment.name for task in tasks if task.id in tried})
    kinds = f" of {len(evaluation.b.families)} kinds" if evaluation.b.families else ""
    if not evaluation.b.real:
        yield "The real tools: it was tried in a dream only."
    others = f"environments other than {_named(environments)}"
    yield f"Requests other than these {len(tried)} tasks{kinds}, and {others}."
    families = {
        str(task.meta["family"]) for task in tasks if task.split is Split.TRAIN and "family" in task.meta
    }
    left = sorted(families - set(evaluation.b.families))
    if left:
        yield f"Kinds of tasks that it learned from and was not tried on: {_named(left)}."
    effects = summary.fact("effects")
    idle = sorted(set(effects) - {use.name for use in summary.tools}) if isinstance(effects, Mapping) else []
    if idle:
        yield f"Tools that no episode of the evaluation called: {_named(idle)}."
    if not summary.faults:
        yield "Tools that fail, are slow or answer nonsense: none was made to."
    policy = summary.fact("policy")
    if isinstance(policy, Mapping):
        yield (
            f"Sampling other than at temperature {policy.get('temperature')} with at most "
            f"{policy.get('max_output')} tokens an answer; and the server that it will be used behind."
        )
    yield "Input that is meant to mislead it, other languages, and load."
    if evaluation.b.inconclusive:
        yield f"{evaluation.b.inconclusive} of its {evaluation.b.episodes} episodes could not be judged."


def _named(names: Collection[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in listed[:_SHOWN]) + more
