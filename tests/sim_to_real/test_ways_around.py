"""Ways around the overseer that somebody found, each shut: what runs was let run, counted, written down."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from sim_to_real.till import Till, settings_with
from waiting import wait_until, wait_until_async

from dreamgym_kit.adapters.langgraph.s2r.supervisor import supervised
from dreamgym_kit.errors import RealCallBlocked, RunDirectoryError, UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.supervision.audit import AuditLog, Entry, entries_of, verify
from dreamgym_kit.supervision.limits import RealCallRefused, RealCallsStopped, RunStopped, Why
from dreamgym_kit.types import Answer, Call, HeldCall, Source


def overseen(tmp_path: Path, stage: str, **more: Any) -> Any:
    return supervised(
        stage=stage, audit=tmp_path / "audit.jsonl", **{"max_calls": 10, "settings": settings_with(), **more}
    )


def log_of(tmp_path: Path) -> list[Entry]:
    return list(entries_of(tmp_path / "audit.jsonl"))


def test_a_tool_that_calls_itself_is_asked_about_and_counted_each_time(tmp_path: Path, till: Till) -> None:
    asked: list[Any] = []

    @tool
    def set_price(item: str, price: str) -> str:
        """Change a price, and another one on the way."""
        till.done.append(("set", (item, price)))
        return item if item == "cheap" else str(set_price.invoke({"item": "cheap", "price": "0.01"}))

    def rule(held: HeldCall) -> bool:
        asked.append(held.call.args["item"])
        return held.call.args["item"] == "cup"

    refused = pytest.raises(RunStopped, match="set_price did not run: it was not approved")
    with overseen(tmp_path, "approve", approve=rule), refused:
        set_price.invoke({"item": "cup", "price": "5.00"})
    assert asked == ["cup", "cheap"]
    assert till.done == [("set", ("cup", "5.00"))]


async def test_an_async_tool_that_calls_itself_is_counted_each_time(tmp_path: Path, till: Till) -> None:
    @tool
    async def get_price(item: str) -> str:
        """Read a price, and then another one."""
        till.done.append(("read", item))
        return str(await get_price.ainvoke({"item": f"{item}+"}))

    with (
        overseen(tmp_path, "live", max_calls=3),
        pytest.raises(RunStopped, match="the budget of 3 real calls"),
    ):
        await get_price.ainvoke({"item": "cup"})
    assert len(till.done) == 3


def test_an_overseer_of_ones_own_cannot_be_begun_inside_another_ones_session(
    tmp_path: Path, till: Till
) -> None:
    tools = till.tools()
    inside = supervised(stage="live", max_calls=99, audit=tmp_path / "own.jsonl", settings=settings_with())
    refused = pytest.raises(RealCallBlocked, match="whose real calls are overseen; none may run past it")
    with overseen(tmp_path, "shadow"), refused, inside:
        tools["set_price"].invoke({"item": "cup", "price": "0.01"})
    assert till.done == []


def test_two_names_of_one_log_do_not_make_two_budgets(tmp_path: Path, till: Till) -> None:
    tools, other = till.tools(), tmp_path / "other.jsonl"
    with overseen(tmp_path, "live"):
        tools["get_price"].invoke({"item": "cup"})
        os.link(tmp_path / "audit.jsonl", other)
        with pytest.raises(RunDirectoryError, match="somebody else is writing it"):
            AuditLog(other)
    assert verify(other).whole


def test_a_block_does_not_go_on_where_dream_and_reality_had_parted(tmp_path: Path, till: Till) -> None:
    tools = till.tools()
    with overseen(tmp_path, "live") as session:
        session.overseer.stop(RealCallsStopped(Why.DIVERGED, "get_price has changed"))
    refused = pytest.raises(UserError, match="ended because get_price has changed")
    with refused, overseen(tmp_path, "live"):
        tools["set_price"].invoke({"item": "cup", "price": "5.00"})
    assert till.done == []


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_a_rule_that_hangs_is_a_no_when_its_time_is_over(tmp_path: Path, till: Till, in_a_loop: bool) -> None:
    tools, asked, hanging = till.tools(), threading.Event(), threading.Event()

    def rule(held: HeldCall) -> bool:
        asked.set()
        return hanging.wait()

    async def call() -> None:
        others = asyncio.create_task(wait_until_async(asked.is_set, "the question"))
        try:
            await tools["set_price"].ainvoke({"item": "cup", "price": "5.00"})
        finally:
            await others  # they go on while the rule hangs

    refused = pytest.raises(RunStopped, match=r"nobody approved it within 0\.3 s")
    try:
        with (
            overseen(tmp_path, "approve", approve=rule, settings=settings_with(approval_timeout_s=0.3)),
            refused,
        ):
            if in_a_loop:
                asyncio.run(call())
            else:
                tools["set_price"].invoke({"item": "cup", "price": "5.00"})
    finally:
        hanging.set()
    assert till.done == []


def test_a_question_is_withdrawn_when_the_run_stops(tmp_path: Path, till: Till) -> None:
    tools, sessions = till.tools(), []

    async def rule(held: HeldCall) -> bool:
        sessions[0].overseer.stop(RealCallsStopped(Why.DIVERGED, "another episode has seen it"))
        await asyncio.sleep(3600)
        return True

    with overseen(tmp_path, "approve", approve=rule) as session:
        sessions.append(session)
        with pytest.raises(RunStopped, match="another episode has seen it"):
            tools["set_price"].invoke({"item": "cup", "price": "5.00"})
    assert till.done == []
    told = [entry.facts["text"] for entry in log_of(tmp_path) if entry.kind == "refused"]
    assert told == ["real calls had ended before it was approved"]


class PriceDouble:
    """An experience model that knows one price."""

    waits = False

    async def answer(self, call: Call, situation: Situation) -> Answer:
        content = {"item": call.args.get("item"), "price": "19.90"}
        return Answer(content=content, source=Source.DERIVED, confidence=1.0)


@pytest.mark.parametrize("stage", ["approve", "live"])
def test_a_doubt_that_comes_while_a_write_waits_holds_it_back(tmp_path: Path, till: Till, stage: str) -> None:
    """The yes was said before anybody knew; and what waits for its turn was let through before."""
    tools, waiting = till.tools(), threading.Event()
    till.price = "99.00"

    def rule(held: HeldCall) -> bool:
        tools["get_price"].invoke({"item": "cup"})  # in the same episode, in the meantime
        return True

    def pause(tool: str) -> float:
        if tool == "set_price" and not waiting.is_set():
            waiting.set()
            tools["get_price"].invoke({"item": "cup"})
        return 0.0

    refused = pytest.raises(RealCallRefused, match="while it waited, get_price answered otherwise")
    options = {"approve": rule} if stage == "approve" else {}
    with overseen(tmp_path, stage, experience=PriceDouble(), **options) as session, refused:
        if stage == "live":
            session.overseer.limits.pause_s = pause
        tools["set_price"].invoke({"item": "cup", "price": "5.00"})
    assert till.writes == []
    assert [entry.kind for entry in log_of(tmp_path)][-2:] == ["withheld", "closed"]


def parallel_calls(till: Till) -> tuple[Any, dict[str, Any]]:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(list(till.tools().values())))
    builder.add_edge(START, "tools")
    calls = [
        {"name": "set_price", "args": {"item": "cup", "price": "5.00"}, "id": "1"},
        {"name": "get_price", "args": {"item": "cup"}, "id": "2"},
    ]
    return builder.compile(checkpointer=InMemorySaver()), {"messages": [AIMessage("", tool_calls=calls)]}


def test_what_was_approved_before_a_doubt_is_shown_again_with_it(tmp_path: Path, till: Till) -> None:
    """A write and a read in one turn: the write is shown, the read differs, and only then comes the yes."""
    till.price = "99.00"
    config: Any = {"configurable": {"thread_id": "1"}}
    reading = threading.Event()

    class WaitsForReadDouble(PriceDouble):
        """A node that is interrupted begins none of its other calls: the read has to have begun."""

        waits = True

        async def answer(self, call: Call, situation: Situation) -> Answer:
            if call.tool == "set_price":
                await wait_until_async(reading.is_set, "the read")
            return await super().answer(call, situation)

    def till_the_write_is_shown() -> None:
        reading.set()
        wait_until(lambda: "held" in [entry.kind for entry in log_of(tmp_path)], "the write that is shown")

    till.before_read = till_the_write_is_shown
    with overseen(tmp_path, "approve", experience=WaitsForReadDouble()):
        graph, asked = parallel_calls(till)
        state = graph.invoke(asked, config)
        first = state["__interrupt__"][0].value
        assert first["doubts"] == []
        state = graph.invoke(Command(resume={"approve": True, "digest": first["digest"]}), config)
        assert till.writes == []
        second = state["__interrupt__"][0].value
        assert second["digest"] != first["digest"]
        assert second["doubts"] == ["get_price answered otherwise than the dream, which was sure, expected"]
        graph.invoke(Command(resume={"approve": True, "digest": second["digest"]}), config)
        graph.invoke(Command(resume={"approve": True, "digest": second["digest"]}), config)  # once more
    assert till.writes == [("cup", "5.00")]


@pytest.mark.parametrize("value", [float("nan"), {"p": float("inf")}, [[float("nan")]], "\ud800", b"\xff"])
def test_an_answer_that_is_no_json_is_kept_and_written_down(tmp_path: Path, till: Till, value: Any) -> None:
    @tool
    def get_price(item: str) -> Any:
        """Read a price."""
        return value

    with overseen(tmp_path, "live") as session:
        get_price.invoke({"item": "cup"})
    assert [entry.kind for entry in log_of(tmp_path)] == ["begun", "call", "answered", "closed"]
    assert len(session.ledger.transitions()) == 1


def test_an_answer_that_cannot_be_kept_ends_the_run_and_does_not_pass_for_the_tools_failure(
    tmp_path: Path, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = till.tools()

    def broken(*_: object) -> str:
        raise ValueError("no form")

    monkeypatch.setattr("dreamgym_kit.supervision.overseer.observation", broken)
    with overseen(tmp_path, "live"):
        for _ in range(2):
            with pytest.raises(RunStopped, match="get_price: its answer cannot be kept"):
                tools["get_price"].invoke({"item": "cup"})
    assert till.done == [("read", "cup")]


def in_a_process(code: str, log: Path) -> subprocess.CompletedProcess[str]:
    head = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from langchain_core.tools import tool
from sim_to_real.till import settings_with
from dreamgym_kit.adapters.langgraph.s2r.supervisor import supervised

@tool
def set_price(item: str, price: str) -> str:
    "Change a price."
    print("RAN", flush=True)
    return "done"
"""
    command = [sys.executable, "-c", head + code, str(log), str(Path(__file__).parents[1])]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_an_approval_does_not_outlive_a_process_that_was_killed_before_the_call(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    killed = in_a_process(
        """
from dreamgym_kit.supervision.limits import RealLimits
RealLimits.take = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
options = {"audit": sys.argv[1], "settings": settings_with(), "approve": lambda held: True}
with supervised(stage="approve", max_calls=9, **options):
    set_price.invoke({"item": "cup", "price": "5.00"})
""",
        log,
    )
    assert (killed.returncode, killed.stdout) == (-9, "")
    assert [entry.kind for entry in entries_of(log)] == ["begun", "held", "approved"]
    again = in_a_process(
        """
options = {"audit": sys.argv[1], "settings": settings_with(), "approve": lambda held: False}
with supervised(stage="approve", max_calls=9, **options):
    set_price.invoke({"item": "cup", "price": "5.00"})
""",
        log,
    )
    assert again.stdout == ""
    assert "it was not approved" in again.stderr
    assert verify(log).whole
