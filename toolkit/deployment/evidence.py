"""Is this comparison one of these weights against what is in use, on the real tools, on unseen tasks?

`gaps` names what is missing, each with what to do; a comparison with a gap says nothing about a promotion,
whatever came out of it. What it says is for `trust.promotion`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.report.evaluation import Evaluation, Scores
from dreamgym_kit.report.executed import executed_sentence
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Source, Split, Task

_SHOWN = 3  # names in a sentence
_FROM_TOOLS = (Source.REAL, Source.FAULT)  # what answers where the tools are real


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A comparison, and what it has to be about."""

    evaluation: Evaluation | None
    candidate: str  # digest of the weights that are to be deployed
    current: str = ""  # of those that are in use; "": none are
    tasks: Sequence[Task] = ()  # those that were named, on both sides of the line
    learned_from: frozenset[str] | None = None  # tasks that training used; None: nobody knows


def gaps(evidence: Evidence) -> tuple[str, ...]:
    """Why it is no comparison to promote by, sentence by sentence; empty where it is one."""
    evaluation = evidence.evaluation
    if evaluation is None:
        return ("There is no evaluation of these weights: name the run of one (--evaluation RUN).",)
    if evaluation.a is None:
        return (
            "The evaluation is held against nothing: name the run of what it is to replace (--baseline RUN).",
        )
    return (
        *_of_weights(evidence, evaluation.b, evaluation.a),
        *_of_runs(evidence, evaluation, evaluation.a),
        *_of_tasks(evidence, evaluation, evaluation.a),
    )


def _of_weights(evidence: Evidence, b: Scores, a: Scores) -> Iterator[str]:
    tried, replaced = weights_tried(b), weights_tried(a)
    if tried != evidence.candidate:
        weights = "other weights than these" if tried else "weights that it does not name"
        yield f"{b.run}: tried {weights}; evaluate these with --policy DIR."
    if evidence.current and replaced != evidence.current:
        weights = "other weights than those in use" if replaced else "weights that it does not name"
        yield f"{a.run}: tried {weights}; evaluate what is in use, with --policy of its directory."
    if tried and tried == replaced:
        yield f"{a.run}: tried the same weights as {b.run}; there is nothing to compare."


def _of_runs(evidence: Evidence, evaluation: Evaluation, a: Scores) -> Iterator[str]:
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
    if evidence.current and graphs[0] != graphs[1]:
        yield f"The two runs were of other graphs ({graphs[0]} and {graphs[1]}); evaluate both in one."
    for difference in evaluation.differs:
        yield f"The two runs were not made alike: {difference}."


def _not_from_tools(side: Scores) -> int:
    counts = [tool.sources for tool in side.summary.tools]
    return sum(count for sources in counts for source, count in sources.items() if source not in _FROM_TOOLS)


def _of_tasks(evidence: Evidence, evaluation: Evaluation, a: Scores) -> Iterator[str]:
    for side in (evaluation.b, a):
        tried = {outcome.task for outcome in side.outcomes}
        if _run_digest(side) != tasks_digest([task for task in evidence.tasks if task.id in tried]):
            yield (
                f"{side.run}: was made with other tasks than those named here, or with more of them; "
                "name the file that it was made with (--tasks), as it was."
            )
    tried = {outcome.task for outcome in evaluation.b.outcomes}
    seen = sorted(tried & (evidence.learned_from or frozenset()))
    if seen:
        yield f"{_count(seen)} it was tried on was learned from ({_named(seen)}); evaluate on unseen tasks."
    held_out = {task.id for task in evidence.tasks if task.split is Split.HELD_OUT}
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
