"""What a block under `supervised` lets through, stage by stage."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sim_to_real.till import Till, settings_with

from dreamgym_kit.adapters.langgraph.s2r.supervisor import supervised
from dreamgym_kit.errors import RealCallBlocked, UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.report.summary import summarize
from dreamgym_kit.settings.schema import FunctionSettings
from dreamgym_kit.supervision.audit import entries_of, verify
from dreamgym_kit.supervision.limits import RealCallRefused, RealCallsStopped, RunStopped, Why
from dreamgym_kit.types import (
    Answer,
    Approval,
    Call,
    Effect,
    Environment,
    Episode,
    HeldCall,
    Reply,
    Source,
    Transition,
    Verdict,
)


class PriceDouble:
    """An experience model that knows one price."""

    waits = False

    async def answer(self, call: Call, situation: Situation) -> Answer:
        content = {"item": call.args.get("item"), "price": "19.90"}
        return Answer(content=content, source=Source.DERIVED, confidence=1.0)


def overseen(tmp_path: Path, stage: str, **more: Any) -> Any:
    options = {"max_calls": 10, "experience": PriceDouble(), "settings": settings_with(), **more}
    return supervised(stage=stage, audit=tmp_path / "audit.jsonl", **options)


def kinds(tmp_path: Path) -> list[str]:
    return [entry.kind for entry in entries_of(tmp_path / "audit.jsonl")]


def test_in_shadow_reads_are_real_and_writes_are_dreamed(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    with overseen(tmp_path, "shadow") as session:
        assert tools["get_price"].invoke({"item": "cup"}) == {"item": "cup", "price": "19.90"}
        tools["set_price"].invoke({"item": "cup", "price": "5.00"})
        tools["refund"].invoke({"payment": "P1", "parts": {}})
        tools["get_price"].invoke({"item": "cup"})  # after a would-be write
    assert till.done == [("read", "cup")]
    sources = [step.answer.source for step in session.ledger.transitions()]
    assert sources == ["real", "derived", "derived", "derived"]
    assert kinds(tmp_path) == ["begun", "call", "answered", "closed"]


def test_staged_holds_each_write_for_a_yes_to_this_very_call(tmp_path: Path, till: Till) -> None:
    tools, asked = till.tools(), []

    def rule(held: HeldCall) -> bool:
        asked.append((held.call.tool, held.expected.content))
        return held.call.args.get("price") == "5.00"

    with overseen(tmp_path, "approve", approve=rule):
        tools["get_price"].invoke({"item": "cup"})
        tools["set_price"].invoke({"item": "cup", "price": "5.00"})
        with pytest.raises(RunStopped, match="set_price did not run: it was not approved"):
            tools["set_price"].invoke({"item": "cup", "price": "0.01"})
        with pytest.raises(RunStopped):  # after a no nothing real runs, reads neither
            tools["get_price"].invoke({"item": "cup"})
    assert till.done == [("read", "cup"), ("set", ("cup", "5.00"))]
    assert [tool for tool, _ in asked] == ["set_price", "set_price"]
    assert kinds(tmp_path)[-3:] == ["refused", "stopped", "closed"]


def test_live_runs_writes_and_holds_what_cannot_be_undone(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    with overseen(tmp_path, "live", approve=lambda held: False):
        tools["set_price"].invoke({"item": "cup", "price": "19.90"})
        with pytest.raises(RunStopped, match="refund did not run"):
            tools["refund"].invoke({"payment": "P1", "parts": {}})
    assert till.done == [("set", ("cup", "19.90"))]


def test_live_runs_a_destructive_tool_that_is_named_exactly(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    with overseen(
        tmp_path, "live", approve=lambda held: False, settings=settings_with(auto_approve=("refund",))
    ):
        tools["refund"].invoke({"payment": "P1", "parts": {"a": 1}})
    assert till.writes == [("P1", {"a": 1})]


def test_the_budget_is_never_passed_also_not_over_two_blocks(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    with overseen(tmp_path, "live", max_calls=3):
        for _ in range(2):
            tools["get_price"].invoke({"item": "cup"})
    with overseen(tmp_path, "live", max_calls=3):
        tools["get_price"].invoke({"item": "cup"})
        with pytest.raises(RunStopped, match="the budget of 3 real calls is spent"):
            tools["get_price"].invoke({"item": "cup"})
    assert len(till.done) == 3
    assert verify(tmp_path / "audit.jsonl").whole


def test_a_tools_own_limit_stops_before_the_call(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    with overseen(tmp_path, "live", settings=settings_with(max_calls_per_tool={"set_*": 1})):
        tools["set_price"].invoke({"item": "cup", "price": "19.90"})
        with pytest.raises(RunStopped, match=r"set_price: set_\* may be called 1 times for real, and was"):
            tools["set_price"].invoke({"item": "cup", "price": "19.90"})
    assert len(till.done) == 1


def test_without_a_budget_nothing_begins(tmp_path: Path, till: Till) -> None:
    refused = pytest.raises(UserError, match="say how many real calls there may be")
    with refused, overseen(tmp_path, "live", max_calls=None):
        raise AssertionError
    assert till.done == []


def test_a_read_that_writes_is_refused_on_the_way(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    refused = pytest.raises(RealCallBlocked, match=r"set_price \(write\) was about to run inside audit_price")
    with overseen(tmp_path, "live") as session, refused:
        tools["audit_price"].invoke({"item": "cup"})
    assert till.writes == []
    assert session.violations


def test_a_tool_whose_effect_is_a_guess_does_not_run_in_shadow(tmp_path: Path, till: Till) -> None:
    from langchain_core.tools import tool

    @tool
    def get_weather(city: str) -> str:
        """Read the weather."""
        till.done.append(("read", city))
        return "rain"

    with overseen(tmp_path, "shadow"):
        get_weather.invoke({"city": "Bonn"})
    refused = pytest.raises(RunStopped, match="get_weather did not run")
    with overseen(tmp_path, "live", approve=lambda held: False), refused:
        get_weather.invoke({"city": "Bonn"})
    assert till.done == []


def test_one_answer_that_differs_holds_back_the_writes_of_its_episode(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    till.price = "99.00"
    with overseen(tmp_path, "live"):
        tools["get_price"].invoke({"item": "cup"})
        with pytest.raises(RealCallRefused, match="get_price answered otherwise than the dream"):
            tools["set_price"].invoke({"item": "cup", "price": "19.90"})
    assert till.writes == []


def test_a_changed_tool_stops_everything(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    till.price = "99.00"
    with (
        overseen(tmp_path, "live", max_calls=50),
        pytest.raises(RunStopped, match="no longer answers as recorded"),
    ):
        for number in range(50):
            tools["get_price"].invoke({"item": f"cup {number}"})
    assert len(till.done) == 3
    stopped = [entry for entry in entries_of(tmp_path / "audit.jsonl") if entry.kind == "stopped"]
    assert [entry.facts["why"] for entry in stopped] == ["diverged"]


def test_what_siblings_see_alike_counts_once(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    till.price = "99.00"
    with overseen(tmp_path, "live", max_calls=50):
        for _ in range(50):
            tools["get_price"].invoke({"item": "cup"})
    assert len(till.done) == 50


async def test_an_async_tool_is_overseen_as_well(tmp_path: Path, till: Till) -> None:
    from langchain_core.tools import tool

    @tool
    async def set_price(item: str, price: str) -> dict[str, str]:
        """Change a price."""
        till.done.append(("set", (item, price)))
        return {"item": item, "price": price}

    async def rule(held: HeldCall) -> bool:
        return held.call.args["price"] == "19.90"

    with overseen(tmp_path, "approve", approve=rule):
        await set_price.ainvoke({"item": "cup", "price": "19.90"})
        with pytest.raises(RunStopped):
            await set_price.ainvoke({"item": "cup", "price": "0.01"})
    assert till.done == [("set", ("cup", "19.90"))]


def test_a_tools_own_failure_reaches_the_agent_as_itself_and_is_counted(tmp_path: Path, till: Till) -> None:
    from langchain_core.tools import tool

    @tool
    def get_price(item: str) -> str:
        """Read a price."""
        raise ValueError("no such item")

    with overseen(tmp_path, "live") as session, pytest.raises(ValueError, match="no such item"):
        get_price.invoke({"item": "cup"})
    assert [step.answer.error for step in session.ledger.transitions()] == ["no such item"]
    assert kinds(tmp_path) == ["begun", "call", "answered", "closed"]


class AnyApproverDouble:
    """Says yes in a way of its own."""

    def __init__(self, answer: Callable[[HeldCall], Approval]) -> None:
        self._answer = answer

    async def approve(self, held: HeldCall) -> Approval:
        return self._answer(held)


def test_a_stop_that_comes_while_a_call_waits_is_obeyed(tmp_path: Path, till: Till) -> None:
    tools, overseers = till.tools(), []

    def late(held: HeldCall) -> Approval:
        overseers[0].stop(RealCallsStopped(Why.DIVERGED, "another episode has seen it"))
        return Approval(held.digest, "somebody")

    refused = pytest.raises(RunStopped, match="another episode has seen it")
    with overseen(tmp_path, "approve", approve=AnyApproverDouble(late)) as session, refused:
        overseers.append(session.overseer)
        tools["set_price"].invoke({"item": "cup", "price": "5.00"})
    assert till.done == []


def test_where_the_log_cannot_be_written_nothing_runs(
    tmp_path: Path, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = till.tools()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    refused = pytest.raises(RunStopped, match="No space left on device")
    with overseen(tmp_path, "live"), refused:
        monkeypatch.setattr("dreamgym_kit.rollout.line_log.write_whole", full)
        tools["get_price"].invoke({"item": "cup"})
    assert till.done == []


@pytest.mark.slow
def test_a_call_that_was_announced_is_counted_though_the_process_was_killed(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from langchain_core.tools import tool
from sim_to_real.till import settings_with
from dreamgym_kit.adapters.langgraph.s2r.supervisor import supervised

@tool
def get_price(item: str) -> str:
    "Read a price."
    os.kill(os.getpid(), signal.SIGKILL)

with supervised(stage="live", max_calls=1, audit=sys.argv[1], settings=settings_with()):
    get_price.invoke({"item": "cup"})
"""
    log = tmp_path / "audit.jsonl"
    command = [sys.executable, "-c", code, str(log), str(Path(__file__).parents[1])]
    killed = subprocess.run(command, check=False)
    assert killed.returncode == -9
    assert verify(log).whole
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "the budget of 1 real calls is spent" in again.stderr
    assert [entry.kind for entry in entries_of(log)] == [
        "begun",
        "call",
        "unknown",
        "begun",
        "stopped",
        "closed",
    ]


def test_an_answer_that_cannot_be_compared_ends_it_and_is_kept(
    tmp_path: Path, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = till.tools()

    def broken(*_: object) -> str:
        raise KeyError("fresh")

    monkeypatch.setattr("dreamgym_kit.adapters.langgraph.s2r.supervisor.as_seen", broken)
    refused = pytest.raises(RunStopped, match="its answer cannot be compared")
    with overseen(tmp_path, "live") as session, refused:
        tools["get_price"].invoke({"item": "cup"})
    assert [step.answer.source for step in session.ledger.transitions()] == ["real"]


def test_a_report_of_shadow_does_not_take_its_reads_for_a_breach() -> None:
    for mode, said in (("s2r-shadow", False), ("dream", True)):
        step = Transition(Call("get_price", {}), Answer("19.90"), Effect.READ, "a.1", 1)
        ended = Episode("a.1", "a", 1, Environment(), Verdict.PASSED, "fine", transitions=(step,), reward=1.0)
        summary = summarize([ended], {"mode": mode, "graph": "g"})
        assert bool(summary.executed) is said
        assert (summary.verdict is Verdict.FAILED) is said


def test_a_tools_own_question_is_kept_with_its_real_call(tmp_path: Path, till: Till) -> None:
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph
    from langgraph.types import Command, interrupt

    @tool
    def set_price(item: str, price: str) -> str:
        """Change a price."""
        reply = interrupt(f"{item} for {price}?")
        till.done.append(("set", (item, reply)))
        return f"{item}: {reply}"

    def node(state: dict[str, Any]) -> dict[str, Any]:
        calls = [
            {"name": "set_price", "args": {"item": item, "price": "5"}, "id": item, "type": "tool_call"}
            for item in ("cup", "pot")
        ]
        return {"told": [set_price.invoke(call).content for call in calls]}

    made = StateGraph(dict)
    made.add_node("node", node)
    made.add_edge(START, "node")
    graph = made.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    with overseen(tmp_path, "approve", approve=lambda held: True, experience=None) as session:
        graph.invoke({}, config)
        graph.invoke(Command(resume="yes"), config)
        assert graph.invoke(Command(resume="no"), config) == {"told": ["cup: yes", "pot: no"]}
    assert till.done == [("set", ("cup", "yes")), ("set", ("pot", "no"))]  # none of it twice
    assert [step.call.replies for step in session.ledger.transitions()] == [
        (Reply("cup for 5?", "yes"),),
        (Reply("pot for 5?", "no"),),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_calls": -1},
        {"settings": replace(settings_with(), functions={"nope:missing": FunctionSettings(Effect.WRITE)})},
    ],
)
def test_what_is_refused_before_it_begins_leaves_the_audit_log_as_it_was(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(UserError), overseen(tmp_path, "live", **wrong):
        pytest.fail("the block ran")
    assert kinds(tmp_path) == []


def test_arguments_that_change_while_a_call_waits_are_found(tmp_path: Path, till: Till) -> None:
    from langchain_core.tools import tool
    from pydantic import BaseModel

    class Price(BaseModel):
        amount: str

    @tool
    def set_price(item: str, price: Price) -> str:
        """Change a price."""
        till.done.append(("set", (item, price.amount)))
        return "done"

    price = Price(amount="5.00")

    def late(held: HeldCall) -> Approval:
        price.amount = "0.01"  # whoever called still holds it
        return Approval(held.digest, "somebody")

    refused = pytest.raises(RunStopped, match="its arguments were changed on the way")
    with overseen(tmp_path, "approve", approve=AnyApproverDouble(late)), refused:
        set_price.func(item="cup", price=price)
    assert till.done == []
