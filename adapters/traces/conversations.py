"""Conversations as messages or rows of training sets: OpenAI, Responses, LangChain, Anthropic, TRL, ShareGPT.

A record is a conversation when it has `messages`, a request and its `response.output`, TRL's prompt and
completion, ShareGPT's from and value, or steps of text (ReAct). Those steps become calls of one tool,
`take_action`; a thought among them is no call, and is counted. The tools beside it give descriptions.

Calls and answers are joined by id where there is one, else by name and order. Ids are not to be trusted: some
recorders give all calls of a conversation one id, some answers have none. An answer goes to the oldest open
call of its id in the latest turn that asked, then to older turns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dreamgym_kit.adapters.traces.seen import Item, Passed, SeenCall, TraceRecord
from dreamgym_kit.adapters.traces.values import ParsedReply, answer, arguments, decoded, reply, text_of
from dreamgym_kit.canonical import digest
from dreamgym_kit.replay.transfer import UnreadableLine
from dreamgym_kit.serialization import JsonValue, escaped
from dreamgym_kit.types import Answer


@dataclass(frozen=True, slots=True)
class CallRequest:
    """The model asks for a call."""

    turn: int
    tool: str
    args: JsonValue
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallReply:
    """A tool's answer."""

    reply: ParsedReply
    call_id: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """A part of a conversation that looks like a call or an answer and is neither."""

    why: str


Said = CallRequest | CallReply | Unclear


def joined(
    items: Iterable[Said], *, episode: str, line: int, descriptions: Mapping[str, str]
) -> Iterator[SeenCall | UnreadableLine]:
    """Give every call with its answer, in the order asked, and every answer that has no call."""
    calls: list[CallRequest] = []
    open_calls: list[int] = []
    answers: dict[int, ParsedReply] = {}
    for item in items:
        if isinstance(item, CallRequest):
            open_calls.append(len(calls))
            calls.append(item)
        elif isinstance(item, CallReply):
            place = _find(item, calls, open_calls)
            if place is None:
                yield UnreadableLine(line, f"an answer{_named(item)} to no call in this conversation")
            else:
                open_calls.remove(place)
                answers[place] = item.reply
        else:
            yield UnreadableLine(line, item.why)
    for place, call in enumerate(calls):
        read = arguments(call.args)
        yield SeenCall(
            line=line,
            episode=episode,
            tool=call.tool,
            args=read.args,
            answer=answer(answers.get(place)),
            call_id=call.call_id,
            description=descriptions.get(call.tool, ""),
            turn=call.turn,
            bare=read.bare,
        )


def _find(result: CallReply, calls: list[CallRequest], open_calls: list[int]) -> int | None:
    """The open call that an answer belongs to."""
    if result.call_id is not None:
        fitting = [place for place in open_calls if calls[place].call_id == result.call_id]
    else:
        fitting = [place for place in open_calls if result.tool in (None, calls[place].tool)]
    if not fitting:
        return None
    latest = calls[fitting[-1]].turn
    return next(place for place in fitting if calls[place].turn == latest)


def _named(result: CallReply) -> str:
    return f" of {result.tool}" if result.tool else f" ({result.call_id})" if result.call_id else ""


_TOOL_ROLES = frozenset({"tool", "function"})


def is_conversation(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is of this form."""
    return isinstance(value.get("messages"), list) or _responses(value) is not None


def read_conversation(record: TraceRecord) -> Iterator[Item]:
    """Give the calls of one conversation."""
    value = record.value
    messages: list[JsonValue] = value.get("messages") or []
    tools: JsonValue = value.get("tools")
    if (responses := _responses(value)) is not None:
        asked_with = value.get("responses_create_params") or {}
        before = asked_with.get("input") if isinstance(asked_with, dict) else None
        messages = [*(before if isinstance(before, list) else []), *responses]
        tools = asked_with.get("tools") if isinstance(asked_with, dict) else tools
    yield from _calls_of(record, items_in(messages), tools)


def _calls_of(record: TraceRecord, items: Iterable[Said], tools: JsonValue) -> Iterator[Item]:
    """Give the calls of a conversation that stands in a record."""
    any_calls = False
    for item in joined(
        items,
        episode=episode_of(record.value),
        line=record.line,
        descriptions=descriptions_in(tools),
    ):
        any_calls = True
        yield item
    if not any_calls:
        yield Passed("conversation without calls")


def episode_of(value: Mapping[str, JsonValue]) -> str:
    """The conversation's own id, or one made of its content: importing twice gives the same."""
    for key in ("trace_id", "conversation_id", "episode_id", "id"):
        name = value.get(key)
        if isinstance(name, (str, int)) and not isinstance(name, bool) and name != "":
            return str(name)
    return f"conversation-{digest(value)[:20]}"


def descriptions_in(tools: JsonValue) -> dict[str, str]:
    """Tool descriptions by name, from a list of tool schemas or its JSON text."""
    descriptions: dict[str, str] = {}
    listed = decoded(tools)
    for tool in listed if isinstance(listed, list) else []:
        spec = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(spec, dict) and isinstance(spec.get("name"), str):
            descriptions[spec["name"]] = text_of(spec.get("description")) or ""
    return descriptions


def items_in(messages: Sequence[JsonValue]) -> Iterator[Said]:
    """What a list of messages or Responses items says, in order."""
    turn, answered = 0, True
    for message in messages:
        if not isinstance(message, dict):
            yield Unclear("a message that is no object")
            continue
        if message.get("type") == "function_call":  # items: calls of one turn stand side by side
            turn += answered
            answered = False
            yield _call(turn, message, message.get("call_id"))
        elif message.get("type") == "function_call_output":
            answered = True
            yield CallReply(reply(message.get("output")), text_of(message.get("call_id")))
        else:
            answered = True
            turn += 1
            yield from _message(turn, message)


def _message(turn: int, message: Mapping[str, JsonValue]) -> Iterator[Said]:
    role = message.get("role") or message.get("type")
    if role in _TOOL_ROLES:
        yield _tool_message(message)
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
            yield _result_block(block)


def _call(turn: int, spec: JsonValue, call_id: JsonValue) -> Said:
    name = spec.get("name") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(name, str) or not name:
        return Unclear("a call without a tool's name")
    args = next((spec[key] for key in ("arguments", "args", "input") if key in spec), None)
    return CallRequest(turn, name, args, text_of(call_id))


def _tool_message(message: Mapping[str, JsonValue]) -> CallReply:
    content = message.get("content")
    unwrapped = reply(
        {**message, "tool_call_id": message.get("tool_call_id"), "content": content}
    )  # status "error" is LangChain's
    return CallReply(unwrapped, text_of(message.get("tool_call_id")), text_of(message.get("name")))


def _result_block(block: Mapping[str, JsonValue]) -> CallReply:
    failed = block.get("is_error") is True
    unwrapped = reply(
        {"content": block.get("content"), "tool_call_id": "", "status": "error" if failed else None}
    )
    return CallReply(ParsedReply(unwrapped.content, unwrapped.error), text_of(block.get("tool_use_id")))


def _responses(value: Mapping[str, JsonValue]) -> list[JsonValue] | None:
    response = value.get("response")
    output = response.get("output") if isinstance(response, dict) else value.get("output")
    kinds = (
        {item.get("type") for item in output if isinstance(item, dict)} if isinstance(output, list) else {}
    )
    known = {"function_call", "function_call_output", "message", "reasoning"}
    return output if isinstance(output, list) and known & set(kinds) else None


STEP_TOOL = "take_action"
_SHAREGPT_CALLS = frozenset({"function_call", "tool_call"})
_SHAREGPT_ANSWERS = frozenset({"observation", "tool", "function_response"})


def is_row(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is of one of these forms."""
    return (
        isinstance(value.get("conversations"), list)
        or (isinstance(value.get("prompt"), list) and isinstance(value.get("completion"), list))
        or _steps(value) is not None
    )


def read_row(record: TraceRecord) -> Iterator[Item]:
    """Give the calls of one row."""
    value = record.value
    if isinstance(value.get("conversations"), list):
        yield from _calls_of(record, _sharegpt_items(value["conversations"]), value.get("tools"))
    elif (steps := _steps(value)) is not None:
        yield from _text_steps(record, steps)
    else:
        items = items_in([*value["prompt"], *value["completion"]])
        yield from _calls_of(record, items, value.get("tools"))


def _sharegpt_items(parts: list[JsonValue]) -> Iterator[Said]:
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
                    yield Unclear("a function_call whose value is no JSON object with a name")
        elif sender in _SHAREGPT_ANSWERS:
            answered = True
            yield CallReply(reply(part.get("value")))
        else:
            answered = True


def _steps(value: Mapping[str, JsonValue]) -> list[dict[str, Any]] | None:
    steps = value.get("steps")
    fits = (
        isinstance(steps, list)
        and steps
        and all(isinstance(step, dict) and "action" in step for step in steps)
    )
    return steps if fits else None


def _text_steps(record: TraceRecord, steps: list[dict[str, Any]]) -> Iterator[Item]:
    episode = episode_of(record.value)
    for number, step in enumerate(steps, start=1):
        action = step["action"]
        if not isinstance(action, str):
            yield UnreadableLine(record.line, f"step {number}: an action that is no text")
        elif action.lstrip().lower().startswith(("think:", "think[")):
            yield Passed("thought")
        else:
            seen = Answer(escaped(reply(step["observation"]).content)) if "observation" in step else None
            yield SeenCall(record.line, episode, STEP_TOOL, {"action": action}, seen, turn=number)
