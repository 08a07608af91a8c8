"""OpenInference (Arize): spans of kind TOOL with input.value and output.value, and its form as log events.

A tool of one text argument leaves the bare value there, without its name; the model span that asked for the
call still has it, joined by call id in `spans`. https://github.com/Arize-ai/openinference
"""

import re

from dreamgym_kit.adapters.traces.otel_genai import Asked, answer_of
from dreamgym_kit.adapters.traces.otlp import Span
from dreamgym_kit.adapters.traces.seen import SeenCall, Unread
from dreamgym_kit.adapters.traces.values import (
    Reply,
    arguments,
    decoded,
    reply,
    text_of,
    tool_message,
)
from dreamgym_kit.plain import JsonValue

_KIND = "openinference.span.kind"
_ASKED = re.compile(
    r"llm\.output_messages\.(\d+)\.message\.tool_calls\.(\d+)\.tool_call\.(id|function\.name|function\.arguments)"
)
_LOGGED = "openinference.instrumentation"


def is_tool_span(span: Span) -> bool:
    """Whether a tool ran in this span."""
    return span.attributes.get(_KIND) == "TOOL"


def is_model_span(span: Span) -> bool:
    """Whether a chat model answered in this span."""
    return span.attributes.get(_KIND) == "LLM"


def read_call(span: Span) -> SeenCall | Unread:
    """Read a span of kind TOOL."""
    name = span.text("tool.name") or span.name
    if not name:
        return Unread(span.line, f"span {span.id}: a tool span without tool.name")
    read = arguments(span.first("input.value", "tool.parameters"), names=_parameters(span))
    output = span.first("output.value")
    is_json = span.attributes.get("output.mime_type") == "application/json"
    found = None if output is None else _output(output, is_json=is_json)
    metadata = decoded(span.attributes.get("metadata"))
    return SeenCall(
        line=span.line,
        episode=span.trace,
        tool=name,
        args=read.args,
        answer=answer_of(span, found),
        call_id=span.text("tool.id", "tool_call.id") or (found.call_id if found else None),
        node=text_of(metadata.get("langgraph_node")) if isinstance(metadata, dict) else None,
        description=span.text("tool.description") or "",
        start_s=span.start_s,
        end_s=span.end_s,
        span=span.id,
        bare=read.bare,
    )


def asked_in(span: Span) -> tuple[Asked, ...]:
    """The calls that a model span asks for."""
    parts: dict[tuple[int, int], dict[str, JsonValue]] = {}
    for key, value in span.attributes.items():
        if (found := _ASKED.fullmatch(key)) is not None:
            parts.setdefault((int(found[1]), int(found[2])), {})[found[3]] = value
    return tuple(
        (text_of(part.get("id")), part["function.name"], arguments(part.get("function.arguments")).args)
        for _, part in sorted(parts.items())
        if text_of(part.get("function.name"))
    )


def is_logged(span: Span) -> bool:
    """Whether a span's contents are in the bodies of its log events, as AWS' collector leaves them."""
    return any(event.name.startswith(_LOGGED) and event.body for event in span.events)


def read_logged(span: Span) -> list[SeenCall]:
    """The tool calls among a span's log events: those that put out a ToolMessage."""
    found = []
    for event in span.events:
        message = tool_message(decoded(_content(event.body.get("output"))))
        if message is None or not text_of(message.get("name")):
            continue
        read = arguments(_content(event.body.get("input")))
        answered = reply(dict(message))
        found.append(
            SeenCall(
                line=span.line,
                episode=span.trace,
                tool=str(message["name"]),
                args=read.args,
                answer=answer_of(span, answered),
                call_id=answered.call_id,
                start_s=span.start_s,
                end_s=span.end_s,
                span=span.id,
                bare=read.bare,
            )
        )
    return found


def _content(side: JsonValue) -> JsonValue:
    messages = side.get("messages") if isinstance(side, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    return last.get("content") if isinstance(last, dict) else None


def _parameters(span: Span) -> list[str]:
    """The names of a tool's parameters, where its span has their schema (smolagents)."""
    schema = decoded(span.attributes.get("tool.parameters"))
    typed = isinstance(schema, dict) and all(
        isinstance(one, dict) and "type" in one for one in schema.values()
    )
    return list(schema) if typed and isinstance(schema, dict) else []


def _output(output: JsonValue, *, is_json: bool) -> Reply:
    return reply(output, is_json=is_json)
