"""Spans to calls, by the convention that a span follows, and what the model spans know of the tool spans.

OpenTelemetry's GenAI convention (https://opentelemetry.io/docs/specs/semconv/gen-ai/): tool spans with
attributes, or in its older form with events. Relatives: Google ADK's own attributes, OpenLLMetry
(`traceloop.*`), Vercel's AI SDK (`ai.toolCall.*`).

OpenInference (https://github.com/Arize-ai/openinference): spans of kind TOOL with input.value and
output.value, and its form as log events. A tool of one text argument leaves the bare value there, without
its name.

A model span gives the argument's name to a tool span that lost it, and ends a turn. A call that a model asked
for and that no tool span of its trace shows was not answered there: it is told.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dreamgym_kit.adapters.traces.otlp import Span, read_span
from dreamgym_kit.adapters.traces.seen import Item, Passed, SeenCall, SeenTurn, TraceRecord
from dreamgym_kit.adapters.traces.values import (
    Arguments,
    ParsedReply,
    answer,
    arguments,
    decoded,
    failure,
    reply,
    text_of,
    tool_message,
)
from dreamgym_kit.replay import own_spans
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer

Asked = tuple[str | None, str, Mapping[str, JsonValue]]

_NAME = ("gen_ai.tool.name", "ai.toolCall.name")
_ID = ("gen_ai.tool.call.id", "ai.toolCall.id")
_ARGS = (
    "gen_ai.tool.call.arguments",
    "gcp.vertex.agent.tool_call_args",
    "tool_arguments",
    "ai.toolCall.args",
)
_RESULT = ("gen_ai.tool.call.result", "tool_response", "ai.toolCall.result")
_JSON_RESULT = ("gcp.vertex.agent.tool_response",)
_MODEL_CALLS = frozenset({"chat", "text_completion", "generate_content"})
_OPENINFERENCE_KIND = "openinference.span.kind"
_ASKED_KEY = re.compile(
    r"llm\.output_messages\.(\d+)\.message\.tool_calls\.(\d+)\.tool_call\.(id|function\.name|function\.arguments)"
)
_LOGGED = "openinference.instrumentation"


def read_record(record: TraceRecord) -> Iterator[Item]:
    """Give what one span says."""
    span = read_span(record)
    if not span.trace:
        yield UnreadableLine(record.line, f"span {span.id}: without a trace id")
    elif own_spans.is_own(span.attributes):
        yield _own(span)
    elif _is_openinference_tool(span):
        yield _openinference_call(span)
    elif _is_openinference_model(span):
        yield SeenTurn(record.line, span.trace, span.end_s, _openinference_calls(span))
    elif _is_genai_tool(span):
        yield _genai_call(span)
    elif _is_genai_model(span):
        yield SeenTurn(record.line, span.trace, span.end_s, _genai_calls(span))
    elif _is_logged(span) and (logged := _read_logged(span)):
        yield from logged
    else:
        yield Passed("span")


def _own(span: Span) -> Item:
    """What the kit wrote: calls as they were; what the model asked for is not looked at again."""
    if _is_genai_tool(span):
        return own_spans.read_attributes(span.line, f"span {span.id}", span.attributes)
    return Passed("model span" if _is_genai_model(span) else "span")


def completed(
    calls: list[SeenCall], turns: Iterable[SeenTurn]
) -> tuple[list[SeenCall], list[UnreadableLine]]:
    """Give back argument names that tool spans lost, and tell of calls that no tool span shows."""
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
                why = f"call of {named}: asked for, but no tool span shows it"
                missing.append(UnreadableLine(turn.line, why, unanswered=True))
                continue
            places.remove(at)
            call = filled[at]
            known = args if call.bare else call.args
            filled[at] = replace(call, args=known, bare=False, call_id=call.call_id or call_id, index=index)
    return filled, missing


def _place(calls: list[SeenCall], places: list[int], call_id: str | None, args: object) -> int | None:
    """The tool span of a call: by id; else one without an id and with the same arguments."""
    for place in places:
        if call_id is not None and calls[place].call_id == call_id:
            return place
    for place in places:
        call = calls[place]
        if (call.call_id is None or call_id is None) and (call.bare or call.args == args):
            return place
    return None


def _is_genai_tool(span: Span) -> bool:
    """Whether a tool ran in this span."""
    attributes = span.attributes
    return (
        attributes.get("gen_ai.operation.name") == "execute_tool"
        or attributes.get("traceloop.span.kind") == "tool"
        or attributes.get("ai.operationId") == "ai.toolCall"
        or (any(key in attributes for key in _NAME) and any(key in attributes for key in (*_ARGS, *_RESULT)))
    )


def _is_genai_model(span: Span) -> bool:
    """Whether a chat model answered in this span."""
    return span.attributes.get("gen_ai.operation.name") in _MODEL_CALLS or "gen_ai.completion.0.role" in (
        span.attributes
    )


def _genai_call(span: Span) -> SeenCall | UnreadableLine:
    """Read a tool span."""
    name = span.text(*_NAME, "traceloop.entity.name")
    if name is None:
        return UnreadableLine(span.line, f"span {span.id}: a tool span without gen_ai.tool.name")
    args = span.first(*_ARGS, "traceloop.entity.input")
    if args is None and (sent := span.event("gen_ai.tool.message")) is not None:
        args = sent.get("content")
    result = _genai_reply(span)
    about = span.text("gen_ai.tool.description") or ""
    return _seen(span, name, arguments(args), result, call_id=span.text(*_ID), description=about)


def _seen(
    span: Span,
    tool: str,
    read: Arguments,
    result: ParsedReply | None,
    *,
    call_id: str | None = None,
    node: str | None = None,
    description: str = "",
) -> SeenCall:
    """The call of a tool span."""
    return SeenCall(
        line=span.line,
        episode=span.trace,
        tool=tool,
        args=read.args,
        answer=_answer_of(span, result),
        call_id=call_id or (result.call_id if result else None),
        node=node,
        description=description,
        start_s=span.start_s,
        end_s=span.end_s,
        span=span.id,
        bare=read.bare,
    )


def _answer_of(span: Span, result: ParsedReply | None) -> Answer | None:
    """What the tool answered: what was found, or how the span failed; None when the span tells neither."""
    error, kind = span.error, span.error_type
    if error is not None and not error:
        text = result.content if result is not None else None
        error = text if isinstance(text, str) and text else (kind or "the tool failed")
    elif error is not None and kind is None:
        error, kind = failure(error)
    return answer(result, error=error, error_type=kind)


def _genai_calls(span: Span) -> tuple[Asked, ...]:
    """The calls that a model span asks for: its output messages, in an attribute or an event."""
    output = span.first("gen_ai.output.messages")
    if output is None:
        details = span.event("gen_ai.client.inference.operation.details") or {}
        output = details.get("gen_ai.output.messages")
    messages = decoded(output)
    calls: list[Asked] = []
    for message in messages if isinstance(messages, list) else []:
        parts = message.get("parts") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and part.get("type") == "tool_call" and text_of(part.get("name")):
                args = arguments(part.get("arguments")).args
                calls.append((text_of(part.get("id")), part["name"], args))
    return tuple(calls)


def _genai_reply(span: Span) -> ParsedReply | None:
    if (value := span.first(*_RESULT, "traceloop.entity.output")) is not None:
        return reply(value)
    if (value := span.first(*_JSON_RESULT)) is not None:
        return reply(value, is_json=True)
    if (chosen := span.event("gen_ai.choice")) is not None and "message" in chosen:
        failed = span.attributes.get("gen_ai.tool.status") == "error"
        result = reply(chosen["message"], is_json=True)
        text = result.content if isinstance(result.content, str) else "the tool failed"
        return ParsedReply(result.content, text if failed else None)
    return None


def _is_openinference_tool(span: Span) -> bool:
    """Whether a tool ran in this span."""
    return span.attributes.get(_OPENINFERENCE_KIND) == "TOOL"


def _is_openinference_model(span: Span) -> bool:
    """Whether a chat model answered in this span."""
    return span.attributes.get(_OPENINFERENCE_KIND) == "LLM"


def _openinference_call(span: Span) -> SeenCall | UnreadableLine:
    """Read a span of kind TOOL."""
    name = span.text("tool.name") or span.name
    if not name:
        return UnreadableLine(span.line, f"span {span.id}: a tool span without tool.name")
    read = arguments(span.first("input.value", "tool.parameters"), names=_parameters(span))
    output = span.first("output.value")
    is_json = span.attributes.get("output.mime_type") == "application/json"
    metadata = decoded(span.attributes.get("metadata"))
    return _seen(
        span,
        name,
        read,
        None if output is None else reply(output, is_json=is_json),
        call_id=span.text("tool.id", "tool_call.id"),
        node=text_of(metadata.get("langgraph_node")) if isinstance(metadata, dict) else None,
        description=span.text("tool.description") or "",
    )


def _openinference_calls(span: Span) -> tuple[Asked, ...]:
    """The calls that a model span asks for."""
    parts: dict[tuple[int, int], dict[str, JsonValue]] = {}
    for key, value in span.attributes.items():
        if (match := _ASKED_KEY.fullmatch(key)) is not None:
            parts.setdefault((int(match[1]), int(match[2])), {})[match[3]] = value
    return tuple(
        (text_of(part.get("id")), part["function.name"], arguments(part.get("function.arguments")).args)
        for _, part in sorted(parts.items())
        if text_of(part.get("function.name"))
    )


def _is_logged(span: Span) -> bool:
    """Whether a span's contents are in the bodies of its log events, as AWS' collector leaves them."""
    return any(event.name.startswith(_LOGGED) and event.body for event in span.events)


def _read_logged(span: Span) -> list[SeenCall]:
    """The tool calls among a span's log events: those that put out a ToolMessage."""
    calls = []
    for event in span.events:
        message = tool_message(decoded(_content(event.body.get("output"))))
        if message is None or not text_of(message.get("name")):
            continue
        args = arguments(_content(event.body.get("input")))
        calls.append(_seen(span, str(message["name"]), args, reply(dict(message))))
    return calls


def _content(side: JsonValue) -> JsonValue:
    messages = side.get("messages") if isinstance(side, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    return last.get("content") if isinstance(last, dict) else None


def _parameters(span: Span) -> list[str]:
    """The names of a tool's parameters, where its span has their schema (smolagents)."""
    schema = decoded(span.attributes.get("tool.parameters"))
    typed = isinstance(schema, dict) and all(
        isinstance(spec, dict) and "type" in spec for spec in schema.values()
    )
    return list(schema) if typed and isinstance(schema, dict) else []
