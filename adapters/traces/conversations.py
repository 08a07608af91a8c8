"""Conversations as messages or rows of training sets: OpenAI, Responses, LangChain, Anthropic, TRL, ShareGPT.

A record is a conversation if it has `messages`, a request and its `response.output`, TRL's prompt and
completion, ShareGPT's from and value, or steps of text (ReAct). Text steps become calls of one tool,
`take_action`; thoughts are counted, not imported. The record's tool schemas give descriptions.

Calls and answers are joined by ID if possible, else by name and order. IDs are unreliable: some recorders
give all calls of a conversation one ID, some answers have none. An answer goes to the oldest open call of
its ID in the latest turn with calls, then to older turns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dreamgym_kit.adapters.traces.seen import (
    Item,
    ParsedReply,
    Passed,
    SeenCall,
    TraceRecord,
    answer,
    arguments,
    decoded,
    reply,
    text_of,
)
from dreamgym_kit.canonical import digest
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue, escaped
from dreamgym_kit.types import Answer


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call requested by the model."""

    turn: int
    tool: str
    args: JsonValue
    call_id: str | None = None


Part = CallRequest | ParsedReply | str
"""A call, an answer, or why a part of a conversation is neither."""


def joined(items: Iterable[Part], record: TraceRecord, descriptions: Mapping[str, str]) -> list[Item]:
    """Return answers without a call, then every call with its answer, in order of request."""
    calls: list[CallRequest] = []
    open_calls: list[int] = []
    answers: dict[int, ParsedReply] = {}
    items_read: list[Item] = []
    for item in items:
        if isinstance(item, CallRequest):
            open_calls.append(len(calls))
            calls.append(item)
        elif isinstance(item, str):
            items_read.append(UnreadableLine(record.line, item))
        elif (place := _find(item, calls, open_calls)) is None:
            why = f"an answer{_named(item)} without a call in this conversation"
            items_read.append(UnreadableLine(record.line, why))
        else:
            open_calls.remove(place)
            answers[place] = item
    episode = episode_of(record.value)
    for place, call in enumerate(calls):
        read = arguments(call.args)
        items_read.append(
            SeenCall(
                line=record.line,
                episode=episode,
                tool=call.tool,
                args=read.args,
                answer=answer(answers.get(place)),
                call_id=call.call_id,
                description=descriptions.get(call.tool, ""),
                turn=call.turn,
                bare=read.bare,
            )
        )
    return items_read


def _find(result: ParsedReply, calls: list[CallRequest], open_calls: list[int]) -> int | None:
    """Return the index of an answer's open call."""
    if result.call_id is not None:
        fitting = [place for place in open_calls if calls[place].call_id == result.call_id]
    else:
        fitting = [place for place in open_calls if result.tool in (None, calls[place].tool)]
    if not fitting:
        return None
    latest = calls[fitting[-1]].turn
    return next(place for place in fitting if calls[place].turn == latest)


def _named(result: ParsedReply) -> str:
    return f" of {result.tool}" if result.tool else f" ({result.call_id})" if result.call_id else ""


def is_conversation(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a conversation."""
    return isinstance(value.get("messages"), list) or _responses(value) is not None


def read_conversation(record: TraceRecord) -> Iterator[Item]:
    """Yield the calls of one conversation."""
    value = record.value
    messages: list[JsonValue] = value.get("messages") or []
    tools: JsonValue = value.get("tools")
    if (responses := _responses(value)) is not None:
        request = value.get("responses_create_params") or {}
        messages = responses
        if isinstance(request, dict):
            before = request.get("input")
            messages = [*(before if isinstance(before, list) else []), *responses]
            tools = request.get("tools")
    yield from _calls_of(record, items_in(messages), tools)


def _calls_of(record: TraceRecord, items: Iterable[Part], tools: JsonValue) -> Iterator[Item]:
    """Yield the calls of a record's conversation."""
    yield from joined(items, record, descriptions_in(tools)) or [Passed("conversation without calls")]


def episode_of(value: Mapping[str, JsonValue]) -> str:
    """Return the conversation's ID, or a digest of its content, so that a repeated import is equal."""
    for key in ("trace_id", "conversation_id", "episode_id", "id"):
        name = value.get(key)
        if isinstance(name, (str, int)) and not isinstance(name, bool) and name != "":
            return str(name)
    return f"conversation-{digest(value)[:20]}"


def descriptions_in(tools: JsonValue) -> dict[str, str]:
    """Return tool descriptions by name, from a list of tool schemas or its JSON text."""
    descriptions: dict[str, str] = {}
    listed = decoded(tools)
    for tool in listed if isinstance(listed, list) else []:
        spec = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(spec, dict) and isinstance(spec.get("name"), str):
            descriptions[spec["name"]] = text_of(spec.get("description")) or ""
    return descriptions


def items_in(messages: Sequence[JsonValue]) -> Iterator[Part]:
    """Yield the calls and answers in a list of messages or Responses items."""
    turn, answered = 0, True
    for message in messages:
        if not isinstance(message, dict):
            yield "a message that is not an object"
            continue
        if message.get("type") == "function_call":  # items: calls of one turn are adjacent
            turn += answered
            answered = False
            yield _call(turn, message, message.get("call_id"))
        elif message.get("type") == "function_call_output":
            answered = True
            yield _reply(message.get("output"), message.get("call_id"))
        else:
            answered = True
            turn += 1
            yield from _message(turn, message)


def _message(turn: int, message: Mapping[str, JsonValue]) -> Iterator[Part]:
    role = message.get("role") or message.get("type")
    if role in ("tool", "function"):
        fields = {"tool_call_id": None, "content": None, **message}  # status "error" is LangChain's
        yield _reply(fields, message.get("tool_call_id"), message.get("name"))
        return
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        spec = call.get("function", call) if isinstance(call, dict) else None
        yield _call(turn, spec, call.get("id") if isinstance(call, dict) else None)
    if isinstance(message.get("function_call"), dict):
        yield _call(turn, message["function_call"], None)
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use" and not calls:
            yield _call(turn, block, block.get("id"))
        elif kind == "tool_result":
            status = "error" if block.get("is_error") is True else None
            result = {"content": block.get("content"), "tool_call_id": "", "status": status}
            yield _reply(result, block.get("tool_use_id"))


def _call(turn: int, spec: JsonValue, call_id: JsonValue) -> Part:
    name = spec.get("name") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(name, str) or not name:
        return "a call without a tool's name"
    args = next((spec[key] for key in ("arguments", "args", "input") if key in spec), None)
    return CallRequest(turn, name, args, text_of(call_id))


def _reply(value: JsonValue, call_id: JsonValue = None, tool: JsonValue = None) -> ParsedReply:
    return replace(reply(value), call_id=text_of(call_id), tool=text_of(tool))


def _responses(value: Mapping[str, JsonValue]) -> list[JsonValue] | None:
    response = value.get("response")
    output = response.get("output") if isinstance(response, dict) else value.get("output")
    item_types = ("function_call", "function_call_output", "message", "reasoning")
    items = output if isinstance(output, list) else []
    return items if any(isinstance(item, dict) and item.get("type") in item_types for item in items) else None


STEP_TOOL = "take_action"
_SHAREGPT_CALLS = ("function_call", "tool_call")
_SHAREGPT_ANSWERS = ("observation", "tool", "function_response")


def is_row(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a training set's row."""
    return (
        isinstance(value.get("conversations"), list)
        or (isinstance(value.get("prompt"), list) and isinstance(value.get("completion"), list))
        or _steps(value) is not None
    )


def read_row(record: TraceRecord) -> Iterator[Item]:
    """Yield the calls of one row."""
    value = record.value
    if isinstance(value.get("conversations"), list):
        yield from _calls_of(record, _sharegpt_items(value["conversations"]), value.get("tools"))
    elif (steps := _steps(value)) is not None:
        yield from _text_steps(record, steps)
    else:
        items = items_in([*value["prompt"], *value["completion"]])
        yield from _calls_of(record, items, value.get("tools"))


def _sharegpt_items(parts: list[JsonValue]) -> Iterator[Part]:
    turn, answered = 0, True
    for part in parts:
        sender = part.get("from") if isinstance(part, dict) else None
        if sender in _SHAREGPT_CALLS:
            turn += answered
            answered = False
            calls = decoded(part.get("value"))
            for call in calls if isinstance(calls, list) else [calls]:
                if isinstance(call, dict) and isinstance(call.get("name"), str):
                    yield CallRequest(turn, call["name"], call.get("arguments", call.get("parameters")))
                else:
                    yield "a function_call whose value is not a JSON object with a name"
        elif sender in _SHAREGPT_ANSWERS:
            answered = True
            yield _reply(part.get("value"))
        else:
            answered = True


def _steps(value: Mapping[str, JsonValue]) -> list[dict[str, Any]] | None:
    steps = value.get("steps")
    if not isinstance(steps, list) or not steps:
        return None
    return steps if all(isinstance(step, dict) and "action" in step for step in steps) else None


def _text_steps(record: TraceRecord, steps: list[dict[str, Any]]) -> Iterator[Item]:
    episode = episode_of(record.value)
    for number, step in enumerate(steps, start=1):
        action = step["action"]
        if not isinstance(action, str):
            yield UnreadableLine(record.line, f"step {number}: an action that is not text")
        elif action.lstrip().lower().startswith(("think:", "think[")):
            yield Passed("thought")
        else:
            seen = Answer(escaped(reply(step["observation"]).content)) if "observation" in step else None
            yield SeenCall(record.line, episode, STEP_TOOL, {"action": action}, seen, turn=number)
