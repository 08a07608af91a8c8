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

A refusal names which of the agent's own functions was about to touch something: the innermost frame that is
not a library's. In work that was handed to a thread or a pool it is the one that handed it over, if the work
has no frame of its own.
"""

import asyncio
import functools
import gc
import inspect
import multiprocessing.pool as old_pools
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread as new_pools
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
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


def all_of_thread(work: Callable[[], Any], owner: Owner) -> Callable[[], Any]:
    """The same for all that a thread runs: what follows in it, its `excepthook`, is the owner's too."""

    @functools.wraps(work)
    def run() -> Any:
        _by_thread.owner = owner
        return belonging(work, owner)()

    return run


# None: as the thread is
_exempted: ContextVar[bool | None] = ContextVar("dreamgym_kit_exempted", default=None)
_with_threads: ContextVar[bool] = ContextVar("dreamgym_kit_exempts_threads", default=False)
_threads: "WeakSet[threading.Thread]" = WeakSet()
_lock = threading.Lock()


@contextmanager
def exempt(*, threads: bool = False) -> Iterator[None]:
    """Let this context pass: for the kit's own writers, never around code of the user's.

    Tasks that are started inside inherit it. Threads do with `threads` only, and those that they start;
    a pool's threads never do, since they work for whoever hands them work.
    """
    with _passing(True, threads):
        yield


@contextmanager
def guarded() -> Iterator[None]:
    """In the block, nothing is exempt because of what stands around it."""
    with _passing(False, False):
        yield


@contextmanager
def _passing(exempted: bool, threads: bool) -> Iterator[None]:
    tokens = _exempted.set(exempted), _with_threads.set(threads)
    try:
        yield
    finally:
        _exempted.reset(tokens[0])
        _with_threads.reset(tokens[1])


def is_exempt(*, owned: bool) -> bool:
    """Whether the running code is; `owned`: it belongs to an episode."""
    passes = _exempted.get()
    if passes is not None or owned or not _threads:
        return bool(passes)
    with _lock:
        return threading.current_thread() in _threads


def mark_exempt(thread: threading.Thread) -> None:
    """A thread is about to start that belongs to no episode: it is as exempt as the code that starts it."""
    if of_pool(thread):
        return
    if _with_threads.get() or (_exempted.get() is None and is_exempt(owned=False)):
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


_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_SAMPLES = f"{_OURS}recipes{os.sep}"  # agents that are shipped are somebody's own code
_LOOP = asyncio.events.Handle._run.__code__  # below it stands who started the event loop
_handed = threading.local()
acting: ContextVar[str] = ContextVar("dreamgym_kit_acting", default="")
"""Which part of the user's set-up acts beside the agent ("the checker"): nothing answers its calls."""
IMPORTING = " in <module>"  # at the end of a place, where a module is imported


class Caller(NamedTuple):
    """A place in the agent's code."""

    line: str  # "agent.py:12 in charge"
    function: str = ""  # "agent:charge", as `[functions]` names it; empty where it has no such name


def caller(frame: FrameType | None) -> Caller:
    """The innermost function of the agent's in `frame` and its callers, else the innermost place of all."""
    innermost = _on_stack(frame) or _waiting()
    if innermost is not None:
        return innermost
    return Caller(_line(frame) if frame is not None else "unknown place")


def _on_stack(frame: FrameType | None) -> Caller | None:
    """The agent's function in `frame` and its callers, else the one that handed this work over."""
    while frame is not None and frame.f_code is not _LOOP:
        if _is_agents(frame):
            return Caller(_line(frame), _reference(frame))
        frame = frame.f_back
    handed: Caller | None = getattr(_handed, "caller", None)
    return handed


def _waiting() -> Caller | None:
    """The agent's function that waits while a task of a library's runs, where it is the only one to wait."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no event loop here
        return None
    # one without a name of its own counts too: else another episode's function would be named for it
    callers = {by.function or by.line: by for task in tasks if (by := _innermost(task.get_coro())).line}
    return next(iter(callers.values())) if len(callers) == 1 else None


def _innermost(coroutine: Any) -> Caller:
    frames = []
    while coroutine is not None:
        frames.append(getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None))
        within = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
        if type(coroutine).__name__ == "async_generator_asend":  # only the collector knows its generator
            within = next(
                (referent for referent in gc.get_referents(coroutine) if inspect.isasyncgen(referent)), None
            )
        coroutine = within
    own = [frame for frame in frames if frame is not None and _is_agents(frame)]
    return Caller(_line(own[-1]), next(filter(None, map(_named, reversed(own))), "")) if own else Caller("")


def handed_over(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap work so that its caller is the code that hands it over."""
    mine = _on_stack(sys._getframe(1))
    if mine is None or not mine.function:
        return work

    @contextmanager
    def as_caller() -> Iterator[None]:
        around, _handed.caller = getattr(_handed, "caller", None), mine
        try:
            yield
        finally:
            _handed.caller = around

    return within(work, as_caller)


def _is_agents(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
        return False  # what starts the run
    return file.startswith(_SAMPLES) or not file.startswith(("<", *_LIBRARIES, _OURS))


def _reference(frame: FrameType | None) -> str:
    """By the innermost function that has a name to be found by: not a lambda's, not one inside another."""
    while frame is not None and frame.f_code is not _LOOP:
        if _is_agents(frame) and (name := _named(frame)):
            return name
        frame = frame.f_back
    return ""


def _named(frame: FrameType) -> str:
    name, module = frame.f_code.co_qualname, frame.f_globals.get("__name__")
    return f"{module}:{name}" if "<" not in name and isinstance(module, str) else ""


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"  # noqa: PTH119 - a label
