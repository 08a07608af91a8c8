"""One episode as one trace: agent, model turns and calls, in OpenTelemetry's GenAI convention.

    invoke_agent GRAPH      request and last answer; verdict and findings as events
      chat                  a turn of the agent's model; its time is inferred
      execute_tool TOOL     a call and its answer; the source is in `dreamgym.*`

A run directory has the times of calls and of the episode, but not of the model: a model turn is placed from
the end of the previous event to the start of its first call, and marked as inferred. The model's name,
provider and tokens per turn are missing, because a run does not store them. The form of messages:
https://github.com/open-telemetry/semantic-conventions-genai (gen-ai-input-messages.json, also for output)

Spans are built from a stored run, not traced: their IDs are digests of run and episode, so that a repeated
export gives the same trace, which a backend can recognize. The process's own tracing is not used: no global
provider, no sampling and no limits from its environment, since a cut attribute is a changed call.
"""

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from dreamgym_kit.replay.own_spans import spelled, to_attributes
from dreamgym_kit.report.episode import text_of
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Episode, Transition

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]
Message = Mapping[str, JsonValue]

_FAILED = ("error", "violation", "executed")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of a run for the spans of all episodes."""

    name: str  # the run's unique name, the source of IDs
    run: str
    graph: str
    created_at: float  # Unix time
    resource: Resource  # resource of all spans
    scope: InstrumentationScope


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of the agent's model."""

    new_input: tuple[Mapping[str, JsonValue], ...]  # messages since its previous turn
    answer: Mapping[str, JsonValue]
    start_s: float  # Unix time
    end_s: float


def episode_spans(episode: Episode, facts: RunFacts) -> Iterator[ReadableSpan]:
    """Yield the spans of an episode, the agent's span last.

    Raises:
        NotSerializable: a call has a value without JSON form.
    """
    trace = _Trace(f"{facts.name} {episode.id}", facts)
    start = begun(episode, facts.created_at)
    end = ended(episode, start)
    for number, turn in enumerate(model_turns(episode, start, end), start=1):
        yield _turn_span(trace, turn, number)
    for step in episode.transitions:
        yield _call_span(trace, step, start)
    yield trace.span(
        f"invoke_agent {facts.graph}",
        trace.root,
        (start, end),
        _agent(episode, facts),
        events=_outcome(episode, end),
        error=episode.reason if episode.stop in _FAILED else None,
    )


class _Trace:
    """Builds the spans of one trace; IDs are digests of its name."""

    root = "agent"

    def __init__(self, name: str, facts: RunFacts) -> None:
        self._name, self._facts = name, facts

    def span(
        self,
        shown: str,
        name: str,
        times: tuple[float, float],
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        events: Sequence[Event] = (),
        error: str | None = None,
    ) -> ReadableSpan:
        """Build a span identified by `name` within the trace; `times` are start and end in Unix time."""
        status = Status() if error is None else Status(StatusCode.ERROR, cleaned_text(error))
        return ReadableSpan(
            cleaned_text(shown),
            context=self._context(name),
            parent=None if name == self.root else self._context(self.root),
            resource=self._facts.resource,
            attributes=cleaned(attributes),
            events=events,
            kind=kind,
            status=status,
            start_time=_nanoseconds(times[0]),
            end_time=_nanoseconds(times[1]),
            instrumentation_scope=self._facts.scope,
        )

    def _context(self, name: str) -> SpanContext:
        ids = _number(self._name, 16), _number(f"{self._name} {name}", 8)
        return SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _agent(episode: Episode, facts: RunFacts) -> dict[str, Value]:
    answers = [message for message in episode.messages if message.get("role") == "assistant"]
    first = episode.messages.index(answers[0]) if answers else len(episode.messages)
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": facts.graph,
        "gen_ai.conversation.id": f"{facts.run}/{episode.id}",
        "gen_ai.input.messages": spelled(input_messages(episode.messages[:first])),
        "input.value": _last_text(episode.messages[:first]),  # shown in lists of traces
        "output.value": _last_text(answers),
        "dreamgym.run": facts.run,
        "dreamgym.episode": episode.id,
        "dreamgym.task": episode.task,
        "dreamgym.repeat": episode.repeat,
        "dreamgym.environment": str(episode.environment),
        "dreamgym.verdict": str(episode.verdict),
        "dreamgym.reason": episode.reason,
        "dreamgym.stop": episode.stop,
        "dreamgym.model_calls": episode.model_calls,
        "dreamgym.tokens": episode.tokens,
        "dreamgym.cost_usd": float(episode.cost_usd),
    }
    if answers and not answers[-1].get("tool_calls"):
        attributes["gen_ai.output.messages"] = spelled([output_message(answers[-1])])
    if episode.executed:
        attributes["dreamgym.executed"] = [str(call) for call in episode.executed]
    if episode.violations:
        attributes["dreamgym.violations"] = list(episode.violations)
    if episode.stop in _FAILED:
        attributes["error.type"] = episode.stop
    return attributes


def _last_text(messages: Sequence[Message]) -> str:
    return text_of(messages[-1].get("content")) if messages else ""


def _turn_span(trace: _Trace, turn: ModelMessage, number: int) -> ReadableSpan:
    """Build the span of a model turn, with new input only: repeating all of it grows quadratically."""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": spelled(input_messages(turn.new_input)),
        "gen_ai.output.messages": spelled([output_message(turn.answer)]),
        "dreamgym.timing": "inferred",
    }
    times = turn.start_s, turn.end_s
    return trace.span("chat", f"turn {number}", times, attributes, kind=SpanKind.CLIENT)


def _call_span(trace: _Trace, step: Transition, otherwise: float) -> ReadableSpan:
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.call.tool,
        "gen_ai.tool.type": "function",
        **to_attributes(step),
    }
    if step.call.call_id is not None:
        attributes["gen_ai.tool.call.id"] = step.call.call_id
    error = step.answer.error
    if error is not None:
        attributes["error.type"] = step.answer.error_type or "_OTHER"
    at = step.recorded_at if step.recorded_at > 0 else otherwise
    times = at, at + max(0.0, step.elapsed_s)
    return trace.span(f"execute_tool {step.call.tool}", f"step {step.step}", times, attributes, error=error)


def _outcome(episode: Episode, end: float) -> list[Event]:
    """Return the verdict as the convention's evaluation event, and findings as our own events."""
    judged: dict[str, Value] = {
        "gen_ai.evaluation.name": "verdict",
        "gen_ai.evaluation.score.label": str(episode.verdict),
        "gen_ai.evaluation.explanation": episode.reason,
    }
    if episode.reward is not None:
        judged["gen_ai.evaluation.score.value"] = float(episode.reward)
    events = [("gen_ai.evaluation.result", judged)]
    for finding in episode.findings:
        attributes: dict[str, Value] = {
            "dreamgym.finding.kind": finding.kind,
            "dreamgym.finding.text": finding.text,
            "dreamgym.finding.severity": finding.severity,
            "dreamgym.finding.steps": [str(step) for step in finding.steps],
        }
        events.append(("dreamgym.finding", attributes))
    return [Event(name, cleaned(attributes), _nanoseconds(end)) for name, attributes in events]


def begun(episode: Episode, otherwise: float) -> float:
    """Return when an episode began; `otherwise` if neither it nor its calls have a time."""
    times = [step.recorded_at for step in episode.transitions if step.recorded_at > 0]
    return episode.started_at if episode.started_at > 0 else min(times, default=otherwise)


def ended(episode: Episode, start_s: float) -> float:
    """Return when an episode that began at `start_s` ended, at the earliest with its last call."""
    last = max((step.recorded_at + step.elapsed_s for step in episode.transitions), default=0.0)
    return max(start_s + max(0.0, episode.elapsed_s), last)


def model_turns(episode: Episode, start_s: float, end_s: float) -> list[ModelMessage]:
    """Return the turns of the agent's model, in order of the transcript."""
    waiting: dict[str, deque[Transition]] = defaultdict(deque)
    for step in episode.transitions:
        if step.call.call_id is not None:
            waiting[step.call.call_id].append(step)
    final = max((place for place, message in enumerate(episode.messages) if _by_model(message)), default=-1)
    turns: list[ModelMessage] = []
    new_input: list[Mapping[str, JsonValue]] = []
    now = start_s
    for place, message in enumerate(episode.messages):
        if not _by_model(message):
            new_input.append(message)
            continue
        call_ids = [call.get("id") for call in message.get("tool_calls") or ()]
        steps = [waiting[name].popleft() for name in call_ids if waiting.get(name)]
        unasked = end_s if place == final else now
        answered_at = max(now, min((step.recorded_at for step in steps), default=unasked))
        turns.append(ModelMessage(tuple(new_input), message, now, answered_at))
        new_input = []
        now = max([answered_at, *(step.recorded_at + step.elapsed_s for step in steps)])
    return turns


def _by_model(message: Mapping[str, JsonValue]) -> bool:
    return message.get("role") == "assistant"


def input_messages(messages: Iterable[Message]) -> list[JsonValue]:
    """Convert input messages of a model or agent."""
    return [{"role": _role(message), "parts": list(_parts(message))} for message in messages]


def output_message(message: Message) -> JsonValue:
    """Convert a model's message."""
    reason = "tool_call" if message.get("tool_calls") else "stop"
    return {"role": _role(message), "parts": list(_parts(message)), "finish_reason": reason}


def _role(message: Message) -> str:
    return str(message.get("role", "user"))


def _parts(message: Message) -> Iterator[JsonValue]:
    content = message.get("content")
    if message.get("role") == "tool":
        yield {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}
        return
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if block not in (None, ""):
            yield _part(block)
    for call in message.get("tool_calls") or ():
        name, args = call.get("name"), call.get("args")
        yield {"type": "tool_call", "id": call.get("id"), "name": name, "arguments": args}


def _part(block: JsonValue) -> JsonValue:
    """Convert text; other blocks with a type stay as they are, which the convention allows."""
    if isinstance(block, str):
        return {"type": "text", "content": block}
    if isinstance(block, Mapping) and block.get("type") == "text":
        return {"type": "text", "content": str(block.get("text", ""))}
    if isinstance(block, Mapping) and isinstance(block.get("type"), str):
        return dict(block)
    return {"type": "json", "content": block}


def _nanoseconds(at_s: float) -> int:
    """Convert Unix seconds to OpenTelemetry's nanoseconds."""
    return max(0, round(at_s * 1e9))


def cleaned(attributes: Attributes) -> dict[str, Value]:
    """Make attributes valid for protobuf: UTF-8 text, 64-bit integers."""
    return {name: _cleaned(value) for name, value in attributes.items()}


def cleaned_text(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 form."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _cleaned(value: Value) -> Value:
    if isinstance(value, str):
        return cleaned_text(value)
    if isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    return [cleaned_text(text) for text in value]


def _number(name: str, size: int) -> int:
    """Return a digest of a name as a number of `size` bytes; never zero, which is not a valid ID."""
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest[:size], "big") or 1
