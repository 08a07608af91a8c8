"""LangSmith runs and Langfuse observations, as their SDKs post them and their exports give them.

A LangSmith call is a run of type `tool`. A run may come in two parts of one id (begun, ended); the later part
fills the earlier.

A Langfuse call is an observation of type TOOL, or a span that is one in fact: LangGraph's integration writes
tools as SPAN, the node is "tools", the output a ToolMessage. Others name the tool in the attributes under
`metadata`. Input and output are mostly JSON text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dreamgym_kit.adapters.traces.dialects import seen_call
from dreamgym_kit.adapters.traces.seen import Item, Passed, SeenTurn, TraceRecord
from dreamgym_kit.adapters.traces.spans import Span, object_of, platform_span
from dreamgym_kit.adapters.traces.values import (
    ParsedReply,
    arguments,
    decoded,
    reply,
    seconds,
    text_of,
    tool_message,
)
from dreamgym_kit.replay import own_spans
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue


def is_run(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is a run."""
    return "run_type" in value and ("trace_id" in value or "dotted_order" in value or "id" in value)


class Runs:
    """Reads runs one by one; the calls are given at the end, when both parts of each are there."""

    def __init__(self) -> None:
        self._tools: dict[str, TraceRecord] = {}

    def read(self, record: TraceRecord) -> Iterator[Item]:
        """Take one run; gives what is no tool call."""
        value = record.value
        kind = value.get("run_type")
        if kind == "tool":
            name = str(value.get("id") or f"line {record.line}")
            known = self._tools.get(name, TraceRecord(record.line, {}))
            there = {key: item for key, item in value.items() if item is not None}
            self._tools[name] = replace(known, value={**known.value, **there})
        elif kind == "llm":
            yield SeenTurn(record.line, _run_trace(value), seconds(value.get("end_time")))
        else:
            yield Passed("run")

    def calls(self) -> Iterator[Item]:
        """Give the calls of all runs taken."""
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
    """The trace; where it is left out, the root of the dotted order ends with its id."""
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
    """Whether a record is an observation."""
    return value.get("type") in _KINDS and ("traceId" in value or "parentObservationId" in value)


def read_observation(record: TraceRecord) -> Iterator[Item]:
    """Give what one observation says."""
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
        yield UnreadableLine(record.line, f"{named}: without a traceId")
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
    """The name of the tool that ran, or None."""
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
    """Text that was written as JSON, with its quotes, as the text it is."""
    if isinstance(output, str) and len(output) > 1 and output[0] == output[-1] == '"':
        quoted = decoded(f"[{output}]")
        if isinstance(quoted, list) and len(quoted) == 1 and isinstance(quoted[0], str):
            return quoted[0]
    return output
