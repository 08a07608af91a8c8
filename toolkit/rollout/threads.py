"""Threads for the sync tools of concurrent episodes.

An event loop's own pool has about as many threads as the machine has cores plus four: sixteen episodes
whose tools sleep in threads would wait for each other. And it is waited for at the end of the loop: one
tool that hangs would keep a finished run from ending. All threads are there from the start: a pool that
starts one whenever none happens to be idle goes on growing for thousands of episodes.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

PER_LANE = 4  # parallel tool calls of one model answer
MOST = 256
_PREFIX = "dreamgym-tool"  # of the threads' names


@contextmanager
def lane_threads(lanes: int) -> Iterator[None]:
    """Give the running loop a pool for `lanes` concurrent episodes; a fresh default one after the block.

    Threads that are busy at the end are not waited for: they end with their tool.
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
