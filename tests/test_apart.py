"""Work apart: in a thread of its own, waited for, its failure the caller's."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from dreamgym_kit.threads import run_in_thread, run_in_thread_async


def test_it_runs_in_another_thread_of_that_name_and_gives_what_came_of_it() -> None:
    assert run_in_thread(lambda: threading.current_thread().name, name="aside") == "aside"


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        run_in_thread(fail, name="aside")


def test_on_a_loop_it_is_waited_for_in_the_callers_context() -> None:
    here: ContextVar[str] = ContextVar("here", default="elsewhere")

    async def wait() -> tuple[str, str]:
        here.set("here")
        return await run_in_thread_async(lambda: (here.get(), threading.current_thread().name), name="aside")

    assert asyncio.run(wait()) == ("here", "aside")


@pytest.mark.parametrize(("raised", "told"), [(KeyError, KeyError), (StopIteration, RuntimeError)])
def test_what_it_raises_is_raised_on_the_loop(raised: type[Exception], told: type[Exception]) -> None:
    def fail() -> None:
        raise raised("gone")

    with pytest.raises(told):
        asyncio.run(run_in_thread_async(fail, name="aside"))


def test_work_that_hangs_holds_no_loop_whose_wait_is_over() -> None:
    hanging = threading.Event()
    try:
        with pytest.raises(TimeoutError):
            work = run_in_thread_async(
                hanging.wait, name="aside"
            )  # for ever: only a wait that ends gets past it
            asyncio.run(asyncio.wait_for(work, 0.1))  # expires: the wait that is over
    finally:
        hanging.set()
