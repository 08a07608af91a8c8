"""The model card of deployed weights: what they are, what was measured, what was not, and who decided.

A comparison supports a promotion only if it compares these weights with the current ones, on the real tools,
on unseen tasks. `gaps` lists what is missing, each with what to do; `trust.comparison` decides.

Text of people, tasks and runs is escaped.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.deployment.model_files import CONFIG, check_complete, model_digest
from dreamgym_kit.deployment.model_registry import KEY, Pointing, RegistryAction, RegistryEvent, Version
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.documents import bullets, quiet, table
from dreamgym_kit.report.evaluation import Evaluation, Scores
from dreamgym_kit.report.gate_rules import executed_sentence
from dreamgym_kit.report.percent import format_some
from dreamgym_kit.report.training import training_of
from dreamgym_kit.rollout.rundir import MANIFEST, TRAINING, RunDirectory
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.records import read_learned_from
from dreamgym_kit.trust.comparison import Promotion
from dreamgym_kit.trust.outcomes import Share
from dreamgym_kit.types import Source, Split, Task

if TYPE_CHECKING:
    from dreamgym_kit.report.training import Training  # imported lazily with training

_TASKS_NAMED = 3
UNKNOWN = "not known to dreamgym-kit: the weights were named as a directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The origin of weights, in (label, text) pairs and sentences."""

    base: str = UNKNOWN
    facts: tuple[tuple[str, str], ...] = ()  # seeds, steps, algorithm, ...
    data: tuple[str, ...] = (f"What it learned from is {UNKNOWN}.",)
    scores: tuple[tuple[str, str], ...] = ()  # measurement -> result
    lora: int | None = None  # rank of the adapter


def story_of(training: "Training", *, run: str) -> Story:
    """Return the origin of weights from a training of the kit."""
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
    decided, imagined = (
        sum(getattr(step.facts, name) for step in training.steps) for name in ("decided", "imagined")
    )
    if imagined:
        data.append(
            f"{imagined / decided:.0%} of the rewards rested on imagined answers, which no tool gave."
        )
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
    """The facts of a card."""

    name: str  # the deployed model's name on the server
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
    """Return the card as Markdown, for the merged weights or for the adapter."""
    return _CARD.format(
        library="transformers" if merged else "peft",
        name=quiet(facts.name),
        version=quiet(facts.version.name),
        decided=_decided(facts.event),
        facts=table([("", ""), *_described(facts)]),
        data=bullets(facts.story.data),
        scores=_scores(facts),
        untested=bullets(facts.untested),
        use="\n".join(f"    {line}" for line in facts.pointing.lines),
        key=KEY,
        shelf=facts.pointing.shelf,
    )


def _decided(event: RegistryEvent) -> str:
    day = datetime.fromtimestamp(event.at, UTC).date().isoformat()
    if event.deed is not RegistryAction.FORCED:
        return f"Promoted on {day}. {quiet(event.sentence)}"
    forced = f"**Forced on {day}** by a person, who said: {quiet(event.why)}"
    return f"{forced}\n\nWhat spoke against it:\n\n{bullets(event.reasons)}"


def _described(facts: CardFacts) -> list[tuple[str, str]]:
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
        parts.append(table([("", "agent", "on", "tasks", "episodes", "solved (95 %)", "run"), *cells]))
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
    return table([("kind of task", "tasks", "before", "now", f"points ({sure:.1f} % interval)"), *rows])


def share(value: Share | None) -> str:
    """Format a share with its interval for a table cell."""
    if value is None:
        return "not known"
    return f"{100 * value.mean:.0f} % ({100 * value.low:.0f} to {100 * value.high:.0f})"


def untested(evaluation: Evaluation | None, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return the limitations as sentences, most important first; `tasks`: all, including held-out."""
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


def _named(names: Sequence[str]) -> str:
    return format_some([f"'{name}'" for name in names], 12)


_WEIGHTS = "weights"
_ADAPTER_CONFIG, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_FROM_TOOLS = (Source.REAL, Source.FAULT)  # sources of answers with real tools


@dataclass(frozen=True, slots=True)
class DeployCandidate:
    """Weights to deploy, and their facts."""

    model: Path
    weights: str  # their digest
    story: Story
    learned_from: frozenset[str] | None  # tasks of the training; None: unknown
    adapter: Path | None = None  # the weights' LoRA adapter, if any

    def write_adapter(self, folder: Path) -> None:
        """Copy the adapter with the name of its base model."""
        assert self.adapter is not None
        folder.mkdir(parents=True)
        config = json.loads((self.adapter / _ADAPTER_CONFIG).read_text("utf-8"))
        text = json.dumps({**config, "base_model_name_or_path": self.story.base}, indent=2)
        (folder / _ADAPTER_CONFIG).write_text(text + "\n", "utf-8")
        shutil.copyfile(self.adapter / _ADAPTER_WEIGHTS, folder / _ADAPTER_WEIGHTS)


def candidate_of(named: Path) -> DeployCandidate:
    """Read a candidate from a training's run directory or a model directory.

    Raises:
        UserError: it is neither, or the training has no weights yet, or they are incomplete.
    """
    if (named / MANIFEST).is_file():
        return _of_training(named, None)
    if not (named / CONFIG).is_file():
        raise UserError(f"{named}: is neither the run directory of a training nor a model directory.")
    run = named.parent.parent
    if named.parent.name == _WEIGHTS and (run / MANIFEST).is_file():
        return _of_training(run, named)
    return _candidate(named, Story(), None)


def _of_training(run: Path, model: Path | None) -> DeployCandidate:
    directory = RunDirectory.open(run)
    if directory.mode != TRAINING:
        raise UserError(f"{run}: is a run of episodes, no training; name the weights to deploy.")
    training = training_of(directory)
    if model is None:
        if training.weights is None:
            raise UserError(f"{run}: this training has written no weights yet; let it end, or name weights.")
        model = run / training.weights
    story = story_of(training, run=str(run))
    alarm = training.alarm
    if alarm is not None:
        story = replace(story, facts=(*story.facts, ("ended by the alarm", str(alarm.get("alarm")))))
    adapter = run / "checkpoints" / model.name
    has_adapter = story.lora is not None and (adapter / _ADAPTER_WEIGHTS).is_file()
    return _candidate(model, story, read_learned_from(run), adapter if has_adapter else None)


def _candidate(
    model: Path, story: Story, learned_from: frozenset[str] | None, adapter: Path | None = None
) -> DeployCandidate:
    check_complete(model)
    return DeployCandidate(model, model_digest(model), story, learned_from, adapter)


def gaps(
    evaluation: Evaluation | None, candidate: DeployCandidate, current: str, tasks: Sequence[Task]
) -> tuple[str, ...]:
    """Return why a comparison cannot support a promotion, as sentences; empty if it can.

    Args:
        evaluation: the comparison.
        candidate: the weights that it must evaluate.
        current: digest of the current weights; "": none.
        tasks: all given tasks, including held-out.
    """
    if evaluation is None:
        return ("There is no evaluation of these weights: name the run of one (--evaluation RUN).",)
    if evaluation.a is None:
        return (
            "The evaluation is held against nothing: name the run of what it is to replace (--baseline RUN).",
        )
    return (
        *_of_weights(evaluation.b, evaluation.a, candidate.weights, current),
        *_of_runs(evaluation, evaluation.a, current),
        *_of_tasks(evaluation, evaluation.a, candidate.learned_from or frozenset(), tasks),
    )


def _of_weights(b: Scores, a: Scores, candidate: str, current: str) -> Iterator[str]:
    tried, replaced = weights_tried(b), weights_tried(a)
    if tried != candidate:
        weights = "other weights than these" if tried else "weights that it does not name"
        yield f"{b.run}: tried {weights}; evaluate these with --policy DIR."
    if current and replaced != current:
        weights = "other weights than those in use" if replaced else "weights that it does not name"
        yield f"{a.run}: tried {weights}; evaluate what is in use, with --policy of its directory."
    if tried and tried == replaced:
        yield f"{a.run}: tried the same weights as {b.run}; there is nothing to compare."


def _of_runs(evaluation: Evaluation, a: Scores, current: str) -> Iterator[str]:
    for side in (evaluation.b, a):
        if not side.real:
            yield f"{side.run}: was dreamed; only what the real tools say can promote (evaluate --real)."
        elif dreamt := _not_from_tools(side):
            yield f"{side.run}: says that its tools were real, and {dreamt} of its calls no tool answered."
        if side.summary.executed:
            yield f"{side.run}: {executed_sentence(side.summary)}; nothing is deployed on such a run."
        elif side.summary.not_run:
            yield f"{side.run}: {side.summary.not_run} of its episodes were not run; resume it."
    graphs = evaluation.b.summary.fact("graph"), a.summary.fact("graph")
    if current and graphs[0] != graphs[1]:
        yield f"The two runs were of other graphs ({graphs[0]} and {graphs[1]}); evaluate both in one."
    for difference in evaluation.differs:
        yield f"The two runs were not made alike: {difference}."


def _not_from_tools(side: Scores) -> int:
    counts = [tool.sources for tool in side.summary.tools]
    return sum(count for sources in counts for source, count in sources.items() if source not in _FROM_TOOLS)


def _of_tasks(
    evaluation: Evaluation, a: Scores, learned_from: frozenset[str], tasks: Sequence[Task]
) -> Iterator[str]:
    for side in (evaluation.b, a):
        tried = {outcome.task for outcome in side.outcomes}
        if _run_digest(side) != tasks_digest([task for task in tasks if task.id in tried]):
            yield (
                f"{side.run}: was made with other tasks than those named here, or with more of them; "
                "name the file that it was made with (--tasks), as it was."
            )
    tried = {outcome.task for outcome in evaluation.b.outcomes}
    seen = sorted(tried & learned_from)
    if seen:
        some = format_some(seen, _TASKS_NAMED)
        yield f"{_count(seen)} it was tried on was learned from ({some}); evaluate on unseen tasks."
    held_out = {task.id for task in tasks if task.split is Split.HELD_OUT}
    open_ones = sorted(tried - held_out - set(seen))
    if open_ones:
        some = format_some(open_ones, _TASKS_NAMED)
        count = _count(open_ones)
        yield f"{count} it was tried on is not marked as held out ({some}); evaluate with --split held_out."


def weights_tried(scores: Scores) -> str:
    """Return the digest of a run's weights; "" if it is not stated."""
    weights = scores.summary.fact("weights")
    return weights if isinstance(weights, str) else ""


def _run_digest(scores: Scores) -> JsonValue:
    """Return the digest of a run's tasks; None if it is not stated."""
    matters = scores.summary.manifest.get("matters")
    return matters.get("tasks") if isinstance(matters, Mapping) else None


def _count(tasks: list[str]) -> str:
    return f"{len(tasks)} of the tasks" if len(tasks) > 1 else "One of the tasks"
