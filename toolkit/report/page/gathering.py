"""Collect the page's data in one pass over a run's episodes, with one episode in memory.

Steps are stored in chunks of episodes, which the page unpacks on demand: JSON, gzipped without a time (equal
runs give equal bytes), in base64, about a twelfth of the JSON. A page over 20 MB is hard to open: beyond that
the steps of passed episodes are left out first, and the page states the number.
"""

import base64
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from dreamgym_kit.dream.faults import fault_kind
from dreamgym_kit.report.episode import text_of
from dreamgym_kit.report.metrics import CRITICAL, RunMetrics, natural
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
    Source.IMAGINED: "i",
    Source.SCRIPTED: "s",
    Source.FAULT: "f",
    Source.UNANSWERED: "x",
}
NOT_DREAMT = (Source.REAL, Source.FAULT, Source.SCRIPTED)
BINS = 10  # of a histogram of confidences
SAMPLES = 8  # calls of a tool that the page shows at once
PER_CHUNK = 50  # episodes
MAX_BYTES = 20_000_000  # of all chunks, in base64
_BASE64 = 4 / 3
_TASK_TEXT = 300
_SAMPLED = ("step", "args", "changes", "findings", "error")

Rank = tuple[bool, tuple[tuple[int, str], ...], int]
"""Sort key: calls with a critical finding first, then by episode and step."""


class Steps(NamedTuple):
    """One episode's compressed steps."""

    squeezed: bytes
    dull: bool  # passed without findings: left out first

    @classmethod
    def of(cls, detail: Mapping[str, JsonValue], *, dull: bool) -> "Steps":
        """Compress the steps of one episode."""
        spelled = json.dumps(detail, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        return cls(zlib.compress(spelled.encode("ascii"), 1), dull)


class Packed(NamedTuple):
    """All episodes' steps as one block, and the number of omitted episodes."""

    block: Mapping[str, JsonValue]
    left_out: int


def packed(episodes: Sequence[Steps], *, most_bytes: int | None = None) -> Packed:
    """Pack episodes in the order given, within `most_bytes` (`MAX_BYTES`)."""
    size = sum(len(episode.squeezed) for episode in episodes) * _BASE64
    left_out: set[int] = set()
    for place in sorted(range(len(episodes)), key=lambda place: (not episodes[place].dull, -place)):
        if size <= (MAX_BYTES if most_bytes is None else most_bytes):
            break
        size -= len(episodes[place].squeezed) * _BASE64
        left_out.add(place)
    spelled = [
        b"null" if place in left_out else zlib.decompress(episode.squeezed)
        for place, episode in enumerate(episodes)
    ]
    texts = [
        b"[" + b",".join(spelled[start : start + PER_CHUNK]) + b"]"
        for start in range(0, len(spelled), PER_CHUNK)
    ]
    chunks = [base64.b64encode(gzip.compress(text, 9, mtime=0)).decode("ascii") for text in texts]
    return Packed({"encoding": "json+gzip+base64", "per_chunk": PER_CHUNK, "chunks": chunks}, len(left_out))


@dataclass(slots=True)
class ToolSamples:
    """Facts of one tool's calls that `Tally` does not count."""

    confidences: list[float] = field(default_factory=list)  # of dreamed answers, 0..1
    samples: list[tuple[Rank, dict[str, JsonValue]]] = field(default_factory=list)

    def confidence(self) -> dict[str, JsonValue]:
        """Return `{"bins": [10 ints], "median", "least"}` of dreamed answers; empty if there are none."""
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
        """Return the first by rank; drop the others."""
        self.samples = sorted(self.samples, key=lambda sample: sample[0])[:SAMPLES]
        return [call for _, call in self.samples]


@dataclass(frozen=True, slots=True)
class EpisodeExtras:
    """Facts of an episode for the page's lists, in addition to `EpisodeLine`."""

    path: tuple[tuple[str, str, bool], ...]  # tool, code of the source, has a critical finding
    kinds: tuple[str, ...]  # of findings
    least_confidence: float | None
    reward: float | None
    tokens: int


@dataclass(slots=True)
class PageData:
    """A run's data for the page."""

    tally: Tally = field(default_factory=Tally)
    steps: dict[str, Steps] = field(default_factory=dict)  # by episode
    lines: dict[str, EpisodeExtras] = field(default_factory=dict)
    tasks: dict[str, tuple[str, Environment]] = field(default_factory=dict)  # request, environment
    uses: dict[str, ToolSamples] = field(default_factory=dict)  # by tool
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, tool) -> calls

    def add(self, episode: Episode) -> None:
        """Add an episode."""
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
        rank = natural(episode.id)
        for call in detail["steps"]:
            if call.get("effect") in ("write", "destructive"):  # only calls have an effect
                sample = {name: call[name] for name in _SAMPLED if name in call}
                key = (call["step"] not in bad, rank, call["step"])
                self.uses[call["tool"]].keep(key, {"episode": episode.id, **sample})


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
    )


def _request(episode: Episode) -> str:
    """Return the task's request: the first user message."""
    body = next((message.get("content") for message in episode.messages if message.get("role") == "user"), "")
    text = " ".join(text_of(body)[: 4 * _TASK_TEXT].split())
    return text if len(text) <= _TASK_TEXT else f"{text[:_TASK_TEXT]}\u2026"


def faults(gathered: PageData, summary: RunMetrics) -> dict[str, JsonValue]:
    """Return `{"calls", "kinds": [{"kind", "calls", "tools": [[name, calls]]}]}`; empty without faults."""
    if not gathered.faults and not summary.fact("faults"):
        return {}
    by_kind: dict[str, Counter[str]] = {}
    for (kind, tool), calls in sorted(gathered.faults.items()):
        by_kind.setdefault(kind, Counter())[tool] += calls
    kinds = [
        {"kind": kind, "calls": tools.total(), "tools": [list(row) for row in tools.most_common()]}
        for kind, tools in by_kind.items()
    ]
    return {"calls": gathered.faults.total(), "kinds": kinds}
