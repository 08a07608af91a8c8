"""LangSmith runs, as its SDK posts them and its exports give them: one run a record, calls are `tool` runs.

A run may come in two parts of one id (begun, ended); the later part fills the earlier.
"""

from collections.abc import Iterator, Mapping

from dreamgym_kit.adapters.traces import own_spans
from dreamgym_kit.adapters.traces.seen import Item, Passed, Record, SeenCall, SeenTurn, Unread
from dreamgym_kit.adapters.traces.values import (
    Reply,
    answer,
    arguments,
    decoded,
    failure,
    reply,
    seconds,
    text_of,
)
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Transition


def is_run(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is a run."""
    return "run_type" in value and ("trace_id" in value or "dotted_order" in value or "id" in value)


class Runs:
    """Reads runs one by one; the calls are given at the end, when both parts of each are there."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[int, dict[str, JsonValue]]] = {}

    def read(self, record: Record) -> Iterator[Item]:
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
            yield _call(line, value)


def _call(line: int, value: Mapping[str, JsonValue]) -> SeenCall | Unread | Transition:
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
        return Unread(line, f"run {run}: a tool run without a {'trace' if name else 'name'}")
    read = arguments(value.get("inputs"))
    found = _reply(value.get("outputs"))
    failed = text_of(value.get("error"))
    error, kind = failure(failed) if failed else (None, None)
    start = seconds(value.get("start_time"))
    return SeenCall(
        line=line,
        episode=_episode(value),
        tool=name,
        args=read.args,
        answer=None
        if found is None and error is None
        else answer(found or Reply(None), error=error, error_type=kind),
        call_id=text_of(extra.get("tool_call_id")) or (found.call_id if found else None),
        node=text_of(metadata.get("langgraph_node")) if isinstance(metadata, dict) else None,
        start_s=start,
        end_s=max(start, seconds(value.get("end_time"))),
        span=run,
        bare=read.bare,
    )


def _reply(outputs: JsonValue) -> Reply | None:
    found = decoded(outputs)
    if found is None or found == {}:
        return None
    if isinstance(found, dict) and list(found) == ["output"]:
        return reply(found["output"])
    return reply(found, is_json=True)


def _episode(value: Mapping[str, JsonValue]) -> str:
    """The trace; where it is left out, the root of the dotted order ends with its id."""
    trace = text_of(value.get("trace_id"))
    if trace is None and (order := text_of(value.get("dotted_order"))) is not None:
        trace = order.split(".", 1)[0].partition("Z")[2]
    return trace or ""
