"""Threads of sync tools: enough for every lane, and no run waits for one that hangs."""

import asyncio
import threading
import time

import pytest
from waiting import wait_until_async

from dreamgym_kit.rollout import event_loop
from dreamgym_kit.rollout.event_loop import busy_threads, lane_threads

ENOUGH_S = 1200.0  # shared by all threads that are waited for


@pytest.fixture(autouse=True)
def of_this_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of other tests, which may still run, are not counted."""
    monkeypatch.setattr(event_loop, "_PREFIX", request.node.name)


async def test_every_lane_has_four_threads() -> None:
    together = threading.Barrier(8, timeout=120)
    with lane_threads(2):
        await asyncio.gather(*[asyncio.to_thread(together.wait) for _ in range(8)])


def threads_of_tools() -> int:
    return sum(thread.name.startswith(event_loop._PREFIX) for thread in threading.enumerate())


async def test_all_threads_are_there_from_the_start_and_no_burst_adds_one() -> None:
    with lane_threads(3):
        assert threads_of_tools() == 12
        for _ in range(50):
            await asyncio.gather(*[asyncio.to_thread(time.sleep, 0) for _ in range(20)])
        assert threads_of_tools() == 12


async def test_a_system_with_few_threads_gives_a_smaller_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def start_if_few(self: threading.Thread) -> None:
        if threads_of_tools() >= 3:  # while the pool is made
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", start_if_few)
    with lane_threads(5):
        monkeypatch.setattr(threading.Thread, "start", start)  # the loop's end starts a thread of its own
        naps = asyncio.gather(*[asyncio.to_thread(time.sleep, 0.001) for _ in range(20)])
        await naps
        assert threads_of_tools() == 3


async def test_idle_threads_end_with_the_run() -> None:
    with lane_threads(4):
        await asyncio.gather(*[asyncio.to_thread(time.sleep, 0.01) for _ in range(16)])
    assert busy_threads(ENOUGH_S) == 0


async def test_a_tool_that_hangs_is_counted_and_not_waited_for() -> None:
    hangs, let_go = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        let_go.wait()

    with lane_threads(1):
        hanging = asyncio.ensure_future(asyncio.to_thread(hang))
        await wait_until_async(hangs.is_set, "the tool")
    try:
        await wait_until_async(lambda: threads_of_tools() == 1, "the end of the idle ones")
        assert busy_threads(0.05) == 1
    finally:
        let_go.set()  # only now: neither the block nor the count waited for it
    await hanging
    assert busy_threads(ENOUGH_S) == 0
