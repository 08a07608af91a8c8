"""What a run refuses: before its first episode by name, and within an episode as a violation."""

from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

import dreamgym_kit
from dreamgym_kit import Episode, Task, Verdict
from dreamgym_kit.adapters.langgraph.run.run import RunResult
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UnknownName, UnsupportedGraph, UserError
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings

TASK = Task("t1", {"messages": [{"role": "user", "content": "cancel o1 please"}]})


def episodes(result: RunResult) -> list[Episode]:
    return list(RunDirectory.open(result.directory).episodes())


def test_a_node_that_acts_by_itself_is_refused_before_the_first_episode(project: Any) -> None:
    graph = project.write(
        """
        import smtplib
        from langgraph.graph import StateGraph, MessagesState, START

        def notify(state):
            touch("notify")
            smtplib.SMTP("localhost").sendmail("a", "b", "c")
            return {}

        graph = StateGraph(MessagesState).add_node("notify", notify).add_edge(START, "notify").compile()
        """
    )
    with pytest.raises(UnsupportedGraph) as caught:
        dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore())
    (problem,) = caught.value.problems
    assert "node 'notify' acts on the world by itself" in problem
    assert f'[functions."{project.module}:notify"]' in problem
    assert project.touched() == []


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

        graph = StateGraph(MessagesState).add_node("sneaky", sneaky).add_edge(START, "sneaky").compile()
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
    assert (one.stop, one.verdict) == ("violation", Verdict.INCONCLUSIVE)
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

        schema = {"type": "function", "function": {"name": "pay_voucher", "parameters": {"type": "object"}}}

        class Telling(ScriptedModelDouble):
            def bind_tools(self, tools, **kwargs): return self.bind(tools=tools)

        model = Telling(turns=[[("pay_voucher", {"payment_id": "p1"})], "done"]).bind_tools([schema])

        def agent(state): return {"messages": [model.invoke(state["messages"])]}
        def act(state):
            call = state["messages"][-1].tool_calls[0]
            return {"messages": [("ai", globals()[call["name"]](**call["args"]))]}

        made = StateGraph(MessagesState)
        made.add_node("agent", agent)
        made.add_node("act", act)
        made.add_edge(START, "agent")
        made.add_edge("agent", "act")
        graph = made.compile()
        """
    )
    result = dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore())
    (one,) = episodes(result)
    assert one.stop == "violation"
    assert (
        "the model called 'pay_voucher', which is bound to the model by its schema alone" in one.violations[0]
    )
    assert any("'pay_voucher' is bound to the model by its schema alone" in said for said in result.warnings)
    assert project.touched() == []


def test_bad_names_are_refused_before_anything_runs(project: Any) -> None:
    graph = project.write()
    with pytest.raises(
        UnknownName, match="tool 'cancel_ordr' is not in the graph; did you mean 'cancel_order'"
    ):
        dreamgym_kit.record(
            graph,
            [TASK],
            buffer=MemoryStore(),
            settings=parse_settings('[tools.cancel_ordr]\neffect = "write"\n'),
        )
    with pytest.raises(UnknownName, match="checker 'nobody'"):
        dreamgym_kit.record(graph, [Task("t", TASK.input, checker="nobody")], buffer=MemoryStore())
    with pytest.raises(UserError, match="nothing to run"):
        dreamgym_kit.record(graph, [], buffer=MemoryStore())
    assert project.touched() == []


@each_row(
    ("tasks", "message"),
    [
        (None, "tasks: expected a file or a list of Task, got NoneType"),
        ([TASK, TASK], r"tasks\[1\]: id: 't1' is also the id of an earlier task"),
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
        dreamgym_kit.simulate(graph, tasks, settings=runs, buffer=MemoryStore())
    assert project.touched() == []
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []


def test_no_episodes_are_no_run(project: Any) -> None:
    with pytest.raises(UserError, match="repeats: episodes per task are a whole number from 1 on, got 0"):
        dreamgym_kit.simulate(project.write(), [TASK], repeats=0)


@each_row(
    ("settings", "message"),
    [
        (
            '[functions."json:dmps"]\neffect = "write"\n',
            "function 'json:dmps': name 'dmps' is not in json; did you mean 'dumps'",
        ),
        (
            '[environments.default]\nref = "json:Wrld"\n',
            "environment provider 'json:Wrld': name 'Wrld' is not in json",
        ),
        (
            '[environments.default]\nref = "json:JSONDecoder"\n',
            r"'json:JSONDecoder' has no reset\(\) and no close\(\)\. Define ",
        ),
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
        dreamgym_kit.simulate(
            project.write(), [TASK], settings=parse_settings(settings), buffer=MemoryStore()
        )
    assert project.touched() == []


@each_row(("failing", "raised"), [('int("many")', "ValueError"), ('__import__("sys").exit(0)', "SystemExit")])
def test_a_world_that_cannot_be_made_is_named_with_its_line(project: Any, failing: str, raised: str) -> None:
    graph = project.write(
        f"""
        class Shop:
            def __init__(self): self.days = {failing}
            def configurable(self, world, episode): return {{}}
            async def reset(self, world, episode): pass
            async def close(self, episode): pass
        """
    )
    settings = parse_settings(f'[environments.default]\nref = "{project.module}:Shop"\n')
    with pytest.raises(UserError, match=rf"raised {raised} when it was made: [^\n]+\n  .* in __init__: def"):
        dreamgym_kit.simulate(graph, [TASK], settings=settings, buffer=MemoryStore())


def test_a_real_endpoint_is_refused_unless_a_person_allows_it(project: Any) -> None:
    graph = project.write(
        """
        import socket
        from langgraph.graph import StateGraph, MessagesState, START

        def look(state):
            with socket.socket() as door:
                door.connect(("127.0.0.1", 9))
            return {}

        graph = StateGraph(MessagesState).add_node("look", look).add_edge(START, "look").compile()
        """
    )
    settings = parse_settings('[nodes.look]\neffect = "pure"\n')
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore(), settings=settings))
    assert one.stop == "violation"
    assert "127.0.0.1:9" in one.violations[0]
    assert "allow_hosts" in one.violations[0]


def test_a_module_that_acts_while_it_is_imported_is_stopped_by_the_guard(project: Any) -> None:
    graph = project.write('open(TOUCHED, "a").write("import ")\n')
    with pytest.raises(UserError, match=r"importing agent_\d+: refused to .*touched"):
        dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore())
    assert project.touched() == []


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
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
    assert (one.verdict, one.stop) == (Verdict.INCONCLUSIVE, "violation")
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
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
    assert (one.stop, one.violations) == ("executed", ())
    assert [str(call) for call in one.executed] == ["get_order(order_id='o1')"]  # then it was over


def test_a_node_that_exits_ends_its_own_episode_and_not_the_run(project: Any) -> None:
    graph = project.write(
        """
        import sys
        from langgraph.graph import StateGraph, MessagesState, START

        async def leave(state):
            if state["messages"][0].content == "leave":
                sys.exit(3)
            return {}

        graph = StateGraph(MessagesState).add_node("leave", leave).add_edge(START, "leave").compile()
        """
    )
    asked = [Task(word, {"messages": [{"role": "user", "content": word}]}) for word in ("leave", "stay")]
    ended = {one.task: one for one in episodes(dreamgym_kit.simulate(graph, asked, buffer=MemoryStore()))}
    assert (ended["leave"].verdict, ended["leave"].reason) == (
        Verdict.FAILED,
        "the graph raised SystemExit: 3",
    )
    assert ended["stay"].stop == "finished"


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

        graph = StateGraph(State).add_node("loop", loop).add_edge(START, "loop").compile()
        """
    )
    (one,) = episodes(dreamgym_kit.simulate(graph, [TASK], buffer=MemoryStore()))
    assert (one.stop, one.verdict) == ("executed", Verdict.FAILED)
    assert [call.tool for call in one.executed] == ["refund"]
