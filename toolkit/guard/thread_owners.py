"""What an episode began: threads, and work that it hands over to be done later, elsewhere.

What runs there belongs to that episode for as long as it runs, and so does what it begins in turn. Two marks
say so: one in the context, which tasks and callbacks copy, and one on the thread, which code that runs in an
empty context keeps. The egress guard goes by them, and the gate once the dream is over. While it runs the
gate asks for more: a thread of a node's own may serve several episodes, and an answer of one must not reach
another.
"""

import functools
import multiprocessing.pool as old_pools
import threading
from collections.abc import Callable
from concurrent.futures import thread as new_pools
from contextvars import ContextVar
from typing import Any, Protocol


class Owner(Protocol):
    """The episode that code is a part of."""

    open: bool

    def reached(self, host: str) -> None:
        """It reached an allowed host, "name:port", where no model is asked."""


_by_context: ContextVar[Owner | None] = ContextVar("dreamgym_kit_begun_by", default=None)
_by_thread = threading.local()
_POOLS = frozenset(
    getattr(worker, "__func__", worker)
    for worker in (
        getattr(new_pools, "_worker", None),
        getattr(old_pools, "worker", None),
        *(getattr(old_pools.Pool, f"_handle_{name}", None) for name in ("workers", "tasks", "results")),
    )
    if worker is not None
)
"""What a pool's threads run."""


def owner() -> Owner | None:
    """The episode that began the running thread, or that handed over the running work."""
    current: Owner | None = getattr(_by_thread, "owner", None) or _by_context.get()
    return current


def recorded_by() -> Owner | None:
    """The recording that began the running thread. It holds nothing up: it only says whose a call is."""
    recording: Owner | None = getattr(_by_thread, "recording", None)
    return recording


def recorded(work: Callable[..., Any], recording: Owner) -> Callable[..., Any]:
    """The same work, in a thread of its own, as what a recording began."""

    @functools.wraps(work, updated=())
    def worked(*args: Any, **kwargs: Any) -> Any:
        _by_thread.recording = recording
        return work(*args, **kwargs)

    return worked


def of_pool(thread: threading.Thread) -> bool:
    """Whether a thread is a pool's: it works for whoever hands it work, not for whoever began it."""
    target = getattr(thread, "_target", None)
    return any(getattr(target, "__func__", target) is pool for pool in _POOLS)


def belonging(work: Callable[..., Any], owner: Owner) -> Callable[..., Any]:
    """The same work as a part of `owner`, wherever and whenever it is done."""

    @functools.wraps(work, updated=())
    def worked(*args: Any, **kwargs: Any) -> Any:
        around, token = getattr(_by_thread, "owner", None), _by_context.set(owner)
        _by_thread.owner = owner
        try:
            return work(*args, **kwargs)
        finally:
            _by_thread.owner = around
            _by_context.reset(token)

    return worked
