"""A training as a page of the same shell: what it was worth on held-out tasks, how it went, what stopped it.

Fields of the data (schema 2; a later version adds fields and keeps these):

    schema    2
    kind      "train"
    run       {"name", "title", "notes": [text]}
    training  {"stamp", "sign": a verdict's or "look", "sentence", "facts": [[label, text]],
              "steps": [step], "curves": [{"key", "title", "note", "share", "stacked", "most",
              "lines": [{"name", "last", "values": [number or null]}],
              "marks": [{"step", "at": [low, mean, high], "told"}], "corridor": [low, high] or null}],
              "alarm": {"name", "text", "step"} or null}
    manifest  [[name, text]]
"""

from collections.abc import Mapping
from math import fsum

from dreamgym_kit.report.page.document import SCHEMA, document, manifest_rows
from dreamgym_kit.report.percent import format_interval, whole_percent
from dreamgym_kit.report.training import Training
from dreamgym_kit.report.training_curves import Curve, curves_of
from dreamgym_kit.report.training_text import facts_of_training
from dreamgym_kit.serialization import JsonValue

_DIGITS = 6


def training_page(training: Training, *, name: str) -> str:
    """Give the whole file; `name` is the run directory's."""
    return document(training_block(training, name=name))


def training_block(training: Training, *, name: str) -> dict[str, JsonValue]:
    """Give the data of the page, every judgement in it already made."""
    sign, stamp = training.stamp
    alarm = training.alarm
    return {
        "schema": SCHEMA,
        "kind": "train",
        "run": {"name": name, "title": f"{name}, dreamgym-kit", "notes": []},
        "training": {
            "stamp": stamp,
            "sign": sign,
            "sentence": training.sentence,
            "facts": [[label, text] for label, text in facts_of_training(training)],
            "steps": [step.step for step in training.steps],
            "curves": [_curve(curve) for curve in curves_of(training)],
            "alarm": None
            if alarm is None
            else {"name": alarm.get("alarm"), "text": alarm.get("text"), "step": alarm.get("step")},
        },
        "manifest": manifest_rows(training.manifest),
    }


def _curve(curve: Curve) -> Mapping[str, JsonValue]:
    return {
        "key": curve.key,
        "title": curve.title,
        "note": curve.note,
        "share": curve.share,
        "stacked": curve.stacked,
        "most": _most(curve),
        "lines": [
            {
                "name": line.name,
                "last": _format(
                    next((value for value in reversed(line.values) if value is not None), None), curve
                ),
                "values": [None if value is None else round(value, _DIGITS) for value in line.values],
            }
            for line in curve.lines
        ],
        "marks": [
            {
                "step": mark.step,
                "at": [round(value, _DIGITS) for value in (mark.low, mark.value, mark.high)],
                "told": (
                    f"{'before' if mark.step == 0 else f'after step {mark.step}'}: "
                    f"{whole_percent(mark.value)} % ({format_interval(mark.low, mark.high)})"
                ),
            }
            for mark in curve.marks
        ],
        "corridor": None if curve.corridor is None else list(curve.corridor),
    }


def _most(curve: Curve) -> float:
    """Where the axis ends: 1 for shares, else above the largest value; a bound far off does not count."""
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
