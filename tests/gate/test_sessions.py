"""A call finds its own session or is refused; what an episode began never runs after its dream."""

import _thread
import asyncio
import contextvars
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import SimpleQueue
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
from waiting import PATIENCE_S, wait_until

from dreamgym_kit import recording
from dreamgym_kit.adapters.stores.memory import MemoryStore
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

    compiled = StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile()
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


RAN: list[str] = []


@tool
def pay(who: str) -> str:
    """Pay somebody."""
    RAN.append(who)
    return "paid"


@tool
async def pay_async(who: str) -> str:
    """Pay somebody."""
    RAN.append(who)
    return "paid"


@pytest.fixture(autouse=True)
def _nobody_paid() -> None:
    RAN.clear()


class Left:
    """What an episode leaves: it pays once the dream is over, and says what came of it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.came: SimpleQueue[str] = SimpleQueue()

    def pays(self, *_: Any) -> None:
        self.over.wait(PATIENCE_S)
        self.came.put(what_came_of(lambda: pay.invoke({"who": "left"})))

    def pays_now(self, *_: Any) -> None:
        self.came.put(what_came_of(lambda: pay.invoke({"who": "left"})))

    async def pays_later(self) -> None:
        while not self.over.is_set():
            await asyncio.sleep(0.005)
        try:
            self.came.put(await pay_async.ainvoke({"who": "left"}))
        except RealCallBlocked:
            self.came.put("refused")


def what_came_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RealCallBlocked:
        return "refused"


@pytest.fixture(scope="module")
def pools() -> Iterator[tuple[ThreadPoolExecutor, ThreadPool]]:
    """Pools of the caller's, older than any dream."""
    with ThreadPoolExecutor(1) as pool, ThreadPool(1) as older:
        pool.submit(int).result()
        yield pool, older


def _thread_of_a_thread(left: Left) -> None:
    inner = threading.Thread(target=left.pays, daemon=True)
    outer = threading.Thread(target=inner.start)
    outer.start()
    outer.join()


def _raw_thread_of_a_thread(left: Left) -> None:
    outer = threading.Thread(target=_thread.start_new_thread, args=(left.pays, ()))
    outer.start()
    outer.join()


def _own_run(left: Left) -> None:
    class Mine(threading.Thread):
        def run(self) -> None:
            left.pays()

    Mine(daemon=True).start()


def _pool_of_a_thread(left: Left, pool: ThreadPoolExecutor) -> None:
    outer = threading.Thread(target=pool.submit, args=(left.pays,))
    outer.start()
    outer.join()


THREADED: dict[str, Callable[[Left, ThreadPoolExecutor, ThreadPool], Any]] = {
    "thread": lambda left, *_: threading.Thread(target=left.pays, daemon=True).start(),
    "thread with a run of its own": lambda left, *_: _own_run(left),
    "thread of a thread": lambda left, *_: _thread_of_a_thread(left),
    "timer": lambda left, *_: threading.Timer(0, left.pays).start(),
    "raw thread": lambda left, *_: _thread.start_new_thread(left.pays, ()),
    "raw thread of a thread": lambda left, *_: _raw_thread_of_a_thread(left),
    "thread in an empty context": lambda left, *_: threading.Thread(
        target=contextvars.Context().run, args=(left.pays,), daemon=True
    ).start(),
    "the caller's pool": lambda left, pool, _: pool.submit(left.pays),
    "the caller's pool, an empty context": lambda left, pool, _: pool.submit(
        contextvars.Context().run, left.pays
    ),
    "the caller's pool, from a thread": lambda left, pool, _: _pool_of_a_thread(left, pool),
    "a pool of its own": lambda left, *_: ThreadPoolExecutor(1).submit(left.pays),
    "the caller's older pool": lambda left, _, older: older.apply_async(left.pays),
    "the caller's older pool, mapped": lambda left, _, older: older.map_async(left.pays, [1]),
    "the caller's older pool, lazily": lambda left, _, older: older.imap_unordered(left.pays, [1]),
    "an answer heard in the caller's older pool": lambda left, _, older: older.apply_async(
        left.over.wait, (PATIENCE_S,), {}, left.pays
    ),
}


@each_row("way", THREADED)
def test_what_an_episode_began_never_pays(way: str, pools: tuple[ThreadPoolExecutor, ThreadPool]) -> None:
    RAN.clear()
    left = Left()
    with entered(dream()):
        THREADED[way](left, *pools)
    assert pay.invoke({"who": "caller"}) == "paid"
    left.over.set()
    assert left.came.get(timeout=PATIENCE_S) == "refused"
    assert pools[0].submit(pay.invoke, {"who": "pool"}).result() == "paid"
    assert pools[1].apply(pay.invoke, ({"who": "older"},)) == "paid"
    assert RAN == ["caller", "pool", "older"]


def _portal(left: Left, loop: asyncio.AbstractEventLoop) -> None:
    """From a bare thread onto the caller's loop, whose context knows nothing of the episode."""
    outer = threading.Thread(target=asyncio.run_coroutine_threadsafe, args=(left.pays_later(), loop))
    outer.start()
    outer.join()


ON_LOOP: dict[str, Callable[[Left, asyncio.AbstractEventLoop], Any]] = {
    "task": lambda left, loop: loop.create_task(left.pays_later()),
    "later": lambda left, loop: loop.call_later(0, left.pays_now),
    "soon": lambda left, loop: loop.call_soon(left.pays_now),
    "executor": lambda left, loop: loop.run_in_executor(None, left.pays),
    "from a thread": lambda left, loop: _portal(left, loop),
    "soon, from a thread": lambda left, loop: threading.Thread(
        target=loop.call_soon_threadsafe, args=(left.pays_now,)
    ).start(),
}


@each_row("way", ON_LOOP)
async def test_what_an_episode_left_on_the_callers_loop_never_pays(way: str) -> None:
    RAN.clear()
    left, kept = Left(), []
    with entered(dream()):
        kept.append(ON_LOOP[way](left, asyncio.get_running_loop()))
    assert await pay_async.ainvoke({"who": "caller"}) == "paid"
    left.over.set()
    came = await asyncio.to_thread(left.came.get, timeout=PATIENCE_S)
    assert came == "refused"
    assert RAN == ["caller"]


def test_a_callback_on_the_callers_future_belongs_to_the_episode() -> None:
    left, future = Left(), Future[int]()
    with entered(dream()):
        future.add_done_callback(left.pays_now)
    future.set_result(1)
    assert left.came.get(timeout=PATIENCE_S) == "refused"


EXITS = """
import atexit
from langchain_core.tools import tool
from dreamgym_kit import dreaming

@tool
def pay(who: str) -> str:
    "Pay somebody."
    print("paid", who)

def pays(who):
    pay.invoke({"who": who})

atexit.register(pays, "caller")
with dreaming():
    assert atexit.register(pays, "left") is pays
    atexit.register(print, "taken back")
    atexit.unregister(print)
    atexit.register(print, "told at last")
"""


def test_an_exit_handler_of_an_episode_never_pays_and_can_be_taken_back(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", EXITS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["told at last", "paid caller"]
    assert said.stderr == ""


def _finalized(left: Left) -> Callable[[], Any]:
    kept = [Left()]
    weakref.finalize(kept[0], left.pays_now)
    return kept.clear


def _signalled(left: Left) -> Callable[[], Any]:
    before = signal.signal(signal.SIGUSR1, left.pays_now)

    def fire() -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, before)

    return fire


def _thread_failed(left: Left) -> Callable[[], Any]:
    over = threading.Event()

    def fails() -> None:
        over.wait(PATIENCE_S)
        raise ValueError

    thread = threading.Thread(target=fails)
    thread.start()

    def fire() -> None:
        before, threading.excepthook = threading.excepthook, left.pays_now
        over.set()
        thread.join()
        threading.excepthook = before

    return fire


@each_row("leaves", [_finalized, _signalled, _thread_failed], ids=lambda one: one.__name__)
def test_what_an_episode_leaves_for_another_event_never_pays(
    leaves: Callable[[Left], Callable[[], Any]],
) -> None:
    left = Left()
    with entered(dream()):
        fire = leaves(left)
    fire()
    assert left.came.get(timeout=PATIENCE_S) == "refused"
    assert RAN == []


def test_a_thread_of_an_episode_cannot_begin_a_recording() -> None:
    came: list[Any] = []

    def record() -> None:
        try:
            with recording(MemoryStore()):
                came.append(pay.invoke({"who": "left"}))
        except RealCallBlocked as refused:
            came.append(str(refused))

    with entered(dream()):
        thread = threading.Thread(target=record)
        thread.start()
        thread.join()
    assert came == ["a recording was begun inside a dream; no real tool may run there"]
    assert RAN == []


def test_a_real_call_beside_a_dream_is_refused_unless_it_is_recorded() -> None:
    """A thread of the caller's is refused too: an agent may have handed it work by a queue."""
    came: list[Any] = []
    go, done = threading.Event(), threading.Event()

    def caller() -> None:
        came.append(pay.invoke({"who": "before"}))
        done.set()
        go.wait(PATIENCE_S)
        came.append(what_came_of(lambda: pay.invoke({"who": "beside"})))
        with entered(Session(CallRouter(Mode.RECORD))):
            came.append(pay.invoke({"who": "recorded"}))

    thread = threading.Thread(target=caller)
    thread.start()
    done.wait(PATIENCE_S)
    with entered(dream(control=())) as session:
        assert pay.invoke({"who": "dreamt"}) == DREAMT
        go.set()
        thread.join()
        assert session.violations == []
    assert pay.invoke({"who": "after"}) == "paid"
    assert came == ["paid", "refused", "paid"]
    assert RAN == ["before", "recorded", "after"]


@each_row("kind", ["map", "imap", "apply", "executor"])
def test_a_refusal_in_a_pool_comes_out_of_it(kind: str, pools: tuple[ThreadPoolExecutor, ThreadPool]) -> None:
    pool, older = pools
    waits: dict[str, Callable[[], Any]] = {
        "map": lambda: older.map(pay.invoke, [{"who": "1"}, {"who": "2"}]),
        "imap": lambda: list(older.imap(pay.invoke, [{"who": "1"}])),
        "apply": lambda: older.apply(pay.invoke, ({"who": "1"},)),
        "executor": lambda: list(pool.map(pay.invoke, [{"who": "1"}])),
    }
    session = dream()
    with entered(session):
        session.latch("refused before")
        assert what_came_of(waits[kind]) == "refused"
    with entered(dream()):  # and beside a dream, where nobody has handed a session over
        assert contextvars.Context().run(what_came_of, waits[kind]) == "refused"
    wait_until(lambda: what_came_of(waits[kind]) != "refused", "the pool works on")


def test_thousands_of_refusals_are_told_by_a_few_and_a_count() -> None:
    session = dream()
    with entered(session):
        for number in range(3000):
            session.latch(f"refused to write {number}")
    assert len(session.violations) == 21
    assert session.violations[-1] == "and 2980 more refusals"
