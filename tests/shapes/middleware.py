"""create_agent with middleware around its tools, and people in its loop."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from shapes.agents import ADD, invoked, looped, with_create_agent
from shapes.canary import touch
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import DREAMT, HELLO, Catalogue, Runs, all_dreamt, tool_messages
from shapes.tools import DICT_SCHEMA, add_tool

CATALOGUE = Catalogue()
THREAD: Any = {"configurable": {"thread_id": "1"}}


class RewritesArgs(AgentMiddleware):
    """The tool is called with other arguments than the model asked for."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tool_call={**request.tool_call, "args": {"a": 5, "b": 5}}))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(tool_call={**request.tool_call, "args": {"a": 5, "b": 5}}))


class SwallowsExceptions(AgentMiddleware):
    """Goes on whatever the tool raised."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except Exception:
            return ToolMessage("swallowed", tool_call_id=request.tool_call["id"])

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except Exception:
            return ToolMessage("swallowed", tool_call_id=request.tool_call["id"])


class MakesTools(AgentMiddleware):
    """A tool that the graph was not built with."""

    def _with_tool(self, request: Any) -> Any:
        def dynamic(a: int) -> int:
            touch("dynamic")
            return a

        made = StructuredTool.from_function(dynamic, name="dynamic", description="d", args_schema=DICT_SCHEMA)
        return request.override(tool=made)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(self._with_tool(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._with_tool(request))


def once() -> list[Any]:
    return [[asks("add", ADD)], "done"]


@CATALOGUE.add("middleware rewrites the arguments")
def _rewrites() -> Runs:
    return invoked(with_create_agent([add_tool()], once(), middleware=[RewritesArgs()]))


@CATALOGUE.add("middleware swallows exceptions")
def _swallows() -> Runs:
    return invoked(with_create_agent([add_tool()], once(), middleware=[SwallowsExceptions()]))


@CATALOGUE.add("ToolRetryMiddleware")
def _retries() -> Runs:
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0)
    return invoked(with_create_agent([add_tool()], once(), middleware=[retry]))


@CATALOGUE.add("ToolCallLimitMiddleware")
def _limited() -> Runs:
    script = [[asks("add", ADD), asks("add", {"a": 3})], "done"]
    graph = with_create_agent([add_tool()], script, middleware=[ToolCallLimitMiddleware(run_limit=1)])
    return invoked(graph, looks=lambda result: DREAMT in [m.content for m in tool_messages(result)])


@CATALOGUE.add("TodoListMiddleware dreamt")
def _todos() -> Runs:
    script = [[asks("write_todos", {"todos": [{"content": "a", "status": "pending"}]})], "done"]
    return invoked(with_create_agent([add_tool()], script, middleware=[TodoListMiddleware()]))


@CATALOGUE.add("TodoListMiddleware as control", dreamt=0, control=("write_todos",))
def _todos_real() -> Runs:
    script = [[asks("write_todos", {"todos": [{"content": "a", "status": "pending"}]})], "done"]
    graph = with_create_agent([add_tool()], script, middleware=[TodoListMiddleware()])
    return invoked(graph, looks=lambda result: len(result["todos"]) == 1)


@CATALOGUE.add("tool made by middleware")
def _dynamic() -> Runs:
    script = [[asks("dynamic", {"a": 1})], "done"]
    return invoked(with_create_agent([add_tool()], script, middleware=[MakesTools()]))


def approval_graph() -> Any:
    """An agent that asks a person before each call."""
    return create_agent(
        ScriptedModelDouble(script=once()),
        [add_tool()],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"add": True})],
        checkpointer=InMemorySaver(),
    )


def decide(kind: str) -> Command[Any]:
    """A person's decision."""
    return Command(resume={"decisions": [{"type": kind}]})


@CATALOGUE.add("person approves, then resume")
def _approved() -> Runs:
    def run() -> Any:
        graph = approval_graph()
        assert "__interrupt__" in graph.invoke(HELLO, THREAD)
        return graph.invoke(decide("approve"), THREAD)

    async def arun() -> Any:
        graph = approval_graph()
        assert "__interrupt__" in await graph.ainvoke(HELLO, THREAD)
        return await graph.ainvoke(decide("approve"), THREAD)

    return Runs(sync=run, anync=arun, looks=all_dreamt)


@CATALOGUE.add("person rejects, then resume", dreamt=0)
def _rejected() -> Runs:
    def run() -> Any:
        graph = approval_graph()
        graph.invoke(HELLO, THREAD)
        return graph.invoke(decide("reject"), THREAD)

    return Runs(sync=run, looks=lambda result: tool_messages(result)[-1].status == "error")


def asking_tool(name: str = "ask_user") -> Any:
    @tool(name)
    def ask_user(question: str) -> str:
        """Ask the user."""
        touch("ask_user")
        return f"user: {interrupt({'question': question})}"

    return ask_user


@CATALOGUE.add("interrupt inside a dreamt tool", dreamt=2)
def _interrupting() -> Runs:
    script = [[asks("ask_user", {"question": "?"}), asks("add", ADD)], "done"]

    def run() -> Any:
        graph = with_create_agent([asking_tool(), add_tool()], script, checkpointer=InMemorySaver())
        return graph.invoke(HELLO, THREAD)

    return Runs(sync=run, looks=lambda result: all_dreamt(result) and "__interrupt__" not in result)


def one_node_graph(script: list[Any], tools: list[Any]) -> Any:
    """Parallel calls in one ToolNode node: a resume runs all of them again."""
    return looped(ScriptedModelDouble(script=script), ToolNode(tools), checkpointer=InMemorySaver())


@CATALOGUE.add(
    "interrupting control tool beside a dreamt call, resumed",
    dreamt=2,
    control=("ask_user",),
    may_run=("ask_user",),
)
def _resumed_node() -> Runs:
    script = [[asks("add", ADD, "A"), asks("ask_user", {"question": "?"}, "B")], "done"]

    def looks(result: Any) -> bool:
        return [message.content for message in tool_messages(result)] == [DREAMT, "user: yes"]

    def run() -> Any:
        graph = one_node_graph(script, [add_tool(), asking_tool()])
        assert "__interrupt__" in graph.invoke(HELLO, THREAD)
        return graph.invoke(Command(resume="yes"), THREAD)

    async def arun() -> Any:
        graph = one_node_graph(script, [add_tool(), asking_tool()])
        assert "__interrupt__" in await graph.ainvoke(HELLO, THREAD)
        return await graph.ainvoke(Command(resume="yes"), THREAD)

    return Runs(sync=run, anync=arun, looks=looks)


SHAPES = CATALOGUE.shapes
