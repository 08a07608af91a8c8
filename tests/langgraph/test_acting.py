"""What is read from code: which functions act on the world, and what tools declare of their answers."""

import io
import shutil
import smtplib
import socket
import urllib.parse
import urllib.request
from dataclasses import dataclass
from multiprocessing.pool import Pool, ThreadPool
from typing import Annotated, Any, TypedDict
from urllib.parse import quote

import httpx
import pytest
from each_row import each_row
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.types import Command
from pydantic import BaseModel

from dreamgym_kit.adapters.langgraph.analysis.side_effects import OPEN, OPENS, read
from dreamgym_kit.adapters.langgraph.intercept.object_effects import NOTHING, declared_answer


def quotes(state: Any) -> str:
    return quote(state) + urllib.parse.quote_plus(state)


def imports_to_quote(state: Any) -> str:
    from urllib.parse import urlsplit

    return str(urlsplit(state))


def catches(state: Any) -> Any:
    try:
        return state
    except (httpx.HTTPError, smtplib.SMTPException):
        return None


def opens(state: Any) -> Any:
    return urllib.request.urlopen(state)


def gets(state: Any) -> Any:
    return httpx.get(state)


def hands_on(state: Any) -> Any:
    return gets(state)


def makes_a_model(url: Any) -> Any:
    return ChatOpenAI(base_url=url, http_client=httpx.Client())


def makes_a_model_and_posts(url: Any) -> Any:
    return ChatOpenAI(base_url=httpx.Client().post(url).text)


HARMLESS = [quotes, imports_to_quote, catches, hands_on, makes_a_model, lambda _: ThreadPool(1).map(len, _)]


@each_row("function", HARMLESS)
def test_what_only_computes_or_catches_does_not_act(function: Any) -> None:
    assert read(function).acts is None


@each_row(
    ("function", "module"),
    [
        (opens, "urllib"),
        (gets, "httpx"),
        (makes_a_model_and_posts, "httpx"),
        (lambda _: Pool(1), "multiprocessing.pool"),
    ],
)
def test_what_names_a_client_acts(function: Any, module: str) -> None:
    assert read(function).acts == module


def test_what_a_function_hands_on_to_is_reached() -> None:
    assert [one.function for one in read(hands_on).reached] == [gets]  # type: ignore[arg-type]


def reads_a_file(path: Any) -> Any:
    with open("x") as file, path.open("r") as other:
        return file.read() + other.read() + path.read_text()


def writes_a_file(path: Any) -> Any:
    with open(str(path), mode="w", encoding="utf-8") as file:
        file.write("x")


def appends(path: Any) -> Any:
    path.open("a").write("x")


def writes_text(path: Any) -> Any:
    path.write_text("x")


@each_row("function", [writes_a_file, appends, writes_text])
def test_a_file_opened_for_writing_is_told_from_one_that_is_read(function: Any) -> None:
    assert read(function).acts == OPENS
    assert read(reads_a_file).acts is None  # type: ignore[arg-type]


TABLE: dict[str, list[Any]] = {"rows": []}


def grows_its_own(state: Any) -> Any:
    rows, count = list(state), len(state)
    seen = {}
    for row in TABLE["rows"]:
        rows.append(row)
        seen[row] = count
    again = rows
    again.extend([*state])
    return again, seen


def grows_what_it_was_handed(rows: Any) -> Any:
    rows.append(TABLE)


def grows_a_table(state: Any) -> Any:
    TABLE["rows"].append(state)


def grows_an_alias(state: Any) -> Any:
    rows = TABLE["rows"]
    rows.append(state)


def grows_one_of_two(state: Any) -> Any:
    rows = [] if state else TABLE["rows"]
    rows.append(state)


def grows_either(state: Any) -> Any:
    rows = []
    if state:
        rows = TABLE["rows"]
    rows.append(state)


def grows_each(state: Any) -> Any:
    for rows in TABLE.values():
        rows.append(state)


def grows_in_a_lambda(state: Any) -> Any:
    grow = lambda rows: rows.append(state)  # noqa: E731
    return list(map(grow, TABLE.values()))


def grows_an_inner(state: Any) -> Any:
    mine = dict(TABLE)
    mine["rows"].append(state)


def sets_an_entry(state: Any) -> Any:
    TABLE["more"] = state


def grows_by_the_class(state: Any) -> Any:
    dict.update(TABLE, state)


@each_row("function", [grows_its_own, grows_what_it_was_handed])
def test_a_list_that_a_function_made_or_was_handed_may_grow(function: Any) -> None:
    assert read(function).doubt is None


@each_row(
    "function",
    [
        grows_a_table,
        grows_an_alias,
        grows_one_of_two,
        grows_either,
        grows_each,
        grows_in_a_lambda,
        grows_an_inner,
        sets_an_entry,
        grows_by_the_class,
    ],
)
def test_one_that_outlives_the_call_may_not(function: Any) -> None:
    assert read(function).doubt == "state that outlives the call"


def reads_beside_a_word(path: Any, row: Any) -> Any:
    with open(path) as file:
        return file.read(), row["w"], "a"


def writes_by_a_choice(path: Any, new: Any) -> Any:
    return open(path, "w" if new else "r")


def writes_what_it_is_told(arguments: Any) -> Any:
    return open(*arguments, "w")


def test_only_a_mode_that_is_given_to_open_counts() -> None:
    assert read(reads_beside_a_word).acts is None  # type: ignore[arg-type]
    assert read(writes_by_a_choice).acts == OPENS  # type: ignore[arg-type]
    assert read(writes_what_it_is_told).acts == OPENS  # type: ignore[arg-type]


def asks_the_machine(name: Any) -> Any:
    return shutil.which(name), socket.gethostname(), httpx.URL(name)


def removes(path: Any) -> Any:
    shutil.rmtree(path)


def test_parts_of_acting_modules_that_only_compute_do_not_act() -> None:
    assert (read(asks_the_machine).acts, read(removes).acts) == (None, "shutil")  # type: ignore[arg-type]


class Unreadable:
    """A proxy that knows nothing about itself."""

    __name__ = property(lambda _: 1 / 0)
    __module__ = property(lambda _: 1 / 0)  # type: ignore[assignment]
    __class__ = property(lambda _: 1 / 0)  # type: ignore[assignment]


proxy = Unreadable()


def hands_to_a_proxy(state: Any) -> Any:
    return proxy(state)  # type: ignore[operator]


def test_code_that_names_what_cannot_be_read_is_not_known_to_only_compute() -> None:
    assert read(hands_to_a_proxy).doubt is not None  # type: ignore[arg-type]


class Tee(io.StringIO):
    """A user's own stream; where it writes to is not known."""

    asked = 0

    def writable(self) -> bool:
        Tee.asked += 1
        return False


tee, buffer = Tee(), io.StringIO()


def writes_to_a_tee(state: Any) -> Any:
    tee.write(state)


def writes_to_memory(state: Any) -> Any:
    buffer.write(state)


def test_a_users_own_stream_is_not_asked_whether_it_writes() -> None:
    assert read(writes_to_a_tee).acts == OPEN  # type: ignore[arg-type]
    assert (read(writes_to_memory).acts, Tee.asked) == (None, 0)  # type: ignore[arg-type]


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
