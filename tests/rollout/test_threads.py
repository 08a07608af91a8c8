"""Threads of sync tools: enough for every lane, and no run waits for one that hangs."""

import asyncio
import threading
import time

from dreamgym_kit.rollout.threads import busy_threads, lane_threads


async def test_every_lane_has_four_threads() -> None:
    together = threading.Barrier(8, timeout=5)
    with lane_threads(2):
        await asyncio.wait_for(asyncio.gather(*[asyncio.to_thread(together.wait) for _ in range(8)]), 5)


async def test_idle_threads_end_with_the_run() -> None:
    with lane_threads(4):
        await asyncio.gather(*[asyncio.to_thread(time.sleep, 0.01) for _ in range(16)])
    assert busy_threads() == 0


async def test_a_tool_that_hangs_is_counted_and_not_waited_for() -> None:
    let_go = threading.Event()
    began = time.monotonic()
    with lane_threads(1):
        hanging = asyncio.ensure_future(asyncio.to_thread(let_go.wait))
        await asyncio.sleep(0.05)
    assert busy_threads(0.05) == 1
    assert time.monotonic() - began < 1
    let_go.set()
    await hanging
    assert busy_threads() == 0
