"""A run on the terminal: its verdict, what broke, its figures, its matrix. ASCII, as wide as the terminal.

It lays out the texts of `headline` and decides nothing. Text from tools, tasks and models is sanitized; IDs
are never cut, so that they can be copied.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from dreamgym_kit.report.colors import PLAIN, WIDTH, Paint, fold, hung, labelled
from dreamgym_kit.report.gate_rules import Rule, executed_sentence, verdict_of, what_to_do
from dreamgym_kit.report.headline import (
    causes,
    format_broken,
    format_figures,
    format_to_answer,
    headline,
    word,
)
from dreamgym_kit.report.metrics import CRITICAL, MARKS, EpisodeLine, FindingGroup, RunMetrics, ToolUse
from dreamgym_kit.report.percent import format_count
from dreamgym_kit.report.sanitize import one_line
from dreamgym_kit.types import Effect

_MATRIX = 80  # columns
_BAND = _MATRIX - 4  # tasks on one line of the matrix
_BANDS = 5
_STEP = 10  # columns indentation of a command
_CAUSES = 6
_KINDS = 8  # of findings
_LEGEND = "! finding  x failed  E error  - inconclusive  . passed"


def render_run(summary: RunMetrics, *, paint: Paint = PLAIN) -> str:
    """Format the first screen of a run, without next steps."""
    parts = [executed_first(summary, paint), verdict(summary, paint), matrix(summary, paint)]
    return "\n\n".join(part for part in parts if part) + "\n"


def executed_first(summary: RunMetrics, paint: Paint = PLAIN) -> str:
    """Format executed real calls and next steps; "" if there are none."""
    if not summary.executed:
        return ""
    texts = [
        f"FAILED  {one_line(executed_sentence(summary))}",
        *(f"  {one_line(step)}" for step in what_to_do(summary)),
    ]
    lines = [fold(text, indent=4).split("\n") for text in texts]
    return "\n".join([*map(paint.red, lines[0]), *(row for step in lines[1:] for row in step)])


def matrix(summary: RunMetrics, paint: Paint = PLAIN) -> str:
    """Format one column per task and one row per repeat, the worst task first."""
    tasks = list(summary.tasks.values())
    if not tasks:
        return ""
    rows = max(line.repeat for lines in tasks for line in lines)
    head = f" {format_count(len(tasks), 'task')} across, {format_count(rows, 'episode')} down"
    gap = _MATRIX - len(head) - len(_LEGEND)
    lines = [f"{head}{' ' * gap}{_LEGEND}"] if gap >= 2 else [head, f" {_LEGEND}"]
    for start in range(0, min(len(tasks), _BAND * _BANDS), _BAND):
        lines += [""] if start else []
        lines += _band(tasks[start : start + _BAND], paint)
    if len(tasks) > _BAND * _BANDS:
        lines.append(f"  the {_BAND * _BANDS} worst of {len(tasks)} tasks")
    return "\n".join(lines)


def _band(tasks: Sequence[Sequence[EpisodeLine]], paint: Paint) -> list[str]:
    cells = [{line.repeat: line.mark for line in lines} for lines in tasks]
    rows = max(repeat for column in cells for repeat in column)
    painted = {"!": paint.red, "x": paint.red, "E": paint.red, "-": paint.yellow, ".": paint.green}
    lines = []
    for repeat in range(1, rows + 1):
        marks = "".join(column.get(repeat, " ") for column in cells).rstrip()
        runs = ((mark, "".join(run)) for mark, run in groupby(marks))
        lines.append("  " + "".join(painted[mark](run) if mark in painted else run for mark, run in runs))
    return lines


def verdict(summary: RunMetrics, paint: Paint = PLAIN, *, also: Sequence[Rule] = ()) -> str:
    """Format the verdict with all counts, broken rules, the pass rate, reasons, and other figures.

    `also`: rules in addition to those of the gate.
    """
    rules, outcome = (*summary.rules(), *also), word(summary, also=also)
    color = partial(paint.verdict, verdict_of(rules))
    lines = [headline(summary, also=also).replace(outcome, color(outcome), 1)]
    for broken in format_broken(rules):
        lines += map(color, fold(f"  {broken}", indent=4).split("\n"))
    (label, rate), *figures = format_figures(summary)
    lines.append(labelled(label, rate))
    shown_causes = causes(summary)
    for cause in shown_causes[:_CAUSES]:
        lines += fold(f"  {cause}", indent=4).split("\n")
        lines += [f"      {one_line(line)}" for line in cause.traceback]
    if len(shown_causes) > _CAUSES:
        lines.append(f"  and {format_count(len(shown_causes) - _CAUSES, 'other reason')}")
    real = paint.red if summary.executed or summary.violations else str
    for label, text in figures:
        rows = labelled(label, text).split("\n")
        lines += map(real, rows) if label == "Real calls" else rows
    return "\n".join([*lines, *format_to_answer(summary)])


def tool_table(summary: RunMetrics, paint: Paint = PLAIN) -> str:
    """Format every tool with effect, calls and sources."""
    if not summary.tools:
        return " No tool was called."
    width = max(len(one_line(tool.name)) for tool in summary.tools)
    return "\n".join(_tool_row(tool, width, paint) for tool in summary.tools)


def _tool_row(tool: ToolUse, width: int, paint: Paint) -> str:
    effect = f"{tool.effect:<11}"
    if tool.effect is Effect.DESTRUCTIVE:
        effect = paint.red(effect)
    mix = ", ".join(
        f"{count} {source}" for source, count in sorted(tool.sources.items(), key=lambda item: -item[1])
    )
    wrong = paint.red(f"  ! {tool.wrong} wrong") if tool.wrong else ""
    return f" {one_line(tool.name):<{width}}  {effect}  {tool.calls:>6}  {mix}{wrong}"


def finding_list(summary: RunMetrics, paint: Paint = PLAIN) -> str:
    """Format the kinds of findings, worst first, each with a place."""
    lines = [_finding_row(group, paint) for group in summary.findings[:_KINDS]]
    if len(summary.findings) > _KINDS:
        lines.append(f" {len(summary.findings) - _KINDS} more kinds; all: --json")
    return "\n".join(lines)


def _finding_row(group: FindingGroup, paint: Paint) -> str:
    color = paint.red if group.severity == CRITICAL else paint.yellow
    episode, step = group.at[0]
    place = f"{one_line(episode)}{f' step {step}' if step is not None else ''}"
    more = f", and {group.count - 1} more" if group.count > 1 else ""
    text = fold(f" ! {one_line(group.text)}", indent=3)
    return f"{text.replace('!', color('!'), 1)}\n   {one_line(group.kind).replace('_', ' ')}: {place}{more}"


def episode_list(summary: RunMetrics, paint: Paint = PLAIN, *, only: str | None = None) -> str:
    """List episodes, worst first, each with its verdict and reason.

    Args:
        summary: the run.
        paint: colors, if any.
        only: a verdict, or "anomaly".
    """
    wanted = sorted(
        (
            line
            for line in summary.episodes
            if only in (None, line.verdict) or (only == "anomaly" and line.mark == "!")
        ),
        key=lambda line: MARKS.index(line.mark),
    )
    width = max((len(one_line(line.id)) for line in wanted), default=0)
    lines = [_episode_row(line, width, paint) for line in wanted]
    return "\n".join(lines) if lines else " No episode matches."


def _episode_row(line: EpisodeLine, width: int, paint: Paint) -> str:
    step = f"step {line.anomaly_step}  " if line.anomaly_step is not None else ""
    mark = "! " if line.anomaly is not None else ""
    mark += "(imagined) " if line.imagined and line.verdict.conclusive else ""
    head = f" {one_line(line.id):<{width}}  "
    cell = f"{line.verdict:<12}"
    row = hung(f"{head}{cell}  ", f"{step}{mark}{one_line(line.anomaly or line.reason)}")
    return row.replace(cell, paint.verdict(line.verdict, cell), 1)


def next_steps(steps: Sequence[tuple[str, str, str]]) -> str:
    """Format next steps: (label, command, effect); commands are never cut."""
    fit = [step for step in steps if _STEP + len(step[1]) + 3 + len(step[2]) <= WIDTH.get()]
    width = max((len(command) for _, command, _ in fit), default=0)
    lines = []
    for label, command, why in steps:
        line = f" {label:<{_STEP - 1}}{command:<{width}}   {why}"
        lines.append(
            line if len(line) <= WIDTH.get() else f" {label:<{_STEP - 1}}{command}\n{' ' * _STEP}{why}"
        )
    return "\n".join(lines)
