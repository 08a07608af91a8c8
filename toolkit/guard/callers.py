"""Which of the agent's own functions is about to touch something: a refusal names it.

The innermost frame that is not a library's. In work that was handed to a thread or a pool it is the one
that handed it over, if the work has no frame of its own.
"""

import asyncio
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from dreamgym_kit.guard.thread_owners import within

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
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    own = [frame for frame in frames if frame is not None and _is_agents(frame)]
    return Caller(_line(own[-1]), next(filter(None, map(_named, reversed(own))), "")) if own else Caller("")


def handed_over(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, known by who hands it over."""
    mine = _on_stack(sys._getframe(1))
    if mine is None or not mine.function:
        return work

    @contextmanager
    def known() -> Iterator[None]:
        around, _handed.caller = getattr(_handed, "caller", None), mine
        try:
            yield
        finally:
            _handed.caller = around

    return within(work, known)


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
