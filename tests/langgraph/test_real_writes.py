"""Real writes stay accounted for; episodes that share a real system run one at a time."""

import asyncio
import sys
import threading
from typing import Any

import pytest
from each_row import each_row

import dreamgym_kit
from dreamgym_kit.adapters.langgraph.episode import runner as of_episode
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.events import NoEvents, read_events
from dreamgym_kit.rollout.rundir import EVENTS, RunDirectory
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Episode, Task, Verdict

HELLO = {"messages": [{"role": "user", "content": "ship o1"}]}
LASTS_S = 601.0  # of an episode; no other limit here is as long


@pytest.fixture(autouse=True)
def driven_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write calls `asyncio.time_is_up` to end its episode's time: on a slow machine, too, it has begun."""
    timeout = asyncio.timeout

    def limit(seconds: float | None) -> asyncio.Timeout:
        made, loop = timeout(seconds), asyncio.get_running_loop()
        if seconds == LASTS_S:
            ended = lambda: loop.call_soon_threadsafe(made.reschedule, loop.time())  # noqa: E731
            monkeypatch.setattr(asyncio, "time_is_up", ended, raising=False)
        return made

    monkeypatch.setattr(asyncio, "timeout", limit)


BASE = '''
    import asyncio, threading
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


def recorded(project: Any, name: str, body: str, tasks: int = 1) -> tuple[Any, list[Episode]]:
    graph = project.write(BASE.format(name=name, body=body))
    settings = parse_settings(
        f'[limits]\nmax_seconds = {LASTS_S}\n[environments.default]\nref = "{project.module}:Stock"\n'
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
    body = "asyncio.time_is_up(); END.wait(0.6)"
    _, episodes = recorded(project, "ship_late", body, tasks=2)
    assert sys.modules[project.module].DONE == ["reset", "shipped", "reset", "shipped"]
    assert [one.verdict for one in episodes] == [Verdict.INCONCLUSIVE] * 2
    assert [len(one.transitions) for one in episodes] == [1, 1]


def test_nothing_begins_beside_a_write_that_does_not_end(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_episode, "LATE_WRITE_S", 0.1)
    try:
        body = "asyncio.time_is_up(); END.wait(120)"
        result, episodes = recorded(project, "ship_forever", body, tasks=3)
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
            asyncio.time_is_up()
            threading.Event().wait(0.6)
            DONE.append("shipped")
        await asyncio.to_thread(ship)
        return "shipped"

    def node(state):
        thread = threading.Thread(target=lambda: pay_in_thread.invoke({"order_id": "o1"}))
        thread.start()
        thread.join()
        return {}

    bare = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    turns = [[("ship_in_thread", {"order_id": "o1"})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=turns), [ship_in_thread, pay_in_thread])
'''


def recorded_threads(project: Any, graph: str, expect: dict[str, Any], tasks: int) -> Any:
    spec = project.write(THREADS).replace(":graph", f":{graph}")
    tools = "".join(
        f'[tools.{name}_in_thread]\neffect = "write"\n'
        for name in ("pay", "ship")[: 2 if graph == "graph" else 1]
    )
    settings = parse_settings(
        f'[limits]\nmax_seconds = {LASTS_S}\n[environments.default]\nref = "{project.module}:Stock"\n{tools}'
    )
    given = [Task(f"t{number}", HELLO, expect=expect) for number in range(tasks)]
    result = dreamgym_kit.record(spec, given, settings=settings, buffer=MemoryStore())
    return sorted(RunDirectory.open(result.directory).episodes(), key=lambda one: one.id)


def test_a_write_in_a_bare_thread_of_a_node_is_recorded(project: Any) -> None:
    episodes = recorded_threads(project, "bare", {"forbid": ["pay_*"]}, tasks=2)
    assert [[step.call.tool for step in one.transitions] for one in episodes] == [["pay_in_thread"]] * 2
    assert [one.verdict for one in episodes] == [Verdict.FAILED] * 2


def test_what_a_cancelled_asynchronous_write_left_in_a_thread_is_waited_for(project: Any) -> None:
    recorded_threads(project, "graph", {}, tasks=2)
    assert sys.modules[project.module].DONE == ["reset", "shipped", "reset", "shipped"]


STOCK = """
import asyncio
from typing import ClassVar

from langchain_core.tools import tool

class Stock:
    isolated: ClassVar[bool] = {isolated}
    inside: ClassVar[set] = set()
    most: ClassVar[int] = 0

    def configurable(self, world, episode): return {{}}

    async def reset(self, world, episode):
        Stock.inside.add(episode)
        Stock.most = max(Stock.most, len(Stock.inside))
        for _ in range(50):  # the others get their turn
            await asyncio.sleep(0)

    async def close(self, episode):
        Stock.inside.discard(episode)

@tool
async def count_stock_{name}(shelf: str) -> str:
    "Count what lies on a shelf."
    return "7"

lazy = create_agent(
    ScriptedModelDouble(turns=["Nothing to do."]), [count_stock_{name}]
)
"""


TASKS = [Task(f"count-{n}", {"messages": [{"role": "user", "content": "hello"}]}) for n in range(4)]


def stock(project: Any, *, isolated: bool) -> tuple[str, Any]:
    graph = project.write(STOCK.format(isolated=isolated, name="isolated" if isolated else "shared"))
    text = f'[environments.default]\nref = "{project.module}:Stock"\n'
    return graph.replace(":graph", ":lazy"), parse_settings(text)


def most_at_once(project: Any) -> int:
    return int(sys.modules[project.module].Stock.most)


@each_row(("isolated", "most"), [(False, 1), (True, 4)])
def test_record_runs_episodes_at_once_only_on_systems_of_their_own(
    project: Any, isolated: bool, most: int
) -> None:
    graph, settings = stock(project, isolated=isolated)
    done = dreamgym_kit.record(graph, TASKS, settings=settings, buffer=MemoryStore())
    assert (done.totals.finished, most_at_once(project)) == (4, most)


@each_row("isolated", [False, True])
def test_asking_for_episodes_at_once_on_a_shared_system_is_refused(project: Any, isolated: bool) -> None:
    graph, settings = stock(project, isolated=isolated)
    request = RunRequest(
        graph=graph, tasks=TASKS, settings=settings, mode=Mode.RECORD, store=MemoryStore(), overlap=True
    )
    if isolated:
        assert run_to_end(run(request, events=NoEvents())).totals.finished == 4
        return
    with pytest.raises(UserError, match=r"share the environment 'default'.*isolated = True"):
        run_to_end(run(request, events=NoEvents()))
    assert most_at_once(project) == 0


class NeverAskedOverseerDouble:
    """Lets episodes begin; none of theirs calls a tool."""

    def affords(self, episodes: int) -> bool:
        return True


@each_row(
    ("mode", "stage", "isolated", "most"),
    [
        (Mode.RECORD, Stage.SHADOW, False, 1),
        (Mode.S2R, Stage.LIVE, False, 1),
        (Mode.S2R, Stage.APPROVE, False, 1),
        (Mode.S2R, Stage.SHADOW, False, 4),  # nothing that it does changes the system
        (Mode.S2R, Stage.LIVE, True, 4),
    ],
)
async def test_collected_episodes_share_no_real_system_that_they_write_to(
    project: Any, mode: Mode, stage: Stage, isolated: bool, most: int
) -> None:
    graph, settings = stock(project, isolated=isolated)
    more: dict[str, Any] = {"mode": mode, "stage": stage, "overseer": NeverAskedOverseerDouble()}
    request = RunRequest(graph=graph, tasks=TASKS, settings=settings, store=MemoryStore(), **more)
    async with open_rollouts(request) as rollouts:
        groups = await rollouts.collect(TASKS, 1, step=0, seed=0)
    assert len(groups) == 4
    assert most_at_once(project) == most
