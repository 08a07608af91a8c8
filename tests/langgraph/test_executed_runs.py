"""A real call that ran in a dream: it is called so everywhere, it is written down at once, and the run ends.

The agents here run a body that no gate can hold by construction: a method of a C type.
"""

import asyncio
import html
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.langgraph.intercept.real_calls import run_real
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import RealCallExecuted
from dreamgym_kit.report.comparing import compared, render_comparison
from dreamgym_kit.report.documents import junit, markdown
from dreamgym_kit.report.episode import render_episode
from dreamgym_kit.report.page.writing import page_of
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import EPISODES, EVENTS, RunDirectory
from dreamgym_kit.routing.process import entered
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Call, Effect, ToolSpec

LEAKS = """
    import threading
    from langchain_core.messages import ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    LEDGER = []  # the real system; its `append` is no Python code

    @tool
    def refund(order: str, password: str) -> str:
        "Refund an order."
        touch("refund")
        return "refunded"

    model = ScriptedModelDouble(turns=[[("refund", {"order": "o1", "password": "hunter2"})], "done"])

    def agent(state):
        return {"messages": [model.bind_tools([refund]).invoke(state["messages"])]}

    def run_tools(state):
        call = state["messages"][-1].tool_calls[0]
        LEDGER.append(call["args"]["order"])
        return {"messages": [ToolMessage("ok", tool_call_id=call["id"], name=call["name"])]}

    made = StateGraph(MessagesState)
    made.add_node("agent", agent)
    made.add_node("run_tools", run_tools)
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", lambda s: "run_tools" if s["messages"][-1].tool_calls else END)
    made.add_edge("run_tools", "agent")
    graph = made.compile()
"""
CALL = "refund(order='o1', password='<masked>')"


def tasks(count: int = 1) -> list[Task]:
    return [Task(f"t{n}", {"messages": [{"role": "user", "content": f"refund {n}"}]}) for n in range(count)]


def simulated(project: Any, more: str = LEAKS, count: int = 1, **options: Any) -> Any:
    return dreamgym_kit.simulate(
        project.write(more), tasks(count), buffer=MemoryStore(salted=False), **options
    )


def episodes(result: Any) -> list[Episode]:
    return list(JournalReader(result.directory / EPISODES))


def test_a_body_that_ran_is_executed_and_not_refused(project: Any) -> None:
    result = simulated(project)
    (episode,) = episodes(result)
    assert (episode.verdict, episode.stop, episode.violations) == (Verdict.FAILED, "executed", ())
    assert episode.reason == f"1 real call executed: {CALL}"
    (call,) = episode.executed
    assert (call.tool, dict(call.args)) == ("refund", {"order": "o1", "password": "<masked>"})
    assert "answered without passing the gate" in call.how
    assert str(result).splitlines()[0] == f"FAILED  1 real call executed: {CALL}"


def test_no_further_episode_begins(project: Any) -> None:
    settings = Settings().with_overrides({"simulate.concurrency": 1})
    result = simulated(project, count=40, settings=settings)
    assert len(episodes(result)) == 1
    events = [json.loads(line) for line in (result.directory / EVENTS).read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("episode_started") == 1
    assert kinds.index("executed") < kinds.index("run_stopping")
    assert result.totals.not_run == 39
    assert result.summary.not_run == 39


def test_every_report_says_executed_with_the_arguments_and_never_refused(project: Any) -> None:
    result = simulated(project)
    summary, (episode,) = result.summary, episodes(result)
    said = [
        str(result),
        junit(summary, lambda name: f"look {name}"),
        markdown(summary, lambda name: f"look {name}"),
        json.dumps(summary.to_json()),
        render_episode(episode),
        render_comparison(compared(summary, summary, names=("a", "b"))),
    ]
    for text in map(html.unescape, said):
        assert "refund(order='o1', password='<masked>')" in " ".join(text.split())
        assert "was refused" not in text
        assert "were refused" not in text
        assert "0 real calls" not in text
        assert "hunter2" not in text
    assert json.loads(said[3])["calls"] == {"total": 0, "real": 1, "executed": 1, "unanswered": 0}
    assert 'name="executed" value="1 real call executed: refund(' in said[1]
    assert "undo it on the real system" in str(result).lower()
    assert '[functions."MODULE:refund"]' in str(result)
    page = page_of(RunDirectory.open(result.directory), place="run").html
    assert f'"executed":[["{episode.id}","refund(order=' in page
    assert '"verdict":"failed","exit_code":6' in page
    assert '"Real calls","1 executed, 0 blocked' in page


def test_no_rule_of_the_gate_excuses_it(project: Any) -> None:
    loose = parse_settings(
        "[gate]\nmax_inconclusive = 1.0\nmin_pass_rate = 0.0\n", path=project.folder / "x.toml"
    )
    summary = simulated(project, settings=loose).summary
    assert (summary.check(), summary.exit_code) == (False, 6)
    (broken,) = [rule for rule in summary.rules() if not rule.passed]
    assert (broken.key, broken.why) == ("real_calls", f"1 real call executed: {CALL}")


def test_a_later_leg_begins_nothing_and_says_the_same(project: Any) -> None:
    settings = Settings().with_overrides({"simulate.concurrency": 1})
    first = simulated(project, count=3, settings=settings, run_dir=project.folder / "run")
    request = RunRequest(
        graph=f"{project.module}:graph",
        tasks=tasks(3),
        settings=settings,
        store=MemoryStore(),
        directory=project.folder / "run",
        resume=True,
    )
    again = asyncio.run(run(request, events=NoEvents()))
    assert [one.id for one in episodes(again)] == ["t0.1"]
    assert again.summary.executed == first.summary.executed
    assert str(again).splitlines()[0] == str(first).splitlines()[0]


def test_what_an_episode_ran_before_it_was_dropped_is_noticed(project: Any) -> None:
    waits = """
    import asyncio

    REACHED = threading.Event()

    async def wait(state):
        if state["messages"][0].content == "refund 0":
            REACHED.set()
            await asyncio.sleep(3600)
        while not REACHED.is_set():
            await asyncio.sleep(0.01)
        return {}

    more = StateGraph(MessagesState)
    more.add_node("agent", agent)
    more.add_node("run_tools", run_tools)
    more.add_node("wait", wait)
    more.add_edge(START, "agent")
    more.add_edge("agent", "run_tools")
    more.add_edge("run_tools", "wait")
    graph = more.compile()
    """
    settings = Settings().with_overrides({"simulate.concurrency": 2})
    result = simulated(project, LEAKS + waits, count=2, settings=settings)
    assert sorted(one.id for one in episodes(result)) == ["t0.1", "t1.1"]
    assert str(result).startswith("FAILED  2 real calls executed: ")


def test_a_real_body_that_the_gate_itself_sees_is_executed_too() -> None:
    policy = CallRouter(Mode.DREAM, {"pay": ToolSpec("pay", Effect.WRITE)})
    written: list[int] = []
    session = Session(policy)
    session.on_executed = lambda: written.append(len(session.executed))
    with entered(session):
        call = Call("pay", {"to": "bob"})
        for number, (_, place) in enumerate([session.admit(call), session.admit(call)], 1):
            with pytest.raises(RealCallExecuted, match=f"^{number} real call"):
                session.drive(run_real(session, call, place, None, lambda: "paid"))
        with pytest.raises(RealCallExecuted):
            session.admit(call)
    assert (written, [str(one) for one in session.executed]) == ([1, 2], ["pay(to='bob')"] * 2)


KILLED = """
import os, signal, sys
from dreamgym_kit import Task, simulate
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.guard.egress import exempt
from dreamgym_kit.rollout.stop import StopSwitch

def killed(*_, **__):
    with exempt():
        os.kill(os.getpid(), signal.SIGKILL)

StopSwitch.cancel = killed  # the very next thing that the kit does
sys.path.insert(0, os.getcwd())
buffer = MemoryStore(salted=False)
simulate(sys.argv[1], [Task("t0", {"messages": []})], buffer=buffer, run_dir="run")
"""


def test_killed_in_the_next_moment_it_is_in_the_journal(project: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, project.write(LEAKS)], cwd=project.folder, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL
    (episode,) = JournalReader(project.folder / "run" / EPISODES)
    assert ([str(call) for call in episode.executed], episode.verdict) == ([CALL], Verdict.FAILED)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_of_two_workers_one_notices_and_both_stop(project: Any, killed: bool) -> None:
    dies = """
    import os, signal
    from dreamgym_kit.guard.egress import exempt
    from dreamgym_kit.rollout.worker import WorkerEvents

    tell = WorkerEvents.executed

    def then_dies(self, episode):
        tell(self, episode)
        with exempt():
            os.kill(os.getpid(), signal.SIGKILL)

    WorkerEvents.executed = then_dies
    """
    settings = Settings().with_overrides({"workers.count": 2, "simulate.concurrency": 2})
    graph = project.write(LEAKS + (dies if killed else ""))
    result = dreamgym_kit.simulate(graph, tasks(30), settings=settings)
    assert str(result).splitlines()[0].startswith("FAILED  ")
    assert 1 <= len(episodes(result)) <= 2  # both may have noticed by themselves
    assert all(one.stop == "executed" for one in episodes(result))
    assert result.totals.not_run >= 28
    assert result.summary.executed[0][1].tool == "refund"
