"""Nodes that run functions by hand: made per request, looked up, loaded twice, cached, overridden."""

import sys
from textwrap import dedent
from typing import Any

import pytest
from each_row import each_row
from shapes.stage import ScriptedExperienceDouble

import dreamgym_kit
from dreamgym_kit import Episode, Task
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
BASE = """
    import functools, importlib, json
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, END, MessagesState, StateGraph

    RAN = []
    ASKS = [[("get_order", {"order_id": "o1"})], [("pay_back", {"order": "o1"})], "done"]
    SCHEMA = {"type": "function", "function": {"name": "pay_back", "parameters": {"type": "object"}}}

    class Told(ScriptedModelDouble):
        def bind_tools(self, tools, **kwargs): return self.bind(tools=tools)

    def ran(order):
        RAN.append(order)
        return "refunded"

    def loop(table, model, answered):
        def agent(state):
            return {"messages": [(model() if callable(model) else model).invoke(state["messages"])]}

        def act(state):
            made = []
            for call in state["messages"][-1].tool_calls:
                if call["name"] == "get_order":
                    made.append(get_order.invoke(call))
                else:
                    made.append(answered(str(table()[call["name"]](**call["args"])), call))
            return {"messages": made}

        async def aact(state):
            return act(state)

        made = StateGraph(MessagesState)
        made.add_node("agent", agent)
        made.add_node("act", aact if ASYNC else act)
        made.add_edge(START, "agent")
        made.add_conditional_edges("agent", lambda s: "act" if s["messages"][-1].tool_calls else END)
        made.add_edge("act", "agent")
        return made.compile()

    def as_tool(text, call): return ToolMessage(text, tool_call_id=call["id"], name=call["name"])
    def as_human(text, call): return HumanMessage("Result: " + text)
"""
MADE = """
    def make(user):
        def pay_back(order: str) -> str:
            "Refund an order."
            return ran(order + user)
        return pay_back
    KEPT = {}
    def model():
        KEPT["pay_back"] = make("u1")
        tools = [get_order, StructuredTool.from_function(KEPT["pay_back"])]
        return Told(turns=ASKS).bind_tools(tools)
    graph = loop(lambda: KEPT, model, ANSWERED)
"""
CACHED = """
    @functools.lru_cache
    def pay_back(order: str) -> str:
        "Refund an order."
        return ran(order)
    held = StructuredTool.from_function(pay_back, name="pay_back", description="d")
    graph = loop(lambda: {"pay_back": pay_back}, Told(turns=ASKS).bind_tools([get_order, held]), ANSWERED)
"""
TWICE = """
    bound = Told(turns=ASKS).bind_tools([get_order, SCHEMA])
    graph = loop(lambda: vars(importlib.import_module("OTHER_more")), bound, ANSWERED)
"""
RELOADED = """
    import OTHER_more
    def again():
        importlib.reload(OTHER_more)
        return vars(OTHER_more)
    graph = loop(again, Told(turns=ASKS).bind_tools([get_order, SCHEMA]), ANSWERED)
"""
OVERRIDDEN = """
    class Client:
        def pay_back(self, order): return ran(order)
    class Audited(Client):
        def pay_back(self, order): return ran("audited " + order)
    client = Audited()
    bound = Told(turns=ASKS).bind_tools([get_order, SCHEMA])
    graph = loop(lambda: {"pay_back": client.pay_back}, bound, ANSWERED)
"""
MORE = """
RAN = []
def pay_back(order: str) -> str:
    "Refund an order."
    RAN.append(order)
    return "refunded"
"""
SHAPES = {
    "made per request": (MADE, ""),
    "behind an lru_cache": (CACHED, ""),
    "imported twice": (TWICE, '[functions."pkg_OTHER.OTHER_more:pay_back"]\neffect = "destructive"\n'),
    "loaded again": (RELOADED, '[functions."OTHER_more:pay_back"]\neffect = "destructive"\n'),
    "overridden": (OVERRIDDEN, '[functions."OTHER:Client.pay_back"]\neffect = "destructive"\n'),
}

# Each shape runs one way in the fast suite, the other ways in the slow one.
FAST = (("sync", "as_tool"), ("async", "as_human"))
ROWS = [
    pytest.param(
        *shape,
        way == "async",
        answered,
        id=f"{name}-{way}-{answered}",
        marks=() if (way, answered) == FAST[number % 2] else pytest.mark.slow,
    )
    for number, (name, shape) in enumerate(SHAPES.items())
    for way in ("sync", "async")
    for answered in ("as_tool", "as_human")
]


def simulated(project: Any, source: str, settings: str, *, anync: bool, answered: str) -> Episode:
    """One episode of a shape, its other modules written beside it."""
    name = project.module
    folder = project.folder / f"pkg_{name}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / f"{name}_more.py").write_text(MORE)
    if "reload" in source:
        (project.folder / f"{name}_more.py").write_text(MORE)
    else:
        sys.path.append(str(folder))
    switches = f"ASYNC = {anync}\nANSWERED = {answered}\n"
    graph = project.write(dedent(BASE) + switches + dedent(source.replace("OTHER", name)))
    try:
        result = dreamgym_kit.simulate(
            graph,
            [Task("t", HELLO)],
            experience=ScriptedExperienceDouble(),
            settings=parse_settings(settings.replace("OTHER", name)),
        )
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


def ran(project: Any) -> list[str]:
    """What real bodies left in the memory of the project's modules."""
    return [
        one
        for name, module in list(sys.modules.items())
        if project.module in name
        for one in getattr(module, "RAN", ())
    ]


@pytest.mark.parametrize(("source", "settings", "anync", "answered"), ROWS)
def test_a_function_that_a_node_runs_by_hand_is_dreamt(
    project: Any, source: str, settings: str, anync: bool, answered: str
) -> None:
    episode = simulated(project, source, settings, anync=anync, answered=answered)
    assert ran(project) == []
    assert [entry.call.tool for entry in episode.transitions] == ["get_order", "pay_back"]
    assert (episode.stop, episode.violations) == ("finished", ())


HIDDEN = """
    class Desk:
        def __getattr__(self, name): return eval("lambda order: ran(order)", {"ran": globals()["r" + "an"]})
    desk = Desk()
    @tool
    def pay_back(order: str) -> str:
        "Refund an order."
        return ran(order)
    bound = Told(turns=ASKS).bind_tools([get_order, pay_back])
    graph = loop(lambda: {"pay_back": desk.pay}, bound, ANSWERED)
"""


@each_row("answered", ["as_tool", "as_human"])
@each_row("anync", [False, True], ids=["sync", "async"])
def test_a_call_that_was_answered_past_the_gate_is_executed_beside_others(
    project: Any, anync: bool, answered: str
) -> None:
    episode = simulated(project, HIDDEN, "", anync=anync, answered=answered)
    if answered == "as_tool":
        assert (episode.stop, episode.violations) == ("executed", ())
        assert episode.reason.startswith("1 real call executed: pay_back(")
    else:  # no answer shows that it ran
        assert (episode.stop, episode.executed) == ("violation", ())
        assert "the gate never saw it" in episode.violations[0]
    assert [entry.call.tool for entry in episode.transitions] == ["get_order"]


DECLINED = """
    from langgraph.types import interrupt
    from langgraph.checkpoint.memory import InMemorySaver

    @tool
    def pay_back(order: str) -> str:
        "Refund an order."
        return ran(order)
    bound = Told(turns=ASKS).bind_tools([get_order, pay_back])

    def act(state):
        made = []
        for call in state["messages"][-1].tool_calls:
            if call["name"] == "pay_back" and interrupt({"action": "pay_back", "args": call["args"]}) == "no":
                made.append(as_tool("The user declined.", call))
            else:
                made.append((get_order if call["name"] == "get_order" else pay_back).invoke(call))
        return {"messages": made}

    made = StateGraph(MessagesState)
    made.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    made.add_node("act", act)
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", lambda s: "act" if s["messages"][-1].tool_calls else END)
    made.add_edge("act", "agent")
    graph = made.compile(checkpointer=InMemorySaver())
"""


@each_row(("reply", "tools"), [("no", ["get_order"]), ("yes", ["get_order", "pay_back"])])
def test_a_persons_no_that_the_node_answers_itself_is_no_violation(
    project: Any, reply: str, tools: list[str]
) -> None:
    graph = project.write(dedent(BASE) + "ASYNC = False\n" + dedent(DECLINED))
    task = Task("t", HELLO, replies=(reply,))
    result = dreamgym_kit.simulate(graph, [task], experience=ScriptedExperienceDouble())
    (episode,) = RunDirectory.open(result.directory).episodes()
    assert ([entry.call.tool for entry in episode.transitions], ran(project)) == (tools, [])
    assert (episode.stop, episode.violations) == ("finished", ())


NESTED = """
    @tool
    def pay_back(order: str) -> str:
        "Refund an order."
        return ran(order)
    bound = Told(turns=ASKS).bind_tools([get_order, pay_back])
    TOOLS = {"get_order": get_order, "pay_back": pay_back}
    def run(call): return str(TOOLS[call["name"]].invoke(call["args"]))
    def act(state):
        return {"messages": [
            {"role": "tool", "content": run(call), "tool_call_id": call["id"]}
            for call in state["messages"][-1].tool_calls
        ]}
    inner = StateGraph(MessagesState)
    inner.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    inner.add_node("act", act)
    inner.add_edge(START, "agent")
    inner.add_conditional_edges("agent", lambda s: "act" if s["messages"][-1].tool_calls else END)
    inner.add_edge("act", "agent")
    graph = StateGraph(MessagesState).add_node("inner", inner.compile()).add_edge(START, "inner").compile()
"""


def test_an_answer_in_short_form_of_a_graph_inside_counts_once(project: Any) -> None:
    graph = project.write(dedent(BASE) + "ASYNC = False\n" + dedent(NESTED))
    result = dreamgym_kit.simulate(graph, [Task("t", HELLO)], experience=ScriptedExperienceDouble())
    (episode,) = RunDirectory.open(result.directory).episodes()
    assert (episode.stop, episode.violations, ran(project)) == ("finished", (), [])
    assert sum(message["role"] == "tool" for message in episode.messages) == 2
