"""A comparison on the terminal: one sentence, the figures, what changed by tool, then task by task."""

from collections.abc import Mapping

from dreamgym_kit.report.clean import one_line, shown
from dreamgym_kit.report.comparing import Change, Comparison, TaskChange
from dreamgym_kit.report.executed import executed_short
from dreamgym_kit.report.paint import PLAIN, Paint, fold, hung
from dreamgym_kit.report.whole import points_told
from dreamgym_kit.trust.beating import Word

_TASKS, _ROWS = 20, 8


def render_comparison(found: Comparison, *, paint: Paint = PLAIN, limit: int = _TASKS) -> str:
    """Give the whole comparison; at most `limit` tasks."""
    parts = [
        _head(found, paint),
        _block("calls an episode", found.tools, share=False, paint=paint),
        _block("episodes with finding", found.findings, share=True, paint=paint),
        _tasks(found, paint, limit),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(found: Comparison, paint: Paint) -> str:
    lines = [first_line(found.word, found.sentence, paint)]
    lines += [paint.red(fold(f"  ! {one_line(told)}", indent=4)) for told in executed_compared(found)]
    lines.append(f"  before       {one_line(found.before)}")
    lines.append(f"  after        {one_line(found.after)}")
    for name, change in (("pass rate", found.pass_rate), ("inconclusive", found.inconclusive)):
        if change is not None:
            lines.append(f"  {name:<13}{_row(change, share=True)}")
    if found.cost_usd is not None and (found.cost_usd.before or found.cost_usd.after):
        lines.append(f"  {'USD':<13}{_row(found.cost_usd, share=False)}")
    lines += [fold(f"  not compared {text}", indent=15) for text in left_out(found)]
    lines += [f"  {'faults':<13}{told}" for told in faults_compared(found)]
    lines += [fold(f"  ! other settings: {one_line(text)}", indent=4) for text in found.differs]
    return "\n".join(lines)


def first_line(word: Word, sentence: str, paint: Paint = PLAIN) -> str:
    """What can be said of one run against another, and the sentence that says why."""
    colour = {Word.BETTER: paint.green, Word.WORSE: paint.red}.get(word, paint.yellow)
    line = fold(f"{word.told}  {one_line(sentence)}", indent=4)
    return line.replace(word.told, colour(word.told), 1)


def left_out(found: Comparison) -> list[str]:
    """What was not compared."""
    sides = ((found.only_before, "before"), (found.only_after, "after"))
    return [f"{len(names)} tasks that only the run {side} has" for names, side in sides if names]


def executed_compared(found: Comparison) -> list[str]:
    """Real calls that ran in either run, where none may."""
    sides = zip(("before", "after"), found.executed, strict=True)
    return [f"{side}: FAILED  {executed_short(calls)}" for side, calls in sides if calls]


def faults_compared(found: Comparison) -> list[str]:
    """What was made to fail in either run: a change may be due to that, and not to the agent."""
    return [f"{found.faults[0]} -> {found.faults[1]} calls made to fail by plan"] if any(found.faults) else []


def figures_told(change: Change, *, share: bool) -> tuple[str, str, str]:
    """A figure before, after, and its change with the interval, in the words of every form."""
    if share:
        points = f"{100 * change.change:+.0f} points ({points_told(change.low, change.high)})"
        return f"{change.before:.0%}", f"{change.after:.0%}", points
    moved = f"{change.change:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
    return f"{change.before:.2f}", f"{change.after:.2f}", moved


def _row(change: Change, *, share: bool) -> str:
    before, after, moved = figures_told(change, share=share)
    return f"{before:>6} -> {after:>6}   {moved}"


def _block(title: str, changes: Mapping[str, Change], *, share: bool, paint: Paint) -> str:
    moved = {name: change for name, change in changes.items() if change.change}
    if not moved:
        return ""
    width = min(28, max(len(one_line(name)) for name in moved))
    lines = [f" {title}, before -> after (95 % interval of the change)"]
    for name, change in list(moved.items())[:_ROWS]:
        line = f"  {shown(name, width):<{width}} {_row(change, share=share)}"
        lines.append(line if change.clear else paint.dim(line))
    if len(moved) > _ROWS:
        lines.append(f"  {len(moved) - _ROWS} more; all: --json")
    return "\n".join(lines)


def _tasks(found: Comparison, paint: Paint, limit: int) -> str:
    moved = [task for task in found.tasks if task.word != "same"]
    if not moved:
        return ""
    width = max(len(one_line(task.task)) for task in moved[:limit])
    lines = [_task(task, width, paint) for task in moved[:limit]]
    if len(moved) > limit:
        lines.append(f" {len(moved) - limit} more; all: --limit {len(moved)}")
    return "\n".join(lines)


def _task(task: TaskChange, width: int, paint: Paint) -> str:
    colour = {"worse": paint.red, "better": paint.green}.get(task.word, paint.yellow)
    head = f" {one_line(task.task):<{width}}  "
    marks = f"{shown(task.before_marks, 12)} -> {shown(task.after_marks, 12)}  "
    row = hung(f"{head}{task.word:<7}  {marks}", one_line(task.note))
    return row.replace(f" {task.word} ", f" {colour(task.word)} ", 1).rstrip()
