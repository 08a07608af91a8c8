"""Graphs in graphs, tools in nodes, plain functions, fan-out, the functional API."""

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
from shapes.agents import ADD, dispatching, invoked, streamed, with_create_agent
from shapes.canary import touch
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import DREAMT, Catalogue, Runs, Shape, tool_messages
from shapes.tools import add_tool, async_tool

CATALOGUE = Catalogue()


def inner_agent(**settings: Any) -> Any:
    return with_create_agent([add_tool()], [[asks("add", ADD)], "inner done"], name="inner", **settings)


def one_node(node: Any) -> Any:
    return StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile()


@CATALOGUE.add("agent as a subgraph node")
def _subgraph() -> Runs:
    return invoked(one_node(inner_agent()))


@CATALOGUE.add("agent as a subgraph node, subgraphs streamed")
def _subgraph_stream() -> Runs:
    return streamed(one_node(inner_agent()), subgraphs=True)


@CATALOGUE.add("agent invoked by hand in a node")
def _by_hand() -> Runs:
    inner = inner_agent()

    def node(state: Any) -> Any:
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"]}

    async def anode(state: Any) -> Any:
        return {"messages": (await inner.ainvoke({"messages": state["messages"]}))["messages"]}

    return invoked(one_node(RunnableLambda(node, anode)))


def expert_tool() -> Any:
    inner = inner_agent()

    @tool
    def ask_expert(question: str) -> str:
        """Ask another agent."""
        touch("ask_expert")
        return inner.invoke({"messages": [("user", question)]})["messages"][-1].content

    return ask_expert


@CATALOGUE.add("agent as a tool, dreamt")
def _agent_tool() -> Runs:
    return invoked(with_create_agent([expert_tool()], [[asks("ask_expert", {"question": "x"})], "done"]))


@CATALOGUE.add("agent as a control tool, its tools dreamt", control=("ask_expert",), may_run=("ask_expert",))
def _agent_tool_real() -> Runs:
    graph = with_create_agent([expert_tool()], [[asks("ask_expert", {"question": "x"})], "done"])
    return invoked(graph, looks=lambda result: tool_messages(result)[0].content == "inner done")


NODE_WAYS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda made: made.invoke(ADD),
    "batch": lambda made: made.batch([ADD])[0],
    "stream": lambda made: next(iter(made.stream(ADD))),
    "with_retry": lambda made: made.with_retry().invoke(ADD),
    "run": lambda made: made.run(ADD),
    ".func": lambda made: made.func(1, 2),
    "._run": lambda made: made._run(**ADD, config={}),
}


def _in_node(way: str) -> Shape:
    def build() -> Runs:
        made = add_tool()
        graph = one_node(lambda state: {"messages": [AIMessage(str(NODE_WAYS[way](made)))]})
        return invoked(graph, looks=lambda result: result["messages"][-1].content == DREAMT)

    return Shape(f"node calls tool, {way}", build)


class FanOut(TypedDict):
    xs: list[int]
    out: Annotated[list[str], operator.add]


@CATALOGUE.add("Send fan-out of 20", dreamt=20)
def _fan_out() -> Runs:
    made = add_tool()
    graph = StateGraph(FanOut)
    graph.add_node("work", lambda state: {"out": [made.invoke({"a": state["x"]})]})
    graph.add_conditional_edges(START, lambda state: [Send("work", {"x": x}) for x in state["xs"]], ["work"])
    return invoked(
        graph.compile(), {"xs": list(range(20))}, looks=lambda result: result["out"] == [DREAMT] * 20
    )


@CATALOGUE.add("@task and @entrypoint call tools", dreamt=2)
def _functional() -> Runs:
    made, amade = add_tool(), async_tool()

    @task
    def one(x: int) -> Any:
        return made.invoke({"a": x})

    @entrypoint()
    def flow(x: int) -> list[Any]:
        return [future.result() for future in [one(x), one(x + 1)]]

    @task
    async def aone(x: int) -> Any:
        return await amade.ainvoke({"a": x})

    @entrypoint()
    async def aflow(x: int) -> list[Any]:
        return await asyncio.gather(aone(x), aone(x + 1))

    return Runs(
        sync=lambda: flow.invoke(1),
        anync=lambda: aflow.ainvoke(1),
        looks=lambda result: result == [DREAMT, DREAMT],
    )


def function_agent(refund: Callable[..., Any]) -> Any:
    """A public pattern: a plain function bound to the model, and a node that calls it by itself."""
    model = ScriptedModelDouble(script=[[asks("refund", {"order": "o1"})], "done"])
    return dispatching(model.bind_tools([refund]), lambda _, args: refund(**args))


def plain_refund() -> Callable[..., Any]:
    def refund(order: str, amount: int = 3) -> str:
        """Pay money back."""
        touch("refund")
        return "real"

    return refund


@CATALOGUE.add("plain function bound to a model, run by a node")
def _plain_bound() -> Runs:
    return invoked(function_agent(plain_refund()))


@CATALOGUE.add("plain function given to create_agent")
def _plain_given() -> Runs:
    script = [[asks("refund", {"order": "o1"})], "done"]
    return invoked(with_create_agent([plain_refund()], script))


SHAPES = [*CATALOGUE.shapes, *map(_in_node, NODE_WAYS)]
