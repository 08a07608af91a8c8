"""A body that is `pure` reaches no host: what computes from its arguments needs none, and may lie about that.

The egress guard asks for the seal, also where no guard stands (real calls under oversight). It belongs to a
context; tasks inherit it, and so do the threads that are begun in it and the work that it hands to pools.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread as pools
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


class Seal(NamedTuple):
    """Which tool's body runs, and who hears of what it tried."""

    tool: str
    told: Callable[[str], object]


_seal: ContextVar[Seal | None] = ContextVar("dreamgym_kit_seal", default=None)
_threads: "WeakKeyDictionary[threading.Thread, Seal]" = WeakKeyDictionary()


def seal() -> Seal | None:
    """The one that the running code is under."""
    return _seal.get() or (_threads.get(threading.current_thread()) if _threads else None)


@contextmanager
def sealed(tool: str, told: Callable[[str], object]) -> Iterator[None]:
    """Let the block reach no host; `told` hears of each try at once. The guard has to listen."""
    token = _seal.set(Seal(tool, told))
    try:
        yield
    finally:
        _seal.reset(token)


@contextmanager
def unsealed() -> Iterator[None]:
    """Let the block go by the guard alone: a tool of its own that somebody else lets through."""
    token = _seal.set(None)
    try:
        yield
    finally:
        _seal.reset(token)


def begins(thread: threading.Thread) -> None:
    """A thread is about to start. A pool's are not noted: they work for whoever hands them work."""
    mine, worker = seal(), getattr(pools, "_worker", None)
    if mine is not None and (worker is None or getattr(thread, "_target", None) is not worker):
        _threads[thread] = mine


def carried(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work for a pool, under the seal of whoever hands it over."""
    mine = seal()
    if mine is None:
        return work

    @functools.wraps(work)
    def worked(*args: Any, **kwargs: Any) -> Any:
        token = _seal.set(mine)
        try:
            return work(*args, **kwargs)
        finally:
            _seal.reset(token)

    return worked
