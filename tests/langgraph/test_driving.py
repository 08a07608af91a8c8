"""An agent that can run synchronously only is run so; all others asynchronously."""

import asyncio
import importlib
from typing import Any

import pytest
from each_row import each_row
from waiting import wait_until

import dreamgym_kit
from dreamgym_kit import Episode, Task
from dreamgym_kit.adapters.langgraph.analysis.loading import load_object
from dreamgym_kit.adapters.langgraph.episode.streaming import only_sync
from dreamgym_kit.adapters.langgraph.run.run import RunResult
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import Settings

TASK = Task("t1", {"messages": [{"role": "user", "content": "cancel o1 please"}]})
MIDDLEWARE = """
from langchain.agents.middleware import AgentMiddleware, before_model, wrap_model_call, wrap_tool_call
from langchain_core.tools import tool as as_tool
from langgraph.graph import START, MessagesState, StateGraph
import threading

@wrap_tool_call
def only_sync_tools(request, handler):
    return handler(request)

@wrap_model_call
def only_sync_models(request, handler):
    return handler(request)

@before_model
def before(state, runtime):
    return None

class Both(AgentMiddleware):
    def wrap_tool_call(self, request, handler): return handler(request)
    async def awrap_tool_call(self, request, handler): return await handler(request)

@as_tool("cancel_order")
def cancel_now(order_id: str) -> str:
    "Cancel an order."
    touch("cancel_order")
    return "ok"

TOOLS = [get_order, cancel_now]
def agent(*middleware):
    return create_agent(ScriptedModelDouble(turns=TURNS), TOOLS, middleware=list(middleware))
"""
GRAPHS = {
    "agent(only_sync_tools)": True,
    "agent(only_sync_models)": True,
    "agent(Both(), only_sync_tools)": True,
    "StateGraph(MessagesState).add_node('a', agent(only_sync_tools)).add_edge(START, 'a').compile()": True,
    "agent()": False,
    "agent(Both(), before)": False,
}


def only(result: RunResult) -> Episode:
    (one,) = RunDirectory.open(result.directory).episodes()
    return one


@each_row("made", GRAPHS)
def test_each_runs_the_way_it_can(project: Any, made: str) -> None:
    spec = project.write(f"{MIDDLEWARE}\ngraph = {made}\n")
    assert only_sync(load_object(spec, folder=project.folder)) is GRAPHS[made]  # type: ignore[arg-type]
    store = MemoryStore()
    real = only(dreamgym_kit.record(spec, [TASK], buffer=store))
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    dreamt = only(dreamgym_kit.simulate(spec, [TASK], buffer=store))
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    assert (real.stop, dreamt.stop, dreamt.violations) == ("finished", "finished", ())
    assert dreamt.messages == real.messages


def test_an_abstention_in_a_thread_ends_the_episode(project: Any) -> None:
    spec = project.write(f"{MIDDLEWARE}\ngraph = agent(only_sync_tools)\n")
    one = only(dreamgym_kit.simulate(spec, [TASK], buffer=MemoryStore()))
    assert (one.stop, project.touched()) == ("abstained", [])


def test_a_time_limit_holds_in_a_thread_and_what_runs_on_is_refused(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = project.write(
        f"""{MIDDLEWARE}
OVER, TOLD = threading.Event(), []

@wrap_tool_call
def slow(request, handler):
    use_up_the_time()
    OVER.wait()
    try:
        return handler(request)
    except BaseException as error:
        TOLD.append(str(error))
        raise

graph = agent(slow)
"""
    )
    agent, asked = importlib.import_module(project.module), []
    timeout, close = asyncio.timeout, Session.close

    def limit(seconds: float) -> asyncio.Timeout:
        asked.append(seconds)
        made, loop = timeout(None), asyncio.get_running_loop()
        agent.use_up_the_time = lambda: loop.call_soon_threadsafe(made.reschedule, loop.time())
        return made

    def closed(session: Session) -> None:
        close(session)
        agent.OVER.set()

    monkeypatch.setattr(asyncio, "timeout", limit)
    monkeypatch.setattr(Session, "close", closed)
    settings = Settings().with_overrides({"limits.max_seconds": 7.0})
    one = only(dreamgym_kit.simulate(spec, [TASK], buffer=MemoryStore(), settings=settings))
    assert (asked, one.stop, one.transitions, project.touched()) == ([7.0], "limit", (), [])
    told = wait_until(lambda: agent.TOLD, "the end of what ran on")
    assert told == ["get_order was called after its episode had been broken off; it did not run"]
