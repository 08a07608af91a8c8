"""An episode's transcript in the form of OpenTelemetry's GenAI messages: roles, and parts by type.

https://github.com/open-telemetry/semantic-conventions-genai (gen-ai-input-messages.json, of output alike)
"""

from collections.abc import Iterable, Iterator, Mapping

from dreamgym_kit.plain import JsonValue

Message = Mapping[str, JsonValue]


def input_messages(messages: Iterable[Message]) -> list[JsonValue]:
    """Messages that a model or an agent was given."""
    return [{"role": _role(message), "parts": list(_parts(message))} for message in messages]


def output_message(message: Message) -> JsonValue:
    """A message that a model said."""
    reason = "tool_call" if message.get("tool_calls") else "stop"
    return {"role": _role(message), "parts": list(_parts(message)), "finish_reason": reason}


def _role(message: Message) -> str:
    return str(message.get("role", "user"))


def _parts(message: Message) -> Iterator[JsonValue]:
    content = message.get("content")
    if message.get("role") == "tool":
        yield {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}
        return
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if block not in (None, ""):
            yield _part(block)
    for call in message.get("tool_calls") or ():
        name, args = call.get("name"), call.get("args")
        yield {"type": "tool_call", "id": call.get("id"), "name": name, "arguments": args}


def _part(block: JsonValue) -> JsonValue:
    """Text as text; any other block as it is where it has a type, which the convention allows."""
    if isinstance(block, str):
        return {"type": "text", "content": block}
    if isinstance(block, Mapping) and block.get("type") == "text":
        return {"type": "text", "content": str(block.get("text", ""))}
    if isinstance(block, Mapping) and isinstance(block.get("type"), str):
        return dict(block)
    return {"type": "json", "content": block}
