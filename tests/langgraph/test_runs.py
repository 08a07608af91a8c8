"""Whole runs through the Python API, and blocks of own code: record on real tools, dream from that."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ports import own_port

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import RunResult, run
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.episode import render_episode
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings

TASK = Task("t1", {"messages": [{"role": "user", "content": "cancel o1 please"}]})


def episodes(result: RunResult) -> list[Episode]:
    return list(RunDirectory.open(result.directory).episodes())


def task(project: Any, **changes: Any) -> Task:
    return Task("t1", TASK.input, **{"checker": f"{project.module}:check", **changes})


def test_what_was_recorded_for_real_is_dreamt_without_touching_anything(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    real = dreamgym_kit.record(graph, [task(project)], buffer=store)
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    dreamt = dreamgym_kit.simulate(graph, [task(project)], buffer=store, repeats=2)
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    (recorded,), group = episodes(real), episodes(dreamt)
    assert [one.verdict for one in (recorded, *group)] == [Verdict.PASSED] * 3
    for one in group:
        assert [entry.answer.content for entry in one.transitions] == [
            {"order_id": "o1", "status": "open"},
            "ok",
            {"order_id": "o1", "status": "cancelled"},
        ]
        assert {entry.answer.source.value for entry in one.transitions} == {"recorded"}
        assert one.messages == recorded.messages
        assert (one.model_calls, one.tokens) == (4, 440)


def test_without_recordings_the_dream_abstains_and_says_so(project: Any) -> None:
    result = dreamgym_kit.simulate(project.write(), [task(project)], buffer=MemoryStore())
    (one,) = episodes(result)
    assert (one.verdict, one.stop) == (Verdict.INCONCLUSIVE, "abstained")
    assert one.reason == "unanswered call 1: get_order was never recorded"
    assert project.touched() == []


def test_abstaining_may_fail_the_tool_instead_of_ending_the_episode(project: Any) -> None:
    settings = Settings().with_overrides({"simulate.on_unanswered": "error"})
    result = dreamgym_kit.simulate(project.write(), [task(project)], buffer=MemoryStore(), settings=settings)
    (one,) = episodes(result)
    assert one.verdict is Verdict.INCONCLUSIVE
    assert one.reason.startswith("unanswered call 1: get_order ")
    assert one.reason.endswith("the graph raised ToolException: get_order is not available right now")


def test_a_registered_function_is_recorded_and_then_dreamt(project: Any) -> None:
    graph = project.write(
        """
        import smtplib
        from langgraph.graph import StateGraph, MessagesState, START

        def send(to, text="hello"):
            touch("send")
            return {"sent": to}

        def notify(state):
            return {"messages": [("ai", str(send("ana")))]}

        graph = StateGraph(MessagesState).add_node("notify", notify).add_edge(START, "notify").compile()
        """
    )
    settings = parse_settings(
        f'[functions."{project.module}:send"]\neffect = "destructive"\nname = "send_mail"\n'
    )
    store = MemoryStore()
    dreamgym_kit.record(graph, [TASK], buffer=store, settings=settings)
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=store, settings=settings))
    (entry,) = one.transitions
    assert (entry.call.tool, dict(entry.call.args)) == ("send_mail", {"to": "ana", "text": "hello"})
    assert (entry.effect.value, entry.answer.content) == ("destructive", {"sent": "ana"})
    assert project.touched() == ["send"]


def test_interrupts_are_answered_from_the_task_and_nothing_is_asked_twice(project: Any) -> None:
    graph = project.write(
        """
        from langchain.agents.middleware import HumanInTheLoopMiddleware
        graph = create_agent(ScriptedModelDouble(turns=TURNS), [get_order, cancel_order],
            middleware=[HumanInTheLoopMiddleware(interrupt_on={"cancel_order": True})])
        """
    )
    store = MemoryStore()
    yes = task(project, replies=({"decisions": [{"type": "approve"}]},))
    (real,) = episodes(dreamgym_kit.record(graph, [yes], buffer=store))
    assert real.verdict is Verdict.PASSED
    (dreamt,) = episodes(dreamgym_kit.simulate(graph, [yes], buffer=store))
    assert [entry.call.tool for entry in dreamt.transitions] == ["get_order", "cancel_order", "get_order"]
    (waiting,) = episodes(dreamgym_kit.simulate(graph, [task(project, replies=())], buffer=store))
    assert waiting.verdict is Verdict.INCONCLUSIVE


def test_limits_end_an_episode_inconclusive(project: Any) -> None:
    graph = project.write(
        """
        graph = create_agent(ScriptedModelDouble(turns=[[("get_order", {"order_id": "o1"})]]), [get_order])
        """
    )
    store = MemoryStore()
    for override, said in (
        ({"limits.recursion_limit": 8}, "the graph's recursion limit was reached"),
        ({"limits.max_tool_calls": 3}, "more than 3 tool calls"),
    ):
        settings = Settings().with_overrides(override)
        (one,) = episodes(dreamgym_kit.record(graph, [task(project)], buffer=store, settings=settings))
        assert (one.verdict, one.stop, one.reason) == (Verdict.INCONCLUSIVE, "limit", said)


def test_what_was_cut_was_not_run_and_what_it_called_stays_counted(project: Any) -> None:
    """Episodes that were begun and cut are as little run as those that were not begun."""
    graph, store = project.write(), MemoryStore()
    settings = Settings().with_overrides(
        {"budget.max_calls": 8, "simulate.repeats": 4, "simulate.concurrency": 4, "gate.min_pass_rate": 0.1}
    )
    tasks = [task(project), replace(task(project), id="other")]
    first = dreamgym_kit.record(graph, tasks, buffer=store, settings=settings)
    made, told = len(project.touched()), first.totals
    assert made == 8
    assert told.finished < told.total == 8
    assert first.summary.not_run == told.total - told.finished
    assert first.verdict is Verdict.INCONCLUSIVE
    request = RunRequest(
        graph=graph,
        tasks=tasks,
        settings=settings,
        mode=Mode.RECORD,
        store=store,
        directory=first.directory,
        resume=True,
    )
    second = asyncio.run(run(request, events=NoEvents()))
    assert len(project.touched()) == made
    assert second.totals.finished == told.finished


def test_spend_is_counted_and_bounded(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    prices = {"model.usd_per_million_input": 10_000.0, "model.usd_per_million_output": 0.0}
    (one,) = episodes(
        dreamgym_kit.record(graph, [task(project)], buffer=store, settings=Settings().with_overrides(prices))
    )
    assert one.cost_usd == pytest.approx(4.0)
    bounded = Settings().with_overrides(
        {**prices, "budget.max_usd": 1.5, "simulate.repeats": 3, "simulate.concurrency": 1}
    )
    result = dreamgym_kit.record(graph, [task(project)], buffer=store, settings=bounded)
    assert result.totals.cost_usd <= 2.5


def test_the_graph_raising_is_the_agents_failure(project: Any) -> None:
    graph = project.write(
        """
        @tool
        def explode(x: int) -> str:
            "Explode."
            raise ValueError("boom")
        graph = create_agent(ScriptedModelDouble(turns=[[("explode", {"x": 1})], "done"]), [explode])
        """
    )
    store = MemoryStore()
    (real,) = episodes(dreamgym_kit.record(graph, [TASK], buffer=store))
    (dreamt,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=store))
    assert real.reason == dreamt.reason == "the graph raised ValueError: boom"
    assert dreamt.verdict is Verdict.FAILED
    assert dreamt.transitions[0].answer.error_type == "ValueError"


def test_a_connection_error_that_the_agent_raises_itself_is_its_own_failure(project: Any) -> None:
    graph = project.write(
        """
        from langgraph.graph import StateGraph, MessagesState, START
        def ask(state):
            raise ConnectionError("the warehouse is closed")
        graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
        """
    )
    (dreamt,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
    assert dreamt.verdict is Verdict.FAILED
    assert dreamt.reason == "the graph raised ConnectionError: the warehouse is closed"
    assert "in ask" in dreamt.traceback[-1]


def test_the_lines_of_an_agent_that_raises_are_kept_and_shown_without_secrets(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "quite-secret-value-1")
    graph = project.write(
        """
        from langgraph.graph import START, MessagesState, StateGraph
        def days(text): return text.group()  # not quite-secret-value-1
        def route(state): return days(None)
        built = StateGraph(MessagesState)
        built.add_node("route", route)
        built.add_edge(START, "route")
        from langgraph.prebuilt import ToolNode
        built.add_node("tools", ToolNode([get_order]))
        graph = built.compile()
        """
    )
    result = dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore(salted=False))
    (episode,) = RunDirectory.open(result.directory).episodes()
    assert (episode.stop, episode.verdict) == ("error", Verdict.FAILED)
    file = project.folder / f"{project.module}.py"
    outer, inner = episode.traceback
    assert outer.startswith(f"{file}:")
    assert outer.endswith(" in route: def route(state): return days(None)")
    assert inner.endswith(" in days: def days(text): return text.group()  # not <masked>")
    assert " in days: " in " ".join(render_episode(episode).split())


def test_expectations_are_judged_without_a_checker(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    wanted = [
        Task("must", TASK.input, expect={"calls": ["cancel_order"]}),
        Task("not", TASK.input, expect={"forbid": ["cancel_*"]}),
        Task("most", TASK.input, expect={"max": {"get_order": 1}}),
        Task("none", TASK.input),
    ]
    said = {
        one.task: (one.verdict.value, one.reason)
        for one in episodes(dreamgym_kit.record(graph, wanted, buffer=store))
    }
    assert said == {
        "must": ("passed", "every expectation held"),
        "not": ("failed", "cancel_order was called, which the task forbids"),
        "most": ("failed", "get_order was called 2 times; the task allows 1"),
        "none": ("inconclusive", "finished; the task has no checker and no expectations"),
    }


def test_bad_arguments_and_unknown_tools_are_the_frameworks_to_answer_and_counted(project: Any) -> None:
    graph = project.write(
        """
        turns = [[("get_order", {"wrong": 1})], [("get_ordr", {"order_id": "o1"})], "sorry"]
        graph = create_agent(ScriptedModelDouble(turns=turns), [get_order])
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
    assert (one.stop, one.transitions) == ("finished", ())
    assert one.counts == {"bad_arguments": 1, "unknown_tool": 1}
    assert [record["status"] for record in one.messages if record["role"] == "tool"] == ["error", "error"]


def test_resuming_runs_only_what_is_missing_and_refuses_other_settings(project: Any, tmp_path: Path) -> None:
    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.run import run
    from dreamgym_kit.rollout.events import NoEvents

    graph, store = project.write(), MemoryStore()
    dreamgym_kit.record(graph, [task(project)], buffer=store)
    whole = dreamgym_kit.simulate(graph, [task(project)], buffer=store, repeats=3, run_dir=tmp_path / "run")
    journal = whole.directory / "episodes.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    log = whole.directory / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    told = [one | {"at": 50.0 * (one["event"] != "run_started")} for one in events]
    log.write_text("".join(f"{json.dumps(one)}\n" for one in told))
    settings = Settings().with_overrides({"simulate.repeats": 3})
    request = RunRequest(
        graph=graph,
        tasks=[task(project)],
        settings=settings,
        store=store,
        directory=whole.directory,
        resume=True,
    )
    again = asyncio.run(run(request, events=NoEvents()))
    assert (again.totals.earlier, again.totals.passed) == (2, 3)
    starts = [one["kept"] for line in log.read_text().splitlines() if "kept" in (one := json.loads(line))]
    assert starts == [{}, {"passed": 2}]
    years = range(10**6, 10**10)  # between both parts
    assert int(again.summary.elapsed_s) not in years
    assert {one.digest for one in episodes(again)} == {one.digest for one in episodes(whole)}
    other = RunRequest(
        graph=graph,
        tasks=[task(project)],
        settings=Settings(),
        store=store,
        directory=whole.directory,
        resume=True,
    )
    with pytest.raises(UserError, match="begun with other settings: n: 3 there, 1 here"):
        asyncio.run(run(other, events=NoEvents()))


def test_the_run_directory_tells_what_was_run(project: Any) -> None:
    result = dreamgym_kit.record(project.write(), [task(project)], buffer=MemoryStore())
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["matters"]["mode"] == "record"
    assert manifest["matters"]["graph"] == f"{project.module}:graph"
    assert manifest["about"]["versions"]["langgraph"]
    assert (result.directory / "report.json").is_file()
    assert not PROCESS.open_dreams


def test_recording_writes_in_a_world_that_nobody_resets_is_warned_of(project: Any) -> None:
    graph = project.write()
    two = [task(project), Task("t2", TASK.input, checker=f"{project.module}:check")]
    result = dreamgym_kit.record(graph, two, buffer=MemoryStore())
    assert any(
        "environment default:0 is recorded by 2 episodes and nobody resets it" in said
        for said in result.warnings
    )
    alone = dreamgym_kit.record(graph, [task(project)], buffer=MemoryStore())
    assert not any("nobody resets it" in said for said in alone.warnings)


def test_what_the_users_memory_store_held_is_there_in_a_dream_and_stays_as_it_was(project: Any) -> None:
    import importlib

    graph = project.write(
        """
        from langgraph.config import get_store
        from langgraph.graph import StateGraph, MessagesState, START
        from langgraph.store.memory import InMemoryStore

        memory = InMemoryStore()
        memory.put(("user",), "name", {"is": "Ana"})

        def greet(state):
            known = get_store().get(("user",), "name").value["is"]
            get_store().put(("user",), "name", {"is": "changed"})
            return {"messages": [("ai", f"Hello {known}")]}

        made = StateGraph(MessagesState)
        made.add_node("greet", greet)
        made.add_edge(START, "greet")
        graph = made.compile(store=memory)
        """
    )
    for _ in range(2):
        (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
        assert one.messages[-1]["content"] == "Hello Ana"
    module: Any = importlib.import_module(project.module)
    assert module.memory.get(("user",), "name").value == {"is": "Ana"}


async def test_the_same_in_five_lines_async_and_inside_a_running_loop(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    await dreamgym_kit.arecord(graph, [task(project)], buffer=store)
    dreamt = await dreamgym_kit.asimulate(graph, [task(project)], buffer=store)
    assert dreamt.totals.passed == 1
    inside = dreamgym_kit.simulate(graph, [task(project)], buffer=store)
    assert inside.totals.passed == 1
    assert asyncio.get_running_loop().is_running()


def test_a_block_of_own_code_can_be_recorded_and_dreamt(project: Any) -> None:
    import importlib

    project.write()
    module: Any = importlib.import_module(project.module)
    store = MemoryStore()
    asked = {"messages": [("user", "cancel o1")]}
    with dreamgym_kit.recording(store):
        asyncio.run(module.graph.ainvoke(asked))
    with dreamgym_kit.dreaming(buffer=store) as session:
        said = asyncio.run(module.graph.ainvoke(asked))
    assert said["messages"][-1].content == "Cancelled."
    assert [entry.call.tool for entry in session.ledger.transitions()] == [
        "get_order",
        "cancel_order",
        "get_order",
    ]
    assert module.get_order.invoke({"order_id": "o1"})["status"] == "cancelled"
    assert len(project.touched()) == 4


def test_a_block_dreams_by_the_same_chain_as_a_run(project: Any, tmp_path: Path) -> None:
    import importlib

    project.write()
    module: Any = importlib.import_module(project.module)
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "cancel_order.toml").write_text("""
writes = true
arguments = ["order_id"]
decides = '"ok"'
[outcomes.ok]
answer = 'Const("ok")'
""")
    settings = parse_settings('[tools]\ncancel_order = "write"\n', path=tmp_path / "dreamgym.toml")
    store = MemoryStore()
    with dreamgym_kit.recording(store):
        module.get_order.invoke({"order_id": "o1"})
    with dreamgym_kit.dreaming(buffer=store, settings=settings) as session:
        assert module.get_order.invoke({"order_id": "o1"})["status"] == "open"
        assert asyncio.run(module.cancel_order.ainvoke({"order_id": "o1"})) == "ok"
    told = [entry.answer.source.value for entry in session.ledger.transitions()]
    assert told == ["recorded", "derived"]
    assert project.touched() == ["get_order"]


def test_a_block_asks_the_endpoint_of_the_settings_like_a_run(project: Any) -> None:
    project.write()
    said = f'[experience]\nurls = ["http://127.0.0.1:{own_port()}/v1"]\nmodel = "m"\nmax_attempts = 1\n'
    with (
        pytest.raises(UserError, match="the dream's model cannot be asked"),
        dreamgym_kit.dreaming(buffer=MemoryStore(), settings=parse_settings(said)),
    ):
        pass
