"""A real call that ran in a dream: it is called so everywhere, it is written down at once, and the run ends.

The agents here run a body that no gate can hold by construction: a method of a C type.
"""

import json
from typing import Any

import pytest

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.journal import Journal, JournalReader
from dreamgym_kit.rollout.rundir import EPISODES, EVENTS
from dreamgym_kit.settings.model import Settings

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
    return dreamgym_kit.simulate(project.write(more), tasks(count), store=MemoryStore(), **options)


def episodes(result: Any) -> list[Episode]:
    return list(JournalReader(result.directory / EPISODES))


def test_a_body_that_ran_is_executed_and_not_refused(project: Any) -> None:
    result = simulated(project)
    (episode,) = episodes(result)
    assert (episode.verdict, episode.stop, episode.violations) == (Verdict.FAILURE, "executed", ())
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


def test_it_is_in_the_journal_before_anything_else_happens(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(BaseException):
        pass

    def killed(journal: Journal, episode: Episode) -> bool:
        real(journal, episode)
        raise Gone

    real = Journal.append
    monkeypatch.setattr(Journal, "append", killed)
    with pytest.raises(BaseException):  # noqa: B017  whatever becomes of the run
        simulated(project, directory=project.folder / "run")
    (episode,) = JournalReader(project.folder / "run" / EPISODES)
    assert [str(call) for call in episode.executed] == [CALL]
