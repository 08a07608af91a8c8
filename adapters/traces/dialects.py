"""Read tool and model calls from OpenTelemetry spans, for each convention.

OpenTelemetry's GenAI convention (https://opentelemetry.io/docs/specs/semconv/gen-ai/): tool spans with
attributes, or in its older form with events. Relatives: Google ADK's own attributes, OpenLLMetry
(`traceloop.*`), Vercel's AI SDK (`ai.toolCall.*`).

OpenInference (https://github.com/Arize-ai/openinference): spans of kind TOOL with input.value and
output.value, and its form as log events. A tool with one text argument has the bare value there, without its
name.

A model span restores a lost argument name of a tool span, and ends a turn. A requested call without a tool
span was not answered in the trace, and is reported.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dreamgym_kit.adapters.traces.seen import (
    Item,
    ParsedReply,
    Passed,
    RequestedCall,
    SeenCall,
    SeenTurn,
    TraceRecord,
    arguments,
    decoded,
    reply,
    text_of,
    tool_message,
)
from dreamgym_kit.adapters.traces.spans import Span, object_of, read_span, seen_call
from dreamgym_kit.replay import own_spans
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue


@dataclass(frozen=True, slots=True)
class ToolSpanKeys:
    """The attributes of a tool span; the first present one counts."""

    name: tuple[str, ...]
    call_id: tuple[str, ...]
    args: tuple[str, ...]
    result: tuple[str, ...]
    description: tuple[str, ...]
    json_result: tuple[str, ...] = ()  # whose text is JSON by convention


GENAI = ToolSpanKeys(
    name=("gen_ai.tool.name", "ai.toolCall.name", "traceloop.entity.name"),
    call_id=("gen_ai.tool.call.id", "ai.toolCall.id"),
    args=(
        *("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "tool_arguments"),
        *("ai.toolCall.args", "traceloop.entity.input"),
    ),
    result=(*("gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "traceloop.entity.output"),),
    description=("gen_ai.tool.description",),
    json_result=("gcp.vertex.agent.tool_response",),
)
OPENINFERENCE = ToolSpanKeys(
    name=("tool.name",),
    call_id=("tool.id", "tool_call.id"),
    args=("input.value", "tool.parameters"),
    result=("output.value",),
    description=("tool.description",),
)
_MODEL_CALLS = ("chat", "text_completion", "generate_content")
_KIND = "openinference.span.kind"
_REQUEST_KEY = re.compile(
    r"llm\.output_messages\.(\d+)\.message\.tool_calls\.(\d+)\.tool_call\.(id|function\.name|function\.arguments)"
)
_LOGGED = "openinference.instrumentation"


def read_otel_span(record: TraceRecord) -> Iterator[Item]:
    """Yield the calls or turn of one span."""
    span = read_span(record)
    kind = span.attributes.get(_KIND)
    if not span.trace:
        yield UnreadableLine(record.line, f"span {span.id}: no trace ID")
    elif own_spans.is_own(span.attributes):
        # the log has whole calls; the model's requests are not needed
        if _is_genai_tool(span):
            yield own_spans.read_attributes(span.line, f"span {span.id}", span.attributes)
        else:
            yield Passed("model span" if _is_genai_model(span) else "span")
    elif kind == "TOOL":
        yield _openinference_call(span)
    elif kind == "LLM":
        yield SeenTurn(record.line, span.trace, span.end_s, _openinference_requests(span))
    elif _is_genai_tool(span):
        yield _genai_call(span)
    elif _is_genai_model(span):
        yield SeenTurn(record.line, span.trace, span.end_s, _genai_requests(span))
    else:
        yield from _logged_calls(span) or [Passed("span")]


def completed(
    calls: list[SeenCall], turns: Iterable[SeenTurn]
) -> tuple[list[SeenCall], list[UnreadableLine]]:
    """Restore argument names that tool spans lost, and report calls without a tool span."""
    filled = list(calls)
    open_places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, call in enumerate(filled):
        open_places[call.episode, call.tool].append(place)
    missing: list[UnreadableLine] = []
    for turn in sorted(turns, key=lambda turn: turn.end_s):
        for index, (call_id, tool, args) in enumerate(turn.calls):
            places = open_places[turn.episode, tool]
            at = _place(filled, places, call_id, args)
            if at is None:
                named = f"{tool} ({call_id})" if call_id else tool
                why = f"call of {named}: requested, but without a tool span"
                missing.append(UnreadableLine(turn.line, why, unanswered=True))
                continue
            places.remove(at)
            call = filled[at]
            full_args = args if call.bare else call.args
            filled[at] = replace(
                call, args=full_args, bare=False, call_id=call.call_id or call_id, index=index
            )
    return filled, missing


def _place(calls: list[SeenCall], places: list[int], call_id: str | None, args: object) -> int | None:
    """Find the tool span of a call by ID, else one without ID and with equal arguments."""
    for place in places:
        if call_id is not None and calls[place].call_id == call_id:
            return place
    for place in places:
        call = calls[place]
        if (call.call_id is None or call_id is None) and (call.bare or call.args == args):
            return place
    return None


def _is_genai_tool(span: Span) -> bool:
    attributes = span.attributes
    return (
        attributes.get("gen_ai.operation.name") == "execute_tool"
        or attributes.get("traceloop.span.kind") == "tool"
        or attributes.get("ai.operationId") == "ai.toolCall"
        # a tool name with tool arguments or a tool result
        or (
            not attributes.keys().isdisjoint(GENAI.name[:2])
            and not attributes.keys().isdisjoint((*GENAI.args[:-1], *GENAI.result[:-1]))
        )
    )


def _is_genai_model(span: Span) -> bool:
    attributes = span.attributes
    return attributes.get("gen_ai.operation.name") in _MODEL_CALLS or "gen_ai.completion.0.role" in attributes


def _genai_call(span: Span) -> SeenCall | UnreadableLine:
    name = span.text(*GENAI.name)
    if name is None:
        return UnreadableLine(span.line, f"span {span.id}: a tool span without gen_ai.tool.name")
    args = span.first(*GENAI.args)
    if args is None and (sent := span.event("gen_ai.tool.message")) is not None:
        args = sent.get("content")
    about = span.text(*GENAI.description)
    call_id = span.text(*GENAI.call_id)
    return seen_call(span, name, arguments(args), _genai_reply(span), call_id=call_id, description=about)


def _genai_reply(span: Span) -> ParsedReply | None:
    if (value := span.first(*GENAI.result)) is not None:
        return reply(value)
    if (value := span.first(*GENAI.json_result)) is not None:
        return reply(value, is_json=True)
    if (chosen := span.event("gen_ai.choice")) is not None and "message" in chosen:
        failed = span.attributes.get("gen_ai.tool.status") == "error"
        result = reply(chosen["message"], is_json=True)
        text = result.content if isinstance(result.content, str) else "the tool failed"
        return ParsedReply(result.content, text if failed else None)
    return None


def _genai_requests(span: Span) -> tuple[RequestedCall, ...]:
    """Return the calls in a model span's output messages, from an attribute or an event."""
    output = span.first("gen_ai.output.messages")
    if output is None:
        details = span.event("gen_ai.client.inference.operation.details") or {}
        output = details.get("gen_ai.output.messages")
    calls: list[RequestedCall] = []
    for message in _list(decoded(output)):
        for part in _list(message.get("parts") if isinstance(message, dict) else None):
            if isinstance(part, dict) and part.get("type") == "tool_call" and text_of(part.get("name")):
                args = arguments(part.get("arguments")).args
                calls.append((text_of(part.get("id")), part["name"], args))
    return tuple(calls)


def _openinference_call(span: Span) -> SeenCall | UnreadableLine:
    name = span.text(*OPENINFERENCE.name) or span.name
    if not name:
        return UnreadableLine(span.line, f"span {span.id}: a tool span without tool.name")
    output = span.first(*OPENINFERENCE.result)
    is_json = span.attributes.get("output.mime_type") == "application/json"
    return seen_call(
        span,
        name,
        arguments(span.first(*OPENINFERENCE.args), names=_parameters(span)),
        None if output is None else reply(output, is_json=is_json),
        call_id=span.text(*OPENINFERENCE.call_id),
        node=object_of(span.attributes.get("metadata")).get("langgraph_node"),
        description=span.text(*OPENINFERENCE.description),
    )


def _parameters(span: Span) -> list[str]:
    """Return a tool's parameter names, if its span has the schema (smolagents)."""
    schema = object_of(span.attributes.get("tool.parameters"))
    return list(schema) if all(isinstance(spec, dict) and "type" in spec for spec in schema.values()) else []


def _openinference_requests(span: Span) -> tuple[RequestedCall, ...]:
    """Return the calls that a model span requests."""
    parts: dict[tuple[int, int], dict[str, JsonValue]] = {}
    for key, value in span.attributes.items():
        if (match := _REQUEST_KEY.fullmatch(key)) is not None:
            parts.setdefault((int(match[1]), int(match[2])), {})[match[3]] = value
    return tuple(
        (text_of(part.get("id")), part["function.name"], arguments(part.get("function.arguments")).args)
        for _, part in sorted(parts.items())
        if text_of(part.get("function.name"))
    )


def _logged_calls(span: Span) -> list[Item]:
    """Return calls from log events with a ToolMessage, as in AWS's collector."""
    if not any(event.name.startswith(_LOGGED) and event.body for event in span.events):
        return []
    calls: list[Item] = []
    for event in span.events:
        message = tool_message(decoded(_content(event.body.get("output"))))
        if message is None or not text_of(message.get("name")):
            continue
        args = arguments(_content(event.body.get("input")))
        calls.append(seen_call(span, str(message["name"]), args, reply(dict(message))))
    return calls


def _content(side: JsonValue) -> JsonValue:
    messages = _list(side.get("messages") if isinstance(side, dict) else None)
    return messages[-1].get("content") if messages and isinstance(messages[-1], dict) else None


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
