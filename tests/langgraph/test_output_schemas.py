"""What tools declare of their answers, read without calling anything."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from each_row import each_row
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.types import Command
from pydantic import BaseModel

from dreamgym_kit.adapters.langgraph.intercept.object_effects import NOTHING, declared_answer


class OrderModel(BaseModel):
    id: str
    total: float = 0.0


class OrderDict(TypedDict):
    id: str


@dataclass
class OrderData:
    id: str


def a_model(x: str) -> OrderModel:
    """D."""


def a_typed_dict(x: str) -> OrderDict:
    """D."""


def rows(x: str) -> list[OrderDict]:
    """D."""


def a_dataclass(x: str) -> OrderData:
    """D."""


def text(x: str) -> str:
    """D."""


def annotated(x: str) -> Annotated[dict[str, int], "why"]:
    """D."""


def anything(x: str) -> Any:
    """D."""


def silent(x: str):
    """D."""


def commanding(x: str) -> Command | str:
    """D."""


def message(x: str) -> ToolMessage:
    """D."""


def unknown(x: str) -> "NotThere":  # noqa: F821
    """D."""


@each_row(
    ("body", "kind", "form"),
    [
        (a_model, "object", "text"),
        (a_typed_dict, "object", "value"),
        (rows, "array", "value"),
        (a_dataclass, "object", "text"),
        (text, "string", "value"),
        (annotated, "object", "value"),
    ],
)
def test_a_return_annotation_declares(body, kind: str, form: str) -> None:
    schema, found = declared_answer(tool(body))
    assert (schema["type"], found) == (kind, form)


@each_row("body", [anything, silent, commanding, message])
def test_what_says_nothing_declares_nothing(body) -> None:
    assert declared_answer(tool(body)) == NOTHING


def test_an_annotation_that_is_not_there_declares_nothing() -> None:
    named = StructuredTool(name="u", description="d", func=unknown, args_schema={"type": "object"})
    assert declared_answer(named) == NOTHING


def test_the_content_of_a_pair_is_what_counts() -> None:
    def pair(x: str) -> tuple[OrderDict, int]:
        """D."""

    assert declared_answer(tool(response_format="content_and_artifact")(pair))[0]["required"] == ["id"]


def test_a_tool_class_declares_by_its_run() -> None:
    class Look(BaseTool):
        name: str = "look"
        description: str = "d"

        def _run(self, x: str) -> OrderDict:
            return {"id": x}

    assert declared_answer(Look())[0]["required"] == ["id"]


def test_an_mcp_tool_declares_by_its_server() -> None:
    mcp = pytest.importorskip("mcp.types")
    tools = pytest.importorskip("langchain_mcp_adapters.tools")
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    served = mcp.Tool(name="look", inputSchema={"type": "object", "properties": {}}, outputSchema=schema)
    connection = {"transport": "stdio", "command": "none", "args": []}
    made = tools.convert_mcp_tool_to_langchain_tool(None, served, connection=connection)
    assert declared_answer(made) == (schema, "structured")
