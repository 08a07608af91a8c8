"""Runs a whole run on a loop of its own, which a `sys.exit()` in somebody's node cannot end.

asyncio lets SystemExit out of the task that raised it *and* out of the loop. The task's episode hears of
it as of any other failure; the loop is simply entered again, and the other episodes go on.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from dreamgym_kit.errors import EpisodeStop

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, but only Ctrl-C or the end of `work` ends it."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_without_refusals)
        task = runner.get_loop().create_task(work)
        while True:
            try:
                return runner.get_loop().run_until_complete(task)
            except SystemExit:
                if task.done():
                    raise
            except KeyboardInterrupt:
                task.cancel()
                raise


def _without_refusals(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a task that an episode left behind was refused is told with the run, not as a traceback."""
    if not isinstance(context.get("exception"), EpisodeStop):
        loop.default_exception_handler(context)
