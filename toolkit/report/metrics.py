"""The figures of a run and every judgment that a report makes from them.

Rates, intervals, anomalies and the gate are decided only here, so that terminal, JSON and exit codes agree.
`summary` counts the figures.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals

from dreamgym_kit.codec import NEVER
from dreamgym_kit.errors import ExitCode
from dreamgym_kit.report.gate_rules import Rule, rules_of, verdict_of
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.trust.outcomes import Share, passed_once, task_outcomes
from dreamgym_kit.types import REACHED, Blame, Effect, Executed, Source, Spend, Verdict

SUMMARY_SCHEMA = 2
CRITICAL = "critical"
GROUNDED = (Source.RECORDED, Source.DERIVED, Source.ANALOGOUS)
SURE = 0.5  # answers with less support are presumed: a guess has no more
MARKS = "!xE-."  # marks of episodes, worst first
_MARKS = {Verdict.FAILED: "x", Verdict.ERROR: "E", Verdict.INCONCLUSIVE: "-", Verdict.PASSED: "."}
RECORDING = (
    "record",
    "s2r-staged",
    "s2r-approve",
    "s2r-live",
)  # modes with real tools; "staged" is an old name
_BLOCKED = ("violation", "executed")  # `stop` of episodes with an executed or blocked real call
EFFECT_ORDER = (Effect.DESTRUCTIVE, Effect.WRITE, Effect.READ, Effect.CONTROL, Effect.PURE)


@dataclass(slots=True)
class ToolUse:
    """Use of one tool in the run; `summary` counts in it."""

    name: str
    effect: Effect
    calls: int = 0
    episodes: int = 0
    errors: int = 0  # error answers without an injected fault
    repeated: int = 0  # calls in a repeated_... finding
    wrong: int = 0  # calls in a critical finding
    sources: dict[str, int] = field(default_factory=dict)  # source -> answers
    presumed: int = field(default=0, metadata=NEVER)  # rule answers with low support above the threshold

    @property
    def dreamt(self) -> int:
        """Answers that are neither real nor injected faults."""
        return sum(
            count
            for source, count in self.sources.items()
            if source not in (Source.REAL, Source.FAULT, Source.SCRIPTED)
        )

    @property
    def grounded(self) -> int:
        """Dreamed answers from recordings and rules."""
        return sum(self.sources.get(source, 0) for source in GROUNDED) - self.presumed


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Unanswered calls of one tool with the same reason."""

    tool: str
    why: str
    calls: int
    tasks: tuple[str, ...]
    ignore: tuple[str, ...]  # arguments for `[match]` with which recordings answer; empty if they may matter
    args: Mapping[str, JsonValue] = field(default_factory=dict)  # of the first of these calls
    crawls: Mapping[str, int] = field(
        default_factory=dict
    )  # by environment, calls that a crawl of it answers


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """All findings of one kind about one tool, worst place first."""

    kind: str
    severity: str
    tool: str | None  # of the last step in evidence; None if a finding names no step
    effect: Effect | None
    text: str  # the first finding's sentence
    count: int
    at: tuple[tuple[str, int | None], ...]  # (episode, last step)


@dataclass(frozen=True, slots=True)
class EpisodeLine:
    """One episode in a list or a matrix."""

    id: str
    task: str
    repeat: int
    verdict: Verdict
    reason: str
    stop: str
    calls: int
    anomaly: str | None = None  # the worst finding's sentence, or the violation
    anomaly_step: int | None = None
    elapsed_s: float = 0.0
    cost_usd: float = 0.0
    uses: tuple[tuple[str, int, int], ...] = ()  # (tool, calls, first step)
    faults: int = 0  # calls with an injected fault
    traceback: tuple[str, ...] = ()  # the agent's lines of the final exception
    blame: Blame | None = None  # why it did not pass
    imagined: bool = False  # whether it has an imagined answer
    would: Verdict | None = None  # verdict if its imagined answers counted

    @property
    def outcome(self) -> str:
        """The verdict, with the blame if it is not the usual one."""
        unusual = self.blame is not None and self.blame is not Blame.usual(self.verdict)
        return f"{self.verdict} ({self.blame})" if unusual else str(self.verdict)

    @property
    def counted(self) -> bool:
        """Whether its findings are shown first: it was judged, or had an executed or blocked call."""
        return self.verdict.conclusive or self.stop in _BLOCKED

    @property
    def mark(self) -> str:
        """One character: ! anomaly, x failed, E error, - inconclusive, . passed."""
        return "!" if self.anomaly is not None and self.counted else _MARKS[self.verdict]


@dataclass(frozen=True, slots=True)
class TrustPoint:
    """Fidelity of rule answers at a minimum support, on held-out recordings.

    Attributes:
        threshold: 0..1, support.
        answered: 0..1, share of held-out calls with that support.
        exact: 0..1, share of these that were exact; None if there were none.
    """

    threshold: float
    answered: float
    exact: float | None


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """A run in numbers. `to_json` gives the stable form."""

    manifest: Mapping[str, JsonValue]
    episodes: tuple[EpisodeLine, ...]
    tools: tuple[ToolUse, ...]  # destructive first, then by calls
    findings: tuple[FindingGroup, ...]  # worst first
    violations: tuple[tuple[str, str], ...]  # (episode, sentence)
    real_calls: int  # of tools that must not run in a dream, including executed ones
    counts: Mapping[str, int]
    model_calls: int
    tokens: int
    cost_usd: float  # agent and dream
    elapsed_s: float  # seconds of all parts of a resumed run, without pauses
    dream_spend: Mapping[str, Spend] = field(default_factory=dict)  # by part: experience, judge, user
    curve: tuple[TrustPoint, ...] = ()  # by threshold; empty without inferred rules
    executed: tuple[tuple[str, Executed], ...] = ()  # (episode, forbidden real call)
    unanswered: tuple[Unanswered, ...] = ()  # the most frequent first

    @property
    def recorded(self) -> bool:
        """Whether the run used real tools, including writing ones."""
        return self.fact("mode") in RECORDING

    @property
    def really_read(self) -> bool:
        """Whether reading tools were real: a recording, or S2R in shadow."""
        return self.recorded or self.fact("mode") == "s2r-shadow"

    def fact(self, name: str) -> JsonValue:
        """Return a manifest field from any of its parts; None if absent."""
        for part in (self.manifest, self.manifest.get("matters"), self.manifest.get("about")):
            if isinstance(part, Mapping) and name in part:
                return part[name]
        return None

    @property
    def passed(self) -> int:
        """Episodes that passed."""
        return self.by_verdict[Verdict.PASSED]

    @property
    def failed(self) -> int:
        """Episodes that failed."""
        return self.by_verdict[Verdict.FAILED]

    @property
    def inconclusive(self) -> int:
        """Episodes that cannot be judged: a call was unanswered, or a limit was reached."""
        return self.by_verdict[Verdict.INCONCLUSIVE]

    @property
    def errors(self) -> int:
        """Episodes that failed because of the set-up or the kit."""
        return self.by_verdict[Verdict.ERROR]

    @property
    def conclusive(self) -> int:
        """Episodes that passed or failed."""
        return self.passed + self.failed

    @property
    def by_verdict(self) -> dict[Verdict, int]:
        """Episodes of each verdict."""
        return {verdict: sum(line.verdict is verdict for line in self.episodes) for verdict in Verdict}

    @property
    def imagined(self) -> int:
        """Episodes that rest on imagined answers."""
        return sum(line.imagined for line in self.episodes)

    def would(self, verdict: Verdict) -> int:
        """Return how many inconclusive episodes would have this verdict if imagined answers counted."""
        return sum(line.would is verdict for line in self.episodes)

    @property
    def once(self) -> Share | None:
        """Mean over tasks of the passed share of conclusive episodes, with its interval by task.

        By task, because further episodes of a deterministic agent add no information.
        """
        return passed_once(task_outcomes((line.task, line.verdict) for line in self.episodes))

    @property
    def rate(self) -> float | None:
        """The mean of `once`, 0..1; None if no episode is conclusive."""
        return self.once.mean if self.once else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of `rate`."""
        return (self.once.low, self.once.high) if self.once else None

    @property
    def spent_usd(self) -> float:
        """Dollars of all parts of a resumed run, including repeated episodes."""
        spent, calibration = self.manifest.get("spent"), self.dream_spend.get("calibration", Spend())
        usd = spent.get("usd") if isinstance(spent, Mapping) else None
        return max(self.cost_usd, (usd if isinstance(usd, int | float) else 0.0) + calibration.cost_usd)

    @property
    def calls(self) -> int:
        """Tool calls over all episodes."""
        return sum(tool.calls for tool in self.tools)

    @property
    def not_run(self) -> int:
        """Planned episodes that never ended.

        Counted from the plan, because a killed run writes nothing about its end.
        """
        about, n = self.manifest.get("about"), self.fact("n")
        tasks = about.get("tasks") if isinstance(about, Mapping) else None
        if isinstance(tasks, int) and isinstance(n, int):
            return max(0, tasks * n - len(self.episodes))
        count = self.fact("not_run")
        return count if isinstance(count, int) else 0

    @property
    def abstentions(self) -> int:
        """Calls that the dream could not answer."""
        return sum(tool.sources.get(Source.UNANSWERED, 0) for tool in self.tools)

    @property
    def reached(self) -> dict[str, int]:
        """Reached allowed hosts, "name:port", except models' hosts: number of episodes, or 0."""
        outside = self.fact("reached")
        hosts = {str(host): 0 for host in outside} if isinstance(outside, list) else {}
        episodes = {name: count for name, count in self.counts.items() if name.startswith(REACHED)}
        return hosts | {name.removeprefix(REACHED): count for name, count in sorted(episodes.items())}

    @property
    def judges(self) -> tuple[int, int]:
        """How often the LLM judge agreed with the checker, and how often not."""
        return self.counts.get("judges_agree", 0), self.counts.get("judges_disagree", 0)

    @property
    def faults(self) -> int:
        """Calls with an injected fault."""
        return sum(line.faults for line in self.episodes)

    def faulted(self, verdict: Verdict) -> int:
        """Return how many episodes with this verdict had an injected fault, a possible cause."""
        return sum(line.verdict is verdict and line.faults > 0 for line in self.episodes)

    @property
    def critical(self) -> int:
        """Number of critical findings: review them before deployment."""
        return sum(group.count for group in self.findings if group.severity == CRITICAL)

    @property
    def grounded(self) -> float | None:
        """Share of dreamed answers from recordings and rules, 0..1; None without dreamed answers."""
        dreamt = sum(tool.dreamt for tool in self.tools)
        return sum(tool.grounded for tool in self.tools) / dreamt if dreamt else None

    @property
    def weakest(self) -> ToolUse | None:
        """The tool with the lowest share of grounded answers; None if all are grounded."""
        shaky = [tool for tool in self.tools if tool.dreamt > tool.grounded]
        return min(
            shaky, key=lambda tool: (tool.grounded / tool.dreamt, -tool.calls, tool.name), default=None
        )

    @property
    def presumed(self) -> int:
        """Rule answers with low support."""
        return sum(tool.presumed for tool in self.tools)

    @property
    def sources(self) -> dict[str, int]:
        """Answers by source."""
        total: dict[str, int] = {}
        for tool in self.tools:
            for source, count in tool.sources.items():
                total[source] = total.get(source, 0) + count
        return dict(sorted(total.items()))

    @property
    def tasks(self) -> dict[str, list[EpisodeLine]]:
        """Episodes by task, repeats in order; the worst task first."""
        grouped: dict[str, list[EpisodeLine]] = {}
        for line in self.episodes:
            grouped.setdefault(line.task, []).append(line)
        for lines in grouped.values():
            lines.sort(key=lambda line: line.repeat)
        marks = {task: [line.mark for line in lines] for task, lines in grouped.items()}
        worst_first = sorted(grouped, key=lambda task: [-marks[task].count(mark) for mark in MARKS[:-1]])
        return {task: grouped[task] for task in worst_first}

    @property
    def worst(self) -> EpisodeLine | None:
        """The episode to look at first; None if all passed without important findings."""
        lines = [line for lines in self.tasks.values() for line in lines]
        worst = min(lines, key=lambda line: MARKS.index(line.mark), default=None)
        return None if worst is None or worst.mark == "." else worst

    @property
    def headline(self) -> str:
        """The verdict with the counts of all episodes; see `report.headline`."""
        from dreamgym_kit.report.headline import headline

        return headline(self)

    def rules(self, *, fail_on: Sequence[str] = ()) -> tuple[Rule, ...]:
        """Return the gate's rules with their results; see `report.gate_rules`."""
        return rules_of(self, fail_on=fail_on)

    @property
    def verdict(self) -> Verdict:
        """The run's verdict by its gate."""
        return verdict_of(self.rules())

    @property
    def exit_code(self) -> int:
        """Exit code: 0 passed, 1 failed, 3 inconclusive, 4 error, 6 a real call was executed.

        130 or 143 if a signal ended the run early.
        """
        if self.executed:
            return ExitCode.EXECUTED
        stopped = str(self.fact("stopped"))
        interrupted = self.not_run and stopped in Signals.__members__
        return 128 + Signals[stopped] if interrupted else self.verdict.exit_code

    def check(self, *, fail_on: Sequence[str] = ()) -> bool:
        """Return whether the run passed; findings of these kinds ("critical", "repeated_*") also fail it."""
        return verdict_of(self.rules(fail_on=fail_on)) is Verdict.PASSED

    def to_json(self) -> dict[str, JsonValue]:
        """Return the run as a JSON object; see `report.jsonform` for its fields."""
        from dreamgym_kit.report.jsonform import summary_to_json

        return summary_to_json(self)


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts "refund-2" before "refund-10"."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", text)
    return tuple((int(part), "") if part[0] in "0123456789" else (-1, part) for part in parts)
