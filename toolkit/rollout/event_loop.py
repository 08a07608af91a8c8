"""The process that a run runs in: its event loop, its threads, its garbage collector and its pace."""

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
    """`asyncio.run`, but only the end of `work` ends it, or a KeyboardInterrupt that no `stop` takes.

    asyncio lets SystemExit and KeyboardInterrupt (a `sys.exit()` in somebody's node) out of the task that
    raised it *and* out of the loop. The task's episode hears of it as of any other failure; the loop is
    entered again, and the other episodes go on.
    """
    with asyncio.Runner() as runner, _woken_by_signals(runner.get_loop()):
        runner.get_loop().set_exception_handler(_without_refusals)
        task = runner.get_loop().create_task(work)
        while True:
            try:
                return runner.get_loop().run_until_complete(task)
            except (SystemExit, EpisodeStop):  # a refusal in a signal's handler is told of with the run
                if task.done():
                    raise
            except KeyboardInterrupt as error:
                if stop is None or task.done():
                    task.cancel()
                    raise
                stop.interrupt(error)


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have a signal end the loop's wait, so that its handler runs at once.

    Python runs handlers in the main thread, between two instructions. A signal that another thread took, or
    that came just before the loop began to wait, would be handled when something else wakes the loop.
    """
    if threading.current_thread() is not threading.main_thread():  # which takes no signals
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
    """What a task that an episode left behind was refused is told with the run, not as a traceback."""
    if not isinstance(context.get("exception"), EpisodeStop):
        loop.default_exception_handler(context)


PER_LANE = 4  # parallel tool calls of one model answer
MOST = 256
_PREFIX = "dreamgym-tool"  # of the threads' names


@contextmanager
def lane_threads(lanes: int) -> Iterator[None]:
    """Give the running loop a pool for `lanes` concurrent episodes; a fresh default one after the block.

    A loop's own pool has about as many threads as the machine has cores plus four: sixteen episodes whose
    sync tools sleep in threads would wait for each other. And it is waited for at the end of the loop: one
    tool that hangs would keep a finished run from ending. All threads are there from the start: a pool that
    starts one whenever none happens to be idle goes on growing for thousands of episodes. Threads that are
    busy at the end are not waited for: they end with their tool.
    """
    loop = asyncio.get_running_loop()
    threads = _pool(min(MOST, PER_LANE * lanes))
    loop.set_default_executor(threads)
    try:
        yield
    finally:
        loop.set_default_executor(ThreadPoolExecutor())  # starts no thread until it is used
        threads.shutdown(wait=False, cancel_futures=True)


def _pool(size: int) -> ThreadPoolExecutor:
    """A pool with all its threads started, or as many of them as the system gives.

    Raises:
        RuntimeError: the system gives none.
    """
    pool = ThreadPoolExecutor(size, thread_name_prefix=_PREFIX)
    all_there, started = threading.Barrier(size), 0  # an idle thread would take the next one's work
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
    """How many tool threads of ended runs still hold the process, after idle ones had time to end."""
    held = [thread for thread in threading.enumerate() if thread.name.startswith(_PREFIX)]
    for thread in held:
        thread.join(settle_s / len(held))
    return sum(thread.is_alive() for thread in held)


NEW_OBJECTS = 10_000  # between two rounds; Python's own 700 are a tenth of one model call
START_OBJECTS = 1_000_000  # a start makes a third of that, and nearly all of it stays


@contextmanager
def frozen_heap(new_objects: int = NEW_OBJECTS) -> Iterator[None]:
    """Leave all objects of now alone for the block, and look at the new ones less often.

    The garbage collector: a process with an agent in it holds some hundred thousand objects that live as long
    as it does; a run makes and drops so many more that the collector would look at all of them again and
    again: a tenth of an episode's time. What becomes garbage among them is collected after the run. Whoever
    looks for living objects meanwhile has to call `gc.unfreeze` first. A collector that was switched off
    stays off.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], new_objects), *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.freeze()  # else all that the block made is looked at now; a later full round does
        gc.unfreeze()
        gc.set_threshold(*before)


APART_S = 0.004  # between lanes: somewhat more than one lane works between two waits
BUSY = 0.5  # share of the processor's time from which on it is the processor that lanes wait for


class SlotStagger:
    """Keeps lanes out of step where they wait for an endpoint; made when they begin, asked once by each.

    Lanes that begin at once stay together for as long as every answer takes the same time: each answer then
    finds all other lanes at work, and waits for them. A short pause after a lane's first episode, another for
    each lane, spreads them for good. Where the processor is what they wait for, doing the same thing for all
    lanes in a row is the quickest way, and there is no pause.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def pause_s(self, place: int) -> float:
        """How long lane number `place` waits after its first episode, in seconds."""
        wall, cpu = self._began
        passed = time.perf_counter() - wall
        busy = (time.process_time() - cpu) / passed if passed else 1.0
        return place * APART_S if busy < BUSY else 0.0
