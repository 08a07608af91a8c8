"""Langfuse observations, from its API or export: calls are of type TOOL, or spans that are one in fact.

LangGraph's integration writes tools as SPAN: the node is "tools", the output a ToolMessage. Others name the
tool in the attributes under `metadata`. Input and output are mostly JSON text.
"""

from collections.abc import Iterator, Mapping

from dreamgym_kit.adapters.traces import own_spans
from dreamgym_kit.adapters.traces.seen import Item, Passed, Record, SeenCall, SeenTurn, Unread
from dreamgym_kit.adapters.traces.values import (
    Reply,
    answer,
    arguments,
    decoded,
    reply,
    seconds,
    text_of,
    tool_message,
)
from dreamgym_kit.plain import JsonValue

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


def read_observation(record: Record) -> Iterator[Item]:
    """Give what one observation says."""
    value = record.value
    trace = text_of(value.get("traceId"))
    metadata = decoded(value.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    if trace is None:
        yield Unread(record.line, f"observation {value.get('id')}: without a traceId")
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
        yield _call(record, trace, name, metadata)
    else:
        yield Passed("observation")


def _attributes(metadata: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    found = decoded(metadata.get("attributes"))
    return found if isinstance(found, dict) else {}


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


def _call(record: Record, trace: str, name: str, metadata: Mapping[str, JsonValue]) -> SeenCall:
    value = record.value
    attributes = _attributes(metadata)
    read = arguments(value.get("input"))
    output = value.get("output")
    found = None if output is None else reply(_unquoted(output), is_json=True)
    failed = value.get("level") == "ERROR"
    error = (text_of(value.get("statusMessage")) or "the tool failed") if failed else None
    start = seconds(value.get("startTime"))
    ids = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool.id")
    return SeenCall(
        line=record.line,
        episode=trace,
        tool=name,
        args=read.args,
        answer=None if found is None and error is None else answer(found or Reply(None), error=error),
        call_id=next((one for key in ids if (one := text_of(attributes.get(key)))), None)
        or (found.call_id if found else None),
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
