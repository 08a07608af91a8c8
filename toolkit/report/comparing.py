"""Two runs on the same tasks: what changed, task by task and tool by tool, and how sure that is.

One computation for terminal, JSON and page. Only tasks that both runs have are compared. Whether the run
after is better, by its pass rate, is what `evaluate` says of the same two runs (`trust.beating`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.figures import EFFECT_ORDER, MARKS, EpisodeLine, Summary, natural
from dreamgym_kit.rollout.manifest import differences
from dreamgym_kit.trust.beating import Beating, Word, beaten
from dreamgym_kit.trust.outcomes import task_outcomes
from dreamgym_kit.trust.paired import mean_change, share_change
from dreamgym_kit.vocabulary import Executed, Verdict

COMPARE_SCHEMA = 2
_EXPECTED = frozenset({"agent", "graph", "weights"})  # a comparison is there to compare agents


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
        """Whether the interval leaves no doubt which way it went."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task in both runs; a share is None where nothing is conclusive."""

    task: str
    before: float | None
    after: float | None
    before_marks: str  # one sign an episode, as in the matrix
    after_marks: str
    note: str  # why the worst episode after it is as it is

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

    before: str  # names of the runs
    after: str
    tasks: tuple[TaskChange, ...]  # worse first
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    beating: Beating  # of the pass rates
    inconclusive: Change | None
    tools: Mapping[str, Change]  # calls of an episode
    findings: Mapping[str, Change]  # share of episodes that such a finding stands in
    cost_usd: Change | None  # of an episode
    faults: tuple[int, int]  # calls that a plan made to fail, before and after
    differs: tuple[str, ...]  # settings in which the runs differ, other than the agent
    executed: tuple[tuple[Executed, ...], tuple[Executed, ...]] = ((), ())  # real calls, before and after

    @property
    def word(self) -> Word:
        """Of the run after against the run before."""
        return self.beating.word

    @property
    def sentence(self) -> str:
        """The one sentence about it."""
        return self.beating.told("the run before", "the run after")

    @property
    def pass_rate(self) -> Change | None:
        """None where no task is conclusive in both runs."""
        told = self.beating
        return Change(told.a, told.b, told.change, told.low, told.high) if told.tasks else None

    def to_json(self) -> dict[str, JsonValue]:
        """Give it as one JSON object."""
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
            "tasks": [
                {
                    "task": one.task,
                    "word": one.word,
                    "before": one.before,
                    "after": one.after,
                    "before_marks": one.before_marks,
                    "after_marks": one.after_marks,
                    "note": one.note,
                }
                for one in self.tasks
            ],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "faults": dict(zip(("before", "after"), self.faults, strict=True)),
            "differs": list(self.differs),
            "executed": {
                side: [{"tool": call.tool, "args": dict(call.args), "how": call.how} for call in calls]
                for side, calls in zip(("before", "after"), self.executed, strict=True)
            },
        }


def compared(before: Summary, after: Summary, *, names: tuple[str, str]) -> Comparison:
    """Compare two runs over the tasks that both have."""
    old, new = before.tasks, after.tasks
    shared = sorted(old.keys() & new.keys(), key=natural)
    pairs = [(old[task], new[task]) for task in shared]
    order = {name: place for place, name in enumerate(("worse", "unknown", "better", "same"))}
    tasks = [_task(task, old[task], new[task]) for task in shared]
    return Comparison(
        before=names[0],
        after=names[1],
        tasks=tuple(sorted(tasks, key=lambda one: (order[one.word], natural(one.task)))),
        only_before=tuple(sorted(old.keys() - new.keys(), key=natural)),
        only_after=tuple(sorted(new.keys() - old.keys(), key=natural)),
        beating=beaten(
            *(task_outcomes((line.task, line.verdict) for line in run.episodes) for run in (before, after))
        ),
        inconclusive=_shares(pairs, lambda lines: _share(lines, Verdict.INCONCLUSIVE)),
        tools=_tools(before, after, pairs),
        findings=_kinds(before, after, pairs),
        cost_usd=_means(pairs, lambda lines: sum(line.cost_usd for line in lines) / len(lines)),
        faults=(before.faults, after.faults),
        differs=tuple(differing(before, after)),
        executed=(_executed(before), _executed(after)),
    )


Pairs = Sequence[tuple[list[EpisodeLine], list[EpisodeLine]]]
Figure = Callable[[list[EpisodeLine]], float]


def _executed(summary: Summary) -> tuple[Executed, ...]:
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


def _shares(pairs: Pairs, figure: Figure) -> Change | None:
    old, new = [figure(one) for one, _ in pairs], [figure(other) for _, other in pairs]
    if not pairs:
        return None
    return Change(sum(old) / len(old), sum(new) / len(new), *share_change(old, new))


def _means(pairs: Pairs, figure: Figure) -> Change | None:
    old, new = [figure(one) for one, _ in pairs], [figure(other) for _, other in pairs]
    if not pairs:
        return None
    return Change(sum(old) / len(old), sum(new) / len(new), *mean_change(old, new))


def _tools(before: Summary, after: Summary, pairs: Pairs) -> dict[str, Change]:
    """Calls of an episode by tool, destructive first, then by how much changed."""
    effects = {tool.name: tool.effect for summary in (before, after) for tool in summary.tools}
    found: dict[str, Change] = {}
    for name in effects:
        change = _means(pairs, lambda lines, name=name: _calls(lines, name))  # type: ignore[misc]
        if change is not None and (change.before or change.after):
            found[name] = change
    ranked = sorted(
        found.items(),
        key=lambda item: (EFFECT_ORDER.index(effects[item[0]]), -abs(item[1].change), item[0]),
    )
    return dict(ranked)


def _calls(lines: list[EpisodeLine], name: str) -> float:
    return sum(calls for line in lines for tool, calls, _ in line.uses if tool == name) / len(lines)


def _kinds(before: Summary, after: Summary, pairs: Pairs) -> dict[str, Change]:
    places: dict[str, list[set[str]]] = {}
    for side, summary in enumerate((before, after)):
        for group in summary.findings:
            episodes = places.setdefault(group.kind, [set(), set()])
            episodes[side] |= {episode for episode, _ in group.at}
    found = {}
    for kind, (old, new) in places.items():
        shares = [
            (
                sum(line.id in old for line in one) / len(one),
                sum(line.id in new for line in other) / len(other),
            )
            for one, other in pairs
        ]
        if shares:
            olds, news = [one for one, _ in shares], [other for _, other in shares]
            change = share_change(olds, news)
            found[kind] = Change(sum(olds) / len(olds), sum(news) / len(news), *change)
    return dict(sorted(found.items(), key=lambda item: (-item[1].change, item[0])))


def differing(before: Summary, after: Summary, *, names: tuple[str, str] = ("before", "after")) -> list[str]:
    """Name the settings in which two runs differ, other than the agent."""
    old, new = before.manifest.get("matters"), after.manifest.get("matters")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return []
    sides = [
        {name: _but_the_model(name, value) for name, value in one.items() if name not in _EXPECTED}
        for one in (old, new)
    ]
    if "policy" not in sides[0] or "policy" not in sides[1]:
        sides = [{name: value for name, value in one.items() if name != "policy"} for one in sides]
    return differences(sides[0], sides[1], sides=names)


def _but_the_model(name: str, value: JsonValue) -> JsonValue:
    """How a policy was asked; which model it is belongs to the agent."""
    if name != "policy" or not isinstance(value, Mapping):
        return value
    return {key: said for key, said in value.items() if key != "model"}


def _change_json(change: Change | None) -> JsonValue:
    if change is None:
        return None
    return {
        "before": change.before,
        "after": change.after,
        "change": change.change,
        "low": change.low,
        "high": change.high,
        "clear": change.clear,
    }
