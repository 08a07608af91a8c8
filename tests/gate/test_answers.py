"""What a real tool answered comes back from a recording as the agent saw it."""

from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool, ToolException
from langgraph.types import Command, Send

from dreamgym_kit.adapters.langgraph.intercept.answers import deliver, encode_answer, encode_failure
from dreamgym_kit.canonical import canonical
from dreamgym_kit.types import Answer

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "$message", "$command", "$list", "$bytes", "$literal", "$cut"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=8,
)


def echo(value: Any, response_format: Any = "content") -> Any:
    """A tool that answers with `value`; gives its message for a real and for a replayed call."""
    given = {"type": "tool_call", "name": "t", "id": "c1", "args": {}}

    def said(answer: Any) -> Any:
        def body() -> Any:
            return answer

        return StructuredTool.from_function(
            body, name="t", description="d", response_format=response_format
        ).invoke(given)

    tool = StructuredTool.from_function(
        lambda: None, name="t", description="d", response_format=response_format
    )
    answer = encode_answer(tool, value)
    canonical([answer.content, answer.artifact, answer.update and dict(answer.update)])  # it can be stored
    return said(value), said(deliver(tool, answer, "c1"))


@given(plain)
def test_json_answers_come_back_equal(value: Any) -> None:
    assert deliver(None, encode_answer(None, value), None) == value


@each_row(
    "value",
    [
        "text",
        "",
        None,
        b"bytes\xff",
        (1, "two"),
        {1: "a"},
        {"x": float("nan")},
        [float("inf")],
        {"deep": {"set": {1}}},
        object,
        [{"type": "text", "text": "block"}],
        {"$message": {"type": "ai", "content": "data, not a message"}},
        {"$command": {"goto": "elsewhere"}},
    ],
    ids=repr,
)
def test_the_agent_reads_the_same_message(value: Any) -> None:
    real, replayed = echo(value)
    assert (replayed.content, replayed.artifact, replayed.status) == (
        real.content,
        real.artifact,
        real.status,
    )


def test_content_and_artifact_come_back_both() -> None:
    real, replayed = echo(("text", {"k": [1]}), "content_and_artifact")
    assert (replayed.content, replayed.artifact) == (real.content, real.artifact) == ("text", {"k": [1]})


def test_a_bare_answer_of_an_artifact_tool_gets_an_empty_artifact() -> None:
    tool = StructuredTool.from_function(
        lambda: None, name="t", description="d", response_format="content_and_artifact"
    )
    assert deliver(tool, encode_answer(None, "text"), None) == ("text", None)


def test_a_command_comes_back_with_the_call_id_of_the_new_call() -> None:
    command = Command(
        update={"city": "Riga", "messages": [ToolMessage("ok", tool_call_id="old")], "n": {"$message": 1}},
        goto=[Send("next", {"x": 1}), "end"],
        graph=Command.PARENT,
    )
    back = deliver(None, encode_answer(None, command), "new")
    assert isinstance(back, Command)
    assert back.update["city"] == "Riga"
    assert back.update["n"] == {"$message": 1}
    assert [(m.content, m.tool_call_id) for m in back.update["messages"]] == [("ok", "new")]
    assert back.goto == [Send("next", {"x": 1}), "end"]
    assert back.graph == Command.PARENT


def test_messages_in_a_list_stay_messages() -> None:
    told = [ToolMessage("a", tool_call_id="old", status="error", artifact={"k": 1}), AIMessage("b")]
    back = deliver(None, encode_answer(None, told), "new")
    assert [(type(m), m.content) for m in back] == [(ToolMessage, "a"), (AIMessage, "b")]
    assert (back[0].tool_call_id, back[0].status, back[0].artifact) == ("new", "error", {"k": 1})


class OrderGone(ToolException):
    pass


class Unheard(Exception):
    pass


@each_row(
    ("raised", "caught_as"),
    [
        (ToolException("gone"), ToolException),
        (OrderGone("gone"), ToolException),
        (ValueError("bad"), ValueError),
        (KeyError("o1"), KeyError),
        (TimeoutError("slow"), TimeoutError),
        (OSError(2, "No such file"), FileNotFoundError),
        (PermissionError(13, "Permission denied", "/etc/x"), PermissionError),
        (OSError("odd"), OSError),
        (ZeroDivisionError("division by zero"), ArithmeticError),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), Exception),
        (Unheard("what"), Exception),
        (StopIteration("end"), StopIteration),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_come_back_with_their_text_as_what_handlers_catch(
    raised: Exception, caught_as: type[Exception]
) -> None:
    with pytest.raises(caught_as) as back:
        deliver(None, encode_failure(raised), None)
    assert str(back.value) == str(raised)
    if type(raised).__module__ == "builtins" and not isinstance(raised, UnicodeError):
        assert repr(back.value) == repr(raised)  # what a ToolNode shows to the model


@each_row("name", ["SystemExit", "KeyboardInterrupt", "ExceptionGroup", "not a name", "print", ""])
def test_a_recording_cannot_make_anything_else_be_raised(name: str) -> None:
    from dreamgym_kit.types import Answer

    with pytest.raises(Exception, match="text") as back:
        deliver(None, Answer(error="text", error_type=name), None)
    assert isinstance(back.value, Exception)


def test_a_recorded_key_that_python_cannot_read_is_still_a_key_error() -> None:
    told = Answer(error="-" * 100_000 + "1", error_type="KeyError")
    with pytest.raises(KeyError) as caught:
        deliver(None, told, None)
    assert str(caught.value) == told.error
