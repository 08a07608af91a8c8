"""Marks on running code: which episode began it, whether it is exempt, and whether it may reach a host.

What an episode began (threads, and work that it hands over to be done later, elsewhere) belongs to that
episode for as long as it runs, and so does what it begins in turn. Two marks say so: one in the context,
which tasks and callbacks copy, and one on the thread, which code that runs in an empty context keeps. The
egress guard goes by them, and the gate once the dream is over. While it runs the gate asks for more: a thread
of a node's own may serve several episodes, and an answer of one must not reach another.

Exempt are the kit's own writers, and a trainer beside a dream. An exemption belongs to a context; tasks
inherit it, threads do so where that was asked for. What an episode runs is never exempt by the thread that it
runs in, nor is anything inside of `guarded`.

A body that is `pure` runs sealed: what computes from its arguments needs no host, and may lie about that. The
guard asks for the seal, also where no guard stands (real calls under oversight). It belongs to a context;
tasks inherit it, and so do the threads that are begun in it and the work that it hands to pools.
"""

import functools
import multiprocessing.pool as old_pools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread as new_pools
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet


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


def within(
    work: Callable[..., Any], entered: Callable[[], AbstractContextManager[object]]
) -> Callable[..., Any]:
    """The same work, done inside of a block that is entered each time."""

    @functools.wraps(work, updated=())
    def worked(*args: Any, **kwargs: Any) -> Any:
        with entered():
            return work(*args, **kwargs)

    return worked


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

    @contextmanager
    def marked() -> Iterator[None]:
        around, token = getattr(_by_thread, "owner", None), _by_context.set(owner)
        _by_thread.owner = owner
        try:
            yield
        finally:
            _by_thread.owner = around
            _by_context.reset(token)

    return within(work, marked)


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


def mark_exempt(thread: threading.Thread) -> None:
    """A thread is about to start that belongs to no episode: it is as exempt as the code that starts it."""
    if of_pool(thread):
        return
    if _with_threads.get() or (_said.get() is None and is_exempt(owned=False)):
        with _lock:
            _threads.add(thread)


class Seal(NamedTuple):
    """Which tool's body runs, and who hears of what it tried."""

    tool: str
    report: Callable[[str], object]


_seal: ContextVar[Seal | None] = ContextVar("dreamgym_kit_seal", default=None)


def seal() -> Seal | None:
    """The one that the running code is under."""
    return _seal.get()


@contextmanager
def sealed(tool: str, report: Callable[[str], object]) -> Iterator[None]:
    """Let the block reach no host; `report` gets each try at once. The guard has to listen."""
    with _under(Seal(tool, report)):
        yield


@contextmanager
def unsealed() -> Iterator[None]:
    """Let the block go by the guard alone: a tool of its own that somebody else lets through."""
    with _under(None):
        yield


@contextmanager
def _under(mine: Seal | None) -> Iterator[None]:
    token = _seal.set(mine)
    try:
        yield
    finally:
        _seal.reset(token)


def carried(work: Callable[..., Any]) -> Callable[..., Any]:
    """Work of a thread or a pool, under the seal of what begins it or hands it over."""
    mine = seal()
    return work if mine is None else within(work, lambda: _under(mine))
