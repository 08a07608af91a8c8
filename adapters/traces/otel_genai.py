"""OpenTelemetry's GenAI convention: tool spans with attributes, or in its older form with events.

Relatives: Google ADK's own attributes, OpenLLMetry (`traceloop.*`), Vercel's AI SDK (`ai.toolCall.*`).
https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from collections.abc import Mapping

from dreamgym_kit.adapters.traces.otlp import Span
from dreamgym_kit.adapters.traces.seen import SeenCall, Unread
from dreamgym_kit.adapters.traces.values import Reply, answer, arguments, decoded, failure, reply, text_of
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Answer

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


def is_tool_span(span: Span) -> bool:
    """Whether a tool ran in this span."""
    attributes = span.attributes
    return (
        attributes.get("gen_ai.operation.name") == "execute_tool"
        or attributes.get("traceloop.span.kind") == "tool"
        or attributes.get("ai.operationId") == "ai.toolCall"
        or (any(key in attributes for key in _NAME) and any(key in attributes for key in (*_ARGS, *_RESULT)))
    )


def is_model_span(span: Span) -> bool:
    """Whether a chat model answered in this span."""
    return span.attributes.get("gen_ai.operation.name") in _MODEL_CALLS or "gen_ai.completion.0.role" in (
        span.attributes
    )


def read_call(span: Span) -> SeenCall | Unread:
    """Read a tool span."""
    name = span.text(*_NAME, "traceloop.entity.name")
    if name is None:
        return Unread(span.line, f"span {span.id}: a tool span without gen_ai.tool.name")
    args = span.first(*_ARGS, "traceloop.entity.input")
    if args is None and (sent := span.event("gen_ai.tool.message")) is not None:
        args = sent.get("content")
    read = arguments(args)
    found = _reply(span)
    return SeenCall(
        line=span.line,
        episode=span.trace,
        tool=name,
        args=read.args,
        answer=answer_of(span, found),
        call_id=span.text(*_ID) or (found.call_id if found else None),
        description=span.text("gen_ai.tool.description") or "",
        start_s=span.start_s,
        end_s=span.end_s,
        span=span.id,
        bare=read.bare,
    )


def answer_of(span: Span, found: Reply | None) -> Answer | None:
    """What the tool answered: what was found, or how the span failed; None when the span tells neither."""
    error, kind = span.error, span.error_type
    if error is not None and not error:
        said = found.content if found is not None else None
        error = said if isinstance(said, str) and said else (kind or "the tool failed")
    elif error is not None and kind is None:
        error, kind = failure(error)
    if found is None and error is None:
        return None
    return answer(found or Reply(None), error=error, error_type=kind)


def asked_in(span: Span) -> tuple[Asked, ...]:
    """The calls that a model span asks for: its output messages, in an attribute or an event."""
    output = span.first("gen_ai.output.messages")
    if output is None:
        details = span.event("gen_ai.client.inference.operation.details") or {}
        output = details.get("gen_ai.output.messages")
    messages = decoded(output)
    found: list[Asked] = []
    for message in messages if isinstance(messages, list) else []:
        parts = message.get("parts") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and part.get("type") == "tool_call" and text_of(part.get("name")):
                args = arguments(part.get("arguments")).args
                found.append((text_of(part.get("id")), part["name"], args))
    return tuple(found)


def _reply(span: Span) -> Reply | None:
    if (value := span.first(*_RESULT, "traceloop.entity.output")) is not None:
        return reply(value)
    if (value := span.first(*_JSON_RESULT)) is not None:
        return reply(value, is_json=True)
    if (chosen := span.event("gen_ai.choice")) is not None and "message" in chosen:
        failed = span.attributes.get("gen_ai.tool.status") == "error"
        found = reply(chosen["message"], is_json=True)
        said = found.content if isinstance(found.content, str) else "the tool failed"
        return Reply(found.content, said if failed else None)
    return None
