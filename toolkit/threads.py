"""Work in a thread of its own: the caller waits for it, in its thread or on its event loop."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

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
            told = RuntimeError(f"{type(error).__name__} was raised")
            settle(lambda: done.set_exception(told))
        except BaseException as error:  # noqa: BLE001  carried to whoever waits
            failure = error
            settle(lambda: done.set_exception(failure))
        else:
            settle(lambda: done.set_result(value))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
