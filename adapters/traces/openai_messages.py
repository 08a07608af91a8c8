"""Conversations as messages: OpenAI chat requests, Responses items, LangChain and Anthropic messages.

`said_in` reads one list, message by message, whatever the dialect of each. A record is a conversation when
it has `messages`, or a request and its `response.output`. The tools beside it give descriptions.
"""

from collections.abc import Iterator, Mapping, Sequence

from dreamgym_kit.adapters.traces.conversation import Asked, Said, Told, Unclear, joined
from dreamgym_kit.adapters.traces.seen import Item, Passed, Record
from dreamgym_kit.adapters.traces.values import Reply, decoded, reply, text_of
from dreamgym_kit.canonical import digest
from dreamgym_kit.plain import JsonValue

_ANSWERS = frozenset({"tool", "function"})


def is_conversation(value: Mapping[str, JsonValue]) -> bool:
    """Whether a record is of this form."""
    return isinstance(value.get("messages"), list) or _responses(value) is not None


def read_conversation(record: Record) -> Iterator[Item]:
    """Give the calls of one conversation."""
    value = record.value
    messages: list[JsonValue] = value.get("messages") or []
    tools: JsonValue = value.get("tools")
    if (responses := _responses(value)) is not None:
        asked_with = value.get("responses_create_params") or {}
        before = asked_with.get("input") if isinstance(asked_with, dict) else None
        messages = [*(before if isinstance(before, list) else []), *responses]
        tools = asked_with.get("tools") if isinstance(asked_with, dict) else tools
    yield from read_messages(record, messages, tools)


def read_messages(record: Record, messages: Sequence[JsonValue], tools: JsonValue) -> Iterator[Item]:
    """Give the calls of a list of messages that stands in a record."""
    found = False
    for item in joined(
        said_in(messages),
        episode=episode_of(record.value),
        line=record.line,
        descriptions=descriptions_in(tools),
    ):
        found = True
        yield item
    if not found:
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
    found: dict[str, str] = {}
    listed = decoded(tools)
    for tool in listed if isinstance(listed, list) else []:
        spec = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(spec, dict) and isinstance(spec.get("name"), str):
            found[spec["name"]] = text_of(spec.get("description")) or ""
    return found


def said_in(messages: Sequence[JsonValue]) -> Iterator[Said]:
    """What a list of messages or Responses items says, in order."""
    turn, told = 0, True
    for message in messages:
        if not isinstance(message, dict):
            yield Unclear("a message that is no object")
            continue
        if message.get("type") == "function_call":  # items: calls of one turn stand side by side
            turn += told
            told = False
            yield _asked(turn, message, message.get("call_id"))
        elif message.get("type") == "function_call_output":
            told = True
            yield Told(reply(message.get("output")), text_of(message.get("call_id")))
        else:
            told = True
            turn += 1
            yield from _message(turn, message)


def _message(turn: int, message: Mapping[str, JsonValue]) -> Iterator[Said]:
    role = message.get("role") or message.get("type")
    if role in _ANSWERS:
        yield _told(message)
        return
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        spec = call.get("function", call) if isinstance(call, dict) else None
        yield _asked(turn, spec, call.get("id") if isinstance(call, dict) else None)
    if isinstance(message.get("function_call"), dict):
        yield _asked(turn, message["function_call"], None)
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use" and not calls:
            yield _asked(turn, block, block.get("id"))
        elif kind == "tool_result":
            yield _result_block(block)


def _asked(turn: int, spec: JsonValue, call_id: JsonValue) -> Said:
    name = spec.get("name") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(name, str) or not name:
        return Unclear("a call without a tool's name")
    args = next((spec[key] for key in ("arguments", "args", "input") if key in spec), None)
    return Asked(turn, name, args, text_of(call_id))


def _told(message: Mapping[str, JsonValue]) -> Told:
    content = message.get("content")
    found = reply(
        {**message, "tool_call_id": message.get("tool_call_id"), "content": content}
    )  # status "error" is LangChain's
    return Told(found, text_of(message.get("tool_call_id")), text_of(message.get("name")))


def _result_block(block: Mapping[str, JsonValue]) -> Told:
    failed = block.get("is_error") is True
    found = reply(
        {"content": block.get("content"), "tool_call_id": "", "status": "error" if failed else None}
    )
    return Told(Reply(found.content, found.error), text_of(block.get("tool_use_id")))


def _responses(value: Mapping[str, JsonValue]) -> list[JsonValue] | None:
    response = value.get("response")
    output = response.get("output") if isinstance(response, dict) else value.get("output")
    kinds = (
        {item.get("type") for item in output if isinstance(item, dict)} if isinstance(output, list) else {}
    )
    known = {"function_call", "function_call_output", "message", "reasoning"}
    return output if isinstance(output, list) and known & set(kinds) else None
