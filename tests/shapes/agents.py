"""Agents of every make: create_agent, create_react_agent v1 and v2, a StateGraph around a ToolNode."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import (
    InjectedState,
    InjectedStore,
    ToolNode,
    ToolRuntime,
    create_react_agent,
    tools_condition,
)
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from shapes.canary import touch
from shapes.models import ScriptedModelDouble, StreamingModelDouble, asks
from shapes.stage import DREAMT, HELLO, Catalogue, Runs, Shape, all_dreamt, tool_messages
from shapes.tools import DICT_SCHEMA, ClassTool, add_tool, async_tool

CATALOGUE = Catalogue()
STREAM_MODES: tuple[Any, ...] = (
    "values", "updates", "messages", "custom", "debug", "tasks", "checkpoints", ["updates", "messages"],
)  # fmt: skip
ADD = {"a": 1, "b": 2}


def with_create_agent(tools: list[Any], script: list[Any], **settings: Any) -> Any:
    return create_agent(ScriptedModelDouble(script=script), tools, **settings)


def streaming_create_agent(tools: list[Any], script: list[Any], **settings: Any) -> Any:
    return create_agent(StreamingModelDouble(script=script), tools, **settings)


def _react(version: Any) -> Callable[..., Any]:
    def make(tools: list[Any], script: list[Any], **settings: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return create_react_agent(ScriptedModelDouble(script=script), tools, version=version, **settings)

    return make


def looped(model: Any, tools: Any, **settings: Any) -> Any:
    """A node that asks a model, and one that runs what it asks for, in turns."""
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", tools)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(**settings)


def with_tool_node(tools: list[Any], script: list[Any], *, node: Any = None, **settings: Any) -> Any:
    return looped(ScriptedModelDouble(script=script).bind_tools(tools), node or ToolNode(tools), **settings)


def dispatching(model: Any, run: Callable[[str, Any], Any]) -> Any:
    """An agent whose node runs by itself what `run` finds under a name."""

    def tools(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        answers = [(str(run(call["name"], call["args"])), call["id"]) for call in calls]
        return {"messages": [ToolMessage(text, tool_call_id=call_id) for text, call_id in answers]}

    return looped(model, tools)


MAKES: dict[str, Callable[..., Any]] = {
    "create_agent": with_create_agent,
    "create_agent, streaming model": streaming_create_agent,
    "create_react_agent v1": _react("v1"),
    "create_react_agent v2": _react("v2"),
    "StateGraph and ToolNode": with_tool_node,
}


def invoked(graph: Any, given: Any = HELLO, looks: Callable[[Any], bool] = all_dreamt) -> Runs:
    """A graph run to its end."""
    return Runs(sync=lambda: graph.invoke(given), anync=lambda: graph.ainvoke(given), looks=looks)


def streamed(graph: Any, given: Any = HELLO, **settings: Any) -> Runs:
    """A graph whose stream is drained."""

    async def drain() -> list[Any]:
        return [item async for item in graph.astream(given, **settings)]

    return Runs(sync=lambda: list(graph.stream(given, **settings)), anync=drain)


def two_calls() -> list[Any]:
    return [[asks("add", ADD), asks("cls", {"a": 1})], "done"]


def _parallel(make: str) -> Shape:
    def build() -> Runs:
        graph = MAKES[make]([add_tool(), ClassTool()], two_calls())
        return invoked(graph, looks=lambda result: all_dreamt(result) and len(tool_messages(result)) == 2)

    return Shape(f"{make}, two parallel calls", build, 2)


def _streaming(make: str, mode: Any) -> Shape:
    def build() -> Runs:
        return streamed(MAKES[make]([add_tool(), ClassTool()], two_calls()), stream_mode=mode)

    return Shape(f"{make}, stream {mode}", build, 2)


def _events(make: str) -> Shape:
    def build() -> Runs:
        graph = MAKES[make]([add_tool(), ClassTool()], two_calls())

        async def drain() -> list[str]:
            return [event["event"] async for event in graph.astream_events(HELLO, version="v2")]

        def looks(events: list[str]) -> bool:
            return events.count("on_tool_start") == 2 and events.count("on_tool_end") == 2

        return Runs(anync=drain, looks=looks)

    return Shape(f"{make}, astream_events v2", build, 2)


def _bad_calls(make: str) -> Shape:
    def build() -> Runs:
        script = [[asks("add", {"a": "no number"})], [asks("nope", {"z": 1})], "done"]

        def looks(result: Any) -> bool:
            return [message.status for message in tool_messages(result)] == ["error", "error"]

        return invoked(MAKES[make]([add_tool()], script), looks=looks)

    return Shape(f"{make}, bad arguments and an unknown tool", build, 0)


def _async_tools(make: str) -> Shape:
    def build() -> Runs:
        graph = MAKES[make]([async_tool()], [[asks("aadd", ADD), asks("aadd", {"a": 7})], "done"])
        return Runs(anync=lambda: graph.ainvoke(HELLO), looks=all_dreamt)

    return Shape(f"{make}, async tool", build, 2)


def _return_direct(make: str) -> Shape:
    def build() -> Runs:
        def direct(a: int) -> None:
            touch("direct")

        made = StructuredTool.from_function(
            direct, name="direct", description="d", return_direct=True, args_schema=DICT_SCHEMA
        )
        graph = MAKES[make]([made], [[asks("direct", {"a": 1})], "never said"])
        return invoked(graph, looks=lambda result: result["messages"][-1].content == DREAMT)

    return Shape(f"{make}, return_direct", build, 1)


def injected_tools() -> list[Any]:
    """Tools to which the framework gives more than the model asked for."""

    @tool
    def inj(
        a: int,
        state: Annotated[dict, InjectedState],
        earlier: Annotated[Any, InjectedState("messages")],
        store: Annotated[Any, InjectedStore()],
        call_id: Annotated[str, InjectedToolCallId],
        config: RunnableConfig,
    ) -> str:
        """Injected everything."""
        touch("inj")
        return "real"

    @tool
    def runtime_tool(a: int, runtime: ToolRuntime) -> str:
        """A runtime."""
        touch("runtime_tool")
        return "real"

    class RuntimeClass(BaseTool):
        name: str = "runtime_class"
        description: str = "runtime and config in a class"

        def _run(
            self, a: int, runtime: ToolRuntime, settings: RunnableConfig, run_manager: Any = None
        ) -> str:
            touch("runtime_class")
            return "real"

    return [inj, runtime_tool, RuntimeClass()]


INJECTED_CALLS = [("inj", 1), ("runtime_tool", 2), ("runtime_class", 3)]


@CATALOGUE.add("injected state, store, call id, config and runtime", dreamt=3)
def _injected() -> Runs:
    script = [[asks(name, {"a": a}) for name, a in INJECTED_CALLS], "done"]
    return invoked(with_create_agent(injected_tools(), script, store=InMemoryStore()))


@CATALOGUE.add("content and artifact")
def _artifact() -> Runs:
    @tool(response_format="content_and_artifact")
    def caa(a: int) -> tuple[str, Any]:
        """Two answers."""
        touch("caa")
        return "real", {"k": 1}

    return invoked(with_create_agent([caa], [[asks("caa", {"a": 1})], "done"]))


class CityState(AgentState):
    city: str


def city_tool() -> Any:
    @tool
    def set_city(city: str, call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Set the city."""
        touch("set_city")
        return Command(update={"city": city, "messages": [ToolMessage("ok", tool_call_id=call_id)]})

    return set_city


@CATALOGUE.add("tool that returns a Command")
def _command() -> Runs:
    return invoked(
        with_create_agent([city_tool()], [[asks("set_city", {"city": "X"})], "done"], state_schema=CityState)
    )


@CATALOGUE.add("agent on a thread of its own loop", dreamt=1)
def _own_loop() -> Runs:
    graph = with_create_agent([add_tool()], [[asks("add", ADD)], "done"])
    return Runs(
        sync=lambda: asyncio.run(graph.ainvoke(HELLO)),
        anync=lambda: asyncio.to_thread(graph.invoke, HELLO),
        looks=all_dreamt,
    )


SHAPES = [
    *(row(make) for make in MAKES for row in (_parallel, _events, _bad_calls, _async_tools)),
    *(_streaming(make, mode) for make in MAKES for mode in STREAM_MODES),
    *(_return_direct(make) for make in MAKES if make != "StateGraph and ToolNode"),
    *CATALOGUE.shapes,
]
