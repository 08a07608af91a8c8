"""An event loop in a thread of its own: rollouts go on there while the trainer holds the calling thread.

The graph is opened on it, its episodes run on it, the policy's server is spoken to on it: all that awaits
lives on one loop from the first rollout to the last.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import copy_context
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines on its own loop; use as a context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._context = copy_context()
        self._ended = False
        self._thread = threading.Thread(target=self._drive, name="dreamgym-rollouts", daemon=True)

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin, and go on here meanwhile.

        The work sees the context that this loop was made in, not the caller's: what a trainer may do (write
        where it likes, see `gate.egress`) an agent's code must not inherit.
        """
        return self._context.copy().run(asyncio.run_coroutine_threadsafe, work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result; an interrupt of the waiting thread cancels the work."""
        future = self.start(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @contextmanager
    def held(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Keep an async context open for the block, in one task from its beginning to its end.

        Some contexts must be left in the task that entered them (anyio's scopes, of MCP sessions).
        """
        opened: Future[T] = Future()
        closing = asyncio.Event()

        async def hold() -> None:
            try:
                async with manager as value:
                    opened.set_result(value)
                    await closing.wait()
            except BaseException as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        holding = self.start(hold())
        value = opened.result()
        try:
            yield value
        finally:
            self._loop.call_soon_threadsafe(closing.set)
            holding.result()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(_cancel_others())
        self._ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _drive(self) -> None:
        """A `sys.exit()` in somebody's node ends its task and leaves the loop: it is entered again."""
        asyncio.set_event_loop(self._loop)
        while not self._ended:
            with suppress(SystemExit):
                self._loop.run_forever()


async def _cancel_others() -> None:
    """End what still runs on this loop, and let async generators close."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
