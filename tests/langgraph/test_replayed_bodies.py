"""What a body does is part of its call: recorded and dreamt episodes are the same, and no body runs."""

import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import RetryPolicy, interrupt
from pydantic import BaseModel
from shapes.models import ScriptedModelDouble, asks

import dreamgym_kit
from dreamgym_kit import Episode, Task, effect
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings

RAN: list[str] = []


class Key(BaseModel):
    """What the tools take."""

    key: str


def marked(kind: str, name: str) -> Callable[[Callable[..., str]], BaseTool]:
    """A tool with its effect, under a name that no other test has."""

    def make(run: Callable[..., str]) -> BaseTool:
        made: BaseTool = effect(kind)(tool(name)(run))
        return made

    return make


@marked("destructive", "bodies_pay")
def pay(key: str) -> str:
    """Pay."""
    RAN.append("pay")
    return f"{key}: paid {RAN.count('pay')} times"


@marked("write", "bodies_in_thread")
def in_thread(key: str) -> str:
    """Pay in a thread that knows no context."""
    out: list[str] = []
    thread = threading.Thread(target=lambda: out.append(pay.invoke({"key": key})))
    thread.start()
    thread.join()
    return out[0]


@marked("write", "bodies_asking")
def asking(key: str) -> str:
    """Have a graph ask a person twice, which goes on from its checkpoint."""
    inner = StateGraph(MessagesState)
    for name in ("first", "second"):
        inner.add_node(name, functools.partial(_ask, name))
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    inner.add_edge("second", END)
    said = inner.compile().invoke({"messages": [("user", key)]})["messages"]
    return " ".join(str(message.content) for message in said)


def _ask(name: str, _: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"{name} {interrupt(name)}")]}


def flaky_tools() -> list[BaseTool]:
    """Two that fail the first time."""
    failed: set[str] = set()

    @marked("write", "bodies_flaky")
    def flaky(key: str) -> str:
        """Fail once for each key."""
        if key not in failed:
            failed.add(key)
            raise ConnectionError(f"no line for {key}")
        return f"{key} at last"

    return [flaky]


def episode(result: Any) -> Episode:
    (only,) = RunDirectory.open(result.directory).episodes()
    return only


def same_in_dream(graph: Any, tmp_path: Any, replies: tuple[str, ...] = ()) -> None:
    """Record, simulate, compare."""
    task = Task("t", {"messages": [{"role": "user", "content": "go"}]}, expect={"max": {}}, replies=replies)
    settings, buffer = Settings().with_overrides({"runs": str(tmp_path)}), MemoryStore()
    RAN.clear()
    real = episode(dreamgym_kit.record(graph, [task], buffer=buffer, settings=settings))
    ran = list(RAN)
    dream = episode(dreamgym_kit.simulate(graph, [task], buffer=buffer, settings=settings))
    assert ran == RAN
    assert (real.stop, dream.stop) == ("finished", "finished"), (real.reason, dream.reason)
    assert [m for m in real.messages if "within" not in m] == list(dream.messages)


def test_a_thread_of_a_body_without_context_makes_no_calls_of_the_agent(tmp_path: Any) -> None:
    turns = [[asks(in_thread.name, {"key": "a"}, "1")], [asks(pay.name, {"key": "a"}, "2")]]
    model = ScriptedModelDouble(script=[*turns, [asks(pay.name, {"key": "b"}, "3")], "Done."])
    same_in_dream(create_agent(model, [in_thread, pay]), tmp_path)


def test_questions_of_a_graph_inside_a_tool_are_asked_again(tmp_path: Any) -> None:
    model = ScriptedModelDouble(script=[[asks(asking.name, {"key": "a"}, "1")], "Done."])
    same_in_dream(create_agent(model, [asking], checkpointer=InMemorySaver()), tmp_path, ("yes", "no"))


@pytest.mark.parametrize("number", range(3))
def test_a_retry_after_a_failure_of_one_of_two_meets_the_same_siblings(tmp_path: Any, number: int) -> None:
    random.seed(number)
    tools = flaky_tools()
    both = [asks("bodies_flaky", {"key": key}, key) for key in "ab"]
    model = ScriptedModelDouble(script=[both, "Done."]).bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    retry = RetryPolicy(max_attempts=4, initial_interval=0.001, jitter=False)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=False), retry_policy=retry)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    graph.add_edge("tools", "model")
    same_in_dream(graph.compile(), tmp_path)


def backend(action: str, key: str) -> str:
    """Shared by several tools."""
    RAN.append(action)
    return f"{action} {key}"


def lookup(action: str, key: str) -> str:
    """Has one tool, which gives it an action that only looks."""
    RAN.append(action)
    return f"{action} {key}"


def compute(action: str, key: str) -> str:
    """Shared by several tools that only compute."""
    return f"{action} {key}"


def of_partial(body: Callable[..., str], action: str, kind: str) -> BaseTool:
    """A tool over a partial."""
    func = functools.partial(body, action)
    made: BaseTool = effect(kind)(
        StructuredTool(func=func, name=f"bodies_{body.__name__}_{action}", description="d", args_schema=Key)
    )
    return made


@pytest.mark.parametrize(
    ("body", "kind", "action", "stop", "ran"),
    [
        (backend, "destructive", "refund", "finished", []),  # as one of its tools does: answered as that tool
        (backend, "destructive", "other", "violation", []),
        (compute, "pure", "other", "finished", []),
        (lookup, "read", "other", "violation", []),  # no call of its one tool, whose reads may be real
    ],
)
def test_a_function_under_partials_of_tools_is_met_past_them(
    tmp_path: Any, body: Callable[..., str], kind: str, action: str, stop: str, ran: list[str]
) -> None:
    names = ("view",) if body is lookup else ("refund", "close")
    tools = [of_partial(body, name, kind) for name in names]

    def act(state: MessagesState) -> dict[str, Any]:
        said = [*(each.invoke({"key": "a"}) for each in tools), passing.invoke({"key": "b"})]
        return {"messages": [("ai", str(said))]}

    @marked("control", f"bodies_passing_{body.__name__}_{action}")
    def passing(key: str) -> str:
        """Call the function past its tools."""
        return body(action, key)

    graph = StateGraph(MessagesState)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    compiled = graph.compile()
    task = Task("t", {"messages": [{"role": "user", "content": "go"}]}, expect={"max": {}})
    settings, buffer = Settings().with_overrides({"runs": str(tmp_path)}), MemoryStore()
    dreamgym_kit.record(compiled, [task], buffer=buffer, settings=settings)
    RAN.clear()
    dream = episode(dreamgym_kit.simulate(compiled, [task], buffer=buffer, settings=settings))
    assert (dream.stop, RAN) == (stop, ran), dream.reason
