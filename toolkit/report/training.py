"""A training as figures: what it was worth on held-out tasks, and how it went. Forms only lay these out.

The result is what the policy does on tasks that it never learned from. What the dream rewarded on the way is
shown as that, and never as the result: it is what the policy was pulled towards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.curriculum import CurriculumFacts, curriculum_facts
from dreamgym_kit.report.whole import points_told, whole_percent
from dreamgym_kit.rollout.manifest import MANIFESTS
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.training.records import (
    EvaluationRecord,
    StepRecord,
    read_courses,
    read_evaluations,
    read_steps,
)
from dreamgym_kit.trust.beating import Beating, Word, beaten
from dreamgym_kit.trust.outcomes import Share, TaskOutcome, passed_once

MODE = "train"  # of the run directory's manifest
PHASES = ("rollouts", "waited", "update", "sync", "attest", "checkpoint", "evaluation")
_ENDED = ("kept", "weights", "alarm", "stopped", "planned", "servers")  # what only the end of a leg knows
_FEW = 3  # steps at either end that a mean is taken over


@dataclass(frozen=True, slots=True)
class Training:
    """One training, as its run directory has it."""

    manifest: Mapping[str, JsonValue]
    steps: Sequence[StepRecord]
    evaluations: Sequence[EvaluationRecord]
    outcome: Mapping[str, JsonValue]  # what the end knew (`_ENDED`); {} while it runs
    curriculum: CurriculumFacts | None = None  # None: tasks went in turn

    @property
    def planned(self) -> int:
        """Optimiser steps that were asked for; a later leg may have asked for more."""
        about = self.manifest.get("about")
        begun_with = about.get("steps", 0) if isinstance(about, Mapping) else 0
        return int(str(self.outcome.get("planned", begun_with)))

    @property
    def alarm(self) -> Mapping[str, JsonValue] | None:
        """What ended it: {"alarm", "text", "step"}; None where nothing did."""
        told = self.outcome.get("alarm")
        return told if isinstance(told, Mapping) else None

    @property
    def weights(self) -> str | None:
        """The model directory that came of it, relative to the run directory."""
        told = self.outcome.get("weights")
        return told if isinstance(told, str) else None

    @property
    def gain(self) -> Beating | None:
        """The last evaluation against the first of its kind, real or dreamed; None where there are no two."""
        last = self.evaluations[-1] if self.evaluations else None
        first = next((one for one in self.evaluations if last is not None and one.real == last.real), None)
        if first is None or last is None or first is last:
            return None
        return beaten(outcomes_of(first), outcomes_of(last))

    @property
    def stamp(self) -> tuple[str, str]:
        """How it ended: a sign (passed, failed, inconclusive, look), and a word or two."""
        if self.alarm is not None:
            return "failed", "STOPPED BY AN ALARM"
        if len(self.steps) < self.planned:
            return "look", "NOT FINISHED"
        gain = self.gain
        if gain is None or gain.word in (Word.NO_COMMON_TASKS, Word.INCONCLUSIVE):
            return "inconclusive", "NOT MEASURED" if gain is None else "CANNOT BE SAID"
        return {
            Word.BETTER: ("passed", "BETTER"),
            Word.WORSE: ("failed", "WORSE"),
            Word.NO_DIFFERENCE: ("inconclusive", "NO GAIN SEEN"),
        }[gain.word]

    @property
    def sentence(self) -> str:
        """What it was worth, or what ended it."""
        if self.alarm is not None:
            kept = (
                f"step {self.outcome.get('kept')} is kept" if self.outcome.get("kept") else "no step is kept"
            )
            named, text = self.alarm.get("alarm"), self.alarm.get("text")
            return f"Step {self.alarm.get('step')} was stopped by the alarm '{named}': {text}; {kept}."
        gain = self.gain
        if gain is None and len({one.real for one in self.evaluations}) > 1:
            return "Nothing can be said: held-out tasks were dreamed before and real after, or the other way."
        if gain is None:
            return "What it learned was not measured on held-out tasks."
        if not gain.tasks:
            return "Nothing can be said: no held-out task was decided both before and after."
        where = "on the real tools" if self.evaluations[-1].real else "in the dream"
        told = (
            f"held-out pass rate went from {whole_percent(gain.a)} % to {whole_percent(gain.b)} % {where} "
            f"({_points(gain.change)} points, 95 %: {points_told(gain.low, gain.high)}; "
            f"{gain.tasks} tasks)"
        )
        if gain.word is Word.NO_DIFFERENCE:
            return f"It may be chance: {told}."
        if gain.word is Word.INCONCLUSIVE:
            return f"It cannot be said: {told}, but the inconclusive episodes could turn it round."
        return f"{told[:1].upper()}{told[1:]}."

    def to_json(self) -> dict[str, JsonValue]:
        """The same for machines."""
        gain = self.gain
        return {
            "kind": MODE,
            "manifest": dict(self.manifest),
            "steps": len(self.steps),
            "planned": self.planned,
            "sentence": self.sentence,
            "held_out": [evaluation_told(one) for one in self.evaluations],
            "gain": None
            if gain is None
            else {
                "word": str(gain.word),
                "tasks": gain.tasks,
                "change": gain.change,
                "low": gain.low,
                "high": gain.high,
            },
            "dream": {"first": mean_success(self.steps[:_FEW]), "last": mean_success(self.steps[-_FEW:])},
            "episodes": sum(step.facts.episodes for step in self.steps),
            "inconclusive": sum(step.facts.inconclusive for step in self.steps),
            "groups": sum(step.facts.groups for step in self.steps),
            "dead_groups": sum(step.facts.dead for step in self.steps),
            "tokens": sum(step.facts.tokens for step in self.steps),
            "forks": sum(step.facts.forks for step in self.steps),
            "unfit": sum(sum(step.facts.unfit.values()) for step in self.steps),
            "logprob_gap": max((one.logprob_gap or 0.0 for one in self.steps), default=None),
            "canary_gap": max((one.canary_gap or 0.0 for one in self.steps), default=None),
            "seconds": dict(self.seconds()),
            "curriculum": None if self.curriculum is None else self.curriculum.to_json(),
            **self.outcome,
        }

    def seconds(self) -> dict[str, float]:
        """Wall time by phase; rollouts that went on beside an update count where somebody waited for them."""
        spent = {
            phase: fsum(step.seconds.get(phase, 0.0) for step in self.steps)
            for phase in PHASES
            if phase not in ("rollouts", "evaluation")
        }
        spent["evaluation"] = fsum(one.seconds for one in self.evaluations)
        return spent


def training_of(directory: RunDirectory) -> Training:
    """Read a training's run directory, also one that still runs.

    Raises:
        RunDirectoryError: a file in it is damaged.
    """
    kept = directory.read_report() or {}
    return Training(
        manifest=MANIFESTS.write(directory.manifest),
        steps=read_steps(directory.path),
        evaluations=read_evaluations(directory.path),
        outcome={name: kept[name] for name in _ENDED if name in kept},
        curriculum=curriculum_facts(read_courses(directory.path)),
    )


def is_training(directory: RunDirectory) -> bool:
    """Whether a run directory is that of a training."""
    return directory.manifest.matters.get("mode") == MODE


def outcomes_of(evaluation: EvaluationRecord) -> list[TaskOutcome]:
    """An evaluation by task."""
    return [
        TaskOutcome(task, counts[0], counts[1], counts[2]) for task, counts in evaluation.outcomes.items()
    ]


def share_of(evaluation: EvaluationRecord) -> Share | None:
    """Mean success over tasks with its interval; None where nothing was decided."""
    return passed_once(outcomes_of(evaluation))


def evaluation_told(evaluation: EvaluationRecord) -> dict[str, JsonValue]:
    """One evaluation for machines."""
    share = share_of(evaluation)
    return {
        "step": evaluation.step,
        "real": evaluation.real,
        "tasks": len(evaluation.outcomes),
        "decided": evaluation.decided,
        "inconclusive": evaluation.inconclusive,
        "success": None if share is None else share.mean,
        "low": None if share is None else share.low,
        "high": None if share is None else share.high,
    }


def mean_success(steps: Sequence[StepRecord]) -> float | None:
    """Mean success in the dream over some steps; None where nothing was decided."""
    told = [step.success for step in steps if step.success is not None]
    return fsum(told) / len(told) if told else None


def _points(share: float) -> str:
    return f"{100 * share:+.0f}"
