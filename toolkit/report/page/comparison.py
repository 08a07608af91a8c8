"""A comparison of two runs as a page of the same shell: what changed, how sure that is, task by task.

Fields of the data (schema 2; a later version adds fields and keeps these):

    schema   2
    kind     "compare"
    run      {"name", "title", "notes": [text]}
    compare  {"stamp", "sign": a verdict's, "sentence", "before", "after",
              "figures", "tools", "findings": [{"name", "before", "after", "moved", "clear", "good",
              "at": [low, change, high], "most"}],
              "tasks": [{"task", "word", "before", "after", "moved", "marks": [before, after], "note"}],
              worse first, "counts": {word: tasks}}

Every figure is told in the terminal's words; numbers stand only where something is drawn from them.
"""

from collections import Counter
from collections.abc import Mapping

from dreamgym_kit.report.comparing import (
    Change,
    Comparison,
    TaskChange,
    executed_compared,
    faults_compared,
    format_figures,
    left_out,
)
from dreamgym_kit.report.page.writing import document
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.comparison import Conclusion

_SIGNS = {Conclusion.BETTER: "passed", Conclusion.WORSE: "failed"}
_NOTE = 300


def comparison_page(comparison: Comparison) -> str:
    """Give the whole file."""
    return document(comparison_block(comparison))


def comparison_block(comparison: Comparison) -> dict[str, JsonValue]:
    """Give the data of the page, every judgement in it already made."""
    counts = Counter(task.word for task in comparison.tasks)
    return {
        "kind": "compare",
        "run": {
            "name": "compare",
            "title": f"{comparison.word.label}  {comparison.before} and {comparison.after}",
            "notes": _notes(comparison),
        },
        "compare": {
            "stamp": comparison.word.label,
            "sign": _SIGNS.get(comparison.word, "inconclusive"),
            "sentence": comparison.sentence,
            "before": comparison.before,
            "after": comparison.after,
            "figures": _figures(comparison),
            "tools": _rows(comparison.tools, share=False),
            "findings": _rows(comparison.findings, share=True, good=False),
            "tasks": [_task(task) for task in comparison.tasks],
            "counts": {word: counts[word] for word in ("worse", "unknown", "better", "same")},
        },
    }


def _notes(runs: Comparison) -> list[JsonValue]:
    return [
        *executed_compared(runs),
        *(f"Not compared: {text}." for text in left_out(runs)),
        *(f"Planned faults: {text}." for text in faults_compared(runs)),
        *([f"Other settings: {'; '.join(runs.differs)}"] if runs.differs else []),  # the verdict stays near
    ]


def _figures(comparison: Comparison) -> list[JsonValue]:
    cost = comparison.cost_usd
    rows: list[JsonValue] = [
        _row(name, change, share=True, good=good, most=1.0)
        for name, change, good in (
            ("pass rate", comparison.pass_rate, True),
            ("inconclusive", comparison.inconclusive, False),
        )
        if change is not None
    ]
    if cost is not None and (cost.before or cost.after):
        rows.append(_row("USD", cost, share=False, good=False, most=_most([cost])))
    return rows


def _rows(changes: Mapping[str, Change], *, share: bool, good: bool | None = None) -> list[JsonValue]:
    """Those that moved, on one axis."""
    moved = {name: change for name, change in changes.items() if change.change}
    most = 1.0 if share else _most(list(moved.values()))
    return [_row(name, change, share=share, good=good, most=most) for name, change in moved.items()]


def _most(changes: list[Change]) -> float:
    return max([abs(bound) for change in changes for bound in (change.low, change.high)], default=0.0) or 1.0


def _row(name: str, change: Change, *, share: bool, good: bool | None, most: float) -> dict[str, JsonValue]:
    """One line; `good` says whether more of it is better, None where that is not for us to say."""
    before, after, moved = format_figures(change, share=share)
    better = None if good is None or not change.clear else (change.change > 0) == good
    return {
        "name": name,
        "before": before,
        "after": after,
        "moved": moved,
        "clear": change.clear,
        "good": better,
        "at": [change.low, change.change, change.high],
        "most": most,
    }


def _task(task: TaskChange) -> dict[str, JsonValue]:
    before, after = ("" if share is None else f"{share:.0%}" for share in (task.before, task.after))
    moved = "" if task.before is None or task.after is None else f"{100 * (task.after - task.before):+.0f}"
    return {
        "task": task.task,
        "word": task.word,
        "before": before,
        "after": after,
        "moved": moved,
        "marks": [task.before_marks, task.after_marks],
        "note": task.note[:_NOTE],
    }
