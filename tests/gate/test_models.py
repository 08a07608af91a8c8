"""At the model's answer: calls are announced in order, and one that no gate holds does not reach a node."""

import asyncio
import contextvars
import functools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from each_row import each_row
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel, ConfigDict
from shapes.agents import dispatching, looped, with_create_agent
from shapes.canary import Canary, touch
from shapes.models import ScriptedModelDouble, StreamingModelDouble, asks
from shapes.nested import function_agent, plain_refund
from shapes.stage import DREAMT, HELLO, dream, tool_messages
from shapes.tools import add_tool

from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import is_empty, is_hooked
from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import PROCESS, entered

pytestmark = pytest.mark.usefixtures("gate")

MODELS = [ScriptedModelDouble, StreamingModelDouble]
WAYS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda model: model.invoke("hi"),
    "ainvoke": lambda model: asyncio.run(model.ainvoke("hi")),
    "stream": lambda model: list(model.stream("hi")),
    "astream": lambda model: asyncio.run(_drained(model)),
}


async def _drained(model: Any) -> list[Any]:
    return [chunk async for chunk in model.astream("hi")]


def refund_schema() -> dict[str, Any]:
    return convert_to_openai_tool(plain_refund())


@each_row("way", WAYS)
@each_row("kind", MODELS)
def test_calls_are_announced_once_and_in_order(kind: type[ScriptedModelDouble], way: str) -> None:
    tool = add_tool()
    script = [[asks("add", {"a": 1}, "x"), asks("add", {"a": 2}, "y")]]
    session = dream()
    with entered(session):
        WAYS[way](kind(script=script).bind_tools([tool]))
        tool.invoke(asks("add", {"a": 2}, "y"))
        tool.invoke(asks("add", {"a": 1}, "x"))
    assert session.asked_tools == ["add", "add"]
    assert [entry.call.args["a"] for entry in session.ledger.transitions()] == [1, 2]


class StreamsInside(StreamingModelDouble):
    """As ChatOpenAI(streaming=True): `_generate` itself streams, and both are heard."""

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        from langchain_core.language_models.chat_models import generate_from_stream

        return generate_from_stream(self._stream(messages, stop=stop, run_manager=run_manager, **kwargs))


def test_a_model_that_streams_inside_is_heard_once() -> None:
    session = dream()
    tool = add_tool()
    with entered(session):
        StreamsInside(script=[[asks("add", {"a": 1})]]).bind_tools([tool]).invoke("hi")
    assert session.asked_tools == ["add"]


@each_row("way", WAYS)
@each_row("kind", MODELS)
def test_a_call_to_a_bare_schema_is_refused_with_how_to_register_it(kind: Any, way: str) -> None:
    session = dream()
    model = kind(script=[[asks("refund", {"order": "o1"})]])
    with entered(session), pytest.raises(RealCallBlocked) as refused:
        WAYS[way](model.bind_tools([refund_schema()]))
    assert "the model called 'refund', which is bound to the model by its schema alone" in str(refused.value)
    assert re.search(r'\[functions\."[\w.<>]+:[\w.<>]*refund"\] effect = ', str(refused.value))
    assert session.violations == [str(refused.value)]


def dispatching_agent(model: Any, functions: dict[str, Any]) -> Any:
    """A node that runs functions by itself, looked up by name."""
    return dispatching(model, lambda name, args: functions[name](**args))


REFUND = [[asks("refund", {"order": "o1"})], "done"]


@pytest.mark.slow
@pytest.mark.parametrize("told", ["bind_tools", "bind", "nothing at all"])
def test_a_node_that_dispatches_by_itself_gets_no_call_to_run(told: str, canary: Canary) -> None:
    model = ScriptedModelDouble(script=REFUND)
    bound = {
        "bind_tools": lambda: model.bind_tools([refund_schema()]),
        "bind": lambda: model.bind(tools=[refund_schema()]),
        "nothing at all": lambda: model,
    }[told]()
    session = dream()
    with entered(session), pytest.raises(RealCallBlocked, match="the model called 'refund'"):
        dispatching_agent(bound, {"refund": plain_refund()}).invoke(HELLO)
    assert canary.written() == []


def untold() -> Callable[..., Any]:
    def pay_back_untold(order: str) -> str:  # no other living function has this name
        touch("refund")
        return "real"

    return pay_back_untold


@each_row("key", ["pay_back_untold", "key_of_an_untold_one"])
def test_an_untold_name_of_a_living_function_is_refused_where_no_tool_node_answers(
    key: str, canary: Canary
) -> None:
    script = [[asks(key, {"order": "o1"})], "done"]
    model = ScriptedModelDouble(script=script).bind_tools([add_tool()])
    with entered(dream()), pytest.raises(RealCallBlocked, match="was never told of") as refused:
        dispatching_agent(model, {key: untold()}).invoke(HELLO)
    assert f"{__name__}:untold.<locals>.pay_back_untold" in str(refused.value)
    assert canary.written() == []


def test_an_invented_name_is_only_counted_where_no_function_bears_it() -> None:
    model = ScriptedModelDouble(script=[[asks("no_such_thing_anywhere")], "done"]).bind_tools([add_tool()])
    session = dream()
    with entered(session), pytest.raises(KeyError):
        dispatching_agent(model, {}).invoke(HELLO)
    assert session.counts == {"unknown_tool": 1}
    assert session.violations == []


def test_a_tool_of_that_name_that_is_gone_holds_nothing(canary: Canary) -> None:
    def refund(order: str) -> str:
        return "another function"

    gone = StructuredTool.from_function(refund, description="d")
    HOLDINGS.add_tool(gone)
    del gone
    model = ScriptedModelDouble(script=REFUND).bind_tools([refund_schema()])
    with entered(dream()), pytest.raises(RealCallBlocked, match="by its schema alone"):
        dispatching_agent(model, {"refund": plain_refund()}).invoke(HELLO)
    assert canary.written() == []


def test_a_schema_with_a_living_tool_behind_it_is_answered(canary: Canary) -> None:
    tool = add_tool()
    model = ScriptedModelDouble(script=[[asks("add", {"a": 1})], "done"])
    bound = model.bind_tools([convert_to_openai_tool(tool)])
    graph = looped(bound, ToolNode([tool]))
    with entered(dream()):
        assert tool_messages(graph.invoke(HELLO))[0].content == DREAMT
    assert canary.written() == []


class Unhookable:
    __name__ = "refund"

    def __call__(self, order: str) -> str:
        """Pay back."""
        touch("refund")
        return "real"


def _binds_callable(model: ScriptedModelDouble, target: Any) -> Any:
    HOLDINGS.add_bound(model, [target], structured=False)
    return model.bind(tools=[refund_schema()])


@each_row(
    "target",
    [functools.partial(plain_refund(), amount=1), Unhookable()],
    ids=["partial", "callable object"],
)
def test_a_callable_that_cannot_be_hooked_is_refused_and_says_what_it_is(target: Any, canary: Canary) -> None:
    functools.update_wrapper(target, plain_refund()) if isinstance(target, functools.partial) else None
    model = _binds_callable(ScriptedModelDouble(script=REFUND), target)
    with entered(dream()), pytest.raises(RealCallBlocked, match="a callable that cannot be hooked"):
        dispatching_agent(model, {"refund": target}).invoke(HELLO)
    assert canary.written() == []


@each_row("entry", ["invoke", "run", "_run"])
def test_a_tool_object_with_an_entry_of_its_own_is_refused(entry: str, canary: Canary) -> None:
    tool = add_tool()

    def own(*args: Any, **kwargs: Any) -> Any:
        touch("own")
        return ToolMessage("real", tool_call_id="x")

    tool.__dict__[entry] = own
    with entered(dream()), pytest.raises(RealCallBlocked):
        with_create_agent([tool], [[asks("add", {"a": 1})], "done"]).invoke(HELLO)
    assert canary.written() == []


class Order(BaseModel):
    """An order, as the model should shape it."""

    id: str


@each_row("kind", MODELS)
def test_a_structured_output_is_no_call(kind: Any) -> None:
    session = dream()
    with entered(session):
        shaped = _structured(kind(script=[[asks("Order", {"id": "o1"})]])).invoke("hi")
    assert shaped == Order(id="o1")
    assert session.violations == []


def _structured(model: Any) -> Any:
    from langchain_core.output_parsers.openai_tools import PydanticToolsParser

    bound = model.bind_tools([Order], ls_structured_output_format={"kwargs": {}, "schema": Order})
    return bound | PydanticToolsParser(tools=[Order], first_tool_only=True)


def test_create_agents_own_structured_answer_is_no_call() -> None:
    from langchain.agents.structured_output import ToolStrategy

    session = dream()
    with entered(session):
        graph = with_create_agent(
            [add_tool()], [[asks("Order", {"id": "o1"})], "done"], response_format=ToolStrategy(Order)
        )
        assert graph.invoke(HELLO)["structured_response"] == Order(id="o1")
    assert session.violations == []


def test_a_schema_that_a_person_calls_structured_is_no_call() -> None:
    session = dream(structured=frozenset({"Order"}))
    with entered(session):
        ScriptedModelDouble(script=[[asks("Order", {"id": "o1"})]]).bind_tools([Order]).invoke("hi")
    assert session.violations == []


def test_a_name_that_nobody_told_the_model_is_the_frameworks_to_answer() -> None:
    session = dream()
    with entered(session):
        result = with_create_agent([add_tool()], [[asks("nope")], "done"]).invoke(HELLO)
    assert "nope is not a valid tool" in str(tool_messages(result)[0].content)
    assert session.counts == {"unknown_tool": 1}


class OlderModelDouble(BaseChatModel):
    """Asks in the form of before tool calls."""

    @property
    def _llm_type(self) -> str:
        return "older-double"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        call = {"name": "refund", "arguments": '{"order": "o1"}'}
        message = AIMessage("", additional_kwargs={"function_call": call})
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_a_call_in_the_older_form_is_met_too() -> None:
    model = OlderModelDouble().bind(functions=[refund_schema()["function"]])
    with entered(dream()), pytest.raises(RealCallBlocked, match="'refund'"):
        model.invoke("hi")


def test_a_chat_model_outside_every_episode_is_refused_while_the_process_dreams() -> None:
    model = ScriptedModelDouble(script=["x"])
    with (
        entered(dream()),
        pytest.raises(RealCallBlocked, match="a chat model was called outside every episode"),
    ):
        contextvars.Context().run(model.invoke, "hi")
    assert len(PROCESS.strays) == 1
    assert model.invoke("hi").content == "x"


def test_recording_refuses_nothing_at_the_model(canary: Canary) -> None:
    from dreamgym_kit.routing.router import CallRouter, Mode
    from dreamgym_kit.routing.session import Session

    session = Session(CallRouter(Mode.RECORD))
    with entered(session):
        result = dispatching_agent(
            ScriptedModelDouble(script=REFUND).bind_tools([refund_schema()]), {"refund": plain_refund()}
        ).invoke(HELLO)
    assert tool_messages(result)[0].content == "real"


def test_a_bound_plain_function_keeps_its_declared_effect() -> None:
    from dreamgym_kit.adapters.langgraph.intercept.object_effects import ObjectEffects, bearers_of
    from dreamgym_kit.routing.effects import effect
    from dreamgym_kit.settings.schema import Settings

    function_agent(effect("write")(plain_refund()))
    [spec] = [ObjectEffects(Settings()).spec(one, "refund") for one in bearers_of("refund")]
    assert (spec.effect, spec.source, spec.kind) == ("write", "decorator", "function")


class _NamedTool(BaseTool):
    name: str = "refund"
    description: str = "d"

    def _run(self, order: str) -> str:
        touch("named")
        return "real"


def test_a_tool_renamed_while_running_is_asked_by_its_new_name(canary: Canary) -> None:
    tool = _NamedTool()
    session = dream()
    with entered(session):
        tool.name = "pay_back"
        assert tool.invoke({"order": "o1"}) == DREAMT
    assert [entry.call.tool for entry in session.ledger.transitions()] == ["pay_back"]
    assert canary.written() == []


REIMBURSE = [[asks("reimburse", {"order": "o1"})], "done"]


class OrderArguments(BaseModel):
    order: str


def bodiless() -> Any:
    return StructuredTool(name="reimburse", description="Pay back.", args_schema=OrderArguments)


def stub_tool() -> Any:
    @tool
    def reimburse(order: str) -> str:
        """Pay back."""

    return reimburse


def async_stub_tool() -> Any:
    @tool
    async def reimburse(order: str) -> str:
        """Pay back."""
        raise NotImplementedError("run by the desk")

    return reimburse


def stub_function() -> Any:
    def reimburse(order: str) -> str:
        """Pay back."""
        return ""

    return reimburse


class Desk:
    def pay_back(self, order: str) -> str:
        touch("pay_back")
        return "real"


@pytest.mark.slow
@pytest.mark.parametrize("make", [bodiless, stub_tool, async_stub_tool, stub_function])
@pytest.mark.parametrize("late", [False, True])
def test_what_a_stub_stands_for_is_refused_before_a_node_can_run_it(
    make: Any, late: bool, canary: Canary
) -> None:
    table = {"reimburse": Desk().pay_back}
    bound = None if late else ScriptedModelDouble(script=REIMBURSE).bind_tools([make()])
    with entered(dream()), pytest.raises(RealCallBlocked, match="the model called 'reimburse'") as refused:
        bound = bound or ScriptedModelDouble(script=REIMBURSE).bind_tools([make()])
        dispatching(bound, lambda name, args: table[name](**args)).invoke(HELLO)
    assert f'[functions."{__name__}:Desk.pay_back"]' in str(refused.value)
    assert canary.written() == []


@pytest.mark.slow
@pytest.mark.parametrize("hooked", [False, True])
def test_a_stub_that_runs_itself_is_answered(hooked: bool) -> None:
    stub = stub_tool()
    if hooked:
        hook_tool_functions()
    bound = ScriptedModelDouble(script=REIMBURSE).bind_tools([stub])
    with entered(dream()):
        graph = dispatching(bound, lambda name, args: stub.invoke(args))
        assert tool_messages(graph.invoke(HELLO))[0].content == DREAMT


def test_a_method_in_a_table_is_met_under_a_name_that_the_model_made_up(canary: Canary) -> None:
    table = {"reimburse": Desk().pay_back}
    bound = ScriptedModelDouble(script=REIMBURSE).bind_tools([add_tool()])
    with entered(dream()), pytest.raises(RealCallBlocked, match="was never told of"):
        dispatching(bound, lambda name, args: table[name](**args)).invoke(HELLO)
    assert canary.written() == []


def test_a_stub_is_told_from_a_body() -> None:
    def body(order: str) -> str:
        return order.upper()

    async def other(order: str) -> str:
        touch("other")
        return "x"

    assert [is_empty(one) for one in (body, other, Desk().pay_back, len)] == [False] * 4
    assert [is_empty(make().func or make().coroutine) for make in (stub_tool, async_stub_tool)] == [True] * 2


class Open(BaseTool):
    model_config = ConfigDict(extra="allow")
    name: str = "reimburse"
    description: str = "Pay back."

    def _run(self, order: str) -> str:
        touch("reimburse")
        return "real"


def test_a_tool_object_with_an_invoke_of_its_own_is_refused_also_where_a_tool_node_runs_it(
    canary: Canary,
) -> None:
    opened = Open()

    def own(call: Any, *_: Any, **__: Any) -> ToolMessage:
        touch("own")
        return ToolMessage("real", tool_call_id=call["id"])

    opened.invoke = own  # type: ignore[method-assign]
    graph = looped(ScriptedModelDouble(script=REIMBURSE), ToolNode([opened]))
    hook_tool_functions()
    with entered(dream()), pytest.raises(RealCallBlocked, match="a tool object with a invoke of its own"):
        graph.invoke(HELLO)
    assert canary.written() == []


def test_a_tool_over_a_function_of_pythons_own_leaves_that_function_to_everybody() -> None:
    over = StructuredTool.from_function(
        json.dumps, name="to_json", description="d", args_schema={"type": "object", "properties": {"obj": {}}}
    )
    hook_tool_functions()
    assert not is_hooked(json.dumps)
    with entered(dream()):
        assert over.invoke({"obj": 1}) == DREAMT
        assert json.dumps([1]) == "[1]"


def test_a_function_of_pythons_own_bound_to_a_model_is_refused_by_name() -> None:
    bound = ScriptedModelDouble(script=[[asks("dumps", {"obj": 1})], "done"]).bind_tools([json.dumps])
    with entered(dream()), pytest.raises(RealCallBlocked, match="a function of Python's own library"):
        dispatching(bound, lambda name, args: AIMessage("never")).invoke(HELLO)
    assert not is_hooked(json.dumps)
