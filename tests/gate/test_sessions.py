"""A call finds its own session, by context or by key, or it is refused."""

import asyncio
import contextvars
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from each_row import each_row
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from shapes.agents import ADD, with_create_agent
from shapes.canary import Canary, touch
from shapes.middleware import once
from shapes.stage import DREAMT, HELLO, ScriptedExperienceDouble, dream
from shapes.tools import add_tool, async_tool

from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import CONFIG_KEY, PROCESS, awake, current, entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session

pytestmark = pytest.mark.usefixtures("gate")


def outcome(call: Any) -> Any:
    """What a call gives, or the name of what it raises."""
    try:
        return call()
    except BaseException as error:
        return type(error).__name__


def outside(call: Any) -> Any:
    """The outcome of a call in a context that knows of no session."""
    return contextvars.Context().run(outcome, call)


def keyed(session: Session) -> RunnableConfig:
    return {"configurable": {CONFIG_KEY: session.id}}


def test_outside_every_session_calls_are_refused_while_a_dream_is_open_and_run_afterwards(
    canary: Canary,
) -> None:
    tool = add_tool()
    assert tool.invoke(ADD) == 3
    with entered(Session(CallRouter(Mode.RECORD))):
        pass
    assert tool.invoke(ADD) == 3
    with entered(dream()):
        assert outside(lambda: tool.invoke(ADD)) == "RealCallBlocked"
        assert tool.invoke(ADD) == DREAMT
        with entered(dream()):
            assert tool.invoke(ADD) == DREAMT
        assert outside(lambda: tool.invoke(ADD)) == "RealCallBlocked"
    assert tool.invoke(ADD) == tool.func(1, 2) == 3
    assert canary.written() == ["add"] * 4


def test_a_process_does_not_wake_while_a_dream_runs() -> None:
    with entered(dream()), pytest.raises(RealCallBlocked, match=r"1 dream\(s\) are still running"), awake():
        pass


def test_strays_are_kept_and_name_the_tool() -> None:
    with entered(dream()):
        outside(lambda: add_tool().invoke(ADD))
    assert PROCESS.strays == [
        "add was called outside every episode while this process dreams; it did not run"
    ]


def test_a_context_that_outlives_its_session_is_refused(canary: Canary) -> None:
    with entered(dream()):
        context = contextvars.copy_context()
    tool = add_tool()
    assert context.run(outcome, lambda: tool.invoke(ADD)) == "RealCallBlocked"
    assert context.run(outcome, lambda: tool.func(1, 2)) == "RealCallBlocked"
    assert canary.written() == []


async def test_a_task_that_outlives_its_session_is_refused(canary: Canary) -> None:
    tool = async_tool()
    left: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    async def late() -> Any:
        await ended.wait()
        return await tool.ainvoke(ADD)

    async def node(state: Any) -> Any:
        left.append(asyncio.create_task(late()))
        return {"messages": [AIMessage("x")]}

    graph = StateGraph(MessagesState)
    graph.add_node("only", node)
    graph.add_edge(START, "only")
    compiled = graph.compile()
    session = dream()
    with entered(session):
        await compiled.ainvoke(HELLO)
    ended.set()
    with pytest.raises(RealCallBlocked, match="after its episode had ended"):
        await left[0]
    assert canary.written() == []


async def test_a_real_body_lets_nothing_through_that_it_leaves_behind(canary: Canary) -> None:
    left: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    async def later(a: int) -> Any:
        await ended.wait()
        return await outcome_of(poll.ainvoke({"a": a + 1}))

    @tool
    async def poll(a: int) -> str:
        """Look, and look again later."""
        touch(f"poll{a}")
        left.append(asyncio.create_task(later(a)))
        return "real"

    with entered(Session(CallRouter(Mode.RECORD))):
        assert await poll.ainvoke({"a": 0}) == "real"
    with entered(dream()):
        ended.set()
        assert await left[0] == "RealCallBlocked"
    assert canary.written() == ["poll0"]


async def outcome_of(call: Any) -> Any:
    try:
        return await call
    except BaseException as error:
        return type(error).__name__


def test_raw_threads_are_refused_without_the_key_and_answered_with_it(canary: Canary) -> None:
    tool = add_tool()
    session = dream()
    said: list[Any] = []
    with entered(session):
        for config in (keyed(session), None):
            thread = threading.Thread(
                target=lambda config=config: said.append(outcome(lambda: tool.invoke(ADD, config)))
            )
            thread.start()
            thread.join()
    assert said == [DREAMT, "RealCallBlocked"]
    assert canary.written() == []


def test_a_shared_pool_answers_each_piece_of_work_from_its_own_dream(canary: Canary) -> None:
    tool = add_tool()
    with ThreadPoolExecutor(1) as pool:
        for text in ("one", "two"):
            session = dream(ScriptedExperienceDouble(text))
            with entered(session):
                assert pool.submit(tool.invoke, ADD).result() == text
                assert pool.submit(tool.invoke, ADD, keyed(session)).result() == text
                late = contextvars.copy_context()
            assert late.run(pool.submit, outcome, lambda: tool.invoke(ADD)).result() == "RealCallBlocked"
        with entered(dream()):
            assert outside(lambda: pool.submit(tool.invoke, ADD).result()) == "RealCallBlocked"
        assert pool.submit(tool.invoke, ADD).result() == 3
    assert canary.written() == ["add"]


async def test_executor_hops_are_answered(canary: Canary) -> None:
    tool = add_tool()
    loop = asyncio.get_running_loop()
    with entered(dream()):
        assert await asyncio.to_thread(tool.invoke, ADD) == DREAMT
        assert await run_in_executor(None, tool.invoke, ADD) == DREAMT
        assert await loop.run_in_executor(None, tool.invoke, ADD) == DREAMT
    assert canary.written() == []


def test_the_key_alone_is_enough_for_a_whole_graph(canary: Canary) -> None:
    graph = with_create_agent([add_tool()], once())
    session = dream()
    with entered(session):
        context = contextvars.Context()  # nothing of this one is in it
        result = context.run(graph.invoke, HELLO, keyed(session))
    assert [message.content for message in result["messages"]][2] == DREAMT
    assert canary.written() == []


def test_a_key_of_another_session_is_a_violation_of_the_one_it_was_used_in(canary: Canary) -> None:
    tool = add_tool()
    mine, other = dream(), dream()
    with entered(other), entered(mine):
        assert outcome(lambda: tool.invoke(ADD, keyed(other))) == "RealCallBlocked"
    assert mine.violations == ["add was called in one episode with the key of another; it did not run"]
    assert other.violations == []
    assert canary.written() == []


def test_the_key_of_an_ended_session_is_refused(canary: Canary) -> None:
    session = dream()
    with entered(session):
        pass
    said: list[Any] = []
    thread = threading.Thread(
        target=lambda: said.append(outcome(lambda: add_tool().invoke(ADD, keyed(session))))
    )
    thread.start()
    thread.join()
    assert said == ["RealCallBlocked"]
    assert "with the key of an episode that has ended" in PROCESS.strays[0]


def _streamed(session: Session, graph: Any) -> Iterator[Any]:
    """What nobody should do: the session is held across a yield."""
    with entered(session):
        yield from graph.stream(HELLO, keyed(session))


def test_interleaved_generators_that_hold_a_session_are_refused_not_mixed(canary: Canary) -> None:
    graph = with_create_agent([add_tool()], once())
    sessions = [dream(ScriptedExperienceDouble(name)) for name in "abc"]
    streams = [_streamed(session, graph) for session in sessions]
    parts: list[Any] = [[], [], []]
    refused = 0
    for _ in range(6):
        for stream, kept in zip(streams, parts, strict=True):
            try:
                kept.append(next(stream, None))
            except (RealCallBlocked, ValueError):
                refused += 1
    assert refused > 0
    told = [
        {entry.answer.content for entry in session.ledger.transitions()} <= {name}
        for session, name in zip(sessions, "abc", strict=True)
    ]
    assert told == [True, True, True]
    assert canary.written() == []
    current.set(None)
    PROCESS.sessions.clear()


def test_a_block_left_in_another_context_still_ends_its_session() -> None:
    session = dream()
    block = entered(session)
    contextvars.copy_context().run(block.__enter__)
    with pytest.raises(ValueError, match="different Context"):
        block.__exit__(None, None, None)
    assert not session.open
    assert PROCESS.sessions == {}


def _in_child(tool: Any, said: Any) -> None:
    said.put(outcome(lambda: tool.invoke(ADD)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@each_row("control", [(), ("add",)])
def test_a_forked_child_is_refused(control: tuple[str, ...], canary: Canary) -> None:
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    with entered(dream(control=control)):
        child = context.Process(target=_in_child, args=(add_tool(), said))
        child.start()
        assert said.get(timeout=60) == "RealCallBlocked"
        child.join(60)
    assert canary.written() == []


def test_a_recording_beside_a_dream_reaches_the_real_tool_and_the_dream_does_not(canary: Canary) -> None:
    tool = add_tool()
    real = Session(CallRouter(Mode.RECORD))
    with entered(dream()):
        assert contextvars.Context().run(_recorded, real, tool) == 3
        assert tool.invoke(ADD) == DREAMT
    assert real.real_calls == 1
    assert canary.written() == ["add"]


def _recorded(session: Session, tool: Any) -> Any:
    with entered(session):
        return tool.invoke(ADD)


def test_a_recording_begun_inside_a_dream_is_refused_and_latches(canary: Canary) -> None:
    session, inner = dream(), Session(CallRouter(Mode.RECORD))
    with entered(session):
        with pytest.raises(RealCallBlocked, match="a recording was begun inside a dream"), entered(inner):
            add_tool().invoke(ADD)
        assert outcome(lambda: add_tool().invoke(ADD)) == "RealCallBlocked"
    assert canary.written() == []
