"""Collect the page's data in one pass over a run's episodes, with one episode in memory.

Steps are stored in chunks of episodes, which the page unpacks on demand: JSON, gzipped without a time (equal
runs give equal bytes), in base64, about a twelfth of the JSON. A page over 20 MB is hard to open: beyond that
the steps of passed episodes are left out first, and the page states the number.

An episode as the page has it: messages, each call with its answer, findings, the verdict.

Calls have the same step numbers as in the terminal and in JSON. Long texts are cut here, with their original
length; the journal has the whole text.

Changes of a call are shown as far as the agent saw them: a record's fields before and after. A record is an
object in an answer with an ID (`id`, `payment_id`). It is compared with its last state in the same episode.
Nothing is inferred: an unseen field has no "before", and a write whose answer has no record shows no change.
A model's own statement of changes (`Answer.changes`) is shown as it is.
"""

import base64
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.dream.faults import fault_kind
from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.report.episode import Utterance, format_nearest, telling, text_of
from dreamgym_kit.report.metrics import CRITICAL, RunMetrics, natural
from dreamgym_kit.report.summary import Tally
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Environment, Episode, Finding, Source, Transition, UserTurn, Verdict

_MOST = 20  # maximum changes of one call
_DEEP = 6
_LONG = 200  # characters of a value
_SCALARS = (str, int, float, bool, type(None))
_Key = tuple[str, str]
_TEXT = 4096  # characters of an answer or a message
_ARGUMENT = 600
_CITES = 8
_TOLD_BY = {"assistant": "agent", "user": "user", "system": "system"}


@dataclass(slots=True)
class SeenFacts:
    """The records in an episode's answers so far."""

    records: dict[_Key, dict[str, JsonValue]] = field(default_factory=dict)

    def changes(self, step: Transition) -> list[JsonValue]:
        """Add an answer; return `{"entity", "field", "before"?, "after"}` for each new value."""
        changes: list[dict[str, JsonValue]] = [
            {
                "entity": str(change.get("entity", "")),
                "field": str(change.get("field", "")),
                "after": _short(change.get("value")),
            }
            for change in step.answer.changes  # that a model stated for its write
        ]
        if step.answer.error is None:
            seen = {(change["entity"], change["field"]) for change in changes}
            changes += [
                change
                for change in self._take(step.answer.content, writes=step.effect.changes_environment)
                if (change["entity"], change["field"]) not in seen
            ]
        return list(changes[:_MOST])

    def _take(self, content: JsonValue, *, writes: bool) -> Iterator[dict[str, JsonValue]]:
        for key, fields in _records(_opened(content)):
            shown_fields = self.records.setdefault(key, {})
            for name, value in fields.items():
                change, after = {"entity": key[1], "field": name}, {"after": _short(value)}
                if name not in shown_fields:
                    if writes:
                        yield change | after
                elif type(before := shown_fields[name]) is not type(value) or before != value:
                    yield {**change, "before": _short(before), **after}
            shown_fields.update(fields)


def _records(value: JsonValue, depth: int = 0) -> Iterator[tuple[_Key, dict[str, JsonValue]]]:
    """Yield every object with an ID, with its simple fields."""
    if depth > _DEEP:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, depth + 1)
    elif isinstance(value, Mapping):
        names = (name for name in value if name == "id" or name.endswith(("_id", "Id")))
        name = next((name for name in names if isinstance(value[name], (str, int))), None)
        if name is not None:
            simple = {key: item for key, item in value.items() if isinstance(item, _SCALARS) and key != name}
            yield (name, str(value[name])), simple
        for item in value.values():
            yield from _records(item, depth + 1)


def _opened(content: JsonValue) -> JsonValue:
    """Parse an answer that is JSON text, as from MCP servers."""
    if isinstance(content, str) and content[:1] in ("{", "["):
        try:
            opened: JsonValue = read_json(content)
        except NotSerializable:
            return content
        return opened
    return content


def _short(value: JsonValue) -> JsonValue:
    return value[:_LONG] + "\u2026" if isinstance(value, str) and len(value) > _LONG else js_safe(value)


def js_safe(value: JsonValue) -> JsonValue:
    """Return numbers that JavaScript would show differently (1.0, 2**60) as text."""
    exact = isinstance(value, int) and abs(value) <= 2**53
    return value if isinstance(value, str | None) or exact else json.dumps(value, ensure_ascii=False)


def steps_of(episode: Episode) -> dict[str, JsonValue]:
    """Return `{"id", "tokens", "model_calls", "stop", "attempt", "steps": [...]}`."""
    return {
        "id": episode.id,
        "tokens": episode.tokens,
        "model_calls": episode.model_calls,
        "stop": episode.stop,
        "attempt": episode.attempt,
        "steps": [*_body(episode), _verdict(episode)],
    }


def _body(episode: Episode) -> Iterator[dict[str, JsonValue]]:
    """Yield the steps in order; an agent's message precedes the calls that it requested."""
    seen = SeenFacts()
    intercepted = {step.call.call_id for step in episode.transitions if step.call.call_id is not None}
    for item in telling(episode):
        if isinstance(item, Transition):
            yield call_step(item, episode, seen)
        elif isinstance(item, UserTurn):
            yield _interrupt(item)
        else:
            yield from _message_step(item, intercepted)


def _message_step(utterance: Utterance, intercepted: Set[str]) -> Iterator[dict[str, JsonValue]]:
    """Yield a message as a step; a tool message only if its call was not intercepted."""
    message = utterance.message
    role = str(message.get("role"))
    if role == "tool" and message.get("tool_call_id") in intercepted:
        return
    text = text_of(message.get("content")).strip()
    if text or role == "tool":
        tool = str(message.get("name") or "") if role == "tool" else None
        played = utterance.turn and utterance.turn.by
        step = {"kind": "said", "by": _TOLD_BY.get(role, role), **_cut(text), "tool": tool, "played": played}
        yield without_none(step)


def _interrupt(turn: UserTurn) -> dict[str, JsonValue]:
    """Return a stop of the graph, with the reply if there was one."""
    step: dict[str, JsonValue] = {"kind": "interrupt", "by": turn.by} | _cut(text_of(turn.asked))
    return step if turn.by == "nobody" else step | {"reply": _cut(text_of(turn.answer))}


def call_step(step: Transition, episode: Episode, seen: SeenFacts) -> dict[str, JsonValue]:
    """Return one call with its answer."""
    answer, kind = step.answer, fault_kind(step.answer)
    nearest = None
    if answer.nearest is not None:
        history = [transition for transition in episode.transitions if transition.step < step.step]
        nearest = "\n".join(format_nearest(step.call, answer.nearest, history, _TEXT))
    findings = [finding_form(finding) for finding in episode.findings if finding.steps[-1:] == (step.step,)]
    return without_none(
        {
            "kind": "call",
            "step": step.step,
            "tool": step.call.tool,
            "effect": str(step.effect),
            "args": short_arguments(step.call.args),
            "at_s": _seconds(max(0.0, step.recorded_at - episode.started_at)) if step.recorded_at else None,
            "dur_s": _seconds(step.elapsed_s),
            "source": str(answer.source),
            "confidence": round(answer.confidence, 4),
            **_answer(step),
            "fault": None if kind is None else str(kind),
            "node": step.call.node if step.call.node not in ("", "tools") else None,  # the usual node
            "why": answer.why[:_TEXT] if answer.why and kind is None else None,
            "nearest": nearest,
            "cites": list(answer.cites[:_CITES]) or None,
            "cited": len(answer.cites) or None,
            "changes": seen.changes(step) or None,
            "findings": findings or None,
        }
    )


def without_none(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Remove empty fields, which are most: the page treats a missing one as empty."""
    return {name: value for name, value in fields.items() if value is not None}


def _answer(step: Transition) -> dict[str, JsonValue]:
    answer = step.answer
    if answer.error is not None:
        return {**_cut(answer.error), "error": answer.error_type or "error"}
    if answer.unanswered:
        return {"text": ""}
    if answer.content is None and answer.update is not None:
        return {**_cut(json.dumps(dict(answer.update))), "update": True}
    return _cut(text_of(answer.content))


def _verdict(episode: Episode) -> dict[str, JsonValue]:
    """Return the episode's end, with the findings of no single call."""
    loose = [finding_form(finding) for finding in episode.findings if not finding.steps]
    return without_none(
        {
            "kind": "verdict",
            "verdict": str(episode.verdict),
            "text": episode.reason[:_TEXT]
            + (f" (blame: {episode.blame})" if episode.blame is not None else ""),
            "findings": loose or None,
            "executed": [str(call)[:_TEXT] for call in episode.executed] or None,
            "traceback": [line[:_TEXT] for line in episode.traceback] or None,
            "violations": [text[:_TEXT] for text in episode.violations] or None,
        }
    )


def finding_form(finding: Finding) -> dict[str, JsonValue]:
    """Return a finding for the page."""
    return {
        "kind": finding.kind,
        "text": finding.text[:_TEXT],
        "steps": list(finding.steps[:50]),
        "critical": finding.severity == "critical",
    }


def short_arguments(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return arguments; long values, and those that JavaScript would change, as text."""
    short: dict[str, JsonValue] = {}
    for name, value in args.items():
        spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(spelled) > _ARGUMENT:
            short[name] = f"{spelled[:_ARGUMENT]}\u2026 ({len(spelled):,} characters)"
        else:
            short[name] = js_safe(value)
    return short


def _cut(text: str) -> dict[str, JsonValue]:
    return {"text": text} if len(text) <= _TEXT else {"text": text[:_TEXT], "length": len(text)}


def _seconds(seconds: float) -> float:
    return round(seconds, 4)


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
