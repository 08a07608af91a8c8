"""Whole runs through the Python API: record on real tools, dream from the recordings."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.langgraph.runs import RunResult
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import GateRefused, ShapeRefused, UnknownName, UserError
from dreamgym_kit.gate.registry import PROCESS
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.model import Settings

TASK = Task("t1", {"messages": [{"role": "user", "content": "cancel o1 please"}]})


def episodes(result: RunResult) -> list[Episode]:
    return list(RunDirectory.open(result.directory).episodes())


def task(project: Any, **changes: Any) -> Task:
    return Task("t1", TASK.input, **{"checker": f"{project.module}:check", **changes})


def test_what_was_recorded_for_real_is_dreamt_without_touching_anything(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    real = dreamgym_kit.record(graph, [task(project)], store=store)
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    dreamt = dreamgym_kit.simulate(graph, [task(project)], store=store, n=2)
    assert project.touched() == ["get_order", "cancel_order", "get_order"]
    (recorded,), group = episodes(real), episodes(dreamt)
    assert [one.verdict for one in (recorded, *group)] == [Verdict.SUCCESS] * 3
    for one in group:
        assert [entry.answer.content for entry in one.transitions] == [
            {"order_id": "o1", "status": "open"},
            "ok",
            {"order_id": "o1", "status": "cancelled"},
        ]
        assert {entry.answer.provenance.value for entry in one.transitions} == {"recorded"}
        assert one.messages == recorded.messages
        assert (one.model_calls, one.tokens) == (4, 440)


def test_without_recordings_the_dream_abstains_and_says_so(project: Any) -> None:
    result = dreamgym_kit.simulate(project.write(), [task(project)], store=MemoryStore())
    (one,) = episodes(result)
    assert (one.verdict, one.stop) == (Verdict.UNDETERMINED, "abstained")
    assert one.reason == "nothing was recorded in world default:0"
    assert project.touched() == []


def test_abstaining_may_fail_the_tool_instead_of_ending_the_episode(project: Any) -> None:
    settings = Settings().with_overrides({"simulate.abstain": "error"})
    result = dreamgym_kit.simulate(project.write(), [task(project)], store=MemoryStore(), settings=settings)
    (one,) = episodes(result)
    assert one.reason == "the graph raised ToolException: get_order is not available right now"


def test_a_node_that_acts_by_itself_is_refused_before_the_first_episode(project: Any) -> None:
    graph = project.write(
        """
        import smtplib
        from langgraph.graph import StateGraph, MessagesState, START

        def notify(state):
            touch("notify")
            smtplib.SMTP("localhost").sendmail("a", "b", "c")
            return {}

        made = StateGraph(MessagesState)
        made.add_node("notify", notify)
        made.add_edge(START, "notify")
        graph = made.compile()
        """
    )
    with pytest.raises(ShapeRefused) as caught:
        dreamgym_kit.simulate(graph, [TASK], store=MemoryStore())
    (problem,) = caught.value.problems
    assert "node 'notify' acts on the world by itself" in problem
    assert f'[functions."{project.module}:notify"]' in problem
    assert project.touched() == []


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

        made = StateGraph(MessagesState)
        made.add_node("notify", notify)
        made.add_edge(START, "notify")
        graph = made.compile()
        """
    )
    settings = parse_settings(
        f'[functions."{project.module}:send"]\neffect = "destructive"\nname = "send_mail"\n'
    )
    store = MemoryStore()
    dreamgym_kit.record(graph, [TASK], store=store, settings=settings)
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=store, settings=settings))
    (entry,) = one.transitions
    assert (entry.call.tool, dict(entry.call.args)) == ("send_mail", {"to": "ana", "text": "hello"})
    assert (entry.effect.value, entry.answer.content) == ("destructive", {"sent": "ana"})
    assert project.touched() == ["send"]


def test_a_side_effect_that_nobody_registered_trips_the_guard_and_latches(project: Any) -> None:
    graph = project.write(
        """
        import importlib
        from langgraph.graph import StateGraph, MessagesState, START

        def sneaky(state):
            try:
                with open(TOUCHED, "a") as file:
                    file.write("sneaky ")
            except BaseException:
                pass
            return {"messages": [("ai", str(get_order.invoke({"order_id": "o1"})))]}

        made = StateGraph(MessagesState)
        made.add_node("sneaky", sneaky)
        made.add_edge(START, "sneaky")
        graph = made.compile()
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore()))
    assert (one.stop, one.verdict) == ("violation", Verdict.UNDETERMINED)
    assert "touched" in one.violations[0]
    assert "allow_paths" in one.violations[0]
    assert (one.transitions, project.touched()) == ((), [])


def test_a_function_run_by_a_node_of_its_own_is_refused_at_the_models_answer(project: Any) -> None:
    graph = project.write(
        """
        from langgraph.graph import StateGraph, MessagesState, START

        def pay_voucher(payment_id):
            touch("pay_voucher")
            return "paid"

        RUN = {"pay_voucher": pay_voucher}
        schema = {"type": "function", "function": {"name": "pay_voucher", "parameters": {"type": "object"}}}

        class Telling(ScriptedModelDouble):
            def bind_tools(self, tools, **kwargs): return self.bind(tools=tools)

        model = Telling(turns=[[("pay_voucher", {"payment_id": "p1"})], "done"]).bind_tools([schema])

        def agent(state): return {"messages": [model.invoke(state["messages"])]}
        def act(state):
            call = state["messages"][-1].tool_calls[0]
            return {"messages": [("ai", RUN[call["name"]](**call["args"]))]}

        made = StateGraph(MessagesState)
        made.add_node("agent", agent)
        made.add_node("act", act)
        made.add_edge(START, "agent")
        made.add_edge("agent", "act")
        graph = made.compile()
        """
    )
    result = dreamgym_kit.simulate(graph, [TASK], store=MemoryStore())
    (one,) = episodes(result)
    assert one.stop == "violation"
    assert (
        "the model called 'pay_voucher', which is bound to the model by its schema alone" in one.violations[0]
    )
    assert any("'pay_voucher' is bound to the model by its schema alone" in said for said in result.warnings)
    assert project.touched() == []


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
    (real,) = episodes(dreamgym_kit.record(graph, [yes], store=store))
    assert real.verdict is Verdict.SUCCESS
    (dreamt,) = episodes(dreamgym_kit.simulate(graph, [yes], store=store))
    assert [entry.call.tool for entry in dreamt.transitions] == ["get_order", "cancel_order", "get_order"]
    (waiting,) = episodes(dreamgym_kit.simulate(graph, [task(project, replies=())], store=store))
    assert waiting.verdict is Verdict.UNDETERMINED


def test_the_users_checkpointer_and_store_stay_untouched(project: Any) -> None:
    import importlib

    graph = project.write(
        """
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.store.memory import InMemoryStore
        saver, memory = InMemorySaver(), InMemoryStore()
        graph = create_agent(ScriptedModelDouble(turns=TURNS), [get_order, cancel_order],
            checkpointer=saver, store=memory)
        """
    )
    store = MemoryStore()
    dreamgym_kit.record(graph, [task(project)], store=store)
    dreamgym_kit.simulate(graph, [task(project)], store=store)
    module = importlib.import_module(project.module)
    assert list(module.saver.list(None)) == []


def test_limits_end_an_episode_undetermined(project: Any) -> None:
    graph = project.write(
        """
        graph = create_agent(ScriptedModelDouble(turns=[[("get_order", {"order_id": "o1"})]]), [get_order])
        """
    )
    store = MemoryStore()
    for override, said in (
        ({"limits.recursion": 8}, "the graph's recursion limit was reached"),
        ({"limits.steps": 3}, "more than 3 tool calls"),
    ):
        settings = Settings().with_overrides(override)
        (one,) = episodes(dreamgym_kit.record(graph, [task(project)], store=store, settings=settings))
        assert (one.verdict, one.stop, one.reason) == (Verdict.UNDETERMINED, "limit", said)


def test_a_run_budget_of_calls_is_never_exceeded(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    settings = Settings().with_overrides({"budget.calls": 4, "simulate.n": 4})
    result = dreamgym_kit.record(graph, [task(project)], store=store, settings=settings)
    assert len(project.touched()) == 4
    assert result.totals.stopped


def test_spend_is_counted_and_bounded(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    prices = {"model.usd_per_million_input": 10_000.0, "model.usd_per_million_output": 0.0}
    (one,) = episodes(
        dreamgym_kit.record(graph, [task(project)], store=store, settings=Settings().with_overrides(prices))
    )
    assert one.cost_usd == pytest.approx(4.0)
    bounded = Settings().with_overrides(
        {**prices, "budget.usd": 1.5, "simulate.n": 3, "simulate.concurrency": 1}
    )
    result = dreamgym_kit.record(graph, [task(project)], store=store, settings=bounded)
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
    (real,) = episodes(dreamgym_kit.record(graph, [TASK], store=store))
    (dreamt,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=store))
    assert real.reason == dreamt.reason == "the graph raised ValueError: boom"
    assert dreamt.verdict is Verdict.FAILURE
    assert dreamt.transitions[0].answer.error_type == "ValueError"


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
        for one in episodes(dreamgym_kit.record(graph, wanted, store=store))
    }
    assert said == {
        "must": ("success", "every expectation held"),
        "not": ("failure", "cancel_order was called, which the task forbids"),
        "most": ("failure", "get_order was called 2 times; the task allows 1"),
        "none": ("undetermined", "finished; the task has no checker and no expectations"),
    }


def test_bad_names_are_refused_before_anything_runs(project: Any) -> None:
    graph = project.write()
    with pytest.raises(
        UnknownName, match="tool 'cancel_ordr' is not in the graph; did you mean 'cancel_order'"
    ):
        dreamgym_kit.record(
            graph,
            [TASK],
            store=MemoryStore(),
            settings=parse_settings('[tools.cancel_ordr]\neffect = "write"\n'),
        )
    with pytest.raises(UnknownName, match="checker 'nobody'"):
        dreamgym_kit.record(graph, [Task("t", TASK.input, checker="nobody")], store=MemoryStore())
    with pytest.raises(UserError, match="there is nothing to run"):
        dreamgym_kit.record(graph, [], store=MemoryStore())
    assert project.touched() == []


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (None, "tasks: expected a file or a list of Task, got NoneType"),
        ([TASK, TASK], r"tasks\[1\]: id: 't1' is the id of an earlier task too"),
        (["refund A-1"], r"tasks\[0\]: expected a Task, got str; write Task\("),
        ([Task(3, TASK.input)], r"tasks\[0\]: id: expected text, got 3"),
        ([Task("t", "refund")], r"tasks\[0\]: input: expected an object \(the graph's state\), got 'refund'"),
        ([Task("t", {"messages": [object()]})], r"tasks\[0\]: object is not a JSON value"),
        (
            [Task("t", {"mesages": []})],
            "input: field 'mesages' is not in the graph's state; did you mean 'messages'",
        ),
        (
            [Task("t", TASK.input, expect={"cals": ["x"]})],
            r"expect.cals: no such field; did you mean 'calls'\?",
        ),
        (
            [Task("t", TASK.input, expect={"max": {"get_ordr": 1}})],
            "task 't', expect: tool 'get_ordr' is not in the graph; did you mean 'get_order'",
        ),
        ([Task("t", TASK.input, checker="agnet_x:check")], "task 't': no module 'agnet_x' from "),
    ],
)
def test_tasks_made_in_python_are_named_before_anything_runs(
    project: Any, tmp_path: Path, tasks: Any, message: str
) -> None:
    graph = project.write()
    runs = Settings().with_overrides({"runs": str(tmp_path / "runs")})
    with pytest.raises(UserError, match=message):
        dreamgym_kit.simulate(graph, tasks, settings=runs, store=MemoryStore())
    assert project.touched() == []
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []


def test_no_episodes_are_no_run(project: Any) -> None:
    with pytest.raises(UserError, match="n: episodes per task are a whole number from 1 on, got 0"):
        dreamgym_kit.simulate(project.write(), [TASK], n=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            '[functions."json:dmps"]\neffect = "write"\n',
            "function 'json:dmps': name 'dmps' is not in json; did you mean 'dumps'",
        ),
        ('[worlds.default]\nref = "json:Wrld"\n', "world 'json:Wrld': name 'Wrld' is not in json"),
        (
            '[faults."cancel_ordr"]\nrate = 0.5\n',
            "tool 'cancel_ordr' is not in the graph; did you mean 'cancel_order'",
        ),
    ],
)
def test_a_name_in_settings_that_leads_nowhere_is_named_with_its_place(
    project: Any, settings: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        dreamgym_kit.simulate(project.write(), [TASK], settings=parse_settings(settings), store=MemoryStore())
    assert project.touched() == []


def test_bad_arguments_and_unknown_tools_are_the_frameworks_to_answer_and_counted(project: Any) -> None:
    graph = project.write(
        """
        turns = [[("get_order", {"wrong": 1})], [("get_ordr", {"order_id": "o1"})], "sorry"]
        graph = create_agent(ScriptedModelDouble(turns=turns), [get_order])
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore()))
    assert (one.stop, one.transitions) == ("finished", ())
    assert one.counts == {"bad_arguments": 1, "unknown_tool": 1}
    assert [record["status"] for record in one.messages if record["role"] == "tool"] == ["error", "error"]


async def test_the_same_in_five_lines_async_and_inside_a_running_loop(project: Any) -> None:
    graph, store = project.write(), MemoryStore()
    await dreamgym_kit.arecord(graph, [task(project)], store=store)
    dreamt = await dreamgym_kit.asimulate(graph, [task(project)], store=store)
    assert dreamt.totals.success == 1
    inside = dreamgym_kit.simulate(graph, [task(project)], store=store)
    assert inside.totals.success == 1
    assert asyncio.get_running_loop().is_running()


def test_a_block_of_own_code_can_be_recorded_and_dreamt(project: Any) -> None:
    import importlib

    project.write()
    module: Any = importlib.import_module(project.module)
    store = MemoryStore()
    asked = {"messages": [("user", "cancel o1")]}
    with dreamgym_kit.recording(store):
        asyncio.run(module.graph.ainvoke(asked))
    with dreamgym_kit.dreaming(store=store) as session:
        said = asyncio.run(module.graph.ainvoke(asked))
    assert said["messages"][-1].content == "Cancelled."
    assert [entry.call.tool for entry in session.ledger.transitions()] == [
        "get_order",
        "cancel_order",
        "get_order",
    ]
    with pytest.raises(GateRefused, match="outside every episode"):
        module.get_order.invoke({"order_id": "o1"})
    dreamgym_kit.wake()
    assert module.get_order.invoke({"order_id": "o1"})["status"] == "cancelled"
    assert len(project.touched()) == 4


def test_a_block_dreams_by_the_same_chain_as_a_run(project: Any) -> None:
    import importlib

    project.write()
    module: Any = importlib.import_module(project.module)
    text = """
    [tools.cancel_order]
    effect = "write"
    [tools.cancel_order.model]
    answer = "ok"
    [[tools.cancel_order.model.changes]]
    read = "get_order"
    bind = { order_id = "args.order_id" }
    set = { status = "cancelled" }
    """
    store = MemoryStore()
    with dreamgym_kit.recording(store):
        module.get_order.invoke({"order_id": "o1"})
    with dreamgym_kit.dreaming(store=store, settings=parse_settings(text)) as session:
        assert module.get_order.invoke({"order_id": "o1"})["status"] == "open"
        asyncio.run(module.cancel_order.ainvoke({"order_id": "o1"}))
        assert module.get_order.invoke({"order_id": "o1"})["status"] == "cancelled"
    told = [entry.answer.provenance.value for entry in session.ledger.transitions()]
    assert told == ["recorded", "composed", "composed"]
    assert project.touched() == ["get_order"]


def test_a_block_asks_the_endpoint_of_the_settings_like_a_run(project: Any) -> None:
    project.write()
    said = '[endpoint]\nurls = ["http://127.0.0.1:9/v1"]\nmodel = "m"\nattempts = 1\n'
    with (
        pytest.raises(UserError, match="the dream's model cannot be asked"),
        dreamgym_kit.dreaming(store=MemoryStore(), settings=parse_settings(said)),
    ):
        pass


def test_a_real_endpoint_is_refused_unless_a_person_allows_it(project: Any) -> None:
    graph = project.write(
        """
        import socket
        from langgraph.graph import StateGraph, MessagesState, START

        def look(state):
            with socket.socket() as door:
                door.connect(("127.0.0.1", 9))
            return {}

        made = StateGraph(MessagesState)
        made.add_node("look", look)
        made.add_edge(START, "look")
        graph = made.compile()
        """
    )
    settings = parse_settings('[nodes.look]\neffect = "pure"\n')
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore(), settings=settings))
    assert one.stop == "violation"
    assert "127.0.0.1:9" in one.violations[0]
    assert "allow_hosts" in one.violations[0]


def test_a_module_that_acts_while_it_is_imported_is_stopped_by_the_guard(project: Any) -> None:
    graph = project.write('open(TOUCHED, "a").write("import ")\n')
    with pytest.raises(UserError, match=r"importing agent_\d+: refused to .*touched"):
        dreamgym_kit.simulate(graph, [TASK], store=MemoryStore())
    assert project.touched() == []


def test_resuming_runs_only_what_is_missing_and_refuses_other_settings(project: Any, tmp_path: Path) -> None:
    from dreamgym_kit.adapters.langgraph.run_request import RunRequest
    from dreamgym_kit.adapters.langgraph.runs import run
    from dreamgym_kit.rollout.events import NoEvents

    graph, store = project.write(), MemoryStore()
    dreamgym_kit.record(graph, [task(project)], store=store)
    whole = dreamgym_kit.simulate(graph, [task(project)], store=store, n=3, directory=tmp_path / "run")
    journal = whole.directory / "episodes.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    settings = Settings().with_overrides({"simulate.n": 3})
    request = RunRequest(
        graph=graph,
        tasks=[task(project)],
        settings=settings,
        store=store,
        directory=whole.directory,
        resume=True,
    )
    again = asyncio.run(run(request, events=NoEvents()))
    assert (again.totals.earlier, again.totals.success) == (2, 3)
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


def test_an_agent_that_asks_for_tools_that_never_pass_the_gate_is_no_success(project: Any) -> None:
    graph = project.write(
        """
        from langgraph.graph import StateGraph, MessagesState, START
        model = ScriptedModelDouble(turns=[[("get_order", {"order_id": "o1"})], "done"])
        def agent(state): return {"messages": [model.invoke(state["messages"])]}
        def ignore(state): return {"messages": [("ai", "I looked it up: open.")]}
        made = StateGraph(MessagesState)
        made.add_node("agent", agent)
        made.add_node("ignore", ignore)
        made.add_edge(START, "agent")
        made.add_edge("agent", "ignore")
        graph = made.compile()
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore()))
    assert (one.verdict, one.stop) == (Verdict.UNDETERMINED, "violation")
    assert "asked for 1 tool call(s) (get_order, ...) and the gate saw none" in one.violations[0]


def test_a_middleware_that_answers_by_itself_taints_the_episode(project: Any) -> None:
    graph = project.write(
        """
        from langchain.agents.middleware import wrap_tool_call
        from langchain_core.messages import ToolMessage

        @wrap_tool_call
        async def own_answer(request, handler):
            return ToolMessage("open", tool_call_id=request.tool_call["id"], name=request.tool_call["name"])

        model = ScriptedModelDouble(turns=TURNS)
        graph = create_agent(model, [get_order, cancel_order], middleware=[own_answer])
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore()))
    assert one.stop == "violation"
    assert "get_order answered without passing the gate" in one.violations[0]


def test_the_run_directory_tells_what_was_run(project: Any) -> None:
    result = dreamgym_kit.record(project.write(), [task(project)], store=MemoryStore())
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["matters"]["mode"] == "record"
    assert manifest["matters"]["graph"] == f"{project.module}:graph"
    assert manifest["about"]["versions"]["langgraph"]
    assert (result.directory / "report.json").is_file()
    assert not PROCESS.armed


def test_a_node_that_exits_ends_its_own_episode_and_not_the_run(project: Any) -> None:
    graph = project.write(
        """
        import sys
        from langgraph.graph import StateGraph, MessagesState, START

        async def leave(state):
            if state["messages"][0].content == "leave":
                sys.exit(3)
            return {}

        made = StateGraph(MessagesState)
        made.add_node("leave", leave)
        made.add_edge(START, "leave")
        graph = made.compile()
        """
    )
    asked = [Task(word, {"messages": [{"role": "user", "content": word}]}) for word in ("leave", "stay")]
    ended = {one.task: one for one in episodes(dreamgym_kit.simulate(graph, asked, store=MemoryStore()))}
    assert (ended["leave"].verdict, ended["leave"].reason) == (
        Verdict.FAILURE,
        "the graph raised SystemExit: 3",
    )
    assert ended["stay"].stop == "finished"


def test_recording_writes_in_a_world_that_nobody_resets_is_warned_of(project: Any) -> None:
    graph = project.write()
    two = [task(project), Task("t2", TASK.input, checker=f"{project.module}:check")]
    result = dreamgym_kit.record(graph, two, store=MemoryStore())
    assert any(
        "world default:0 is recorded by 2 episodes and nobody resets it" in said for said in result.warnings
    )
    alone = dreamgym_kit.record(graph, [task(project)], store=MemoryStore())
    assert not any("nobody resets it" in said for said in alone.warnings)


def test_a_loop_over_a_raw_client_that_runs_functions_by_itself_is_no_success(project: Any) -> None:
    graph = project.write(
        """
        from typing import Any, TypedDict
        from langgraph.graph import StateGraph, START

        class State(TypedDict):
            messages: list[Any]

        def refund(payment_id): return "refunded"

        def loop(state):
            said = {"role": "tool", "tool_call_id": "c1", "name": "refund", "content": refund("p1")}
            return {"messages": [*state["messages"], said]}

        made = StateGraph(State)
        made.add_node("loop", loop)
        made.add_edge(START, "loop")
        graph = made.compile()
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore()))
    assert (one.stop, one.verdict) == ("violation", Verdict.UNDETERMINED)
    assert "refund answered without passing the gate" in one.violations[0]


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
        (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], store=MemoryStore()))
        assert one.messages[-1]["content"] == "Hello Ana"
    module: Any = importlib.import_module(project.module)
    assert module.memory.get(("user",), "name").value == {"is": "Ana"}
