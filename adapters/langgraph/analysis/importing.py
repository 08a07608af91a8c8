"""Imports a user's module as `python` would: with no event loop running.

The kit looks at a graph inside its own loop, and a module that fetches its MCP tools with `asyncio.run(...)`
while it is imported is no rarity.
"""

import asyncio
from asyncio import events, tasks
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_running_loop() -> Iterator[None]:
    """Hide this thread's running loop from the code inside, which may run one of its own."""
    loop = events._get_running_loop()
    if loop is None:
        yield
        return
    swap = getattr(tasks, "_swap_current_task", None)  # from Python 3.14 a thread has one current task
    task = swap(loop, None) if swap is not None else None
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(loop)
        if swap is not None:
            swap(loop, task)
        asyncio.set_event_loop(loop)
