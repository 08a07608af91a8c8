"""The process of a run: threads of sync tools, the stagger of its slots, and the collector."""

import asyncio
import gc
import threading
import time
from types import SimpleNamespace

import pytest
from each_row import each_row
from waiting import wait_until_async

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import instances_of
from dreamgym_kit.rollout import event_loop
from dreamgym_kit.rollout.event_loop import (
    APART_S,
    BUSY,
    SlotStagger,
    busy_threads,
    frozen_heap,
    lane_threads,
)

ENOUGH_S = 1200.0  # shared by all threads that are waited for


@pytest.fixture(autouse=True)
def of_this_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of other tests, which may still run, are not counted."""
    monkeypatch.setattr(event_loop, "_PREFIX", request.node.name)


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


@each_row(("busy", "apart_s"), [(0.0, APART_S), (BUSY - 0.01, APART_S), (BUSY + 0.01, 0.0), (1.0, 0.0)])
def test_lanes_that_waited_go_on_one_after_the_other_and_busy_ones_at_once(
    monkeypatch: pytest.MonkeyPatch, busy: float, apart_s: float
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: passed[-1], process_time=lambda: busy * passed[-1])
    monkeypatch.setattr(event_loop, "time", clock)
    pace = SlotStagger()
    passed.append(0.2)
    assert [pace.pause_s(place) for place in (0, 1, 10)] == [0.0, apart_s, 10 * apart_s]


class Thing:
    def __init__(self) -> None:
        self.itself = self  # a cycle: only the collector can free it


def test_garbage_of_before_the_run_is_freed_after_it() -> None:
    gc.collect()
    thing = Thing()
    with frozen_heap():
        del thing
        gc.collect()
        assert gc.get_freeze_count() > 0
    gc.collect()
    assert instances_of(Thing) == []


def test_the_collector_is_as_it_was_after_the_run() -> None:
    before = gc.get_threshold()
    with frozen_heap():
        assert gc.get_threshold()[0] >= 10_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_a_look_at_living_objects_sees_those_of_before_the_run() -> None:
    thing = Thing()
    with frozen_heap():
        assert instances_of(Thing) == [thing]
