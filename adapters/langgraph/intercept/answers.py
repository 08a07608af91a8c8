"""Answers in the framework's own form, and back.

A tool's return value is kept as what the agent will see of it: JSON where it is JSON, else the text
that the framework makes of it. State updates (`Command`) and messages are encoded without pickle and
decoded into the four message classes that a tool may return, nothing else.
"""

import ast
import base64
import builtins
import contextlib
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langgraph.types import Command, Send

from dreamgym_kit.serialization import MARKS, escaped, to_json
from dreamgym_kit.types import Answer, Source

_MAX_DEPTH = 8
_MESSAGES: dict[str, type[BaseMessage]] = {
    "ai": AIMessage,
    "human": HumanMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}


_SIMPLE = frozenset({str, int, bool, type(None)})  # most answers: not worth a look at their classes


class RecordedFailure(Exception):
    """A failure that a real tool once raised, with a class that is not ours to make again."""


def encode_answer(tool: BaseTool | None, value: Any) -> Answer:
    """A real tool's return value as an answer; keys and passwords are in it until the session keeps it."""
    artifact = None
    if tool is not None and tool.response_format == "content_and_artifact" and isinstance(value, tuple):
        value, artifact = value if len(value) == 2 else (value, None)
    if type(value) not in _SIMPLE and isinstance(value, Command):
        return Answer(update=_encode_command(value), source=Source.REAL)
    content = value if type(value) is str else _encode(value)
    return Answer(content=content, artifact=_encode(artifact), source=Source.REAL)


def encode_failure(error: BaseException) -> Answer:
    """A real tool's failure as an answer to be kept."""
    detail = getattr(error, "tool_content", None)  # an MCP server's own words, beside their summary
    content = _encode(detail) if isinstance(detail, list) else None
    kind = _kind_of(error)
    return Answer(content=content, error=str(error), error_type=kind, source=Source.REAL)


def _kind_of(error: BaseException) -> str:
    """The nearest class that can be raised again: what handlers in the agent go by, not the exact name."""
    for kind in type(error).__mro__:
        if kind is ToolException:
            return "ToolException"
        if kind.__module__ == "builtins" and kind not in (Exception, BaseException, object):
            return kind.__name__
    return type(error).__name__


def deliver(tool: BaseTool | None, answer: Answer, call_id: str | None) -> Any:
    """Give an answer back as the tool's return value.

    Raises:
        Exception: the failure that the answer tells of, as the tool would have raised it.
    """
    if answer.error is not None:
        raise as_of_tool(_mcp_failure(tool, answer) or failure(answer))
    if answer.update is not None:
        return _decode_command(answer.update, call_id)
    content = _decode(answer.content, call_id)
    if tool is not None and tool.response_format == "content_and_artifact":
        return content, _decode(answer.artifact, call_id)
    return content


def as_of_tool(error: Exception) -> Exception:
    """Mark a failure as a tool's: of the agent's model, the same class would mean something else."""
    with contextlib.suppress(AttributeError, TypeError):  # a class without room for it
        error._dreamgym_of_tool = True  # type: ignore[attr-defined]
    return error


def is_of_tool(error: BaseException) -> bool:
    """Whether a tool failed with this, in a dream or for real."""
    return getattr(error, "_dreamgym_of_tool", False) is True


def _mcp_failure(tool: BaseTool | None, answer: Answer) -> Exception | None:
    """The MCP adapter's own failure for its own tools: their error handler knows no other."""
    handler = tool.handle_tool_error if tool is not None else None
    module = getattr(handler, "__module__", "") if callable(handler) else ""
    if module not in ("langchain_mcp_adapters.tools", "langchain.mcp.tools"):
        return None
    kind = getattr(sys.modules[module], "_MCPToolExecutionError", None)
    if kind is None or (answer.error_type or "ToolException") != "ToolException":
        return None
    blocks = _decode(answer.content, None) if isinstance(answer.content, list) else None
    made: Exception = kind(blocks or [{"type": "text", "text": answer.error}])
    return made


def failure(answer: Answer) -> Exception:
    """The exception that an answer tells of: ToolException, a built-in one, or `RecordedFailure`."""
    name = answer.error_type or "ToolException"
    if name == "ToolException":
        return ToolException(answer.error)
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
        with contextlib.suppress(TypeError, ValueError):
            made: Exception = kind(*_arguments_of(kind, answer.error or ""))
            return made if str(made) == answer.error else _saying(kind, answer.error)
    named: type[Exception] = type(name, (RecordedFailure,), {}) if name.isidentifier() else RecordedFailure
    return named(answer.error)


def _arguments_of(kind: type[Exception], text: str) -> tuple[Any, ...]:
    """What a failure was made of, where its text is made from that: handlers may show either."""
    if kind is KeyError:
        # the last two: signs or brackets without end
        with contextlib.suppress(TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
            return (ast.literal_eval(text),)
        return (text,)
    system = (
        re.fullmatch(r"\[Errno (\d+)\] (.*?)(?:: '([^']*)')?", text) if issubclass(kind, OSError) else None
    )
    if system is None:
        return (text,)
    number, text, path = system.groups()
    return (int(number), text) if path is None else (int(number), text, path)


def _saying(kind: type[Exception], text: str | None) -> Exception:
    """A failure of this kind whose text is exactly `text`."""
    exact: type[Exception] = type(kind.__name__, (kind,), {"__str__": lambda _: text})
    return exact(text)


def _encode(value: Any) -> Any:
    if type(value) in _SIMPLE:
        return to_json(value)
    if isinstance(value, BaseMessage):
        return _encode_message(value)
    if isinstance(value, list) and any(isinstance(item, (BaseMessage, Command)) for item in value):
        return {"$list": [_encode(item) for item in value]}
    if isinstance(value, Command):
        return {"$command": _encode_command(value)}
    if value is None or isinstance(value, (str, bool, int, bytes)):
        return to_json(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return _encode_value(value) if _holds_message(value) else to_json(_text_of(value))
    plain = to_json(value)
    if isinstance(plain, list) and '"lc_' in text:
        plain = [_without_random_id(block) for block in plain]
    return escaped(plain) if '"$' in text else plain


def _holds_message(value: Any, depth: int = 0) -> bool:
    """Whether a message is somewhere in what a node or function gives back."""
    if isinstance(value, BaseMessage):
        return True
    items = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    )
    return depth < _MAX_DEPTH and any(_holds_message(item, depth + 1) for item in items)


def _without_random_id(block: Any) -> Any:
    """A content block without the id that LangChain made up for it: another one each time."""
    if isinstance(block, dict) and "type" in block and str(block.get("id", "")).startswith("lc_"):
        return {key: item for key, item in block.items() if key != "id"}
    return block


def _text_of(value: Any) -> str:
    """What the framework makes of a value that is no JSON: NaN inside it, a foreign class."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _encode_message(message: BaseMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": message.type, "content": to_json(message.content)}
    if message.name:
        fields["name"] = message.name
    if isinstance(message, ToolMessage):
        fields["status"] = message.status
        if message.artifact is not None:
            fields["artifact"] = _encode(message.artifact)
    if isinstance(message, AIMessage) and message.tool_calls:
        fields["tool_calls"] = to_json(message.tool_calls)
    return {"$message": fields}


def _encode_command(command: Command[Any]) -> dict[str, Any]:
    update = command.update
    encoded: dict[str, Any] = {}
    if isinstance(update, Mapping):
        encoded["update"] = {str(key): _encode_value(item) for key, item in update.items()}
    elif update is not None:
        encoded["update"] = _encode_value(update)
    if command.goto:
        encoded["goto"] = _encode_goto(command.goto)
    if command.graph is not None:
        encoded["graph"] = command.graph
    if command.resume is not None:
        encoded["resume"] = to_json(command.resume)
    return encoded


def _encode_value(value: Any) -> Any:
    """A state value: messages inside lists and objects keep being messages."""
    if isinstance(value, BaseMessage):
        return _encode_message(value)
    if isinstance(value, (list, tuple)):
        return [_encode_value(item) for item in value]
    if isinstance(value, Mapping):
        entries = {str(key): _encode_value(item) for key, item in value.items()}
        return {"$literal": entries} if len(entries) == 1 and not MARKS.isdisjoint(entries) else entries
    return to_json(value)


def _encode_goto(goto: Any) -> Any:
    if isinstance(goto, str):
        return goto
    if isinstance(goto, Send):
        return {"$send": [goto.node, _encode_value(goto.arg)]}
    return [_encode_goto(item) for item in goto]


def _decode(value: Any, call_id: str | None) -> Any:
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, Mapping):
        if set(value) == {"$message"}:
            return _decode_message(value["$message"], call_id)
        if set(value) == {"$command"}:
            return _decode_command(value["$command"], call_id)
        if set(value) == {"$list"}:
            return [_decode(item, call_id) for item in value["$list"]]
        if set(value) == {"$bytes"}:
            return base64.b64decode(value["$bytes"])
        if set(value) == {"$literal"}:
            return {key: _decode(item, call_id) for key, item in value["$literal"].items()}
        return {key: _decode(item, call_id) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item, call_id) for item in value]
    return value


def _decode_message(record: Mapping[str, Any], call_id: str | None) -> BaseMessage:
    kind = _MESSAGES.get(str(record.get("type")), HumanMessage)
    fields: dict[str, Any] = {"content": record.get("content", "")}
    if record.get("name"):
        fields["name"] = record["name"]
    if kind is ToolMessage:
        fields["tool_call_id"] = call_id or ""
        fields["status"] = record.get("status", "success")
        fields["artifact"] = _decode(record.get("artifact"), call_id)
    if kind is AIMessage and record.get("tool_calls"):
        fields["tool_calls"] = record["tool_calls"]
    return kind(**fields)


def _decode_command(record: Mapping[str, Any], call_id: str | None) -> Command[Any]:
    fields: dict[str, Any] = {}
    if "update" in record:
        fields["update"] = _decode(record["update"], call_id)
    if "goto" in record:
        fields["goto"] = _decode_goto(record["goto"], call_id)
    if record.get("graph") is not None:
        fields["graph"] = record["graph"]
    if record.get("resume") is not None:
        fields["resume"] = record["resume"]
    return Command(**fields)


def _decode_goto(goto: Any, call_id: str | None) -> Any:
    if isinstance(goto, str):
        return goto
    if isinstance(goto, Mapping):
        node, arg = goto["$send"]
        return Send(node, _decode(arg, call_id))
    return [_decode_goto(item, call_id) for item in goto]
