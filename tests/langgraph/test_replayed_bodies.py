"""Recorded and dreamt episodes are the same: no body runs, and a view shows the same of an answer."""

import functools
import json
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings, ToolSettings
from dreamgym_kit.settings.views import seen_through, viewed
from dreamgym_kit.types import Answer, Call, Effect, Transition

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

    compiled = StateGraph(MessagesState).add_node("act", act).add_edge(START, "act").compile()
    task = Task("t", {"messages": [{"role": "user", "content": "go"}]}, expect={"max": {}})
    settings, buffer = Settings().with_overrides({"runs": str(tmp_path)}), MemoryStore()
    dreamgym_kit.record(compiled, [task], buffer=buffer, settings=settings)
    RAN.clear()
    dream = episode(dreamgym_kit.simulate(compiled, [task], buffer=buffer, settings=settings))
    assert (dream.stop, RAN) == (stop, ran), dream.reason


PAGE = (
    "<!doctype html><html><head><title>Orders</title><script>track()</script></head>"
    "<body><h1>Order <b>7</b></h1><p>1 &lt; 2 &amp; <a href='/x'>open</a></p>"
    "<input value='blue'></body></html>"
)


ROWS = {"results": [{"id": 1, "name": "a", "html": "<i>x</i>"}, {"id": 2, "html": PAGE}], "took_ms": 12}


VIEWS: dict[str, tuple[tuple[str, ...], Any, Any]] = {
    "fields of items": (
        ("results[].name", "took_ms"),
        ROWS,
        {"results": [{"name": "a"}, {}], "took_ms": 12},
    ),
    "first items": (("results[:1].id",), ROWS, {"results": [{"id": 1}]}),
    "any key": (
        ("*[].id",),
        {"a": [{"id": 1, "b": 2}], "c": [{"id": 3}]},
        {"a": [{"id": 1}], "c": [{"id": 3}]},
    ),
    "page": (("text()",), PAGE, "Orders\nOrder 7\n1 < 2 & open\nblue"),
    "page in an object": (("results[:1].html.text()",), ROWS, {"results": [{"html": "x"}]}),
    "JSON in a text": (("took_ms",), json.dumps(ROWS), '{"took_ms": 12}'),
    "blocks": (("text()",), [{"type": "text", "text": "<p>hi</p>"}], [{"type": "text", "text": "hi"}]),
    "a text that shows a tag": (("text()",), "<p>&lt;b&gt;</p>", "&lt;b>"),
    "an image beside": (
        ("text()",),
        [{"type": "text", "text": "<p>hi</p>"}, {"type": "image", "url": "u"}],
        [{"type": "text", "text": "hi"}, {"type": "image", "url": "u"}],
    ),
    "what is never closed": (("text()",), "<p>paid</p><![x[y", "paid\n&lt;![x[y"),
    "another form": (("results[].name",), "no such order", "no such order"),
    "none of its parts": (("results[].name",), {"error": "not found"}, {"error": "not found"}),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_the_parts_that_it_names_and_is_stable(name: str) -> None:
    paths, content, expected = VIEWS[name]
    view = viewed(Answer(content), paths)
    assert view.content == expected
    assert viewed(view, paths) is view


@pytest.mark.parametrize("path", ["", "a..b", "a[0]", "a[", "text().a"])
def test_a_wrong_path_is_refused_where_it_stands(tmp_path: Path, path: str) -> None:
    file = tmp_path / "dreamgym.toml"
    file.write_text(f'[tools.get]\neffect = "read"\nview = ["{path}"]\n', "utf-8")
    with pytest.raises(UserError, match=rf"dreamgym\.toml:3: .*view.*{'path' if path else ''}"):
        load_settings(file)


@effect("read")
@tool("views_get_order", response_format="content_and_artifact")
def get_order(order: str) -> tuple[dict[str, Any], list[str]]:
    """Look an order up."""
    return {"id": order, "status": "open", "page": PAGE, "log": ["x"] * 1_000}, [order]


def told(settings: Settings, buffer: Any, *, real: bool, tmp_path: Path) -> list[Any]:
    model = ScriptedModelDouble(script=[[asks("views_get_order", {"order": "o1"}, "1")], "Done."])
    run = dreamgym_kit.record if real else dreamgym_kit.simulate
    task = Task("t", {"messages": [{"role": "user", "content": "go"}]}, expect={"max": {}})
    result = run(create_agent(model, [get_order]), [task], buffer=buffer, settings=settings)
    (episode,) = RunDirectory.open(result.directory).episodes()
    return [message["content"] for message in episode.messages if message["role"] == "tool"]


@pytest.mark.parametrize("recorded_with_view", [True, False])
def test_the_agent_sees_the_view_of_real_and_dreamed_answers(
    tmp_path: Path, recorded_with_view: bool
) -> None:
    whole = Settings().with_overrides({"runs": str(tmp_path)})
    with_view = whole.with_overrides(
        {"tools": {"views_get_order": ToolSettings(Effect.READ, view=("status", "page.text()"))}}
    )
    buffer = MemoryStore()
    real = told(with_view if recorded_with_view else whole, buffer, real=True, tmp_path=tmp_path)
    dream = told(with_view, buffer, real=False, tmp_path=tmp_path)
    view = {"status": "open", "page": "Orders\nOrder 7\n1 < 2 & open\nblue"}
    assert json.loads(dream[0]) == view
    assert not recorded_with_view or real == dream
    (row,) = buffer.scan()
    assert (row.answer.content == view) == recorded_with_view
    assert row.answer.artifact == ["o1"]


HOSTILE = ["<a ", "<a b='", "<!--", "<![x[", "<script>", "<p/", "&lt;", "<b>", "<a b='>", "<\"'>"]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_page_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def work(pieces: int) -> int:
        text, steps = piece * pieces, 0

        def step(frame: Any, event: str, argument: Any) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(step)
        try:
            view = viewed(Answer(text), ("text()",))
        finally:
            sys.setprofile(None)
        assert viewed(view, ("text()",)).content == view.content
        return steps

    assert work(4_000) <= 5 * work(1_000) + 100


def test_a_failure_is_not_viewed_and_a_secret_that_a_view_shows_is_masked() -> None:
    failed = Answer("<p>no such order</p>", error="no such order")
    assert viewed(failed, ("text()",)) is failed
    buffer = MemoryStore()
    row = Transition(Call("page", {}), Answer("<p>a&amp;b</p>"), Effect.READ, "e", 1)
    buffer.put([row])
    tools = {"page": ToolSettings(Effect.READ, view=("text()",))}
    hide = lambda answer: replace(answer, content=str(answer.content).replace("a&b", "*"))  # noqa: E731
    (seen,) = seen_through(buffer, tools, hide).scan()
    assert seen.answer.content == "*"
