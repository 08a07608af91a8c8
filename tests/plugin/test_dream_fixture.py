"""The fixture as a user's tests meet it: replaying, recording, and leaving nothing behind."""

from pathlib import Path

import pytest

from dreamgym_kit import Task, record
from dreamgym_kit.adapters.langgraph.intercept.install import uninstall

CANCELS = """
    from agent import graph

    def test_cancels(dream):
        episode = dream.run(graph, "Please cancel order o1.")
        episode.called_once("cancel_order", order_id="o1")
        assert episode.answer == "o1 is cancelled."
"""


def recorded(project: pytest.Pytester) -> list[Path]:
    return sorted(project.path.glob("cassettes/**/*.jsonl"))


def test_recorded_once_it_replays_without_a_real_call(project, run, touched) -> None:
    project.makepyfile(test_orders=CANCELS)
    said = run("--dream-record=once")
    said.assert_outcomes(passed=1)
    said.stdout.fnmatch_lines(["*recorded on the real tools*", "cassettes/test_orders/test_cancels.jsonl"])
    assert touched() == ["get o1", "cancel o1"]
    run().assert_outcomes(passed=1)
    run("--dream-record=once").assert_outcomes(passed=1)
    assert touched() == ["get o1", "cancel o1"]


def test_without_a_cassette_the_test_fails_and_says_how_to_record(project, run, touched) -> None:
    project.makepyfile(test_orders=CANCELS)
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(
        [
            "get_order(order_id='o1') is not in the cassette: get_order was never recorded",
            "cassettes/test_orders/test_cancels.jsonl does not exist*REAL tools:",
            '  pytest "test_orders.py::test_cancels" --dream-record=once',
            "1 get_order(order_id='o1') -> no answer  [[]read, unanswered]",
        ]
    )
    assert touched() == []


def test_a_miss_says_what_came_nearest_argument_by_argument(project, run, touched) -> None:
    project.makepyfile(test_orders=CANCELS)
    run("--dream-record=once").assert_outcomes(passed=1)
    agent = project.path / "agent.py"
    agent.write_text(agent.read_text().replace('"reason": "asked"', '"reason": "moved", "note": 3'))
    agent.write_text(agent.read_text().replace("reason: str)", "reason: str, note: int = 0)"))
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(
        [
            "cancel_order(order_id='o1', reason='moved', note=3) is not in the cassette: only `reason` and *",
            "  nearest recording (test_orders.test_cancels, call 2):",
            "    reason: recorded 'asked', now 'moved'",
            "    note: recorded nothing, now 3",
            "    answer: *",
            '  pytest "test_orders.py::test_cancels" --dream-record=all',
        ]
    )
    assert touched() == ["get o1", "cancel o1"]


@pytest.mark.slow
def test_new_records_only_what_the_cassette_does_not_answer(project, run, touched) -> None:
    project.makepyfile(test_orders=CANCELS)
    run("--dream-record=new").assert_outcomes(passed=1)
    assert touched() == ["get o1", "cancel o1"]
    run("--dream-record=new").assert_outcomes(passed=1)
    assert len(touched()) == 2
    agent = project.path / "agent.py"
    agent.write_text(agent.read_text().replace('"asked"', '"moved away"'))
    run("--dream-record=new").assert_outcomes(passed=1)
    assert len(touched()) == 4
    run().assert_outcomes(passed=1)


@pytest.mark.slow
def test_all_records_anew_and_gives_the_same_bytes(project, run, touched) -> None:
    project.makepyfile(test_orders=CANCELS)
    run("--dream-record=all").assert_outcomes(passed=1)
    first = [path.read_bytes() for path in recorded(project)]
    run("--dream-record=all").assert_outcomes(passed=1)
    assert [path.read_bytes() for path in recorded(project)] == first
    assert "Jörg".encode() in first[0]
    assert len(touched()) == 4


def test_a_call_outside_every_run_is_refused_while_the_fixture_is_there(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import delete_account, graph
        from dreamgym_kit.errors import RealCallBlocked

        def test_direct(dream):
            with pytest.raises(RealCallBlocked, match="outside every episode"):
                delete_account.invoke({"user": "u1"})
            with pytest.raises(RealCallBlocked):
                graph.invoke({"messages": [("user", "cancel o1")]})
        """
    )
    run().assert_outcomes(passed=1)
    project.makepyfile(
        test_orders="""
        from agent import delete_account

        def test_direct(dream):
            delete_account.invoke({"user": "u1"})

        def test_next(): ...
        """
    )
    said = run()
    said.assert_outcomes(failed=1, passed=1)
    said.stdout.fnmatch_lines(
        ["E*RealCallBlocked: delete_account was called outside every episode*it did not run"]
    )
    assert touched() == []


def test_after_the_test_nothing_of_the_gate_is_left(project, touched) -> None:
    project.makepyfile(
        test_orders="""
        import os, tempfile, threading
        from concurrent.futures import ThreadPoolExecutor
        from langchain_core.globals import get_llm_cache
        from langchain_core.language_models import BaseChatModel
        from langchain_core.tools import BaseTool, StructuredTool
        from langgraph.pregel import Pregel
        from agent import ScriptedModelDouble, cancel_order, get_order, graph
        from dreamgym_kit.guard import egress
        from dreamgym_kit.routing.process import PROCESS, current

        OWNERS = (BaseTool, StructuredTool, Pregel, BaseChatModel, ScriptedModelDouble,
                  ThreadPoolExecutor, threading.Thread)

        def state():
            code = [tool.func.__code__ for tool in (get_order, cancel_order)]
            classes = [{name: id(value) for name, value in vars(owner).items()} for owner in OWNERS]
            return classes, code, dict(os.environ), tempfile.tempdir, get_llm_cache(), current.get(), os._exit

        def without_name(found):
            found[2].pop("PYTEST_CURRENT_TEST")
            return found

        BEFORE = without_name((*state()[:2], dict(os.environ) | {"PYTEST_CURRENT_TEST": ""}, *state()[3:]))

        def test_dreams(dream):
            dream.run(graph, "cancel o1", mocks={"get_order": {}, "cancel_order": "ok"})
            assert PROCESS.open_dreams and without_name(state()) != BEFORE

        def test_after():
            assert without_name(state()) == BEFORE
            assert not PROCESS.open_dreams and not egress.armed() and not PROCESS.sessions
            get_order.invoke({"order_id": "o7"})
        """
    )
    # in a process of its own: what an earlier test of this one hooked is not this test's to judge
    plugin = ("-p", "dreamgym_kit.adapters.pytest_plugin.plugin")
    project.runpytest_subprocess(*plugin, "-p", "no:randomly").assert_outcomes(passed=2)
    assert touched() == ["get o7"]


@pytest.mark.slow
@pytest.mark.nightly
def test_classes_and_parameters_have_cassettes_of_their_own(project, run, touched) -> None:
    test = """
        import pytest
        from agent import graph

        class TestOrders:
            @pytest.mark.parametrize("order", ["o1", "a/b", "a b"])
            def test_cancels(self, dream, order):
                dream.run(graph, "Please cancel " + order.replace(" ", "")).called("get_order")

            def test_twice(self, dream):
                dream.run(graph, "cancel o1").called("cancel_order", order_id="o1")
                dream.run(graph, "cancel o2").called("cancel_order", order_id="o2")
                assert len(dream.episodes) == 2
    """
    project.makepyfile(test_orders=test)
    run("--dream-record=once").assert_outcomes(passed=4)
    names = [str(path.relative_to(project.path / "cassettes")) for path in recorded(project)]
    assert len(names) == 4
    assert names[:2] == [
        "test_orders/TestOrders.test_cancels-a-b-" + names[0].split("-")[-1],
        "test_orders/TestOrders.test_cancels-a-b-" + names[1].split("-")[-1],
    ]
    assert "test_orders/TestOrders.test_cancels-o1.jsonl" in names
    before = touched()
    run().assert_outcomes(passed=4)
    assert touched() == before


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param("auto", marks=pytest.mark.nightly), "strict"])
def test_async_tests_dream_on_their_own_loop(project, run, touched, mode) -> None:
    mark = "" if mode == "auto" else "@pytest.mark.asyncio"
    project.makepyfile(
        test_orders=f"""
        import asyncio
        import pytest
        from agent import graph

        {mark}
        async def test_cancels(dream):
            episode = await dream.arun(graph, "Please cancel order o1.")
            episode.order("get_order", "cancel_order")

        {mark}
        async def test_two_at_once(dream):
            runs = [dream.arun(graph, "cancel o1"), dream.arun(graph, "cancel o2")]
            first, second = await asyncio.gather(*runs)
            first.called("cancel_order", order_id="o1")
            second.called("cancel_order", order_id="o2")

        {mark}
        async def test_sync_run_inside_a_loop(dream):
            dream.run(graph, "cancel o1").called("cancel_order")
        """
    )
    run("-p", "pytest_asyncio.plugin", f"--asyncio-mode={mode}", "--dream-record=once").assert_outcomes(
        passed=3
    )
    before = touched()
    run("-p", "pytest_asyncio.plugin", f"--asyncio-mode={mode}").assert_outcomes(passed=3)
    assert touched() == before


@pytest.mark.slow
def test_the_tests_own_answers_need_no_cassette_and_are_never_recorded(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import graph

        def test_answers(dream):
            episode = dream.run(graph, "cancel o1", mocks={
                "get_order": lambda order_id: {"id": order_id}, "cancel_order": ValueError("too late")},
                allow_incomplete=True)
            assert episode.calls[0].answer == {"id": "o1"}
            assert episode.calls[0].source == "scripted"
            assert episode.calls[1].error == "too late"

        def test_unknown_name(dream):
            dream.run(graph, "cancel o1", mocks={"get_order": {}, "cancel_order": "ok", "get_ordr": {}})
        """
    )
    for mode in ("none", "all"):
        said = run(f"--dream-record={mode}")
        said.assert_outcomes(passed=1, failed=1)
        said.stdout.fnmatch_lines(["mocks: the graph has no tool 'get_ordr'*"])
    assert touched() == []
    assert not recorded(project)


def test_an_agent_that_breaks_fails_the_test_and_is_not_recorded(project, run, touched) -> None:
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text().replace('said = AIMessage(f"', 'raise RuntimeError("down"); said = AIMessage(f"')
    )
    project.makepyfile(test_orders=CANCELS.replace("called_once", "not_called") + "\n")
    said = run("--dream-record=once")
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(
        [
            "the agent did not finish*RuntimeError: down*nothing was recorded",
            '  *agent.py:* in _generate: raise RuntimeError("down")*',
        ]
    )
    assert not recorded(project)


def test_a_mark_that_says_nothing_known_is_named(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        @pytest.mark.dream(casette="orders")
        def test_misspelt(dream): ...
        @pytest.mark.dream("orders")
        def test_unnamed(dream): ...
        @pytest.mark.dream(models="some")
        def test_models(dream): ...
        @pytest.mark.dream(cassette="../orders")
        def test_outside(dream): ...
        @pytest.mark.dream(cassette="")
        def test_nameless(dream): ...
        """
    )
    said = run()
    said.assert_outcomes(errors=5)
    said.stdout.fnmatch_lines(
        [
            "*test_orders.py::test_misspelt: key 'casette'*did you mean 'cassette'?*",
            "*test_unnamed: @pytest.mark.dream takes only keyword arguments*",
            "*test_models: models: 'some' is unknown. Use one of auto, recorded, live*",
            "*cassette: '../orders' is outside*",
            "*cassette: '' is not a file name. Name a file, such as refunds.jsonl.",
        ]
    )


def test_an_unknown_graph_is_told_in_one_line(project, run, touched) -> None:
    project.makepyfile(test_orders='def test_graph(dream):\n    dream.run("agent:grpah", "cancel o1")\n')
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["*grpah*"])
    said.stdout.no_fnmatch_line("*Traceback*")
    said.stdout.no_fnmatch_line("*another exception*")


def test_a_spec_and_the_nearest_settings_are_taken(project, run, touched) -> None:
    (project.path / "dreamgym.toml").write_text('[tools.get_order]\neffect = "destructive"\n')
    project.makepyfile(
        test_orders="""
        def test_spec(dream):
            episode = dream.run("agent:graph", "cancel o1", mocks={"cancel_order": "ok", "get_order": {}})
            assert [step.tool for step in episode.effects] == ["get_order", "cancel_order"]
        """
    )
    run().assert_outcomes(passed=1)
    assert touched() == []


def test_writes_of_the_agent_itself_are_refused(project, run, touched) -> None:
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text().replace("    order = next", '    touch("model")\n        order = next', 1)
    )
    project.makepyfile(test_orders=CANCELS)
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["a real call was blocked: *"])
    assert touched() == []


def test_an_ini_that_says_nothing_known_stops_the_session(project, run, touched) -> None:
    project.makepyfile(test_orders=CANCELS)
    said = run("-o", "dream_record=always")
    assert said.ret == pytest.ExitCode.USAGE_ERROR
    said.stderr.fnmatch_lines(["*dream_record: 'always' is not one of none, once, new, all"])


def test_the_header_says_that_real_tools_run(project, run, touched) -> None:
    project.makepyfile(test_orders="def test_plain(): ...")
    run("-v", "--dream-record=once").stdout.fnmatch_lines(["dream: record once: REAL TOOLS RUN*"])
    run("-v").stdout.no_fnmatch_line("dream:*")


@pytest.mark.slow
def test_a_buffer_answers_what_the_cassette_does_not(project, run, touched) -> None:
    task = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})
    record("agent:graph", [task], buffer=project.path / "shop.db", run_dir=project.path / "run")
    uninstall()
    before = touched()
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import graph

        @pytest.mark.dream(buffer="shop.db")
        def test_cancels(dream):
            dream.run(graph, "Now cancel o1").exactly("get_order", "cancel_order")

        @pytest.mark.dream(buffer="shop.db")
        def test_unknown(dream):
            dream.run(graph, "Now cancel o1", environment="elsewhere")

        @pytest.mark.dream(buffer="shpo.db")
        def test_misspelt(dream):
            dream.run(graph, "Now cancel o1")
        """
    )
    said = run()
    said.assert_outcomes(passed=1, failed=2)
    said.stdout.fnmatch_lines(
        ["get_order(order_id='o1') is not in the cassette: *", "buffer: *shpo.db does not exist*"]
    )
    assert touched() == before


def test_replies_answer_the_agents_interrupts(project, run, touched) -> None:
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text()
        + """
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
asking = create_agent(ScriptedModelDouble(), [get_order, cancel_order], checkpointer=InMemorySaver(),
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"cancel_order": True})])
"""
    )
    project.makepyfile(
        test_orders="""
        from agent import asking
        ANSWERS = {"get_order": {}, "cancel_order": "ok"}

        def test_approved(dream):
            yes = {"decisions": [{"type": "approve"}]}
            dream.run(asking, "cancel o1", mocks=ANSWERS, replies=[yes]).would_write("cancel_order")

        def test_left_waiting(dream):
            episode = dream.run(asking, "cancel o1", mocks=ANSWERS)
            assert episode.stop == "interrupted"
            episode.would_write_nothing()
        """
    )
    run().assert_outcomes(passed=2)


def test_an_agent_named_by_its_module_is_imported_inside_the_dream(project, run, touched) -> None:
    agent = project.path / "agent.py"
    agent.write_text(agent.read_text() + '\n\ntouch("import")\n')
    project.makepyfile(test_orders='def test_import(dream):\n    dream.run("agent:graph", "cancel o1")\n')
    said = run()
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["*refused to *touched*"])
    assert touched() == []


def test_a_real_call_that_ran_fails_the_test_by_name_and_nothing_is_recorded(project, run, touched) -> None:
    agent = project.path / "agent.py"
    agent.write_text(
        agent.read_text()
        + """
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage

LEDGER = []


@wrap_tool_call
def by_itself(request, handler):
    call = request.tool_call
    if call["name"] == "get_order":
        LEDGER.append(call["args"])
        return ToolMessage("open", tool_call_id=call["id"], name=call["name"])
    return handler(request)


graph = create_agent(ScriptedModelDouble(), [get_order, cancel_order], middleware=[by_itself])
"""
    )
    project.makepyfile(test_orders=CANCELS)
    said = run("--dream-record=new")
    said.assert_outcomes(failed=1)
    said.stdout.fnmatch_lines(["FAILED  1 real call executed: get_order(order_id='o1')", "  *"][:1])
    said.stdout.fnmatch_lines(["Undo it on the real system: get_order ran there*"])
    assert not (project.path / "cassettes").exists()
    assert touched() == []
