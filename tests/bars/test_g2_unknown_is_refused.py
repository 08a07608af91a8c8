"""Bar G2: what nobody registered is answered by the dream or refused by name, never run.

Random graphs: some names are tools, some plain functions, some bare schemas, some made while running,
some renamed; nodes run them through a ToolNode or by themselves; the model also invents names.
"""

import asyncio
import functools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from shapes.canary import Canary, canary_in, touch
from shapes.models import ScriptedModelDouble, StreamingModelDouble, asks
from shapes.stage import DREAMT, HELLO, dream, tool_messages

from dreamgym_kit.adapters.langgraph.intercept import chat_models
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.install import install, uninstall
from dreamgym_kit.errors import RealCallBlocked, RealCallExecuted
from dreamgym_kit.routing.process import entered

KINDS = ("tool", "renamed tool", "tool made later", "function", "schema", "untold function", "partial")
HELD = ("tool", "renamed tool", "tool made later", "function")
NAMES = ("refund", "get_order", "send_mail", "cancel", "lookup")


@dataclass(frozen=True)
class Plan:
    """One random graph: what stands behind each name, who runs it, and what the model asks for."""

    kinds: dict[str, str]
    asked: list[list[str]]  # names by turn
    streaming: bool
    is_async: bool
    with_tool_node: bool


@st.composite
def plans(draw: Any) -> Plan:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    with_tool_node = draw(st.booleans())
    kinds = {
        name: draw(st.sampled_from(("tool", "renamed tool", "function") if with_tool_node else KINDS))
        for name in names
    }
    asked = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3), min_size=1, max_size=3))
    return Plan(kinds, asked, draw(st.booleans()), draw(st.booleans()), with_tool_node)


def _body(name: str) -> Callable[[str], str]:
    def body(order: str) -> str:
        """Do it."""
        touch(name)
        return "real"

    body.__name__ = body.__qualname__ = name
    return body


def _tool(name: str, *, renamed: bool) -> StructuredTool:
    made = StructuredTool.from_function(_body("before"), name="before" if renamed else name, description="d")
    made.name = name
    return made


@dataclass
class Built:
    """What is bound to the model, and what the nodes run by name."""

    bound: list[Any]
    run: dict[str, Any]


def _build(plan: Plan, model: ScriptedModelDouble) -> Built:
    built = Built([], {})
    for name, kind in plan.kinds.items():
        body = _body(name)
        if kind in ("tool", "renamed tool"):
            made = _tool(name, renamed=kind == "renamed tool")
            built.bound.append(made)
            built.run[name] = made
        elif kind == "tool made later":
            built.run[name] = functools.partial(_tool, name, renamed=False)
        elif kind == "function":
            built.bound.append(body)
            built.run[name] = body
        elif kind == "schema":
            built.bound.append(convert_to_openai_tool(body))
            built.run[name] = body
        elif kind == "partial":
            built.run[name] = functools.update_wrapper(functools.partial(body), body)
            HOLDINGS.add_bound(model, [built.run[name]], structured=False)
        else:
            built.run[name] = body
    return built


def _graph(plan: Plan) -> Any:
    kind = StreamingModelDouble if plan.streaming else ScriptedModelDouble
    script = [[asks(name, {"order": "o1"}) for name in turn] for turn in plan.asked]
    model = kind(script=[*script, "done"])
    built = _build(plan, model)
    bound = model.bind_tools(built.bound) if built.bound else model

    def by_hand(state: Any) -> Any:
        messages = []
        for call in state["messages"][-1].tool_calls:
            target = built.run[call["name"]]
            if plan.kinds[call["name"]] == "tool made later":
                target = target()
            given = call["args"]
            said = target.invoke(given) if isinstance(target, StructuredTool) else target(**given)
            messages.append(ToolMessage(said, tool_call_id=call["id"]))
        return {"messages": messages}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(list(built.run.values())) if plan.with_tool_node else by_hand)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def _unheld(plan: Plan) -> str | None:
    """The first name asked for that no gate holds; a tool made later is held once it is made."""
    return next((n for turn in plan.asked for n in turn if plan.kinds[n] not in HELD), None)


def run(plan: Plan, canary: Canary) -> str:
    """Run one plan in a dream; says what became of it."""
    install()
    try:
        graph = _graph(plan)
        with entered(dream()):
            result = asyncio.run(graph.ainvoke(HELLO)) if plan.is_async else graph.invoke(HELLO)
        said = [message.content for message in tool_messages(result)]
        return "dreamt" if said and set(said) == {DREAMT} else f"odd: {said}"
    except RealCallBlocked as refusal:
        return f"refused: {refusal}"
    finally:
        uninstall()


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    with tempfile.TemporaryDirectory() as folder, canary_in(Path(folder)) as here:
        yield here


def _check(plan: Plan, canary: Canary) -> str:
    """Hold one plan against the bar; says in one word what became of it."""
    canary.clear()
    outcome = run(plan, canary)
    assert canary.written() == []
    assert canary.heard() == 0
    unheld = _unheld(plan)
    if unheld is None:
        assert outcome == "dreamt" or ("tool made later" in plan.kinds.values() and "refused" in outcome)
    else:
        assert outcome.startswith("refused:")
        assert any(f"'{name}'" in outcome for name in plan.kinds)
    return outcome.partition(":")[0]


LONG = int(os.environ.get("LONG_EXAMPLES", "300"))  # 2000 at night
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.slow
def test_twenty_random_graphs_run_nothing_real(canary: Canary) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=QUIET)
    @given(plan=plans())
    def drawn(plan: Plan) -> None:
        counts[_check(plan, canary)] += 1

    drawn()
    print(f"G2 passed 0 of {counts.total()} graphs: {dict(counts)}")
    assert counts.keys() == {"dreamt", "refused"}  # they were of both kinds


def test_a_gate_that_trusts_every_name_is_found_out(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_models, "_check_interceptable", lambda *_: None)
    plan = Plan({"refund": "schema"}, [["refund"]], streaming=False, is_async=False, with_tool_node=False)
    with pytest.raises((AssertionError, RealCallExecuted)):  # the check after the turn may see it first
        _check(plan, canary)
    canary.clear()


@pytest.mark.slow
@settings(max_examples=LONG, deadline=None, suppress_health_check=QUIET)
@given(plan=plans())
@pytest.mark.nightly
def test_many_random_graphs_run_nothing_real(plan: Plan, canary: Canary) -> None:
    _check(plan, canary)
