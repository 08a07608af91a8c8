"""What the egress guard leaves alone: the kit's own writers, and a trainer beside a dream.

An exemption belongs to a context; tasks inherit it, threads do so where that was asked for. What an episode
runs is never exempt by the thread that it runs in, nor is anything inside of `guarded`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakSet

from dreamgym_kit.guard.thread_owners import of_pool

_said: ContextVar[bool | None] = ContextVar("dreamgym_kit_exempted", default=None)  # None: as the thread is
_with_threads: ContextVar[bool] = ContextVar("dreamgym_kit_exempts_threads", default=False)
_threads: "WeakSet[threading.Thread]" = WeakSet()
_lock = threading.Lock()


@contextmanager
def exempt(*, threads: bool = False) -> Iterator[None]:
    """Let this context pass: for the kit's own writers, never around code of the user's.

    Tasks that are started inside inherit it. Threads do with `threads` only, and those that they start;
    a pool's threads never do, since they work for whoever hands them work.
    """
    tokens = _said.set(True), _with_threads.set(threads)
    try:
        yield
    finally:
        _said.reset(tokens[0])
        _with_threads.reset(tokens[1])


@contextmanager
def guarded() -> Iterator[None]:
    """In the block, nothing is exempt because of what stands around it."""
    tokens = _said.set(False), _with_threads.set(False)
    try:
        yield
    finally:
        _said.reset(tokens[0])
        _with_threads.reset(tokens[1])


def is_exempt(*, owned: bool) -> bool:
    """Whether the running code is; `owned`: it belongs to an episode."""
    passes = _said.get()
    if passes is not None or owned or not _threads:
        return bool(passes)
    with _lock:
        return threading.current_thread() in _threads


def begins(thread: threading.Thread) -> None:
    """A thread is about to start that belongs to no episode."""
    if of_pool(thread):
        return
    if _with_threads.get() or (_said.get() is None and is_exempt(owned=False)):
        with _lock:
            _threads.add(thread)
