"""Threads of sync tools: enough for every lane, and no run waits for one that hangs."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from dreamgym_kit.rollout.threads import busy_threads, lane_threads


async def test_every_lane_has_four_threads() -> None:
    together = threading.Barrier(8, timeout=60)
    with lane_threads(2):
        await asyncio.wait_for(asyncio.gather(*[asyncio.to_thread(together.wait) for _ in range(8)]), 60)


def threads_of_tools() -> int:
    return sum(thread.name.startswith("dreamgym-tool") for thread in threading.enumerate())


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not there():
            await asyncio.sleep(0.01)


async def test_all_threads_are_there_from_the_start_and_no_burst_adds_one() -> None:
    assert busy_threads(60) == 0
    with lane_threads(3):
        assert threads_of_tools() == 12
        for _ in range(50):
            await asyncio.gather(*[asyncio.to_thread(time.sleep, 0) for _ in range(20)])
        assert threads_of_tools() == 12


async def test_a_system_with_few_threads_gives_a_smaller_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy_threads(60) == 0
    start = threading.Thread.start

    def start_if_few(self: threading.Thread) -> None:
        if threads_of_tools() >= 3:  # while the pool is made
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", start_if_few)
    with lane_threads(5):
        monkeypatch.undo()  # the loop's end starts a thread of its own
        naps = asyncio.gather(*[asyncio.to_thread(time.sleep, 0.001) for _ in range(20)])
        await asyncio.wait_for(naps, 60)
        assert threads_of_tools() == 3


async def test_idle_threads_end_with_the_run() -> None:
    with lane_threads(4):
        await asyncio.gather(*[asyncio.to_thread(time.sleep, 0.01) for _ in range(16)])
    assert busy_threads(60) == 0


async def test_a_tool_that_hangs_is_counted_and_not_waited_for() -> None:
    hangs, let_go = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        let_go.wait()

    with lane_threads(1):
        hanging = asyncio.ensure_future(asyncio.to_thread(hang))
        await until(hangs.is_set)
    await until(lambda: threads_of_tools() == 1)  # the idle ones end by themselves
    assert busy_threads(0.05) == 1
    let_go.set()  # only now: neither the block nor the count waited for it
    await hanging
    assert busy_threads(60) == 0
