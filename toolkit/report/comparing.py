"""Compare two runs of the same tasks, by task and tool, with confidence intervals.

One computation for terminal, JSON and page. Only tasks of both runs are compared. Whether the later run has a
better pass rate is decided as by `evaluate` (`trust.comparison`). The terminal shows one sentence, the
figures, changes by tool, then by task.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from dreamgym_kit.report.colors import PLAIN, Paint, fold, hung
from dreamgym_kit.report.gate_rules import executed_short
from dreamgym_kit.report.metrics import EFFECT_ORDER, MARKS, EpisodeLine, RunMetrics, natural
from dreamgym_kit.report.percent import format_points
from dreamgym_kit.report.sanitize import one_line, shown
from dreamgym_kit.rollout.rundir import differences
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.comparison import (
    Conclusion,
    PairedComparison,
    beaten,
    bootstrapped_change,
    mean_change,
)
from dreamgym_kit.trust.outcomes import task_outcomes
from dreamgym_kit.types import Executed, Verdict

COMPARE_SCHEMA = 2
_TASKS, _ROWS = 20, 8  # shown on the terminal
_EXPECTED = frozenset({"agent", "graph", "weights"})  # the agents are what is compared


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in both runs, and its change (after - before) with a 95 % interval over tasks."""

    before: float
    after: float
    change: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task in both runs; a share is None without a conclusive episode."""

    task: str
    before: float | None
    after: float | None
    before_marks: str  # one mark per episode, as in the matrix
    after_marks: str
    note: str  # the reason of the worst later episode

    @property
    def word(self) -> str:
        """better, worse, same or unknown."""
        if self.before is None or self.after is None:
            return "unknown"
        if self.before == self.after:
            return "same"
        return "better" if self.after > self.before else "worse"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one run to another."""

    before: str  # run names
    after: str
    tasks: tuple[TaskChange, ...]  # worse first
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    beating: PairedComparison  # compares the pass rates
    inconclusive: Change | None
    tools: Mapping[str, Change]  # calls per episode
    findings: Mapping[str, Change]  # share of episodes with such a finding
    cost_usd: Change | None  # per episode
    faults: tuple[int, int]  # calls with an injected fault, before and after
    differs: tuple[str, ...]  # settings in which the runs differ, other than the agent
    executed: tuple[tuple[Executed, ...], tuple[Executed, ...]] = ((), ())  # real calls, before and after
    imagined: bool = False  # whether counted verdicts rest on imagined answers

    @property
    def word(self) -> Conclusion:
        """The conclusion about the later run compared with the earlier one."""
        return self.beating.word

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        sentence = self.beating.phrase("the run before", "the run after")
        return f"{sentence} It rests on imagined answers, which prove nothing." if self.imagined else sentence

    @property
    def pass_rate(self) -> Change | None:
        """Change of the pass rate; None if no task is conclusive in both runs."""
        paired = self.beating
        return Change(paired.a, paired.b, paired.change, paired.low, paired.high) if paired.tasks else None

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as a JSON object."""
        return {
            "schema": COMPARE_SCHEMA,
            "kind": "compare",
            "word": self.word.value,
            "sentence": self.sentence,
            "before": self.before,
            "after": self.after,
            "pass_rate": _change_json(self.pass_rate),
            "inconclusive": _change_json(self.inconclusive),
            "cost_usd": _change_json(self.cost_usd),
            "tools": {name: _change_json(change) for name, change in self.tools.items()},
            "findings": {name: _change_json(change) for name, change in self.findings.items()},
            "tasks": [{"task": task.task, "word": task.word} | asdict(task) for task in self.tasks],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "faults": dict(zip(("before", "after"), self.faults, strict=True)),
            "differs": list(self.differs),
            "executed": {
                side: [{"tool": call.tool, "args": dict(call.args), "how": call.how} for call in calls]
                for side, calls in zip(("before", "after"), self.executed, strict=True)
            },
        }


def compared(before: RunMetrics, after: RunMetrics, *, names: tuple[str, str]) -> Comparison:
    """Compare two runs over their common tasks."""
    old, new = before.tasks, after.tasks
    shared = sorted(old.keys() & new.keys(), key=natural)
    pairs = [(old[task], new[task]) for task in shared]
    order = {name: place for place, name in enumerate(("worse", "unknown", "better", "same"))}
    tasks = [_task(task, old[task], new[task]) for task in shared]
    return Comparison(
        before=names[0],
        after=names[1],
        tasks=tuple(sorted(tasks, key=lambda task: (order[task.word], natural(task.task)))),
        only_before=tuple(sorted(old.keys() - new.keys(), key=natural)),
        only_after=tuple(sorted(new.keys() - old.keys(), key=natural)),
        beating=beaten(
            *(task_outcomes((line.task, line.verdict) for line in run.episodes) for run in (before, after))
        ),
        inconclusive=_means(pairs, lambda lines: _share(lines, Verdict.INCONCLUSIVE), bootstrapped_change),
        tools=_tools(before, after, pairs),
        findings=_kinds(before, after, pairs),
        cost_usd=_means(pairs, lambda lines: sum(line.cost_usd for line in lines) / len(lines)),
        faults=(before.faults, after.faults),
        differs=tuple(differing(before, after)),
        executed=(_executed(before), _executed(after)),
        imagined=any(
            line.imagined and line.verdict.conclusive for line in (*before.episodes, *after.episodes)
        ),
    )


Pairs = Sequence[tuple[list[EpisodeLine], list[EpisodeLine]]]
Figure = Callable[[list[EpisodeLine]], float]
Interval = Callable[[Sequence[float], Sequence[float]], tuple[float, float, float]]


def _executed(summary: RunMetrics) -> tuple[Executed, ...]:
    return tuple(call for _, call in summary.executed)


def _task(task: str, old: list[EpisodeLine], new: list[EpisodeLine]) -> TaskChange:
    worst = min(new, key=lambda line: MARKS.index(line.mark))
    note = "" if worst.mark == "." else (worst.anomaly or worst.reason)
    marks = ["".join(line.mark for line in lines) for lines in (old, new)]
    return TaskChange(task, _pass_rate(old), _pass_rate(new), marks[0], marks[1], note)


def _pass_rate(lines: list[EpisodeLine]) -> float | None:
    conclusive = [line for line in lines if line.verdict.conclusive]
    return _share(conclusive, Verdict.PASSED) if conclusive else None


def _share(lines: list[EpisodeLine], verdict: Verdict) -> float:
    return sum(line.verdict is verdict for line in lines) / len(lines)


def _means(pairs: Pairs, figure: Figure, interval: Interval = mean_change) -> Change | None:
    return _change([figure(old) for old, _ in pairs], [figure(new) for _, new in pairs], interval)


def _change(old: list[float], new: list[float], interval: Interval) -> Change | None:
    """Return the change of a per-task figure; None without tasks."""
    return Change(sum(old) / len(old), sum(new) / len(new), *interval(old, new)) if old else None


def _tools(before: RunMetrics, after: RunMetrics, pairs: Pairs) -> dict[str, Change]:
    """Return calls per episode by tool, destructive first, then by size of the change."""
    effects = {tool.name: tool.effect for summary in (before, after) for tool in summary.tools}
    changes: dict[str, Change] = {}
    for name in effects:
        change = _means(pairs, lambda lines, name=name: _calls(lines, name))  # type: ignore[misc]
        if change is not None and (change.before or change.after):
            changes[name] = change
    ranked = sorted(
        changes.items(),
        key=lambda item: (EFFECT_ORDER.index(effects[item[0]]), -abs(item[1].change), item[0]),
    )
    return dict(ranked)


def _calls(lines: list[EpisodeLine], name: str) -> float:
    return sum(calls for line in lines for tool, calls, _ in line.uses if tool == name) / len(lines)


def _kinds(before: RunMetrics, after: RunMetrics, pairs: Pairs) -> dict[str, Change]:
    places: dict[str, list[set[str]]] = {}
    for side, summary in enumerate((before, after)):
        for group in summary.findings:
            episodes = places.setdefault(group.kind, [set(), set()])
            episodes[side] |= {episode for episode, _ in group.at}
    changes = {}
    for kind, (old, new) in places.items():
        olds = [sum(line.id in old for line in lines) / len(lines) for lines, _ in pairs]
        news = [sum(line.id in new for line in lines) / len(lines) for _, lines in pairs]
        change = _change(olds, news, bootstrapped_change)
        if change is not None:
            changes[kind] = change
    return dict(sorted(changes.items(), key=lambda item: (-item[1].change, item[0])))


def differing(
    before: RunMetrics, after: RunMetrics, *, names: tuple[str, str] = ("before", "after")
) -> list[str]:
    """Return the settings in which two runs differ, except the agent."""
    old, new = before.manifest.get("matters"), after.manifest.get("matters")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return []
    sides = [
        {name: _but_the_model(name, value) for name, value in matters.items() if name not in _EXPECTED}
        for matters in (old, new)
    ]
    if "policy" not in sides[0] or "policy" not in sides[1]:
        sides = [{name: value for name, value in side.items() if name != "policy"} for side in sides]
    return differences(sides[0], sides[1], sides=names)


def _but_the_model(name: str, value: JsonValue) -> JsonValue:
    """Remove the policy's model, which is part of the agent; its sampling settings stay."""
    if name != "policy" or not isinstance(value, Mapping):
        return value
    return {key: setting for key, setting in value.items() if key != "model"}


def _change_json(change: Change | None) -> JsonValue:
    return None if change is None else asdict(change) | {"clear": change.clear}


def render_comparison(comparison: Comparison, *, paint: Paint = PLAIN, limit: int = _TASKS) -> str:
    """Format the whole comparison, with at most `limit` tasks."""
    parts = [
        _head(comparison, paint),
        _block("calls an episode", comparison.tools, share=False, paint=paint),
        _block("episodes with finding", comparison.findings, share=True, paint=paint),
        _task_lines(comparison, paint, limit),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(comparison: Comparison, paint: Paint) -> str:
    lines = [first_line(comparison.word, comparison.sentence, paint)]
    lines += [paint.red(fold(f"  ! {one_line(text)}", indent=4)) for text in executed_compared(comparison)]
    lines.append(f"  before       {one_line(comparison.before)}")
    lines.append(f"  after        {one_line(comparison.after)}")
    for name, change in (("pass rate", comparison.pass_rate), ("inconclusive", comparison.inconclusive)):
        if change is not None:
            lines.append(f"  {name:<13}{_row(change, share=True)}")
    if comparison.cost_usd is not None and (comparison.cost_usd.before or comparison.cost_usd.after):
        lines.append(f"  {'USD':<13}{_row(comparison.cost_usd, share=False)}")
    lines += [fold(f"  not compared {text}", indent=15) for text in left_out(comparison)]
    lines += [f"  {'faults':<13}{text}" for text in faults_compared(comparison)]
    lines += [fold(f"  ! other settings: {one_line(text)}", indent=4) for text in comparison.differs]
    return "\n".join(lines)


def first_line(word: Conclusion, sentence: str, paint: Paint = PLAIN) -> str:
    """Format a conclusion and the sentence that explains it."""
    color = {Conclusion.BETTER: paint.green, Conclusion.WORSE: paint.red}.get(word, paint.yellow)
    line = fold(f"{word.label}  {one_line(sentence)}", indent=4)
    return line.replace(word.label, color(word.label), 1)


def left_out(comparison: Comparison) -> list[str]:
    """Return what was not compared."""
    sides = ((comparison.only_before, "before"), (comparison.only_after, "after"))
    return [f"{len(names)} tasks that only the run {side} has" for names, side in sides if names]


def executed_compared(comparison: Comparison) -> list[str]:
    """Return the forbidden real calls of either run."""
    sides = zip(("before", "after"), comparison.executed, strict=True)
    return [f"{side}: FAILED  {executed_short(calls)}" for side, calls in sides if calls]


def faults_compared(runs: Comparison) -> list[str]:
    """Return injected faults of either run: they, not the agent, may cause a change."""
    return [f"{runs.faults[0]} -> {runs.faults[1]} calls made to fail by plan"] if any(runs.faults) else []


def format_figures(change: Change, *, share: bool) -> tuple[str, str, str]:
    """Format a figure before, after, and its change with the interval, for all outputs."""
    if share:
        points = f"{100 * change.change:+.0f} points ({format_points(change.low, change.high)})"
        return f"{change.before:.0%}", f"{change.after:.0%}", points
    moved = f"{change.change:+.2f} ({change.low:+.2f} to {change.high:+.2f})"
    return f"{change.before:.2f}", f"{change.after:.2f}", moved


def _row(change: Change, *, share: bool) -> str:
    before, after, moved = format_figures(change, share=share)
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


def _task_lines(comparison: Comparison, paint: Paint, limit: int) -> str:
    moved = [task for task in comparison.tasks if task.word != "same"]
    if not moved:
        return ""
    width = max(len(one_line(task.task)) for task in moved[:limit])
    lines = [_task_line(task, width, paint) for task in moved[:limit]]
    if len(moved) > limit:
        lines.append(f" {len(moved) - limit} more; all: --limit {len(moved)}")
    return "\n".join(lines)


def _task_line(task: TaskChange, width: int, paint: Paint) -> str:
    color = {"worse": paint.red, "better": paint.green}.get(task.word, paint.yellow)
    head = f" {one_line(task.task):<{width}}  "
    marks = f"{shown(task.before_marks, 12)} -> {shown(task.after_marks, 12)}  "
    row = hung(f"{head}{task.word:<7}  {marks}", one_line(task.note))
    return row.replace(f" {task.word} ", f" {color(task.word)} ", 1).rstrip()
