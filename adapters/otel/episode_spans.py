"""One episode as one trace: the agent, its model's turns, its calls, in OpenTelemetry's GenAI convention.

    invoke_agent GRAPH      what was asked, what was said last; verdict and findings as events
      chat                  a turn of the agent's model; its time is inferred
      execute_tool TOOL     a call and its answer; where that came from is in `dreamgym.*`

A run directory keeps the time of every call and of the episode, and none of the model: a model's turn is put
from the end of what came before to the start of the first call that it asked for. Turns are marked so. Not
told, because a run does not keep it: the model's name and provider, and tokens by turn. The form of messages:
https://github.com/open-telemetry/semantic-conventions-genai (gen-ai-input-messages.json, of output alike)
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from dreamgym_kit.adapters.otel.tracing import PastTracer, Value, cleaned, cleaned_text, nanoseconds
from dreamgym_kit.replay.own_spans import spelled, to_attributes
from dreamgym_kit.report.episode import text_of
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Episode, Finding, Transition

Message = Mapping[str, JsonValue]

_FAILED = ("error", "violation", "executed")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the spans of all episodes need of their run."""

    name: str  # of the run, unlike any other: what ids are made of
    run: str
    graph: str
    created_at: float  # Unix time


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of the agent's model."""

    heard: tuple[Mapping[str, JsonValue], ...]  # what was new since it last spoke
    answer: Mapping[str, JsonValue]
    start_s: float  # Unix time
    end_s: float


def write_episode(tracer: PastTracer, episode: Episode, facts: RunFacts) -> None:
    """Give the spans of an episode to the tracer's sink, the agent's own span last.

    Raises:
        NotSerializable: a call holds a value without JSON form.
    """
    trace = f"{facts.name} {episode.id}"
    start = begun(episode, facts.created_at)
    end = ended(episode, start)
    root = tracer.begin(
        trace,
        f"invoke_agent {facts.graph}",
        "agent",
        at_s=start,
        attributes=_agent(episode, facts),
    )
    for number, turn in enumerate(model_turns(episode, start, end), start=1):
        _write_turn(tracer, trace, root, turn, number)
    for step in episode.transitions:
        _write_call(tracer, trace, root, step, start)
    _write_outcome(root, episode, end)
    root.end(nanoseconds(end))


def _agent(episode: Episode, facts: RunFacts) -> dict[str, Value]:
    answers = [message for message in episode.messages if message.get("role") == "assistant"]
    first = episode.messages.index(answers[0]) if answers else len(episode.messages)
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": facts.graph,
        "gen_ai.conversation.id": f"{facts.run}/{episode.id}",
        "gen_ai.input.messages": spelled(input_messages(episode.messages[:first])),
        "input.value": _last_text(episode.messages[:first]),  # what lists of traces show
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


def _write_turn(tracer: PastTracer, trace: str, root: Span, turn: ModelMessage, number: int) -> None:
    """A turn of the model; of its input what was new, since the whole again in each would grow squared."""
    span = tracer.begin(
        trace,
        "chat",
        f"turn {number}",
        at_s=turn.start_s,
        parent=root,
        kind=SpanKind.CLIENT,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": spelled(input_messages(turn.heard)),
            "gen_ai.output.messages": spelled([output_message(turn.answer)]),
            "dreamgym.timing": "inferred",
        },
    )
    span.end(nanoseconds(turn.end_s))


def _write_call(tracer: PastTracer, trace: str, root: Span, step: Transition, otherwise: float) -> None:
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.call.tool,
        "gen_ai.tool.type": "function",
        **to_attributes(step),
    }
    if step.call.call_id is not None:
        attributes["gen_ai.tool.call.id"] = step.call.call_id
    answer = step.answer
    if answer.error is not None:
        attributes["error.type"] = answer.error_type or "_OTHER"
    at = step.recorded_at if step.recorded_at > 0 else otherwise
    named = f"execute_tool {step.call.tool}"
    span = tracer.begin(trace, named, f"step {step.step}", at_s=at, parent=root, attributes=attributes)
    if answer.error is not None:
        span.set_status(Status(StatusCode.ERROR, cleaned_text(answer.error)))
    span.end(nanoseconds(at + max(0.0, step.elapsed_s)))


def _write_outcome(root: Span, episode: Episode, end: float) -> None:
    """The verdict as the convention's evaluation event, and each finding as an event of our own."""
    judged: dict[str, Value] = {
        "gen_ai.evaluation.name": "verdict",
        "gen_ai.evaluation.score.label": str(episode.verdict),
        "gen_ai.evaluation.explanation": episode.reason,
    }
    if episode.reward is not None:
        judged["gen_ai.evaluation.score.value"] = float(episode.reward)
    root.add_event("gen_ai.evaluation.result", cleaned(judged), nanoseconds(end))
    for finding in episode.findings:
        root.add_event("dreamgym.finding", cleaned(_finding_attributes(finding)), nanoseconds(end))
    if episode.stop in _FAILED:
        root.set_status(Status(StatusCode.ERROR, cleaned_text(episode.reason)))


def _finding_attributes(finding: Finding) -> dict[str, Value]:
    return {
        "dreamgym.finding.kind": finding.kind,
        "dreamgym.finding.text": finding.text,
        "dreamgym.finding.severity": finding.severity,
        "dreamgym.finding.steps": [str(step) for step in finding.steps],
    }


def begun(episode: Episode, otherwise: float) -> float:
    """When an episode began; `otherwise` where it does not say and has no call with a time."""
    known = [step.recorded_at for step in episode.transitions if step.recorded_at > 0]
    return episode.started_at if episode.started_at > 0 else min(known, default=otherwise)


def ended(episode: Episode, start_s: float) -> float:
    """When an episode that began at `start_s` was over: never before its last call."""
    last = max((step.recorded_at + step.elapsed_s for step in episode.transitions), default=0.0)
    return max(start_s + max(0.0, episode.elapsed_s), last)


def model_turns(episode: Episode, start_s: float, end_s: float) -> list[ModelMessage]:
    """The turns of the agent's model, in the order of the transcript."""
    waiting: dict[str, deque[Transition]] = defaultdict(deque)
    for step in episode.transitions:
        if step.call.call_id is not None:
            waiting[step.call.call_id].append(step)
    final = max((place for place, message in enumerate(episode.messages) if _by_model(message)), default=-1)
    turns: list[ModelMessage] = []
    heard: list[Mapping[str, JsonValue]] = []
    now = start_s
    for place, message in enumerate(episode.messages):
        if not _by_model(message):
            heard.append(message)
            continue
        call_ids = [call.get("id") for call in message.get("tool_calls") or ()]
        steps = [waiting[name].popleft() for name in call_ids if waiting.get(name)]
        unasked = end_s if place == final else now
        said_at = max(now, min((step.recorded_at for step in steps), default=unasked))
        turns.append(ModelMessage(tuple(heard), message, now, said_at))
        heard = []
        now = max([said_at, *(step.recorded_at + step.elapsed_s for step in steps)])
    return turns


def _by_model(message: Mapping[str, JsonValue]) -> bool:
    return message.get("role") == "assistant"


def input_messages(messages: Iterable[Message]) -> list[JsonValue]:
    """Messages that a model or an agent was given."""
    return [{"role": _role(message), "parts": list(_parts(message))} for message in messages]


def output_message(message: Message) -> JsonValue:
    """A message that a model said."""
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
    """Text as text; any other block as it is where it has a type, which the convention allows."""
    if isinstance(block, str):
        return {"type": "text", "content": block}
    if isinstance(block, Mapping) and block.get("type") == "text":
        return {"type": "text", "content": str(block.get("text", ""))}
    if isinstance(block, Mapping) and isinstance(block.get("type"), str):
        return dict(block)
    return {"type": "json", "content": block}
