"""The fixture used in ways that its page does not show: nothing real runs unseen, no test pays for another."""


def test_addopts_record_nothing_in_ci(project, run, touched, monkeypatch) -> None:
    project.makepyfile(
        test_orders="""
        from agent import graph

        def test_cancels(dream):
            dream.run(graph, "cancel o1")
        """
    )
    monkeypatch.setenv("CI", "true")
    run("-o", "addopts=--dream-record=all").assert_outcomes(failed=1)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--dream-record=all")
    run().assert_outcomes(failed=1)
    assert touched() == []
    run("--dream-record", "once").assert_outcomes(passed=1)
    assert touched() == ["get o1", "cancel o1"]


def test_a_refusal_in_a_fixtures_teardown_leaves_nothing_to_the_next_test(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import delete_account, get_order, graph

        @pytest.fixture
        def tidied(dream):
            yield
            delete_account.invoke({"user": "u1"})

        def test_first(tidied): ...

        def test_real():
            get_order.invoke({"order_id": "o7"})

        def test_second(dream):
            assert dream.options.test == "test_orders.test_second"
            dream.run(graph, "cancel o1", answers={"get_order": {}, "cancel_order": "ok"})
        """
    )
    run().assert_outcomes(passed=3, errors=1)
    assert touched() == ["get o7"]


def test_work_that_a_pool_still_does_after_the_test_is_told_of(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import threading
        from concurrent.futures import ThreadPoolExecutor
        from agent import get_order
        GO_ON = threading.Event()
        POOL = ThreadPoolExecutor(1, thread_name_prefix="of-a-pool")

        def test_before():
            POOL.submit(int).result()

        def test_idle(dream):
            POOL.submit(int).result()

        def test_leaves_work(dream):
            POOL.submit(GO_ON.wait)

        def test_next():
            GO_ON.set()
            POOL.shutdown()
        """
    )
    said = run("-W", "error::dreamgym_kit.adapters.pytest_plugin.DreamWarning")
    said.assert_outcomes(passed=4, errors=1)
    said.stdout.fnmatch_lines(["*ERROR at teardown of test_leaves_work*"])
    said.stdout.fnmatch_lines(["*DreamWarning: threads begun in this test still run*'of-a-pool*'"])
