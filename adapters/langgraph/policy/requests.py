"""What a graph asks of a chat model, whichever provider's, as a request to the policy.

At the model's leaf everything is spelled as its provider wants it: tools, the choice among them, a schema
for the answer. Here all of it becomes one form. What only a provider can do (its own tools, pictures) the
policy is not told of; what was left out is said.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from dreamgym_kit.canonical import canonical
from dreamgym_kit.chat import ChatMessage, ToolRequest
from dreamgym_kit.serialization import JsonValue, to_json

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool"}
_ANY_OBJECT: Mapping[str, JsonValue] = {"type": "object"}
_FORCED = frozenset({"any", "required"})
_THOUGHTS = frozenset({"thinking", "reasoning", "redacted_thinking", "reasoning_content"})
_CALLS = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "invalid_tool_call"})


@dataclass(frozen=True, slots=True)
class PolicyAsked:
    """One model call of a graph, free of its provider's spelling.

    Attributes:
        schema: of the whole answer, where one was asked for.
        parsed: the model's own class looks for the parsed answer beside the text.
        left_out: what the policy is not told of, in plain words.
        tools_named: digest of the tools.
        loose_tools: the same tools, none of them strict: whose arguments no grammar holds.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, JsonValue], ...] = ()
    tool_choice: str = "auto"
    parallel_calls: bool = True
    stop: tuple[str, ...] = ()
    schema: Mapping[str, JsonValue] | None = None
    schema_name: str = "answer"
    max_tokens: int | None = None
    parsed: bool = False
    left_out: tuple[str, ...] = ()
    tools_named: str = ""
    loose_tools: tuple[Mapping[str, JsonValue], ...] = ()


@dataclass(frozen=True, slots=True)
class _Offered:
    """Tools in one form."""

    tools: tuple[Mapping[str, JsonValue], ...] = ()
    loose: tuple[Mapping[str, JsonValue], ...] = ()
    left_out: tuple[str, ...] = ()
    named: str = ""


_OFFERED: dict[str, _Offered] = {}
"""By the text of what was bound: agents bind the same tools anew for each call of a model."""
_MAX_OFFERED = 256


def policy_prompt(
    messages: Sequence[BaseMessage],
    stop: Sequence[str] | None,
    kwargs: Mapping[str, Any],
    written: Mapping[str, ToolRequest],
) -> PolicyAsked:
    """Read a model call.

    Args:
        messages: the history, as the graph has it.
        stop: texts at which the answer ends.
        kwargs: everything else that reached the model's leaf.
        written: the policy's own earlier tool calls by id, as it wrote them: spelled again letter by
            letter, a later prompt goes on where the earlier answer ended.
    """
    offered, left_out = _offered(kwargs), list[str]()
    tools = offered.tools
    schema, name = _schema(kwargs)
    choice, parallel = _choice(kwargs, [_name(tool) for tool in tools])
    limit = kwargs.get("max_completion_tokens") or kwargs.get("max_tokens")
    return PolicyAsked(
        messages=chat_messages(messages, written, left_out),
        tools=tools,
        tool_choice=choice if tools else "auto",
        parallel_calls=parallel,
        stop=tuple(stop or ()),
        schema=schema,
        schema_name=name,
        max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        parsed=schema is not None and "response_format" in kwargs,
        left_out=tuple(dict.fromkeys((*offered.left_out, *left_out))),
        tools_named=offered.named,
        loose_tools=offered.loose,
    )


def chat_messages(
    messages: Sequence[BaseMessage], written: Mapping[str, ToolRequest], left_out: list[str]
) -> tuple[ChatMessage, ...]:
    """A history in the form of a chat; `left_out` is told what cannot be read."""
    names: dict[str, str] = {}
    chat = []
    for message in messages:
        calls = _requests(message, written) if isinstance(message, AIMessage) else ()
        names.update((call.id, call.name) for call in calls)
        call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
        chat.append(
            ChatMessage(
                role=_role(message),
                content=text_of(message.content, left_out),
                tool_calls=calls,
                call_id=call_id,
                name=message.name or names.get(call_id, ""),
            )
        )
    return tuple(chat)


def text_of(content: object, left_out: list[str]) -> str:
    """The text of a message's content: blocks follow each other, thoughts and calls are no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else canonical(to_json(content))
    return "".join(_block(block, left_out) for block in content)


def _block(block: object, left_out: list[str]) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return canonical(to_json(block))
    kind = str(block.get("type", ""))
    if isinstance(block.get("text"), str) and kind in ("text", "input_text", "output_text", ""):
        return str(block["text"])
    if kind in _THOUGHTS or kind in _CALLS:
        return ""
    if kind == "json" or not kind:
        return canonical(to_json(block.get("json", block)))
    left_out.append(f"content of the kind '{kind}'")
    return f"[{kind}]"


def _role(message: BaseMessage) -> str:
    if isinstance(message, FunctionMessage):
        return "tool"
    return _ROLES.get(message.type) or str(getattr(message, "role", None) or message.type)


def _requests(message: AIMessage, written: Mapping[str, ToolRequest]) -> tuple[ToolRequest, ...]:
    """The calls of an assistant, as the policy wrote them where it did and nobody changed them since."""
    calls = []
    for call in message.tool_calls:
        own = written.get(call["id"] or "")
        if own is not None and own.name == call["name"] and _parsed(own.args) == call["args"]:
            calls.append(own)
        else:
            calls.append(ToolRequest(call["name"], canonical(to_json(call["args"])), call["id"] or ""))
    for invalid in message.invalid_tool_calls:
        calls.append(ToolRequest(invalid["name"] or "", invalid["args"] or "", invalid["id"] or ""))
    older = message.additional_kwargs.get("function_call")
    if not calls and isinstance(older, Mapping) and older.get("name"):
        calls.append(ToolRequest(str(older["name"]), str(older.get("arguments") or "{}")))
    return tuple(calls)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _offered(kwargs: Mapping[str, Any]) -> _Offered:
    """Return the tools bound to the model, each in one form; cached for the same tools."""
    given: list[Any] = [*_listed(kwargs.get("tools")), *_listed(kwargs.get("functions"))]
    config = kwargs.get("toolConfig") or kwargs.get("tool_config")
    if isinstance(config, Mapping):
        given += _listed(config.get("tools"))  # Bedrock's Converse
    if not given:
        return _Offered()
    try:
        text = json.dumps(given)
    except (TypeError, ValueError, RecursionError):
        return _read(given)
    offered = _OFFERED.get(text)
    if offered is None:
        if len(_OFFERED) >= _MAX_OFFERED:
            _OFFERED.clear()
        offered = _OFFERED[text] = _read(given)
    return offered


def _read(given: Sequence[Any]) -> _Offered:
    tools: list[Mapping[str, JsonValue]] = []
    left_out: list[str] = []
    for entry in _declared(given):
        made = _tool(entry)
        if made is None:
            kind = entry.get("type") if isinstance(entry, Mapping) else type(entry).__name__
            left_out.append(f"the provider's own tool '{kind}'")
        else:
            tools.append(made)
    named = blake2b(repr(tools).encode("utf-8", "replace"), digest_size=12).hexdigest()
    return _Offered(tuple(tools), tuple(map(_loose, tools)), tuple(left_out), named)


def _declared(given: Iterable[Any]) -> Iterable[Any]:
    """Google puts functions into one tool, as dictionaries or as objects of its own."""
    for entry in given:
        inner = entry.get("function_declarations") if isinstance(entry, Mapping) else None
        inner = inner or getattr(entry, "function_declarations", None)
        yield from _listed(inner) if inner else [entry]


def _tool(entry: Any) -> Mapping[str, JsonValue] | None:
    """One tool in OpenAI's form; None where only its provider knows it."""
    if isinstance(entry, Mapping):
        entry = dict(entry)
        inner = entry.get("function")
        if entry.get("type") == "function" and isinstance(inner, Mapping):
            return {"type": "function", "function": to_json(_fields(inner))}
        if entry.get("type") == "function" and "name" in entry:  # the Responses form
            return {"type": "function", "function": to_json(_fields(entry))}
        if "name" in entry and "parameters_json_schema" in entry:
            entry["parameters"] = entry["parameters_json_schema"]
        if entry.get("type") not in (None, "function", "custom", "object") and "input_schema" not in entry:
            return None
    try:
        made = convert_to_openai_tool(entry)
    except (ValueError, TypeError):
        return None
    inner = made.get("function")
    return {"type": "function", "function": to_json(_fields(inner))} if isinstance(inner, Mapping) else None


def _fields(function: Mapping[str, Any]) -> dict[str, Any]:
    return {key: function[key] for key in ("name", "description", "parameters", "strict") if key in function}


def _loose(tool: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    inner = tool["function"]
    function = (
        {key: value for key, value in inner.items() if key != "strict"} if isinstance(inner, Mapping) else {}
    )
    return {**tool, "function": function}


def _name(tool: Mapping[str, JsonValue]) -> str:
    inner = tool["function"]
    return str(inner["name"]) if isinstance(inner, Mapping) else ""


def _choice(kwargs: Mapping[str, Any], names: Sequence[str]) -> tuple[str, bool]:
    """Which tool is to be called, and whether several may be, in any provider's words."""
    parallel = kwargs.get("parallel_tool_calls") is not False
    choice = kwargs.get("tool_choice", kwargs.get("function_call"))
    config = kwargs.get("tool_config") or kwargs.get("toolConfig")
    if choice is None and isinstance(config, Mapping):
        choice = config.get("function_calling_config") or config.get("toolChoice")
    if isinstance(choice, Mapping):
        parallel = parallel and not choice.get("disable_parallel_tool_use")
    return _chosen(choice, names), parallel


def _chosen(choice: Any, names: Sequence[str]) -> str:
    if choice is True:
        return names[0] if len(names) == 1 else "required"
    if isinstance(choice, str):
        word = choice if choice in names else choice.lower()
        if word in _FORCED:
            return "required"
        return word if word in names or word == "none" else "auto"
    if not isinstance(choice, Mapping):
        return "auto"
    allowed = choice.get("allowed_function_names")
    if isinstance(allowed, (list, tuple)) and len(allowed) == 1:
        return str(allowed[0])
    inner = choice.get("function") or choice.get("tool")
    named = (inner if isinstance(inner, Mapping) else choice).get("name")
    if named:
        return str(named)
    for word in (choice.get("type"), choice.get("mode"), *choice):  # Bedrock: {"any": {}}
        chosen = _chosen(word, ()) if isinstance(word, str) else "auto"
        if chosen != "auto":
            return chosen
    return "auto"


def _schema(kwargs: Mapping[str, Any]) -> tuple[Mapping[str, JsonValue] | None, str]:
    """The schema that the whole answer has to have, and its name."""
    requested = kwargs.get("response_format") or kwargs.get("output_format") or kwargs.get("format")
    config = kwargs.get("output_config") or kwargs.get("text")
    if requested is None and isinstance(config, Mapping):
        requested = config.get("format")
    if requested is None and kwargs.get("response_mime_type") == "application/json":
        requested = kwargs.get("response_json_schema") or kwargs.get("response_schema") or "json"
    if requested == "json":
        return _ANY_OBJECT, "answer"
    if isinstance(requested, Mapping):
        return _schema_in(requested)
    if isinstance(requested, type):
        schema = convert_to_openai_tool(requested)["function"]
        return to_json(schema["parameters"]), str(schema["name"])
    return None, "answer"


def _schema_in(requested: Mapping[str, Any]) -> tuple[Mapping[str, JsonValue] | None, str]:
    inner = requested.get("json_schema", requested)
    if requested.get("type") == "json_object":
        return to_json(requested.get("schema") or _ANY_OBJECT), "answer"
    if isinstance(inner, Mapping) and isinstance(inner.get("schema"), Mapping):
        return to_json(inner["schema"]), str(inner.get("name") or "answer")
    if requested.get("type") in ("object", "array") or "properties" in requested or "$ref" in requested:
        return to_json(requested), str(requested.get("title") or "answer")
    return None, "answer"


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]
