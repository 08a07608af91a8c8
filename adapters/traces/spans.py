"""Spans in every form in which people have them, as one: OTLP JSON, Tempo and Jaeger exports, flat lists.

LangSmith's runs and Langfuse's observations are spans too. Decides names, times, attributes, events and
failures of a span; what a tool span says is decided in `dialects`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dreamgym_kit.adapters.traces.seen import TraceRecord
from dreamgym_kit.adapters.traces.values import decoded, seconds, text_of
from dreamgym_kit.serialization import JsonValue

_IDS = ("spanId", "span_id", "spanID")
_ERRORS = (2, "2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR", "Error")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened in a span."""

    name: str
    attributes: Mapping[str, JsonValue]
    body: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Span:
    """A span, whoever exported it."""

    line: int
    trace: str
    id: str
    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, JsonValue]
    events: tuple[SpanEvent, ...]
    error: str | None  # the message, when it failed; "" when none was told
    error_type: str | None

    def text(self, *keys: str) -> str | None:
        """The first of these attributes that is a text."""
        return next((text for key in keys if (text := text_of(self.attributes.get(key)))), None)

    def first(self, *keys: str) -> JsonValue:
        """The first of these attributes that is there."""
        return next((self.attributes[key] for key in keys if key in self.attributes), None)

    def event(self, name: str) -> Mapping[str, JsonValue] | None:
        """The attributes of the first event of this name."""
        return next((event.attributes for event in self.events if event.name == name), None)


def is_span(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is a span."""
    context = value.get("context")
    return any(key in value for key in _IDS) or (isinstance(context, dict) and "span_id" in context)


def read_span(record: TraceRecord) -> Span:
    """Read one span; what is missing in it is empty."""
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
    """A run of LangSmith or an observation of Langfuse as a span."""
    value = record.value
    start = seconds(_first(value, "startTime", "start_time"))
    end = max(start, seconds(_first(value, "endTime", "end_time")))
    name, number = str(value.get("name") or ""), str(value.get("id") or "")
    return Span(record.line, trace or "", number, name, start, end, attributes, (), error, error_type)


def object_of(value: JsonValue) -> dict[str, JsonValue]:
    """An object, also one that is written as text; an empty one in place of anything else."""
    value = decoded(value)
    return value if isinstance(value, dict) else {}


def _first(value: Mapping[str, JsonValue], *keys: str) -> JsonValue:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _attributes(attributes: JsonValue) -> dict[str, JsonValue]:
    """Attributes by name: key and value (typed in OTLP, plain in Jaeger), an object, or its text."""
    attributes = decoded(attributes)
    if isinstance(attributes, dict):
        return attributes
    pairs = [pair for pair in attributes if isinstance(pair, dict)] if isinstance(attributes, list) else []
    return {str(pair["key"]): _value(pair.get("value")) for pair in pairs if "key" in pair}


def _value(typed: JsonValue) -> JsonValue:
    """An OTLP AnyValue as plain data."""
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
