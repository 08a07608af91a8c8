"""A process that dreamt is the caller's again; a refusal that nobody waits for ends its episode."""

import asyncio
import gc
import sys
import threading
from textwrap import dedent
from typing import Any

import pytest
from each_row import each_row
from waiting import PATIENCE_S

import dreamgym_kit
from dreamgym_kit import Task
from dreamgym_kit.adapters.langgraph.episode import runner as episodes
from dreamgym_kit.adapters.langgraph.intercept.install import uninstall
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.rollout.events import read_events
from dreamgym_kit.rollout.rundir import EVENTS, RunDirectory
from dreamgym_kit.settings.load import parse_settings

SAYS = {"messages": [{"role": "user", "content": "Cancel o1"}]}
TASK = Task("t1", SAYS)
EFFECTS = '[tools.get_order]\neffect = "read"\n[tools.cancel_order]\neffect = "destructive"'

QUEUED = """
import queue
import threading
from langgraph.graph import START, MessagesState, StateGraph

WORK = queue.Queue()


def work():
    while True:
        order = WORK.get()
        try:
            get_order.invoke({"order_id": order})
        except Exception:
            pass
        WORK.task_done()


def node(state):
    threading.Thread(target=work, daemon=True).start()
    WORK.put("o1")
    WORK.join()
    return {"messages": []}


graph = StateGraph(MessagesState).add_node("only", node).add_edge(START, "only").compile()
"""


@each_row("how", ["simulate", "evaluate", "dreaming"])
def test_the_real_graph_runs_before_and_after_a_dream_and_not_beside_it(project: Any, how: str) -> None:
    store, beside = MemoryStore(), []
    graph = project.write("""
    BESIDE = []

    class Waiting(ScriptedModelDouble):
        def _generate(self, *args, **kwargs):
            for work in BESIDE:
                work()
            return super()._generate(*args, **kwargs)

    graph = create_agent(Waiting(turns=TURNS), [get_order, cancel_order])
    """)
    settings = parse_settings(EFFECTS)
    dreamgym_kit.record(graph, [TASK], settings=settings, buffer=store)
    module = __import__(project.module)
    assert asyncio.run(module.graph.ainvoke(SAYS))["messages"][-1].content == "Cancelled."
    before = project.touched()

    go, gone = threading.Event(), threading.Event()

    def waits() -> None:
        go.set()
        gone.wait(PATIENCE_S)

    def caller() -> None:
        go.wait(PATIENCE_S)
        beside.append(_tried(module))
        gone.set()

    own = threading.Thread(target=caller, daemon=True)  # begun before the dream, by the caller
    own.start()
    module.BESIDE.append(waits)
    if how == "dreaming":
        with dreamgym_kit.dreaming(buffer=store, settings=settings):
            asyncio.run(module.graph.ainvoke(SAYS))
    else:
        run = getattr(dreamgym_kit, how)
        run(graph, [TASK], settings=settings, buffer=store)
    own.join()
    module.BESIDE.clear()
    assert beside == ["refused"]
    assert project.touched() == before
    assert asyncio.run(module.graph.ainvoke(SAYS))["messages"][-1].content == "Cancelled."
    assert len(project.touched()) == len(before) + 3


def _tried(module: Any) -> str:
    try:
        module.get_order.invoke({"order_id": "o1"})
    except RealCallBlocked:
        return "refused"
    return "ran"


def test_a_worker_that_dies_of_a_refusal_does_not_hang_who_waits_for_it(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "REFUSED_S", 0.1)
    settings = parse_settings("[limits]\nmax_seconds = 3600")
    result = dreamgym_kit.simulate(project.write(QUEUED), [TASK], settings=settings, buffer=MemoryStore())
    (episode,) = RunDirectory.open(result.directory).episodes()
    assert episode.stop == "violation"
    assert "get_order was called outside every episode" in episode.violations[0]
    assert project.touched() == []
    __import__(project.module).WORK.task_done()  # the thread of the node may end with the process


LEAVES = """
    import asyncio, atexit, io, signal, sys, threading, weakref
    from langgraph.graph import START, MessagesState, StateGraph
    OVER, KEPT, PAID = threading.Event(), [], []
    class Kept: pass
    def pays(*given):
        import subprocess
        PAID.append(subprocess.run(["true"]))
    def computes(*given): return str(given)
    def waits():
        OVER.wait()
        BODY()
    async def node(state):
        asyncio.get_running_loop().call_later(3600, BODY)
        atexit.register(BODY)
        KEPT.append(Kept())
        weakref.finalize(KEPT[0], BODY)
        KEPT.append(threading.Thread(target=waits))
        KEPT[1].start()
        sys.excepthook, sys.stdout = BODY, io.StringIO()
        return {"messages": [("ai", MODEL.invoke("hi").content)]}
    MODEL = ScriptedModelDouble(turns=["done"])
    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
"""


WRAPS = """
    import io, sys
    from langgraph.graph import START, MessagesState, StateGraph
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
    print("loaded")
    def node(state):
        return {"messages": [("ai", MODEL.invoke("hi").content)]}
    MODEL = ScriptedModelDouble(turns=["done"])
    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
"""


def test_a_graph_that_wraps_the_output_leaves_it_open(
    project: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.stdout
    dreamgym_kit.simulate(project.write(dedent(WRAPS)), [TASK], buffer=MemoryStore())
    assert sys.stdout is before
    del sys.modules[project.module]
    gc.collect()
    print("after")
    assert {"loaded", "after"} <= set(capsys.readouterr().out.split())


def test_what_an_episode_left_that_acts_is_told_with_the_run_and_after_it_and_never_runs(
    project: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before, told = (sys.excepthook, sys.stdout), {}
    for body in ("pays", "computes"):  # the second run does not name what the first one left
        uninstall()
        project.enter()
        spec = project.write(dedent(LEAVES) + f"BODY = {body}\n")
        settings = parse_settings('[nodes.node]\neffect = "pure"\n[guard]\nallow_commands = ["true"]\n')
        result = dreamgym_kit.simulate(spec, [TASK], buffer=MemoryStore(), settings=settings)
        assert (sys.excepthook, sys.stdout) == before
        module = sys.modules[project.module]
        module.OVER.set()
        module.KEPT[1].join()
        del module.KEPT[0]
        events = [event.get("text", "") for event in read_events(result.directory / EVENTS)]
        told[body] = (result.strays, [text for text in events if text], module.PAID)
    assert told["computes"] == ((), [], [])
    strays, late, paid = told["pays"]
    assert paid == []
    assert [text.partition(" ")[0] for text in strays] == ["pays", "pays", "pays", "waits"]
    assert all("was left by an episode to run later; it did not run" in text for text in strays)
    assert len(late) > len(strays)
    assert "blocked after the run: " in capsys.readouterr().err
