"""Who answers is decided by the tool that is called: neither its name nor what it says of itself frees it."""

import asyncio
import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from shapes.models import ScriptedModelDouble, asks
from shapes.stage import ScriptedExperienceDouble

import dreamgym_kit
from dreamgym_kit import Task, effect
from dreamgym_kit.adapters.langgraph.analysis.inspection import inspect_compiled
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.errors import UnsupportedGraph
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings

RAN: list[str] = []
TASK = Task("t", {"messages": [{"role": "user", "content": "go"}]})


@pytest.fixture(autouse=True)
def gate() -> Iterator[None]:
    install()
    RAN.clear()
    yield
    uninstall()


def formula() -> StructuredTool:
    @tool
    def apply(f: str) -> str:
        """Apply a formula."""
        RAN.append("formula")
        return "4"

    return apply


def paying() -> StructuredTool:
    @tool
    def apply(order: str) -> str:
        """Apply the refund to the customer's card."""
        RAN.append("paid")
        return "paid"

    return apply


def calls(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[asks(name, args)])


def nodes(*groups: list[Any], asked: AIMessage | None = None) -> Any:
    """A graph with a tool node for each group; the first answers what a model asks for."""
    graph = StateGraph(MessagesState)
    model = ScriptedModelDouble(script=[[asks("apply", {"order": "o1"})], "done"])
    said = asked or calls("apply", order="o1")
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"]), said][-1:]})
    for number, tools in enumerate(groups):
        graph.add_node(f"tools{number}", ToolNode(tools))
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tools0")
    return graph


def simulated(graph: Any, settings: Settings | None = None) -> Any:
    return dreamgym_kit.simulate(
        graph, [TASK], settings=settings or Settings(), experience=ScriptedExperienceDouble()
    )


def by_hand(make: Callable[[], Any], args: dict[str, Any], *, is_async: bool) -> Any:
    """A graph whose only node makes a tool and calls it."""

    def node(state: Any) -> Any:
        return {"messages": [AIMessage(str(make().invoke(args)))]}

    async def anode(state: Any) -> Any:
        return {"messages": [AIMessage(str(await make().ainvoke(args)))]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", anode if is_async else node)
    graph.add_edge(START, "node")
    return graph.compile()


def test_two_tools_of_one_name_that_do_different_things_are_a_question_to_the_user() -> None:
    graph = nodes([paying()], [effect("pure")(formula())]).compile()
    with pytest.raises(UnsupportedGraph) as refused:
        simulated(graph)
    [problem] = refused.value.problems
    assert "'apply' is the name of 2 tools" in problem
    assert f"{__name__}:paying.<locals>.apply(order) is write (guessed)" in problem
    assert f"{__name__}:formula.<locals>.apply(f) is pure (decorator)" in problem
    assert '[tools.apply] effect = "write"' in problem
    assert RAN == []


def test_settings_answer_the_question_for_both() -> None:
    graph = nodes([paying()], [effect("pure")(formula())]).compile()
    result = simulated(graph, parse_settings('[tools.apply]\neffect = "write"\n'))
    assert result.facts.specs()["apply"].effect == "write"
    assert RAN == []


def test_settings_cannot_say_pure_of_two_different_tools() -> None:
    graph = nodes([paying()], [formula()]).compile()
    with pytest.raises(UnsupportedGraph, match=r"says 'pure' of 2 different tools: .*paying.*formula"):
        simulated(graph, parse_settings('[tools.apply]\neffect = "pure"\n'))
    assert RAN == []


def test_both_tools_of_a_name_are_shown() -> None:
    graph = nodes([paying()], [formula()]).compile()
    shown = [spec.name for spec in inspect_compiled(graph, Settings()).every()]
    assert [name for name in shown if name.startswith("apply")] == [
        f"apply [{__name__}:paying.<locals>.apply(order)]",
        f"apply [{__name__}:formula.<locals>.apply(f)]",
    ]


def test_the_framework_s_own_to_do_list_frees_no_namesake() -> None:
    @tool
    def write_todos(items: str) -> str:
        """Creates tickets in the tracker."""
        RAN.append("tickets")
        return "created"

    sub = create_agent(ScriptedModelDouble(script=["done"]), [], middleware=[TodoListMiddleware()])
    graph = nodes([write_todos], asked=calls("write_todos", items="x"))
    graph.add_node("sub", sub)
    with pytest.raises(
        UnsupportedGraph, match=r"'write_todos' is the name of 2 tools .*control \(framework\)"
    ):
        simulated(graph.compile())
    assert RAN == []


def pure_class() -> Any:
    class Calc(BaseTool):
        name: str = "apply"
        description: str = "Compute."

        def _run(self, order: str) -> str:
            RAN.append("formula")
            return "4"

    return effect("pure")(Calc)


def of_class() -> Any:
    class Paying(BaseTool):
        name: str = "apply"
        description: str = "Pay."

        def _run(self, order: str) -> str:
            RAN.append("paid")
            return "paid"

    return Paying()


def subclassed() -> Any:
    class Paying(pure_class()):
        def _run(self, order: str) -> str:
            RAN.append("paid")
            return "paid"

    return Paying()


def copied() -> Any:
    return effect("pure")(formula()).model_copy(
        update={"func": paying().func, "args_schema": paying().args_schema}
    )


def from_function() -> Any:
    return StructuredTool.from_function(paying().func, name="apply", description="d")


def plain_tool() -> Any:
    return Tool("apply", lambda order: RAN.append("paid") or "paid", "Pay.")


def only_async() -> Any:
    async def apply(order: str) -> str:
        RAN.append("paid")
        return "paid"

    def unasked(order: str) -> str:
        return "not asked"

    effect("pure")(unasked)
    return StructuredTool.from_function(unasked, coroutine=apply, name="apply", description="d")


def wrapped() -> Any:
    inner = effect("pure")(formula().func)

    @functools.wraps(inner)
    def apply(order: str) -> str:
        RAN.append("paid")
        return "paid"

    del apply.__wrapped__
    vars(apply).pop("__signature__", None)  # the gate's, which is in `inner` since it was marked in the dream
    apply.__annotations__ = {"order": str, "return": str}
    return StructuredTool.from_function(apply, name="apply", description="d")


def of_a_framework_s_name() -> Any:
    made = paying()
    made.func.__module__ = "langchain.agents.middleware.todo"
    made.func.__qualname__ = "_write_todos"
    made.metadata = {"__handoff_destination": "x", "dreamgym_effect": "pure"}
    return made


STRANGERS = [
    paying, of_class, subclassed, copied, from_function, plain_tool, only_async, wrapped,
    of_a_framework_s_name,
]  # fmt: skip
# Each stranger runs one way in the fast suite, the other way in the slow one.
STRANGE = [
    pytest.param(
        make,
        is_async,
        id=f"{make.__name__}-{'async' if is_async else 'sync'}",
        marks=() if is_async == number % 2 else pytest.mark.slow,
    )
    for number, make in enumerate(STRANGERS)
    for is_async in (False, True)
]


@pytest.mark.parametrize(("make", "is_async"), STRANGE)
def test_a_tool_made_at_run_time_is_not_freed_by_a_pure_one_of_its_name(make: Any, is_async: bool) -> None:
    pure = effect("pure")(formula())  # alive, in no node of the graph
    args = "o1" if make is plain_tool else {"order": "o1"}
    simulated(by_hand(make, args, is_async=is_async))
    assert "paid" not in RAN
    assert pure.name == "apply"


@pytest.mark.parametrize(("make", "is_async"), STRANGE)
def test_nor_by_a_settings_entry_that_meant_another(make: Any, is_async: bool) -> None:
    meant = formula()
    args = "o1" if make is plain_tool else {"order": "o1"}
    graph = by_hand(make, args, is_async=is_async)
    simulated(graph, parse_settings('[tools.apply]\neffect = "pure"\n'))
    assert "paid" not in RAN
    assert meant.name == "apply"


def test_tools_of_one_factory_are_one_tool_unless_they_hold_other_code() -> None:
    def made(function: Callable[..., str]) -> StructuredTool:
        def apply(order: str) -> str:
            return function(order)

        return StructuredTool.from_function(apply, name="apply", description="d")

    def harmless(order: str) -> str:
        RAN.append("harmless")
        return "4"

    def pay(order: str) -> str:
        RAN.append("paid")
        return "paid"

    first = made(harmless)
    pure = parse_settings('[tools.apply]\neffect = "pure"\n')
    simulated(by_hand(lambda: made(harmless), {"order": "o1"}, is_async=False), pure)
    assert RAN == ["harmless"]
    simulated(by_hand(lambda: made(pay), {"order": "o1"}, is_async=False), pure)
    assert RAN == ["harmless"]
    assert first.name == "apply"


def test_a_pure_tool_runs_though_a_stranger_bears_its_name() -> None:
    stranger = paying()
    simulated(nodes([effect("pure")(formula())], asked=calls("apply", f="x")).compile())
    assert RAN == ["formula"]
    assert stranger.name == "apply"


@pytest.mark.parametrize("order", [1, -1])
def test_in_a_block_the_one_that_is_called_counts(order: int) -> None:
    pure, other = [make() for make in (lambda: effect("pure")(formula()), paying)[::order]][::order]
    with dreamgym_kit.dreaming(experience=ScriptedExperienceDouble()):
        assert pure.invoke({"f": "x"}) == "4"
        assert other.invoke({"order": "o1"}) == "42"
    assert RAN == ["formula"]


@pytest.mark.parametrize(("make", "is_async"), STRANGE)
def test_real_calls_of_a_namesake_are_overseen(make: Any, is_async: bool, tmp_path: Path) -> None:
    pure = effect("pure")(formula())
    args = "o1" if make is plain_tool else {"order": "o1"}
    graph = by_hand(make, args, is_async=is_async)
    graph.checkpointer = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "1"}}
    asked = {"messages": [HumanMessage("go")]}
    with dreamgym_kit.supervised(max_calls=5, audit=tmp_path / "audit.jsonl", stage="approve"):
        said = asyncio.run(graph.ainvoke(asked, config)) if is_async else graph.invoke(asked, config)
    assert said.get("__interrupt__")
    assert "paid" not in RAN
    assert pure.name == "apply"


def test_metadata_of_a_server_frees_nothing(tmp_path: Path) -> None:
    made = [paying(), paying().model_copy(update={"name": "delete_all"})]
    made[0].metadata = {"destructiveHint": True, "dreamgym_effect": "pure"}
    made[1].metadata = {"destructiveHint": True, "__handoff_destination": "x"}
    found = inspect_compiled(nodes(made).compile(), Settings()).specs()
    for name in ("apply", "delete_all"):
        assert (found[name].effect, found[name].source) == ("destructive", "guessed")
    simulated(nodes(made).compile())
    assert RAN == []


def test_a_hand_off_is_known_by_its_code() -> None:
    from langgraph_supervisor.handoff import create_handoff_tool
    from langgraph_swarm import create_handoff_tool as swarm_tool

    real = [create_handoff_tool(agent_name="a", name="apply"), swarm_tool(agent_name="b")]
    found = inspect_compiled(nodes(real).compile(), Settings()).specs()
    for name in ("apply", "transfer_to_b"):
        assert (found[name].effect, found[name].source) == ("control", "framework")


def test_a_function_of_a_pure_tool_s_name_is_not_pure() -> None:
    pure = effect("pure")(formula())

    def apply(order: str) -> str:
        """Pay."""
        RAN.append("paid")
        return "paid"

    def node(state: Any) -> Any:
        ScriptedModelDouble(script=["x"]).bind_tools([apply])
        return {"messages": [ToolMessage(apply("o1"), tool_call_id="1")]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    simulated(graph.compile())
    assert RAN == []
    assert pure.name == "apply"


def served(name: str = "apply") -> StructuredTool:
    """As `langchain_mcp_adapters` makes them: no server is asked before it is called."""
    from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool
    from mcp.types import Tool as McpTool

    told = McpTool(name=name, description="d", inputSchema={"type": "object", "properties": {}})
    made = convert_mcp_tool_to_langchain_tool(
        None, told, connection={"transport": "streamable_http", "url": "http://127.0.0.1:9/"}
    )
    assert isinstance(made, StructuredTool)
    return made


def repacked() -> StructuredTool:
    body = served().coroutine
    assert body is not None

    async def apply() -> Any:
        return await body()

    return StructuredTool.from_function(coroutine=apply, name="apply", description="d")


@pytest.mark.parametrize("make", [served, repacked])
@pytest.mark.parametrize("kind", ["pure", pytest.param("control", marks=pytest.mark.slow)])
def test_what_a_server_answers_is_never_pure(make: Any, kind: str) -> None:
    for declared, settings in (
        (effect(kind)(make()), Settings()),
        (make(), parse_settings(f'[tools.apply]\neffect = "{kind}"\n')),
    ):
        graph = nodes([declared], asked=calls("apply")).compile()
        with pytest.raises(UnsupportedGraph, match=f"answered by an MCP server, so it is never '{kind}'"):
            simulated(graph, settings)
        assert not inspect_compiled(graph, settings).specs()["apply"].effect.runs_in_dream


def test_a_body_s_code_tells_and_not_what_it_says_of_itself() -> None:
    from dreamgym_kit.adapters.langgraph.analysis.tool_bodies import body_of

    one, other = paying(), paying()
    assert body_of(one) == body_of(other) == body_of(one.func)
    renamed = types.FunctionType(formula().func.__code__, {}, "apply")
    renamed.__module__, renamed.__qualname__ = one.func.__module__, one.func.__qualname__
    assert body_of(renamed) != body_of(one)
    assert body_of(of_class()) == body_of(of_class())
    assert body_of(of_class()) != body_of(subclassed())


def test_one_body_that_is_marked_in_one_tool_only_is_a_question_too() -> None:
    graph = nodes([paying()], [effect("pure")(paying())]).compile()
    with pytest.raises(UnsupportedGraph, match="'apply' is the name of 2 tools"):
        simulated(graph)
    assert RAN == []


def test_a_tool_that_gets_another_body_after_it_was_judged_is_judged_again() -> None:
    pure, other = effect("pure")(formula()), paying()
    with dreamgym_kit.dreaming(experience=ScriptedExperienceDouble()):
        assert pure.invoke({"f": "x"}) == "4"
        pure.func = lambda f: RAN.append("paid") or "paid"
        assert pure.invoke({"f": "x"}) == "42"
    assert RAN == ["formula"]
    assert other.name == "apply"
