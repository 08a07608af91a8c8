"""The curves of a training, drawn equally in the page and as pictures; and the data of that page.

Each curve has its steps below it; values that were not measured are gaps, never zeros.

Fields of the page's data (schema 3; a later version adds fields and keeps these):

    schema    3
    kind      "train"
    run       {"name", "title", "notes": [text]}
    training  {"stamp", "sign": a verdict's or "look", "sentence", "facts": [[label, text]],
              "steps": [step], "curves": [{"key", "title", "note", "share", "stacked", "most",
              "lines": [{"name", "last", "values": [number or null]}],
              "marks": [{"step", "at": [low, mean, high], "told"}], "corridor": [low, high] or null}]}
    manifest  as it was written; the page has it as [[name, text]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from dreamgym_kit.report.percent import format_interval, whole_percent
from dreamgym_kit.report.training import Training, share_of
from dreamgym_kit.report.training_text import facts_of_training
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.training.alarms import REFERENCE_STEPS
from dreamgym_kit.training.records import StepRecord

_SPLIT = ("waited", "update", "sync", "attest", "checkpoint")
_SPLIT_NAMES = {"waited": "waiting for rollouts"}
_DIGITS = 6

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """One line of a plot, with a value per step."""

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
    """One plot."""

    key: str  # also its file name
    title: str
    note: str  # a hint for the reader
    lines: tuple[PlottedLine, ...]
    share: bool = False  # the axis is 0 to 1, in percent
    marks: tuple[Mark, ...] = ()
    corridor: tuple[float | None, float | None] | None = None  # bounds; beyond them an alarm stops the run
    stacked: bool = False  # whether lines are stacked


def curves_of(training: Training) -> tuple[Curve, ...]:
    """Return all plots; a curve without values is left out."""
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
                PlottedLine(_SPLIT_NAMES.get(phase, phase), [step.seconds.get(phase, 0.0) for step in steps])
                for phase in _SPLIT
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
    """Return a bound of the run's `[alarms]`."""
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


def training_block(training: Training, *, name: str) -> dict[str, JsonValue]:
    """Return the data of the page, with all judgments made."""
    sign, stamp = training.stamp
    return {
        "kind": "train",
        "run": {"name": name, "title": f"{name}, dreamgym-kit", "notes": []},
        "training": {
            "stamp": stamp,
            "sign": sign,
            "sentence": training.sentence,
            "facts": list(facts_of_training(training)),
            "steps": [step.step for step in training.steps],
            "curves": [_curve(curve) for curve in curves_of(training)],
        },
        "manifest": training.manifest,
    }


def _curve(curve: Curve) -> dict[str, JsonValue]:
    def line(plotted: PlottedLine) -> dict[str, JsonValue]:
        last = next((value for value in reversed(plotted.values) if value is not None), None)
        values = [None if value is None else round(value, _DIGITS) for value in plotted.values]
        return {"name": plotted.name, "last": _format(last, curve), "values": values}

    def mark(mark: Mark) -> dict[str, JsonValue]:
        when = "before" if mark.step == 0 else f"after step {mark.step}"
        text = f"{when}: {whole_percent(mark.value)} % ({format_interval(mark.low, mark.high)})"
        at = [round(value, _DIGITS) for value in (mark.low, mark.value, mark.high)]
        return {"step": mark.step, "at": at, "told": text}

    return {
        "key": curve.key,
        "title": curve.title,
        "note": curve.note,
        "share": curve.share,
        "stacked": curve.stacked,
        "most": _most(curve),
        "lines": [line(plotted) for plotted in curve.lines],
        "marks": [mark(measured) for measured in curve.marks],
        "corridor": curve.corridor,
    }


def _most(curve: Curve) -> float:
    """Return the end of the axis: 1 for shares, else above the largest value; ignores distant bounds."""
    if curve.share:
        return 1.0
    columns = zip(*(line.values for line in curve.lines), strict=True)
    if curve.stacked:
        values = [fsum(value or 0.0 for value in column) for column in columns]
    else:
        values = [value for line in curve.lines for value in line.values if value is not None]
    most = max(values, default=0.0)
    bound = (curve.corridor or (None, None))[1]
    if bound is not None and most < bound <= 4 * most:
        most = bound
    return round(1.08 * most, _DIGITS) or 1.0


def _format(value: float | None, curve: Curve) -> str:
    if value is None:
        return ""
    return f"{whole_percent(value)} %" if curve.share else f"{value:.3g}"
