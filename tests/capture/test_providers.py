"""What providers' model classes hand to their leaf, and what the policy is asked instead."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from capture.policy_server_double import PolicyServerDouble, calls, says, scripted
from each_row import each_row
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel, Field
from shapes.stage import dream
from shapes.tools import add_tool

from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.adapters.langgraph.policy.capture import ModelPolicy, captured
from dreamgym_kit.chat import ChatRequest
from dreamgym_kit.routing.process import entered


@pytest.fixture(scope="module", autouse=True)
def gate() -> Any:
    install()
    yield
    uninstall()


def openai() -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-x", api_key="none")


def responses() -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-x", api_key="none", use_responses_api=True)


def anthropic() -> Any:
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model="claude-x", api_key="none")


def google() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langchain_google_genai import ChatGoogleGenerativeAI

        return ChatGoogleGenerativeAI(model="gemini-x", api_key="none")


PROVIDERS: dict[str, Callable[[], Any]] = {
    "openai": openai,
    "openai, responses": responses,
    "anthropic": anthropic,
    "google": google,
}


class Verdict(BaseModel):
    """A verdict on an order."""

    order: str = Field(description="which")
    fine: bool


def asked(runnable: Any, given: Any = "hi", *answers: Any, **options: Any) -> tuple[ChatRequest, Any]:
    """What the policy was asked in place of a runnable's model, and what that made of the answer."""
    server = PolicyServerDouble(scripted(*(answers or (says("done"),))))

    async def work() -> Any:
        session = dream(structured=frozenset({"Verdict"}))
        with captured(ModelPolicy(server=server, **options), session), entered(session):
            return await runnable.ainvoke(given)

    result = asyncio.run(work())
    return server.asked[-1], result


@each_row("provider", PROVIDERS)
def test_tools_come_in_one_form(provider: str) -> None:
    request, _ = asked(PROVIDERS[provider]().bind_tools([add_tool()]))
    (tool,) = request.tools
    assert tool["type"] == "function"
    inner: Any = tool["function"]
    assert inner["name"] == "add"
    assert inner["description"]
    assert sorted(inner["parameters"]["properties"]) == ["a", "b"]
    assert (request.tool_choice, request.exact) == ("auto", True)


CHOICES = [("any", "required"), ("auto", "auto"), ("add", "add"), ("none", "none")]


@each_row(("choice", "means"), CHOICES)
@each_row("provider", PROVIDERS)
def test_the_choice_among_tools_means_the_same(provider: str, choice: str, means: str) -> None:
    if (provider, choice) == ("anthropic", "none"):
        choice = {"type": "none"}  # type: ignore[assignment]
    request, _ = asked(PROVIDERS[provider]().bind_tools([add_tool()], tool_choice=choice))
    assert request.tool_choice == means


@each_row("provider", PROVIDERS)
def test_without_a_grammar_nothing_is_forced(provider: str) -> None:
    request, _ = asked(PROVIDERS[provider]().bind_tools([add_tool()], tool_choice="any"), grammar=False)
    assert request.tool_choice == "auto"


@each_row("grammar", [True, False])
def test_strict_tools_are_strict_where_there_are_grammars(grammar: bool) -> None:
    request, _ = asked(openai().bind_tools([add_tool()], strict=True), grammar=grammar)
    (tool,) = request.tools
    inner: Any = tool["function"]
    assert inner.get("strict", False) is grammar
    assert sorted(inner["parameters"]["properties"]) == ["a", "b"]


@each_row("provider", ["openai", "openai, responses", "anthropic"])
def test_that_one_call_at_most_is_wanted_is_passed_on(provider: str) -> None:
    request, _ = asked(PROVIDERS[provider]().bind_tools([add_tool()], parallel_tool_calls=False))
    assert not request.parallel_calls


WANTED = '{"order": "o1", "fine": true}'
BY_SCHEMA = [
    ("openai", "json_schema"),
    ("openai", "json_mode"),
    ("openai, responses", "json_schema"),
    ("anthropic", "json_schema"),
    ("google", "json_schema"),
]


@each_row(("provider", "method"), BY_SCHEMA)
def test_structured_output_by_schema_is_asked_for_and_read(provider: str, method: str) -> None:
    model = PROVIDERS[provider]().with_structured_output(Verdict, method=method)
    request, result = asked(model, "hi", says(WANTED))
    assert request.schema is not None
    if method == "json_schema":
        assert sorted(request.schema["properties"]) == ["fine", "order"]  # type: ignore[arg-type]
    assert result == Verdict(order="o1", fine=True)


@each_row("provider", PROVIDERS)
def test_structured_output_by_a_tool_is_asked_for_and_read(provider: str) -> None:
    model = PROVIDERS[provider]().with_structured_output(Verdict, method="function_calling")
    request, result = asked(model, "hi", calls(("Verdict", WANTED)))
    assert request.tool_choice in ("Verdict", "required")
    assert result == Verdict(order="o1", fine=True)


def test_a_providers_own_tool_is_left_out_and_said() -> None:
    server, notes = PolicyServerDouble(scripted(says("done"))), {}
    policy = ModelPolicy(server=server, notes=notes)

    async def work() -> None:
        session = dream()
        with captured(policy, session), entered(session):
            await openai().bind_tools([add_tool(), {"type": "web_search"}]).ainvoke("hi")

    asyncio.run(work())
    assert [tool["function"]["name"] for tool in server.asked[0].tools] == ["add"]  # type: ignore[index,call-overload]
    assert "the policy is not told of the provider's own tool 'web_search'" in notes


HISTORY = [
    SystemMessage("Be brief."),
    HumanMessage([{"type": "text", "text": "What of "}, {"type": "text", "text": "o1?"}], name="ada"),
    AIMessage(
        [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Let me look."}],
        tool_calls=[{"name": "add", "args": {"b": 2, "a": 1}, "id": "c1", "type": "tool_call"}],
    ),
    ToolMessage([{"type": "text", "text": "3"}], tool_call_id="c1"),
    AIMessage(
        "",
        invalid_tool_calls=[
            {"name": "add", "args": "{oops", "id": "c2", "error": "no", "type": "invalid_tool_call"}
        ],
    ),
    HumanMessage([{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]),
]


def test_a_history_is_read_as_it_stands() -> None:
    request, _ = asked(openai(), HISTORY)
    told = [(one.role, one.content, one.name) for one in request.messages]
    assert told == [
        ("system", "Be brief.", ""),
        ("user", "What of o1?", "ada"),
        ("assistant", "Let me look.", ""),
        ("tool", "3", "add"),
        ("assistant", "", ""),
        ("user", "[image_url]", ""),
    ]
    assert [(one.name, one.args, one.id) for one in request.messages[2].tool_calls] == [
        ("add", '{"a":1,"b":2}', "c1")
    ]
    assert [(one.name, one.args) for one in request.messages[4].tool_calls] == [("add", "{oops")]
    assert request.messages[3].call_id == "c1"


def test_stop_texts_and_a_limit_on_the_answer_are_passed_on_and_temperature_is_the_policys() -> None:
    request, _ = asked(
        openai().bind(stop=["END"], max_tokens=20, temperature=0.1), temperature=0.7, max_output=100
    )
    assert (request.stop, request.max_tokens, request.temperature, request.top_p) == (("END",), 20, 0.7, 1.0)
    request, _ = asked(openai().bind(max_tokens=2000), max_output=100)
    assert request.max_tokens == 100
