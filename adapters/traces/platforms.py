"""LangSmith runs and Langfuse observations, as their SDKs post them and their exports give them.

A LangSmith call is a run of type `tool`. A run may come in two parts of one id (begun, ended); the later part
fills the earlier.

A Langfuse call is an observation of type TOOL, or a span that is one in fact: LangGraph's integration writes
tools as SPAN, the node is "tools", the output a ToolMessage. Others name the tool in the attributes under
`metadata`. Input and output are mostly JSON text.
"""

from collections.abc import Iterator, Mapping

from dreamgym_kit.adapters.traces.seen import Item, Passed, SeenCall, SeenTurn, TraceRecord
from dreamgym_kit.adapters.traces.values import (
    ParsedReply,
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
from dreamgym_kit.types import Transition


def is_run(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is a run."""
    return "run_type" in value and ("trace_id" in value or "dotted_order" in value or "id" in value)


class Runs:
    """Reads runs one by one; the calls are given at the end, when both parts of each are there."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[int, dict[str, JsonValue]]] = {}

    def read(self, record: TraceRecord) -> Iterator[Item]:
        """Take one run; gives what is no tool call."""
        value = record.value
        kind = value.get("run_type")
        if kind == "tool":
            name = str(value.get("id") or f"line {record.line}")
            line, known = self._tools.get(name, (record.line, {}))
            there = {key: item for key, item in value.items() if item is not None}
            self._tools[name] = (line, {**known, **there})
        elif kind == "llm":
            yield SeenTurn(record.line, _episode(value), seconds(value.get("end_time")))
        else:
            yield Passed("run")

    def calls(self) -> Iterator[Item]:
        """Give the calls of all runs taken."""
        for line, value in self._tools.values():
            yield _run_call(line, value)


def _run_call(line: int, value: Mapping[str, JsonValue]) -> SeenCall | UnreadableLine | Transition:
    run = str(value.get("id") or "")
    extra = decoded(value.get("extra"))
    extra = extra if isinstance(extra, dict) else {}
    metadata = extra.get("metadata")
    if isinstance(metadata, dict) and own_spans.is_own(metadata):
        return own_spans.read_kept_elsewhere(
            line, f"run {run}", metadata, value.get("inputs"), value.get("outputs")
        )
    name = text_of(value.get("name"))
    if name is None or not _episode(value):
        return UnreadableLine(line, f"run {run}: a tool run without a {'trace' if name else 'name'}")
    read = arguments(value.get("inputs"))
    result = _reply(value.get("outputs"))
    failed = text_of(value.get("error"))
    error, kind = failure(failed) if failed else (None, None)
    start = seconds(value.get("start_time"))
    return SeenCall(
        line=line,
        episode=_episode(value),
        tool=name,
        args=read.args,
        answer=answer(result, error=error, error_type=kind),
        call_id=text_of(extra.get("tool_call_id")) or (result.call_id if result else None),
        node=text_of(metadata.get("langgraph_node")) if isinstance(metadata, dict) else None,
        start_s=start,
        end_s=max(start, seconds(value.get("end_time"))),
        span=run,
        bare=read.bare,
    )


def _reply(outputs: JsonValue) -> ParsedReply | None:
    output = decoded(outputs)
    if output is None or output == {}:
        return None
    if isinstance(output, dict) and list(output) == ["output"]:
        return reply(output["output"])
    return reply(output, is_json=True)


def _episode(value: Mapping[str, JsonValue]) -> str:
    """The trace; where it is left out, the root of the dotted order ends with its id."""
    trace = text_of(value.get("trace_id"))
    if trace is None and (order := text_of(value.get("dotted_order"))) is not None:
        trace = order.split(".", 1)[0].partition("Z")[2]
    return trace or ""


_KINDS = frozenset(
    {
        *("SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING"),
        "GUARDRAIL",
    }
)
_PREFIXES = ("running tool: ", "execute_tool ")


def is_observation(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is an observation."""
    return value.get("type") in _KINDS and ("traceId" in value or "parentObservationId" in value)


def read_observation(record: TraceRecord) -> Iterator[Item]:
    """Give what one observation says."""
    value = record.value
    trace = text_of(value.get("traceId"))
    metadata = decoded(value.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    if trace is None:
        yield UnreadableLine(record.line, f"observation {value.get('id')}: without a traceId")
    elif own_spans.is_own(attributes := _attributes(metadata)):
        if value["type"] == "TOOL" or own_spans.TRANSITION in attributes:
            named = f"observation {value.get('id')}"
            yield own_spans.read_kept_elsewhere(
                record.line, named, attributes, value.get("input"), value.get("output")
            )
        else:
            yield Passed("observation")
    elif value["type"] == "GENERATION":
        yield SeenTurn(record.line, trace, seconds(value.get("endTime")))
    elif (name := _tool(value, metadata)) is not None:
        yield _observed_call(record, trace, name, metadata)
    else:
        yield Passed("observation")


def _attributes(metadata: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    attributes = decoded(metadata.get("attributes"))
    return attributes if isinstance(attributes, dict) else {}


def _tool(value: Mapping[str, JsonValue], metadata: Mapping[str, JsonValue]) -> str | None:
    """The name of the tool that ran, or None."""
    attributes = _attributes(metadata)
    named = text_of(attributes.get("gen_ai.tool.name")) or text_of(attributes.get("tool.name"))
    own = text_of(value.get("name"))
    for prefix in _PREFIXES:
        own = own.removeprefix(prefix) if own else own
    if value["type"] == "TOOL" or named is not None:
        return named or own
    if metadata.get("langgraph_node") == "tools":
        message = tool_message(decoded(value.get("output")))
        return (text_of(message.get("name")) or own) if message is not None else None
    return None


def _observed_call(record: TraceRecord, trace: str, name: str, metadata: Mapping[str, JsonValue]) -> SeenCall:
    value = record.value
    attributes = _attributes(metadata)
    read = arguments(value.get("input"))
    output = value.get("output")
    result = None if output is None else reply(_unquoted(output), is_json=True)
    failed = value.get("level") == "ERROR"
    error = (text_of(value.get("statusMessage")) or "the tool failed") if failed else None
    start = seconds(value.get("startTime"))
    ids = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool.id")
    return SeenCall(
        line=record.line,
        episode=trace,
        tool=name,
        args=read.args,
        answer=answer(result, error=error),
        call_id=next((text for key in ids if (text := text_of(attributes.get(key)))), None)
        or (result.call_id if result else None),
        node=text_of(metadata.get("langgraph_node")),
        start_s=start,
        end_s=max(start, seconds(value.get("endTime"))),
        span=str(value.get("id") or ""),
        bare=read.bare,
    )


def _unquoted(output: JsonValue) -> JsonValue:
    """Text that was written as JSON, with its quotes, as the text it is."""
    if isinstance(output, str) and len(output) > 1 and output[0] == output[-1] == '"':
        quoted = decoded(f"[{output}]")
        if isinstance(quoted, list) and len(quoted) == 1 and isinstance(quoted[0], str):
            return quoted[0]
    return output
