"""The fixture used in ways that its page does not show: nothing real runs unseen, no test harms another."""

import pytest


def test_neither_addopts_nor_the_ini_record_in_ci(project, run, touched, monkeypatch) -> None:
    project.makepyfile(
        test_orders="""
        from agent import graph

        def test_cancels(dream):
            dream.run(graph, "cancel o1")
        """
    )
    monkeypatch.setenv("CI", "true")
    for option in ("addopts=--dream-record=all", "dream_record=once"):
        run("-o", option).assert_outcomes(failed=1)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--dream-record=all")
    run().assert_outcomes(failed=1)
    assert touched() == []
    run("--dream-record", "once").assert_outcomes(passed=1)
    assert touched() == ["get o1", "cancel o1"]
    monkeypatch.delenv("CI")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    (project.path / "cassettes/test_orders/test_cancels.jsonl").unlink()
    run("-o", "dream_record=once").assert_outcomes(passed=1)
    assert len(touched()) == 4


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
            dream.run(graph, "cancel o1", mocks={"get_order": {}, "cancel_order": "ok"})
        """
    )
    run().assert_outcomes(passed=3, errors=1)
    assert touched() == ["get o7"]


THREAD = """
    import threading
    from agent import get_order
    from dreamgym_kit.adapters.pytest_plugin import fixture_scope as held
    GO_ON = threading.Event()

    def test_leaves_one(dream):
        held._SETTLE_S = 0
        threading.Thread(target=GO_ON.wait, name="left-behind").start()

    def test_next():
        GO_ON.set()
        get_order.invoke({"order_id": "o7"})
"""
POOL = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    from dreamgym_kit.adapters.pytest_plugin import fixture_scope as held
    GO_ON = threading.Event()
    POOL = ThreadPoolExecutor(1, thread_name_prefix="of-a-pool")

    def test_before():
        POOL.submit(int).result()

    def test_idle(dream):
        POOL.submit(int).result()

    def test_leaves_one(dream):
        held._SETTLE_S = 0
        POOL.submit(GO_ON.wait)

    def test_next():
        GO_ON.set()
        POOL.shutdown()
"""
TASK = """
    import asyncio
    import pytest
    from agent import get_order, graph

    SAID = {"get_order": {}, "cancel_order": "ok"}
    LEFT = []

    @pytest.mark.asyncio(loop_scope="module")
    async def test_tidy(dream):
        task = asyncio.create_task(asyncio.sleep(0))
        await dream.arun(graph, "cancel o1", mocks=SAID)
        await task

    @pytest.mark.asyncio(loop_scope="module")
    async def test_leaves_one(dream):
        await dream.arun(graph, "cancel o1", mocks=SAID)
        LEFT.append(asyncio.create_task(asyncio.sleep(0.01), name="left-behind"))

    @pytest.mark.asyncio(loop_scope="module")
    async def test_next():
        await LEFT[0]
"""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("tests", "passed", "named", "real"),
    [
        pytest.param(THREAD, 2, "'left-behind'", ["get o7"], id="thread"),
        pytest.param(POOL, 4, "'of-a-pool*'", [], id="pool"),
        pytest.param(TASK, 3, "'left-behind'", [], id="task of a wider loop"),
    ],
)
def test_what_outlives_the_test_is_told_of(project, run, touched, tests, passed, named, real) -> None:
    project.makepyfile(test_orders=tests)
    said = run("-p", "pytest_asyncio.plugin", "-W", "error::dreamgym_kit.adapters.pytest_plugin.DreamWarning")
    said.assert_outcomes(passed=passed, errors=1)
    said.stdout.fnmatch_lines(["*ERROR at teardown of test_leaves_one*"])
    said.stdout.fnmatch_lines([f"*DreamWarning: threads or tasks started by this test*{named}"])
    assert touched() == real


def test_a_run_while_another_is_on_is_told_so_and_does_the_other_no_harm(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import graph

        def test_inside(dream):
            def get_order(order_id):
                with pytest.raises(pytest.fail.Exception, match="another run of this test is active"):
                    dream.run(graph, "cancel o2", mocks=SAID)
                return {}

            SAID = {"get_order": get_order, "cancel_order": "ok"}
            dream.run(graph, "cancel o1", mocks=SAID).called_once("cancel_order", order_id="o1")
            assert len(dream.episodes) == 1

        def test_after(dream):
            for order in ("o1", "o2"):
                dream.run(graph, f"cancel {order}", mocks={"get_order": {}, "cancel_order": "ok"})
        """
    )
    run().assert_outcomes(passed=2)
    assert touched() == []


def test_what_tools_take_is_known_from_the_graph(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import graph

        def test_typed(dream):
            episode = dream.run(graph, "cancel o1", mocks={"get_order": {}, "cancel_order": "ok"})
            episode.not_called("cancel_order", order_id="o2")
            with pytest.raises(AssertionError, match="takes no argument 'ordr_id'; did you mean 'order_id'"):
                episode.not_called("cancel_order", ordr_id="o1")
            with pytest.raises(AssertionError, match="takes no argument 'usr'; did you mean 'user'"):
                episode.not_called("delete_*", usr="o1")
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.slow
def test_parameters_that_are_spelt_alike_have_cassettes_of_their_own(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import graph

        @pytest.mark.parametrize("w", ["a::b", "a.b", "a[b", "a-b", "a]b", "a-b]"])
        def test_alike(dream, w):
            dream.run(graph, "cancel o1")
        """
    )
    run("--dream-record=once").assert_outcomes(passed=6)
    assert len(touched()) == 12
    assert len(list((project.path / "cassettes" / "test_orders").iterdir())) == 6


def test_a_cassette_that_is_no_file_is_named(project, run, touched) -> None:
    project.makepyfile(
        test_orders="""
        from agent import graph

        def test_one(dream):
            dream.run(graph, "cancel o1")
        """
    )
    for name in ("test_one.jsonl", "test_one.models.jsonl"):
        path = project.path / "cassettes" / "test_orders" / name
        path.mkdir(parents=True)
        said = run()
        said.assert_outcomes(failed=1)
        said.stdout.fnmatch_lines([f"{path}: is not a file; remove it and record the test again"])
        path.rmdir()
    assert touched() == []


def test_mocks_may_be_async_and_what_is_no_answer_or_request_is_the_tests_mistake(
    project, run, touched
) -> None:
    project.makepyfile(
        test_orders="""
        import pytest
        from agent import graph

        async def get_order(order_id):
            return {"id": order_id}

        def test_awaited(dream):
            episode = dream.run(graph, "cancel o1", mocks={"get_order": get_order, "cancel_order": "ok"})
            assert episode.calls[0].answer == {"id": "o1"}

        def test_wrong(dream):
            dream.run(graph, "cancel o1", mocks={"get_order": lambda id: {}, "cancel_order": "ok"})

        @pytest.mark.parametrize("said", [None, 5, b"x"])
        def test_no_request(dream, said):
            with pytest.raises(pytest.fail.Exception, match="pass a text, a list of messages"):
                dream.run(graph, said)
        """
    )
    said = run()
    said.assert_outcomes(passed=4, failed=1)
    said.stdout.fnmatch_lines(
        ["mocks: the function for 'get_order' does not take get_order(order_id='o1'): missing *'id'"]
    )
