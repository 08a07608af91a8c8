"""The process of a run: event loop, threads, garbage collection and the stagger of its slots."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.rollout.stop import StopSwitch

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T], stop: StopSwitch | None = None) -> T:
    """`asyncio.run`, but only the end of `work` ends it, or a KeyboardInterrupt without a `stop`.

    asyncio raises SystemExit and KeyboardInterrupt (a `sys.exit()` in an agent's node) from the task *and*
    from the loop. The task's episode sees it like any other failure; the loop is entered again, and the other
    episodes continue.
    """
    with asyncio.Runner() as runner, _woken_by_signals(runner.get_loop()):
        runner.get_loop().set_exception_handler(_without_refusals)
        task = runner.get_loop().create_task(work)
        while True:
            try:
                return runner.get_loop().run_until_complete(task)
            except (SystemExit, EpisodeStop):  # a refusal in a signal handler is reported with the run
                if task.done():
                    raise
            except KeyboardInterrupt as error:
                if stop is None or task.done():
                    task.cancel()
                    raise
                stop.interrupt(error)


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let a signal end the loop's wait, so that its handler runs at once.

    Python runs handlers in the main thread, between two instructions. A signal that another thread received,
    or that arrived just before the loop began to wait, would be handled only when something else wakes the
    loop.
    """
    if threading.current_thread() is not threading.main_thread():  # other threads receive no signals
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    loop.add_reader(reading, os.read, reading, 4096)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)


def _without_refusals(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Print no traceback for refusals of tasks left by an episode: the run reports them."""
    if not isinstance(context.get("exception"), EpisodeStop):
        loop.default_exception_handler(context)


PER_LANE = 4  # parallel tool calls of one model answer
MOST = 256
_PREFIX = "dreamgym-tool"  # of thread names


@contextmanager
def lane_threads(lanes: int) -> Iterator[None]:
    """Give the running loop a pool for `lanes` concurrent episodes; after the block it has a default pool.

    A loop's own pool has about as many threads as cores plus four: sixteen episodes whose sync tools sleep in
    threads would wait for each other. And the loop waits for it at the end: one hanging tool would keep a
    finished run from ending. All threads start at once, because a pool that starts one whenever none is idle
    grows for thousands of episodes. Threads that are busy at the end end with their tool.
    """
    loop = asyncio.get_running_loop()
    threads = _pool(min(MOST, PER_LANE * lanes))
    loop.set_default_executor(threads)
    try:
        yield
    finally:
        loop.set_default_executor(ThreadPoolExecutor())  # starts threads on first use
        threads.shutdown(wait=False, cancel_futures=True)


def _pool(size: int) -> ThreadPoolExecutor:
    """Return a pool with all threads started, or as many as the system allows.

    Raises:
        RuntimeError: the system allows none.
    """
    pool = ThreadPoolExecutor(size, thread_name_prefix=_PREFIX)
    all_there, started = threading.Barrier(size), 0  # without it an idle thread would take the next task
    try:
        while started < size:
            pool.submit(all_there.wait)
            started += 1
    except RuntimeError:
        all_there.abort()
        pool.shutdown()
        if not started:
            raise
        return _pool(started)
    return pool


def busy_threads(settle_s: float = 0.2) -> int:
    """Count tool threads of ended runs that are still busy after `settle_s` seconds."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(_PREFIX)]
    for thread in threads:
        thread.join(settle_s / len(threads))
    return sum(thread.is_alive() for thread in threads)


NEW_OBJECTS = 10_000  # per collection; Python's default of 700 is a tenth of one model call
START_OBJECTS = 1_000_000  # a start makes a third of that, and nearly all stay


@contextmanager
def frozen_heap(new_objects: int = NEW_OBJECTS) -> Iterator[None]:
    """Freeze existing objects and raise the GC threshold inside the block.

    A process with an agent has some hundred thousand objects that live as long as it does; a run makes and
    drops so many that the collector would scan them again and again: a tenth of an episode's time. Frozen
    objects that become garbage are collected after the run. Code that lists living objects meanwhile must
    call `gc.unfreeze` first. A disabled collector stays disabled.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], new_objects), *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.freeze()  # otherwise all new objects are scanned now; a later full collection does it
        gc.unfreeze()
        gc.set_threshold(*before)


APART_S = 0.004  # between lanes: slightly more than a lane computes between two waits
BUSY = 0.5  # share of CPU time above which lanes are CPU-bound


class SlotStagger:
    """Stagger the concurrency slots when I/O-bound, so that they do not run in lockstep.

    Lanes that begin together stay together while all answers take the same time: each answer then finds all
    other lanes busy and waits for them. A different short pause after each lane's first episode spreads them.
    CPU-bound lanes get no pause: running the same code for all lanes in a row is fastest.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def pause_s(self, place: int) -> float:
        """Return the pause of lane number `place` after its first episode, in seconds."""
        wall, cpu = self._began
        passed = time.perf_counter() - wall
        busy = (time.process_time() - cpu) / passed if passed else 1.0
        return place * APART_S if busy < BUSY else 0.0
