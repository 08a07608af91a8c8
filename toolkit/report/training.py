"""The figures of a training: results on held-out tasks, and its course. Outputs only lay them out.

The result is the policy's pass rate on tasks that it never trained on. Rewards in the dream are shown
separately, because they are what the policy was optimized for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import fsum
from typing import Literal

from dreamgym_kit.curriculum.records import DRAWS, MARK, TURN, Draw
from dreamgym_kit.errors import RunDirectoryError, UserError
from dreamgym_kit.report.percent import format_points, whole_percent
from dreamgym_kit.rollout.rundir import MANIFESTS, TRAINING, RunDirectory
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.records import (
    COURSES,
    CourseRecord,
    EvaluationRecord,
    StepRecord,
    read_courses,
    read_evaluations,
    read_steps,
)
from dreamgym_kit.trust.comparison import Conclusion, PairedComparison, beaten
from dreamgym_kit.trust.outcomes import Share, TaskOutcome, passed_once

PHASES = ("rollouts", "waited", "update", "sync", "attest", "checkpoint", "evaluation")
Counted = Literal["episodes", "inconclusive", "groups", "dead", "small", "samples", "tokens", "forks"]
_ENDED = ("kept", "weights", "alarm", "stopped", "planned", "servers")  # facts from the end of a part
_FEW = 3  # steps at either end that are averaged


@dataclass(frozen=True, slots=True)
class CurriculumFacts:
    """Totals of all draws."""

    groups: int = 0
    tasks: int = 0  # tasks that were drawn
    in_turn: int = 0  # groups drawn by rotation
    of_made: int = 0  # groups of synthetic tasks
    left_out: int = 0  # mixed groups left out because their task may be impossible
    made: Mapping[str, int] = field(default_factory=dict)  # how -> tasks
    refused: Mapping[str, int] = field(default_factory=dict)  # why -> rejected synthetic tasks
    rests: Mapping[str, int] = field(default_factory=dict)  # why -> tasks, before the last draw
    failed_at: Mapping[str, int] = field(default_factory=dict)  # place -> episodes, most first


@dataclass(frozen=True, slots=True)
class Training:
    """One training, read from its run directory."""

    manifest: Mapping[str, JsonValue]
    steps: Sequence[StepRecord]
    evaluations: Sequence[EvaluationRecord]
    outcome: Mapping[str, JsonValue]  # facts from the end (`_ENDED`); {} while it runs
    curriculum: CurriculumFacts | None = None  # None: no curriculum

    @property
    def planned(self) -> int:
        """Planned optimizer steps, of the latest part."""
        about = self.manifest.get("about")
        begun_with = about.get("steps", 0) if isinstance(about, Mapping) else 0
        return int(str(self.outcome.get("planned", begun_with)))

    @property
    def alarm(self) -> Mapping[str, JsonValue] | None:
        """The alarm that stopped it: {"alarm", "text", "step"}, or None."""
        alarm = self.outcome.get("alarm")
        return alarm if isinstance(alarm, Mapping) else None

    @property
    def weights(self) -> str | None:
        """The resulting model directory, relative to the run directory."""
        weights = self.outcome.get("weights")
        return weights if isinstance(weights, str) else None

    @property
    def gain(self) -> PairedComparison | None:
        """The last evaluation compared with the first of its kind, real or dreamed; None without two."""
        alike = [each for each in self.evaluations if each.real == self.evaluations[-1].real]
        return beaten(outcomes_of(alike[0]), outcomes_of(alike[-1])) if len(alike) > 1 else None

    @property
    def stamp(self) -> tuple[str, str]:
        """Its end as a sign (passed, failed, inconclusive, look) and a short text."""
        if self.alarm is not None:
            return "failed", "STOPPED BY AN ALARM"
        if len(self.steps) < self.planned:
            return "look", "NOT FINISHED"
        gain = self.gain
        if gain is None or gain.word in (Conclusion.NO_COMMON_TASKS, Conclusion.INCONCLUSIVE):
            return "inconclusive", "NOT MEASURED" if gain is None else "CANNOT BE SAID"
        return {
            Conclusion.BETTER: ("passed", "BETTER"),
            Conclusion.WORSE: ("failed", "WORSE"),
            Conclusion.NO_DIFFERENCE: ("inconclusive", "NO GAIN SEEN"),
        }[gain.word]

    @property
    def sentence(self) -> str:
        """The result, or why it ended."""
        if self.alarm is not None:
            saved = (
                f"step {self.outcome.get('kept')} is kept" if self.outcome.get("kept") else "no step is kept"
            )
            named, text = self.alarm.get("alarm"), self.alarm.get("text")
            return f"Step {self.alarm.get('step')} was stopped by the alarm '{named}': {text}; {saved}."
        gain = self.gain
        if gain is None and len({evaluation.real for evaluation in self.evaluations}) > 1:
            return "Nothing can be said: held-out tasks were dreamed before and real after, or the other way."
        if gain is None:
            return "What it learned was not measured on held-out tasks."
        if not gain.tasks:
            return "Nothing can be said: no held-out task was decided both before and after."
        where = "on the real tools" if self.evaluations[-1].real else "in the dream"
        summary = (
            f"held-out pass rate went from {whole_percent(gain.a)} % to {whole_percent(gain.b)} % {where} "
            f"({100 * gain.change:+.0f} points, 95 %: {format_points(gain.low, gain.high)}; "
            f"{gain.tasks} tasks)"
        )
        if gain.word is Conclusion.NO_DIFFERENCE:
            return f"It may be chance: {summary}."
        if gain.word is Conclusion.INCONCLUSIVE:
            return f"It cannot be said: {summary}, but the inconclusive episodes could turn it round."
        return f"{summary[:1].upper()}{summary[1:]}."

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as a JSON object."""
        gain = self.gain
        facts = ("tasks", "change", "low", "high")
        return {
            "kind": TRAINING,
            "manifest": dict(self.manifest),
            "steps": len(self.steps),
            "planned": self.planned,
            "sentence": self.sentence,
            "held_out": [evaluation_to_json(evaluation) for evaluation in self.evaluations],
            "gain": gain and {"word": str(gain.word)} | {name: getattr(gain, name) for name in facts},
            "dream": {"first": mean_success(self.steps[:_FEW]), "last": mean_success(self.steps[-_FEW:])},
            "episodes": self.total("episodes"),
            "inconclusive": self.total("inconclusive"),
            "groups": self.total("groups"),
            "dead_groups": self.total("dead"),
            "tokens": self.total("tokens"),
            "forks": self.total("forks"),
            "unfit": sum(sum(step.facts.unfit.values()) for step in self.steps),
            "logprob_gap": max((step.logprob_gap or 0.0 for step in self.steps), default=None),
            "canary_gap": max((step.canary_gap or 0.0 for step in self.steps), default=None),
            "seconds": dict(self.seconds()),
            "curriculum": None if self.curriculum is None else asdict(self.curriculum),
            **self.outcome,
        }

    def total(self, name: Counted) -> int:
        """Return the sum of a `StepFacts` count over all steps."""
        return sum(int(getattr(step.facts, name)) for step in self.steps)

    def seconds(self) -> dict[str, float]:
        """Return wall time by phase in seconds; rollouts during an update count only if waited for."""
        spent = {
            phase: fsum(step.seconds.get(phase, 0.0) for step in self.steps)
            for phase in PHASES
            if phase not in ("rollouts", "evaluation")
        }
        spent["evaluation"] = fsum(evaluation.seconds for evaluation in self.evaluations)
        return spent


def training_of(directory: RunDirectory) -> Training:
    """Read a training's run directory, even if it still runs.

    Raises:
        RunDirectoryError: a file in it is damaged.
    """
    report = directory.read_report() or {}
    return Training(
        manifest=MANIFESTS.write(directory.manifest),
        steps=read_steps(directory.path),
        evaluations=read_evaluations(directory.path),
        outcome={name: report[name] for name in _ENDED if name in report},
        curriculum=curriculum_facts(read_courses(directory.path)),
    )


def outcomes_of(evaluation: EvaluationRecord) -> list[TaskOutcome]:
    """Return an evaluation's outcomes by task."""
    return [
        TaskOutcome(task, counts[0], counts[1], counts[2]) for task, counts in evaluation.outcomes.items()
    ]


def share_of(evaluation: EvaluationRecord) -> Share | None:
    """Return the mean pass rate over tasks with its interval; None without conclusive episodes."""
    return passed_once(outcomes_of(evaluation))


def evaluation_to_json(evaluation: EvaluationRecord) -> dict[str, JsonValue]:
    """Return an evaluation as a JSON object."""
    share = share_of(evaluation)
    return {
        "step": evaluation.step,
        "real": evaluation.real,
        "tasks": len(evaluation.outcomes),
        "decided": evaluation.decided,
        "inconclusive": evaluation.inconclusive,
        "success": share and share.mean,
        "low": share and share.low,
        "high": share and share.high,
    }


def mean_success(steps: Sequence[StepRecord]) -> float | None:
    """Return the mean pass rate in the dream over some steps; None without conclusive episodes."""
    rates = [step.success for step in steps if step.success is not None]
    return fsum(rates) / len(rates) if rates else None


def curriculum_facts(courses: Sequence[CourseRecord]) -> CurriculumFacts | None:
    """Add up the steps' records; None without a curriculum.

    Raises:
        RunDirectoryError: a record is not valid.
    """
    draws = list(_draws(courses))
    if not draws:
        return None
    groups = [group for draw in draws for group in draw.groups]
    made, refused, failed = Counter[str](), Counter[str](), Counter[str]()
    for draw in draws:
        made.update(synthetic.how for synthetic in draw.made)
        refused.update(draw.refused)
    for group in groups:
        failed.update(group.failed_at)
    return CurriculumFacts(
        groups=len(groups),
        tasks=len({group.task for group in groups}),
        in_turn=sum(group.why == TURN for group in groups),
        of_made=sum(MARK in group.task for group in groups),
        left_out=sum(group.left_out and group.success > 0 < group.failure for group in groups),
        made=dict(made),
        refused=dict(refused.most_common()),
        rests=dict(draws[-1].rests),
        failed_at=dict(failed.most_common()),
    )


def _draws(courses: Sequence[CourseRecord]) -> Iterator[Draw]:
    for course in courses:
        draws = course.course if isinstance(course.course, list) else []
        for draw in draws:
            try:
                yield DRAWS.read(draw)
            except (KeyError, TypeError, ValueError, UserError) as error:
                raise RunDirectoryError(
                    f"{COURSES}: step {course.step} is not a record of a curriculum: {error}."
                ) from None
