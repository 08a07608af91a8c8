"""Weights that a person wants to deploy, where they come from, and whether a comparison speaks of them.

Is it one of these weights against what is in use, on the real tools, on unseen tasks? `gaps` names what is
missing, each with what to do; a comparison with a gap says nothing of a promotion, whatever came out of it.
What it says is for `trust.promotion`.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dreamgym_kit.deployment.card import Story, story_of
from dreamgym_kit.deployment.model_files import CONFIG, check_complete, model_digest
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.evaluation import Evaluation, Scores
from dreamgym_kit.report.executed import executed_sentence
from dreamgym_kit.report.training import training_of
from dreamgym_kit.rollout.rundir import MANIFEST, TRAINING, RunDirectory
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.records import read_learned_from
from dreamgym_kit.types import Source, Split, Task

_SHOWN = 3  # names in a sentence
_WEIGHTS = "weights"
_ADAPTER_CONFIG, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_FROM_TOOLS = (Source.REAL, Source.FAULT)  # what answers where the tools are real


@dataclass(frozen=True, slots=True)
class DeployCandidate:
    """Weights that are to be deployed, and what is known of them."""

    model: Path
    weights: str  # their digest
    story: Story
    learned_from: frozenset[str] | None  # tasks that training used; None: nobody knows
    adapter: Path | None = None  # the LoRA adapter of these weights, where all were not trained

    def write_adapter(self, folder: Path) -> None:
        """Copy the adapter, told which model it belongs on."""
        assert self.adapter is not None
        folder.mkdir(parents=True)
        config = json.loads((self.adapter / _ADAPTER_CONFIG).read_text("utf-8"))
        text = json.dumps({**config, "base_model_name_or_path": self.story.base}, indent=2)
        (folder / _ADAPTER_CONFIG).write_text(text + "\n", "utf-8")
        shutil.copyfile(self.adapter / _ADAPTER_WEIGHTS, folder / _ADAPTER_WEIGHTS)


def candidate_of(named: Path) -> DeployCandidate:
    """What a person named: a training's run directory, or a model directory, maybe one of a training.

    Raises:
        UserError: it is neither, the training has no weights yet, or they are half of a model.
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
    """Why it is no comparison to promote by, sentence by sentence; empty where it is one.

    Args:
        evaluation: the comparison.
        candidate: the weights that it has to be about.
        current: digest of those that are in use; "": none are.
        tasks: those that were named, on both sides of the line.
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
        yield f"{_count(seen)} it was tried on was learned from ({_named(seen)}); evaluate on unseen tasks."
    held_out = {task.id for task in tasks if task.split is Split.HELD_OUT}
    open_ones = sorted(tried - held_out - set(seen))
    if open_ones:
        yield (
            f"{_count(open_ones)} it was tried on is not marked as held out ({_named(open_ones)}); "
            "evaluate with --split held_out."
        )


def weights_tried(scores: Scores) -> str:
    """The digest of the weights that a run tried; "" where it does not say."""
    weights = scores.summary.fact("weights")
    return weights if isinstance(weights, str) else ""


def _run_digest(scores: Scores) -> JsonValue:
    """The digest of all tasks that a run was made with; None where it does not say."""
    matters = scores.summary.manifest.get("matters")
    return matters.get("tasks") if isinstance(matters, Mapping) else None


def _count(tasks: list[str]) -> str:
    return f"{len(tasks)} of the tasks" if len(tasks) > 1 else "One of the tasks"


def _named(tasks: list[str]) -> str:
    more = f" and {len(tasks) - _SHOWN} more" if len(tasks) > _SHOWN else ""
    return ", ".join(tasks[:_SHOWN]) + more
