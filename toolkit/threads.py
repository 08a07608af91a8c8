"""Work in a thread of its own: a call that the caller waits for, or an event loop that goes on beside it."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import copy_context
from typing import Any, Self, TypeVar

T = TypeVar("T")


async def awaited(given: Any) -> Any:
    """What a user's function gave, waited for where it is async."""
    return await given if inspect.isawaitable(given) else given


def run_in_thread(work: Callable[[], T], *, name: str) -> T:
    """Run `work` in a new thread called `name`, wait, and give what it gave or raise what it raised."""
    box: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            box.append(work())
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread below
            failure.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]


async def run_in_thread_async(work: Callable[[], T], *, name: str) -> T:
    """The same on an event loop, in the caller's context. Who stops waiting leaves the thread to itself.

    A thread of an executor would be waited for when the loop ends, however long its work hangs.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[T] = loop.create_future()

    def settle(put: Callable[[], None]) -> None:
        def unless_late() -> None:
            if not done.done():
                put()

        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(unless_late)

    def run() -> None:
        try:
            value = context.run(work)
        except StopIteration as error:  # no future can hold it
            stopped = RuntimeError(f"{type(error).__name__} was raised")
            settle(lambda: done.set_exception(stopped))
        except BaseException as error:  # noqa: BLE001  carried to whoever waits
            failure = error
            settle(lambda: done.set_exception(failure))
        else:
            settle(lambda: done.set_result(value))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


class BackgroundLoop:
    """Runs coroutines on an event loop in a thread of its own; use as a context.

    Rollouts go on there while the trainer holds the calling thread. All that awaits lives on one loop from
    the first rollout to the last: the graph is opened on it, its episodes run on it, the policy's server is
    spoken to on it.
    """

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
    def keep_open(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
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
