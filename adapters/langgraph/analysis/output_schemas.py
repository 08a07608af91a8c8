"""What a LangChain tool says of its answers: its return annotation, or its MCP server's output schema.

Reads objects, calls nothing. What a tool returns is not always what the agent sees: a dictionary is shown
as JSON, a pydantic model or a dataclass as the text that Python makes of it. What cannot be told is left
empty; recordings then say what answers look like.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from pydantic import BaseModel, TypeAdapter

from dreamgym_kit.serialization import JsonValue, to_json

Declared = tuple[Mapping[str, JsonValue], str]
"""JSON schema and form, as `ToolSpec.answer_schema` and `answer_form` have them."""

NOTHING: Declared = ({}, "value")


def declared_answer(tool: BaseTool) -> Declared:
    """What a tool declares of its successful answers; nothing where it declares nothing that holds."""
    body = tool.__dict__.get("func") or tool.__dict__.get("coroutine")
    if body is None:
        body = type(tool)._run if "_run" in vars(type(tool)) else getattr(type(tool), "_arun", None)
    by_server = _of_server(body)
    if by_server is not None:
        return dict(to_json(by_server)), "structured"
    try:
        return _of_annotation(body, pair=tool.response_format == "content_and_artifact")
    except Exception:  # noqa: BLE001  annotations are the user's: names that are not there, foreign types
        return NOTHING


def _of_server(body: Any) -> Mapping[str, Any] | None:
    """The output schema of the MCP tool that the adapter's function holds in its closure."""
    for cell in getattr(body, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:
            continue
        for name in _OUTPUT_SCHEMAS & set(getattr(type(held), "model_fields", ())):
            schema = getattr(held, name)
            if isinstance(schema, Mapping):
                return schema
    return None


_OUTPUT_SCHEMAS = {"outputSchema", "output_schema"}  # of the MCP SDK 1.x, of 2.x


def _of_annotation(body: Callable[..., Any] | None, *, pair: bool) -> Declared:
    if body is None:
        return NOTHING
    annotation = typing.get_type_hints(inspect.unwrap(body), include_extras=True).get("return", Any)
    if pair:
        parts = typing.get_args(annotation)
        annotation = parts[0] if typing.get_origin(annotation) is tuple and len(parts) == 2 else Any
    kinds = list(_kinds(annotation))
    if annotation in (Any, None, type(None), object) or any(_is_the_frameworks(kind) for kind in kinds):
        return NOTHING
    schema = to_json(_schema(annotation))
    if not isinstance(schema, dict) or not schema:
        return NOTHING
    return schema, "text" if any(_is_shown_as_text(kind) for kind in kinds) else "value"


def _schema(annotation: Any) -> Any:
    """A JSON schema; pydantic reads `typing.TypedDict` from Python 3.12 on only."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _schema(parts[0])
    if typing.is_typeddict(annotation):
        fields = typing.get_type_hints(annotation)
        required = [name for name in fields if name in annotation.__required_keys__]
        properties = {name: _schema(kind) for name, kind in fields.items()}
        return {"type": "object", "properties": properties, "required": required}
    if origin is list and parts:
        return {"type": "array", "items": _schema(parts[0])}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(part) for part in parts]}
    return TypeAdapter(annotation).json_schema(mode="serialization")


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in typing.get_args(annotation):
        yield from _kinds(part)


def _is_the_frameworks(kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, (BaseMessage, Command))


def _is_shown_as_text(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind))
