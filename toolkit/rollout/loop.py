"""Runs a whole run on a loop of its own, which a `sys.exit()` in somebody's node cannot end.

asyncio lets SystemExit and KeyboardInterrupt out of the task that raised it *and* out of the loop. The task's
episode hears of it as of any other failure; the loop is simply entered again, and the other episodes go on.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.rollout.stop import StopSwitch

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T], stop: StopSwitch | None = None) -> T:
    """`asyncio.run`, but only the end of `work` ends it, or a KeyboardInterrupt that no `stop` takes."""
    with asyncio.Runner() as runner, _woken_by_signals(runner.get_loop()):
        runner.get_loop().set_exception_handler(_without_refusals)
        task = runner.get_loop().create_task(work)
        while True:
            try:
                return runner.get_loop().run_until_complete(task)
            except SystemExit:
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
