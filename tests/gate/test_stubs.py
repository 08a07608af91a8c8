"""Names that a model was told of, with nothing behind them: what really runs stands somewhere else."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, ConfigDict
from shapes.canary import Canary, touch
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import DREAMT, HELLO, dream, tool_messages
from shapes.tools import add_tool

from dreamgym_kit.adapters.langgraph.intercept.functions import is_empty, is_hooked
from dreamgym_kit.adapters.langgraph.intercept.install import hook_tool_functions
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import entered

pytestmark = pytest.mark.usefixtures("gate")
REIMBURSE = [[asks("reimburse", {"order": "o1"})], "done"]


class Order(BaseModel):
    order: str


def bodiless() -> Any:
    return StructuredTool(name="reimburse", description="Pay back.", args_schema=Order)


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


def agent(bound: Any, run: Any) -> Any:
    """A custom tool node that runs what `run` finds under a name."""
    graph = StateGraph(MessagesState)

    def tools(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        return {
            "messages": [
                ToolMessage(str(run(call["name"], call["args"])), tool_call_id=call["id"]) for call in calls
            ]
        }

    graph.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", tools)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


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
        agent(bound, lambda name, args: table[name](**args)).invoke(HELLO)
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
        graph = agent(bound, lambda name, args: stub.invoke(args))
        assert tool_messages(graph.invoke(HELLO))[0].content == DREAMT


def test_a_method_in_a_table_is_met_under_a_name_that_the_model_made_up(canary: Canary) -> None:
    table = {"reimburse": Desk().pay_back}
    bound = ScriptedModelDouble(script=REIMBURSE).bind_tools([add_tool()])
    with entered(dream()), pytest.raises(RealCallBlocked, match="was never told of"):
        agent(bound, lambda name, args: table[name](**args)).invoke(HELLO)
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
    graph = StateGraph(MessagesState)
    model = ScriptedModelDouble(script=REIMBURSE)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([opened]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    hook_tool_functions()
    with entered(dream()), pytest.raises(RealCallBlocked, match="a tool object with a invoke of its own"):
        graph.compile().invoke(HELLO)
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
        agent(bound, lambda name, args: AIMessage("never")).invoke(HELLO)
    assert not is_hooked(json.dumps)
