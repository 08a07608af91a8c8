"""Real writes stay accounted for: while they run, where they end the process, and after their episode."""

import sys
import threading
from typing import Any

import pytest
from each_row import each_row

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.episode import runner as of_episode
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.rollout.events import read_events
from dreamgym_kit.rollout.rundir import EVENTS, RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Episode, Task, Verdict

HELLO = {"messages": [{"role": "user", "content": "ship o1"}]}

BASE = '''
    import threading
    END, DONE = threading.Event(), []

    class Stock:
        isolated = False
        def configurable(self, world, episode): return {{}}
        async def reset(self, world, episode): DONE.append("reset")
        async def close(self, episode): pass

    @tool
    def {name}(order_id: str) -> str:
        """Ship an order."""
        {body}
        DONE.append("shipped")
        return "shipped"

    graph = create_agent(ScriptedModelDouble(turns=[[("{name}", {{"order_id": "o1"}})], "Done."]), [{name}])
'''


def recorded(
    project: Any, name: str, body: str, tasks: int = 1, seconds: float = 60.0
) -> tuple[Any, list[Episode]]:
    graph = project.write(BASE.format(name=name, body=body))
    settings = parse_settings(
        f'[limits]\nmax_seconds = {seconds}\n[environments.default]\nref = "{project.module}:Stock"\n'
        f'[tools.{name}]\neffect = "write"\n'
    )
    given = [Task(f"t{number}", HELLO, expect={"calls": [name]}) for number in range(tasks)]
    result = dreamgym_kit.record(graph, given, settings=settings, buffer=MemoryStore())
    return result, sorted(RunDirectory.open(result.directory).episodes(), key=lambda one: one.id)


def test_a_provider_needs_no_configurable(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without = "\n".join(line for line in BASE.splitlines() if "def configurable" not in line)
    monkeypatch.setitem(globals(), "BASE", without)
    result, episodes = recorded(project, "ship_plainly", "pass")
    assert [episode.verdict for episode in episodes] == [Verdict.PASSED], result
    assert sys.modules[project.module].DONE == ["reset", "shipped"]


def test_a_write_is_in_the_log_before_it_is_done(project: Any) -> None:
    name = "ship_logged"
    body = 'DONE.extend(path.read_text() for path in Path(".").rglob("events.jsonl"))'
    result, _ = recorded(project, name, body)
    during = sys.modules[project.module].DONE[1].splitlines()
    assert any('"body_started"' in line and name in line for line in during)
    assert not any('"event":"call"' in line for line in during)
    kinds = [event["event"] for event in read_events(result.directory / EVENTS) if event.get("tool") == name]
    assert kinds == ["body_started", "call"]


@each_row("kind", ["SystemExit", "KeyboardInterrupt"])
def test_a_write_that_ends_the_process_stands_in_the_log(project: Any, kind: str) -> None:
    name = f"ship_and_raise_{kind.lower()}"
    result, episodes = recorded(project, name, f"raise {kind}(1)")
    calls = [event for event in read_events(result.directory / EVENTS) if event["event"] == "call"]
    assert [(call["tool"], call["source"]) for call in calls] == [(name, "real")]
    assert not any(one.verdict is Verdict.PASSED for one in episodes)


def test_the_next_episode_begins_when_the_last_write_of_the_one_before_has_ended(project: Any) -> None:
    body = "END.wait(0.6)"
    _, episodes = recorded(project, "ship_late", body, tasks=2, seconds=0.2)
    assert sys.modules[project.module].DONE == ["reset", "shipped", "reset", "shipped"]
    assert [one.verdict for one in episodes] == [Verdict.INCONCLUSIVE] * 2
    assert [len(one.transitions) for one in episodes] == [1, 1]


def test_nothing_begins_beside_a_write_that_does_not_end(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_episode, "LATE_WRITE_S", 0.1)
    try:
        result, episodes = recorded(project, "ship_forever", "END.wait(120)", tasks=3, seconds=0.2)
        assert sys.modules[project.module].DONE == ["reset"]
    finally:
        sys.modules[project.module].END.set()
    first, *others = episodes
    assert [one.verdict for one in episodes] == [Verdict.ERROR] * 3
    assert "ship_forever was still running" in first.reason
    assert all("ship_forever of" in one.reason and not one.transitions for one in others)
    assert (result.verdict, result.exit_code) == (Verdict.ERROR, 4)
    for thread in threading.enumerate():
        if thread.name.startswith("dreamgym-tool"):
            thread.join(30)


THREADS = '''
    import asyncio, threading
    from langgraph.graph import MessagesState, StateGraph, START
    DONE = []

    class Stock:
        def configurable(self, world, episode): return {}
        def reset(self, world, episode): DONE.append("reset")
        def close(self, episode): pass

    @tool
    def pay_in_thread(order_id: str) -> str:
        """Pay."""
        DONE.append("paid")
        return "paid"

    @tool
    async def ship_in_thread(order_id: str) -> str:
        """Ship."""
        def ship():
            threading.Event().wait(0.6)
            DONE.append("shipped")
        await asyncio.to_thread(ship)
        return "shipped"

    def node(state):
        thread = threading.Thread(target=lambda: pay_in_thread.invoke({"order_id": "o1"}))
        thread.start()
        thread.join()
        return {}

    bare = StateGraph(MessagesState)
    bare.add_node("node", node)
    bare.add_edge(START, "node")
    bare = bare.compile()
    turns = [[("ship_in_thread", {"order_id": "o1"})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=turns), [ship_in_thread, pay_in_thread])
'''


def recorded_threads(project: Any, graph: str, expect: dict[str, Any], tasks: int, seconds: float) -> Any:
    spec = project.write(THREADS).replace(":graph", f":{graph}")
    tools = "".join(
        f'[tools.{name}_in_thread]\neffect = "write"\n'
        for name in ("pay", "ship")[: 2 if graph == "graph" else 1]
    )
    settings = parse_settings(
        f'[limits]\nmax_seconds = {seconds}\n[environments.default]\nref = "{project.module}:Stock"\n{tools}'
    )
    given = [Task(f"t{number}", HELLO, expect=expect) for number in range(tasks)]
    result = dreamgym_kit.record(spec, given, settings=settings, buffer=MemoryStore())
    return sorted(RunDirectory.open(result.directory).episodes(), key=lambda one: one.id)


def test_a_write_in_a_bare_thread_of_a_node_is_recorded(project: Any) -> None:
    episodes = recorded_threads(project, "bare", {"forbid": ["pay_*"]}, tasks=2, seconds=60)
    assert [[step.call.tool for step in one.transitions] for one in episodes] == [["pay_in_thread"]] * 2
    assert [one.verdict for one in episodes] == [Verdict.FAILED] * 2


def test_what_a_cancelled_asynchronous_write_left_in_a_thread_is_waited_for(project: Any) -> None:
    recorded_threads(project, "graph", {}, tasks=2, seconds=0.2)
    assert sys.modules[project.module].DONE == ["reset", "shipped", "reset", "shipped"]
