"""The curves of a training: what is drawn, in the page and as pictures alike.

Each has its steps below it; values that were not measured are gaps, never zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.report.training import Training, share_of
from dreamgym_kit.training.alarms import REFERENCE_STEPS
from dreamgym_kit.training.records import StepRecord

SPLIT = ("waited", "update", "sync", "attest", "checkpoint")
SPLIT_NAMES = {"waited": "waiting for rollouts"}

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """One line of a drawing, a value a step."""

    name: str
    values: Values


@dataclass(frozen=True, slots=True)
class Mark:
    """A measurement with its interval, at a step."""

    step: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One drawing."""

    key: str  # plain: also the name of its picture
    title: str
    note: str  # what a reader has to know to read it right
    lines: tuple[PlottedLine, ...]
    share: bool = False  # its axis goes from 0 to 1, told in per cent
    marks: tuple[Mark, ...] = ()
    corridor: tuple[float | None, float | None] | None = None  # bounds; beyond them an alarm stops the run
    stacked: bool = False  # lines lie upon each other


def curves_of(training: Training) -> tuple[Curve, ...]:
    """Everything that there is to draw; a curve without any value is left out."""
    steps = training.steps
    curves = (
        Curve(
            "success",
            "Pass rate",
            "Line: in the dream, on what it learns from. Points: on held-out tasks, which is what counts.",
            (PlottedLine("in the dream", [step.success for step in steps]),),
            share=True,
            marks=_measured(training),
        ),
        Curve(
            "reward",
            "Reward in the dream",
            "What it is pulled towards; not the result.",
            (PlottedLine("reward", [step.facts.reward for step in steps]),),
            share=True,
        ),
        Curve(
            "entropy",
            "Entropy",
            "Nats a token.",
            (PlottedLine("entropy", [step.entropy for step in steps]),),
            corridor=_entropy_corridor(training),
        ),
        Curve(
            "kl",
            "KL of each update",
            "Nats a token, from the weights that sampled.",
            (PlottedLine("KL", [step.kl for step in steps]),),
            corridor=(None, _bound(training, "kl")),
        ),
        Curve(
            "dead_groups",
            "Groups that taught nothing",
            "Dead: all repeats did equally well. Too small: fewer than two could be judged.",
            (
                PlottedLine("dead", _shares(steps, "dead")),
                PlottedLine("too small", _shares(steps, "small")),
            ),
            share=True,
        ),
        Curve(
            "step_time",
            "Time of a step",
            "Seconds, one part upon the other.",
            tuple(
                PlottedLine(SPLIT_NAMES.get(phase, phase), [step.seconds.get(phase, 0.0) for step in steps])
                for phase in SPLIT
            ),
            stacked=True,
        ),
    )
    return tuple(
        curve
        for curve in curves
        if curve.marks or any(value is not None for line in curve.lines for value in line.values)
    )


def _measured(training: Training) -> tuple[Mark, ...]:
    shares = [(evaluation.step, share_of(evaluation)) for evaluation in training.evaluations]
    return tuple(Mark(step, share.mean, share.low, share.high) for step, share in shares if share is not None)


def _shares(steps: Sequence[StepRecord], name: str) -> list[float | None]:
    return [getattr(step.facts, name) / step.facts.groups if step.facts.groups else None for step in steps]


def _bound(training: Training, name: str) -> float | None:
    """A bound of `[alarms]` as the run was made with."""
    about = training.manifest.get("about")
    bounds = about.get("alarms") if isinstance(about, dict) else None
    bound = bounds.get(name) if isinstance(bounds, dict) else None
    return float(bound) if isinstance(bound, (int, float)) else None


def _entropy_corridor(training: Training) -> tuple[float | None, float | None] | None:
    first = [step.entropy for step in training.steps[:REFERENCE_STEPS] if step.entropy is not None]
    low, high = _bound(training, "entropy_low"), _bound(training, "entropy_high")
    if len(first) < REFERENCE_STEPS or low is None or high is None:
        return None
    reference = sum(first) / len(first)
    return low * reference, high * reference
