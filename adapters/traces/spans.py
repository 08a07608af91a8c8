"""Read spans of all forms into one: OTLP JSON, Tempo and Jaeger exports, flat lists.

This module reads names, times, attributes, events and failures of a span; `dialects` interprets tool spans by
convention. LangSmith runs and Langfuse observations, from their SDKs or exports, follow no convention and
become calls here.

A LangSmith call is a run of type `tool`. A run may have two parts with one ID (started, ended); the later
part completes the earlier.

A Langfuse call is an observation of type TOOL, or an equivalent span: LangGraph's integration writes tools as
SPAN, with the node "tools" and a ToolMessage as output. Others name the tool in the attributes under
`metadata`. Input and output are mostly JSON text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dreamgym_kit.adapters.traces.seen import (
    Arguments,
    Item,
    ParsedReply,
    Passed,
    SeenCall,
    SeenTurn,
    TraceRecord,
    answer,
    arguments,
    decoded,
    failure,
    reply,
    seconds,
    text_of,
    tool_message,
)
from dreamgym_kit.replay import own_spans
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue

_IDS = ("spanId", "span_id", "spanID")
_ERRORS = (2, "2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR", "Error")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event of a span."""

    name: str
    attributes: Mapping[str, JsonValue]
    body: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Span:
    """A span of any exporter."""

    line: int
    trace: str
    id: str
    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, JsonValue]
    events: tuple[SpanEvent, ...]
    error: str | None  # the message if it failed, "" if there is none
    error_type: str | None

    def text(self, *keys: str) -> str | None:
        """Return the first of these attributes that is text."""
        return next((text for key in keys if (text := text_of(self.attributes.get(key)))), None)

    def first(self, *keys: str) -> JsonValue:
        """Return the first of these attributes that is present."""
        return next((self.attributes[key] for key in keys if key in self.attributes), None)

    def event(self, name: str) -> Mapping[str, JsonValue] | None:
        """Return the attributes of the first event of this name."""
        return next((event.attributes for event in self.events if event.name == name), None)


def is_span(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a span."""
    context = value.get("context")
    return any(key in value for key in _IDS) or (isinstance(context, dict) and "span_id" in context)


def read_span(record: TraceRecord) -> Span:
    """Read one span; missing parts are empty."""
    value = record.value
    context = value.get("context")
    ids = {**value, **context} if isinstance(context, dict) else value
    attributes = _attributes(_first(value, "attributes", "tags"))
    listed = _first(value, "events", "span_events", "logs")
    events = tuple(
        _event(event) for event in (listed if isinstance(listed, list) else []) if isinstance(event, dict)
    )
    start = seconds(_first(value, "startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time"))
    end = seconds(_first(value, "endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time"))
    duration = value.get("duration")
    if not end and isinstance(duration, (int, float)):  # Jaeger: microseconds, as its startTime
        end = start + duration / 1e6
    error, error_type = _failure(value.get("status"), attributes, events)
    return Span(
        line=record.line,
        trace=str(_first(ids, "traceId", "trace_id", "traceID") or ""),
        id=str(_first(ids, *_IDS) or ""),
        name=str(_first(value, "name", "operationName") or ""),
        start_s=start,
        end_s=max(start, end),
        attributes=attributes,
        events=events,
        error=error,
        error_type=error_type,
    )


def platform_span(
    record: TraceRecord,
    trace: str | None,
    attributes: Mapping[str, JsonValue],
    error: str | None,
    error_type: str | None = None,
) -> Span:
    """Convert a LangSmith run or a Langfuse observation to a span."""
    value = record.value
    start = seconds(_first(value, "startTime", "start_time"))
    end = max(start, seconds(_first(value, "endTime", "end_time")))
    name, number = str(value.get("name") or ""), str(value.get("id") or "")
    return Span(record.line, trace or "", number, name, start, end, attributes, (), error, error_type)


def object_of(value: JsonValue) -> dict[str, JsonValue]:
    """Return an object, also from JSON text; an empty one for other values."""
    value = decoded(value)
    return value if isinstance(value, dict) else {}


def _first(value: Mapping[str, JsonValue], *keys: str) -> JsonValue:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _attributes(attributes: JsonValue) -> dict[str, JsonValue]:
    """Return attributes by name from a list (typed in OTLP, plain in Jaeger), an object, or its text."""
    attributes = decoded(attributes)
    if isinstance(attributes, dict):
        return attributes
    pairs = [pair for pair in attributes if isinstance(pair, dict)] if isinstance(attributes, list) else []
    return {str(pair["key"]): _value(pair.get("value")) for pair in pairs if "key" in pair}


def _value(typed: JsonValue) -> JsonValue:
    """Convert an OTLP AnyValue to plain data."""
    if not isinstance(typed, dict) or len(typed) != 1:
        return typed
    kind, value = next(iter(typed.items()))
    if kind == "intValue":
        return int(value) if isinstance(value, (int, str)) and str(value).lstrip("-").isdigit() else value
    if kind in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        return value
    if kind == "arrayValue" and isinstance(value, dict):
        values = value.get("values")
        return [_value(item) for item in values] if isinstance(values, list) else []
    if kind == "kvlistValue" and isinstance(value, dict):
        return _attributes(value.get("values"))
    return typed


def _event(value: Mapping[str, JsonValue]) -> SpanEvent:
    attributes = _attributes(_first(value, "attributes", "fields"))
    name = (
        _first(value, "name", "event_name") or attributes.get("event") or attributes.get("event.name") or ""
    )
    return SpanEvent(str(name), attributes, object_of(value.get("body")))


def _failure(
    status: JsonValue, attributes: Mapping[str, JsonValue], events: tuple[SpanEvent, ...]
) -> tuple[str | None, str | None]:
    status = object_of(status)
    code = _first(status, "code", "status_code")
    failed = code in _ERRORS or attributes.get("error") in (True, "true")
    if not failed and code is None:
        failed = attributes.get("otel.status_code") == "ERROR"
    if not failed:
        return None, None
    thrown = next((event.attributes for event in events if event.name == "exception"), {})
    message = (
        text_of(thrown.get("exception.message"))
        or text_of(_first(status, "message", "description"))
        or text_of(attributes.get("otel.status_description"))
    )
    kind = text_of(thrown.get("exception.type")) or text_of(attributes.get("error.type"))
    return message or "", kind


def seen_call(
    span: Span,
    tool: str,
    read: Arguments,
    result: ParsedReply | None,
    *,
    call_id: str | None = None,
    node: JsonValue = None,
    description: str | None = None,
) -> SeenCall:
    """Build the call of a tool span with its answer or failure."""
    error, kind = span.error, span.error_type
    if error is not None and not error:
        text = result.content if result is not None else None
        error = text if isinstance(text, str) and text else (kind or "the tool failed")
    elif error is not None and kind is None:
        error, kind = failure(error)
    return SeenCall(
        line=span.line,
        episode=span.trace,
        tool=tool,
        args=read.args,
        answer=answer(result, error=error, error_type=kind),
        call_id=call_id or (result.call_id if result else None),
        node=text_of(node),
        description=description or "",
        start_s=span.start_s,
        end_s=span.end_s,
        span=span.id,
        bare=read.bare,
    )


def is_run(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a run."""
    return "run_type" in value and ("trace_id" in value or "dotted_order" in value or "id" in value)


class Runs:
    """Read runs one by one; calls are returned at the end, when both parts of each run are known."""

    def __init__(self) -> None:
        self._tools: dict[str, TraceRecord] = {}

    def read(self, record: TraceRecord) -> Iterator[Item]:
        """Add a run; yield it if it is not a tool call."""
        value = record.value
        kind = value.get("run_type")
        if kind == "tool":
            name = str(value.get("id") or f"line {record.line}")
            run = self._tools.get(name, TraceRecord(record.line, {}))
            there = {key: item for key, item in value.items() if item is not None}
            self._tools[name] = replace(run, value={**run.value, **there})
        elif kind == "llm":
            yield SeenTurn(record.line, _run_trace(value), seconds(value.get("end_time")))
        else:
            yield Passed("run")

    def calls(self) -> Iterator[Item]:
        """Yield the calls of all runs."""
        yield from map(_run_call, self._tools.values())


def _run_call(record: TraceRecord) -> Item:
    value = record.value
    extra = object_of(value.get("extra"))
    metadata = extra.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    span = platform_span(record, _run_trace(value), metadata, text_of(value.get("error")))
    given, answered = value.get("inputs"), value.get("outputs")
    if own_spans.is_own(metadata):
        return own_spans.read_kept_elsewhere(span.line, f"run {span.id}", metadata, given, answered)
    name = text_of(value.get("name"))
    if name is None or not span.trace:
        return UnreadableLine(span.line, f"run {span.id}: a tool run without a {'trace' if name else 'name'}")
    call_id = text_of(extra.get("tool_call_id"))
    node = metadata.get("langgraph_node")
    return seen_call(span, name, arguments(given), _run_reply(decoded(answered)), call_id=call_id, node=node)


def _run_reply(output: JsonValue) -> ParsedReply | None:
    if output is None or output == {}:
        return None
    if isinstance(output, dict) and list(output) == ["output"]:
        return reply(output["output"])
    return reply(output, is_json=True)


def _run_trace(value: Mapping[str, JsonValue]) -> str:
    """Return the trace ID; if absent, the root of the dotted order ends with it."""
    trace = text_of(value.get("trace_id"))
    if trace is None and (order := text_of(value.get("dotted_order"))) is not None:
        trace = order.split(".", 1)[0].partition("Z")[2]
    return trace or ""


_NAME = ("gen_ai.tool.name", "tool.name")
_ID = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool.id")
_PREFIXES = ("running tool: ", "execute_tool ")
_KINDS = (
    *("SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING"),
    "GUARDRAIL",
)


def is_observation(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is an observation."""
    return value.get("type") in _KINDS and ("traceId" in value or "parentObservationId" in value)


def read_observation(record: TraceRecord) -> Iterator[Item]:
    """Yield the calls or turn of one observation."""
    value = record.value
    metadata = object_of(value.get("metadata"))
    error = (
        (text_of(value.get("statusMessage")) or "the tool failed") if value.get("level") == "ERROR" else None
    )
    attributes = object_of(metadata.get("attributes"))
    span = platform_span(record, text_of(value.get("traceId")), attributes, error, "ToolException")
    given, answered = value.get("input"), value.get("output")
    named = f"observation {value.get('id')}"
    if not span.trace:
        yield UnreadableLine(record.line, f"{named}: no traceId")
    elif own_spans.is_own(attributes):
        if value["type"] == "TOOL" or own_spans.TRANSITION in attributes:
            yield own_spans.read_kept_elsewhere(record.line, named, attributes, given, answered)
        else:
            yield Passed("observation")
    elif value["type"] == "GENERATION":
        yield SeenTurn(record.line, span.trace, seconds(value.get("endTime")))
    elif (name := _observed_tool(span, value, metadata)) is not None:
        result = None if answered is None else reply(_unquoted(answered), is_json=True)
        call_id, node = span.text(*_ID), metadata.get("langgraph_node")
        yield seen_call(span, name, arguments(given), result, call_id=call_id, node=node)
    else:
        yield Passed("observation")


def _observed_tool(
    span: Span, value: Mapping[str, JsonValue], metadata: Mapping[str, JsonValue]
) -> str | None:
    """Return the name of the executed tool, or None."""
    named = span.text(*_NAME)
    own = text_of(value.get("name"))
    for prefix in _PREFIXES:
        own = own.removeprefix(prefix) if own else own
    if value["type"] == "TOOL" or named is not None:
        return named or own
    if metadata.get("langgraph_node") == "tools":
        message = tool_message(decoded(value.get("output")))
        return (text_of(message.get("name")) or own) if message is not None else None
    return None


def _unquoted(output: JsonValue) -> JsonValue:
    """Return the text of a JSON string."""
    if isinstance(output, str) and len(output) > 1 and output[0] == output[-1] == '"':
        quoted = decoded(f"[{output}]")
        if isinstance(quoted, list) and len(quoted) == 1 and isinstance(quoted[0], str):
            return quoted[0]
    return output
