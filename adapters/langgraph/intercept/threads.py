"""Work that an episode hands to threads, or has done later, still belongs to it.

A pool is handed one piece of work after another: each goes along with the session of whoever handed it
over, so that its calls are answered in a dream and kept in a recording. A bare thread may serve several
episodes: the gate asks it for the config's key. It is only marked as begun by its episode (see
`guard.thread_owners`), as is what it hands on in turn.

A pool of `multiprocessing` hands on an `Exception` only; by anything else its thread ends, and whoever waits
for the work does so forever. So a refusal travels in one, and comes out of it where it is waited for.
"""

import _thread
import atexit
import functools
import multiprocessing.pool as old_pools
import signal
import threading
import weakref
from asyncio import BaseEventLoop
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from dreamgym_kit.adapters.langgraph.intercept.patches import PatchSet, plain_wrapper
from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.guard import thread_owners
from dreamgym_kit.guard.thread_owners import Owner, carried, handed_over, seal, within
from dreamgym_kit.routing.process import current
from dreamgym_kit.routing.session import Session

Work = Callable[..., Any]


def guard_threads(patches: PatchSet) -> None:
    """Run work in the session of the code that hands it over, and mark what an episode begins."""
    _carry(patches, ThreadPoolExecutor, "submit", {1: (None, along)})
    _carry(patches, Future, "add_done_callback", {1: ("fn", along)})
    _carry(patches, _thread, "start_new_thread", {0: (None, quietly)})
    callbacks = {"callback": quietly, "error_callback": quietly}
    for name, first in (("apply_async", 4), ("_map_async", 5)):
        calls = {first + place: item for place, item in enumerate(callbacks.items())}
        _carry(patches, old_pools.Pool, name, {1: ("func", packed), **calls}, only=old_pools.ThreadPool)
    for name in ("imap", "imap_unordered"):
        _carry(patches, old_pools.Pool, name, {1: ("func", packed)}, only=old_pools.ThreadPool)
    for waits, names in ((old_pools.ApplyResult, ("get",)), (old_pools.IMapIterator, ("next", "__next__"))):
        for name in names:
            patches.replace(waits, name, _unpacking(vars(waits)[name]))
    _carry(patches, weakref.finalize, "__init__", {2: (None, for_later)})
    _carry(patches, signal, "signal", {1: (None, for_later)})
    _carry(patches, BaseEventLoop, "call_at", {2: ("callback", for_later)})  # and by it `call_later`
    _mark_threads(patches)
    _mark_exits(patches)


def for_later(work: Work) -> Work:
    """Wrap work that an episode schedules for a later event; return other work as it is."""
    of_asyncio = str(getattr(work, "__module__", "")).partition(".")[0] in ("asyncio", "_asyncio")
    return work if of_asyncio or _owner() is None else _Later(work)  # asyncio's own only wake a task


def left_behind() -> list[Any]:
    """Return the work that episodes left for exit, a signal or a thread; a second call does not return it."""
    later = [work.real for reference in _LATER if (work := reference()) is not None and not work.done]
    begun = [(thread, vars(thread).get("function") or target) for thread, target in _BEGUN.items()]  # a Timer
    _LATER.clear()
    _BEGUN.clear()
    return [*later, *(target for thread, target in begun if thread.is_alive())]


def _mark_threads(patches: PatchSet) -> None:
    starting = threading.Thread.__dict__["start"]

    @functools.wraps(starting)
    def start(self: threading.Thread) -> None:
        owner = _owner()
        session = current.get() or thread_owners.recorded_by()
        if isinstance(session, Session) and session.mode.bare and not thread_owners.of_pool(self):
            self.run = thread_owners.recorded(session.of_body(self.run), session)  # type: ignore[method-assign]
        if not thread_owners.of_pool(self) and (owner is not None or seal() is not None):
            run = handed_over(carried(self.run))
            self.run = run if owner is None else _hushed(thread_owners.all_of_thread(run, owner))  # type: ignore[method-assign]
            if owner is not None:
                _BEGUN[self] = getattr(self, "_target", None) or type(self).run
        if owner is None:
            thread_owners.mark_exempt(self)
        starting(self)

    patches.replace(threading.Thread, "start", plain_wrapper(start, starting))


def _mark_exits(patches: PatchSet) -> None:
    registering: Work = atexit.register

    @functools.wraps(registering)
    def register(func: Work, /, *args: Any, **kwargs: Any) -> Work:
        registering(for_later(func), *args, **kwargs)
        return func

    patches.replace(atexit, "register", plain_wrapper(register, registering))


def _carry(
    patches: PatchSet,
    owner: Any,
    name: str,
    works: dict[int, tuple[str | None, Callable[[Work], Work]]],
    only: type | None = None,
) -> None:
    """Change what `owner.name` is handed to be done later, on instances of `only`.

    `works` has, by position, the argument's name, where it may be given by that, and what becomes of it.
    """
    real = vars(owner)[name]
    named = {keyword: change for keyword, change in works.values() if keyword is not None}

    @functools.wraps(real)
    def handing(*args: Any, **kwargs: Any) -> Any:
        if only is None or isinstance(args[0], only):
            args = tuple(
                works[place][1](arg) if place in works and callable(arg) else arg
                for place, arg in enumerate(args)
            )
            kwargs |= {name: change(kwargs[name]) for name, change in named.items() if kwargs.get(name)}
        return real(*args, **kwargs)

    patches.replace(owner, name, plain_wrapper(handing, real))


def _owner() -> Owner | None:
    """The episode that the running code is a part of; what a recording begins is the caller's."""
    session = current.get()
    if session is None:
        return thread_owners.owner()
    return None if session.mode.bare else session


def along(work: Work) -> Work:
    """The same work with the session of whoever hands it over; as it is where there is none."""
    work, session, owner = carried(work), current.get(), _owner()
    if session is None and owner is None:
        return work
    work = handed_over(work if session is None else session.outliving(work))

    @contextmanager
    def in_session() -> Iterator[None]:
        token = current.set(session)
        try:
            yield
        finally:
            current.reset(token)

    work = within(work, in_session)
    return work if owner is None else thread_owners.belonging(work, owner)


def quietly(work: Work) -> Work:
    """The same, for a thread that nobody waits for."""
    return _hushed(along(work))


def _hushed(work: Work) -> Work:
    """A refusal ends the work and is not printed: the session keeps it, and tells it with the episode."""
    return within(work, lambda: suppress(EpisodeStop))


class _Later:
    """Work that an episode wants done later; as equal to it as `atexit.unregister` needs."""

    def __init__(self, work: Work) -> None:
        self.real, self._work, self.done = work, quietly(work), False
        _LATER[:] = [reference for reference in _LATER if reference() is not None]
        _LATER.append(weakref.ref(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.done = True
        return self._work(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.real == other or (isinstance(other, _Later) and self.real == other.real)

    __hash__ = None  # type: ignore[assignment]


_LATER: "list[weakref.ref[_Later]]" = []
_BEGUN: "weakref.WeakKeyDictionary[threading.Thread, Any]" = weakref.WeakKeyDictionary()
"""Threads that episodes began, with what they run."""


class _Packed(Exception):
    """A refusal on its way out of a pool that hands on nothing else."""

    def __init__(self, stop: EpisodeStop) -> None:
        super().__init__(str(stop))
        self.stop = stop


def packed(work: Work) -> Work:
    """The same, for a pool of `multiprocessing`."""
    return within(along(work), _packing)


@contextmanager
def _packing() -> Iterator[None]:
    try:
        yield
    except EpisodeStop as stop:
        raise _Packed(stop) from stop


def _unpacking(real: Work) -> Work:
    @functools.wraps(real)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        try:
            return real(*args, **kwargs)
        except _Packed as one:
            raise one.stop from None

    return plain_wrapper(waiting, real)
