"""Gathers what the page shows in one pass over a run's episodes, one episode in memory at a time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from dreamgym_kit.dream.faults import fault_kind
from dreamgym_kit.report.episode import text_of
from dreamgym_kit.report.metrics import CRITICAL, RunMetrics, natural
from dreamgym_kit.report.page.document import Steps
from dreamgym_kit.report.page.steps import steps_of
from dreamgym_kit.report.summary import Tally
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Environment, Episode, Source, Verdict

CODES = {
    Source.REAL: "R",
    Source.RECORDED: "r",
    Source.DERIVED: "c",
    Source.ANALOGOUS: "a",
    Source.MODEL: "m",
    Source.SCRIPTED: "s",
    Source.FAULT: "f",
    Source.UNANSWERED: "x",
}
NOT_DREAMT = (Source.REAL, Source.FAULT, Source.SCRIPTED)
BINS = 10  # of a histogram of confidences
SAMPLES = 8  # calls of a tool that the page shows at once
_TASK_TEXT = 300
_SAMPLED = ("step", "args", "changes", "findings", "error")

Rank = tuple[bool, tuple[tuple[int, str], ...], int]
"""Calls that a critical finding points at first, then by episode and step."""


@dataclass(slots=True)
class ToolSamples:
    """One tool's calls, as far as `Tally` does not count them."""

    confidences: list[float] = field(default_factory=list)  # of dreamt answers, 0..1
    samples: list[tuple[Rank, dict[str, JsonValue]]] = field(default_factory=list)

    def confidence(self) -> dict[str, JsonValue]:
        """Give `{"bins": [10 ints], "median", "least"}` of the dreamt answers; empty where there are none."""
        if not self.confidences:
            return {}
        bins = [0] * BINS
        for confidence in self.confidences:
            bins[min(BINS - 1, max(0, int(confidence * BINS)))] += 1
        middle, least = median(self.confidences), min(self.confidences)
        return {"bins": list(bins), "median": round(middle, 4), "least": round(least, 4)}

    def keep(self, rank: Rank, call: dict[str, JsonValue]) -> None:
        """Keep a call if it is among the first `SAMPLES` by rank."""
        self.samples.append((rank, call))
        if len(self.samples) >= 8 * SAMPLES:
            self.trim()

    def trim(self) -> list[dict[str, JsonValue]]:
        """Give the first by rank and forget the others."""
        self.samples = sorted(self.samples, key=lambda sample: sample[0])[:SAMPLES]
        return [call for _, call in self.samples]


@dataclass(frozen=True, slots=True)
class EpisodeExtras:
    """What the lists of the page need of an episode beyond the summary's line."""

    path: tuple[tuple[str, str, bool], ...]  # tool, code of the source, a critical finding points at it
    kinds: tuple[str, ...]  # of findings
    least_confidence: float | None
    reward: float | None
    tokens: int
    faulted: bool


@dataclass(slots=True)
class PageData:
    """A run as the page needs it."""

    tally: Tally = field(default_factory=Tally)
    steps: dict[str, Steps] = field(default_factory=dict)  # by episode
    lines: dict[str, EpisodeExtras] = field(default_factory=dict)
    tasks: dict[str, tuple[str, Environment]] = field(default_factory=dict)  # what is asked, where
    uses: dict[str, ToolSamples] = field(default_factory=dict)  # by tool
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, tool) -> calls

    def add(self, episode: Episode) -> None:
        """Take in one more episode."""
        self.tally.add(episode)
        bad = {
            finding.steps[-1]
            for finding in episode.findings
            if finding.severity == CRITICAL and finding.steps
        }
        detail = steps_of(episode)
        dull = episode.verdict is Verdict.PASSED and not episode.findings and not episode.violations
        self.steps[episode.id] = Steps.of(detail, dull=dull)
        self.lines[episode.id] = _line(episode, bad)
        self.tasks.setdefault(episode.task, (_request(episode), episode.environment))
        for step in episode.transitions:
            use = self.uses.setdefault(step.call.tool, ToolSamples())
            if step.answer.source not in NOT_DREAMT:
                use.confidences.append(step.answer.confidence)
            kind = fault_kind(step.answer)
            if kind is not None:
                self.faults[str(kind), step.call.tool] += 1
        self._samples(episode, detail, bad)

    def _samples(self, episode: Episode, detail: dict[str, JsonValue], bad: set[int]) -> None:
        rank = natural(episode.id)
        steps = detail["steps"]
        for call in steps if isinstance(steps, list) else ():
            if not isinstance(call, dict) or call["kind"] != "call":
                continue
            if call["effect"] in ("write", "destructive"):
                sample = {name: call[name] for name in _SAMPLED if name in call}
                number = int(str(call["step"]))
                use = self.uses[str(call["tool"])]
                use.keep((number not in bad, rank, number), {"episode": episode.id, **sample})


def gather(episodes: Iterable[Episode]) -> PageData:
    """Read a run once."""
    gathered = PageData()
    for episode in episodes:
        gathered.add(episode)
    return gathered


def _line(episode: Episode, bad: set[int]) -> EpisodeExtras:
    dreamt = [step.answer.confidence for step in episode.transitions if step.answer.source not in NOT_DREAMT]
    return EpisodeExtras(
        path=tuple(
            (step.call.tool, CODES[step.answer.source], step.step in bad) for step in episode.transitions
        ),
        kinds=tuple(dict.fromkeys(finding.kind for finding in episode.findings)),
        least_confidence=min(dreamt, default=None),
        reward=episode.reward,
        tokens=episode.tokens,
        faulted=any(fault_kind(step.answer) is not None for step in episode.transitions),
    )


def _request(episode: Episode) -> str:
    """What the task asks: the first thing that a user said."""
    body = next((message.get("content") for message in episode.messages if message.get("role") == "user"), "")
    text = " ".join(text_of(body)[: 4 * _TASK_TEXT].split())
    return text if len(text) <= _TASK_TEXT else f"{text[:_TASK_TEXT]}\u2026"


def faults(gathered: PageData, summary: RunMetrics, tools: dict[str, int]) -> dict[str, JsonValue]:
    """Give `{"calls", "kinds": [{"kind", "calls", "tools"}], "split": [...]}`; empty where none is."""
    if not gathered.faults and not summary.fact("faults"):
        return {}
    by_kind: dict[str, list[tuple[int, int]]] = {}
    for (kind, tool), calls in sorted(gathered.faults.items()):
        by_kind.setdefault(kind, []).append((tools[tool], calls))
    return {
        "calls": gathered.faults.total(),
        "kinds": [
            {
                "kind": kind,
                "calls": sum(calls for _, calls in places),
                "tools": [[tool, calls] for tool, calls in sorted(places, key=lambda place: -place[1])],
            }
            for kind, places in by_kind.items()
        ],
        "split": _split(gathered, summary),
    }


def _split(gathered: PageData, summary: RunMetrics) -> list[JsonValue]:
    """Verdicts of the episodes that met a fault, beside those of the others."""
    counts = {True: Counter[str](), False: Counter[str]()}
    for line in summary.episodes:
        counts[gathered.lines[line.id].faulted][str(line.verdict)] += 1
    names = {True: "with a fault", False: "without"}
    return [
        {"name": names[faulted], "episodes": count.total(), **{str(value): count[value] for value in Verdict}}
        for faulted, count in counts.items()
        if count
    ]
