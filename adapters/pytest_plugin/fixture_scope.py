"""The gate for the length of one test: in before the test, armed, and out again as if nothing had been.

Between the runs of a test only tools are held; while a run is on, the egress guard stands too.
"""

import asyncio
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import thread as pools
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any

import pytest

from dreamgym_kit.adapters.langgraph.intercept.install import install, installed, uninstall
from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.routing.process import PROCESS, holding, live_sessions

_SETTLE_S, _LOOK_S = 1.0, 0.01
_WORKER = getattr(pools, "_worker", None)


class DreamWarning(UserWarning):
    """Something a person should know of a test's dream."""


_Failed: type[BaseException] = pytest.fail.Exception


class TestRealCallBlocked(RealCallBlocked, _Failed):  # type: ignore[misc,valid-type]
    """A refusal that pytest takes for a failure.

    Of other exceptions that are no `Exception` it leaves a teardown half done: the next test would then be
    given this one's `dream`, and find its own tools refused.
    """


class TasksBegun:
    """The tasks that a test's loops still have when it ends, and had not when its first run began."""

    def __init__(self) -> None:
        self._before: dict[asyncio.AbstractEventLoop, set[asyncio.Task[Any]]] = {}

    def note(self) -> None:
        """Hear that a run begins; notes the loop that runs here, if one does."""
        with suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            self._before.setdefault(loop, asyncio.all_tasks(loop))

    def left(self) -> list[str]:
        """Names of those that may go on."""
        return sorted(
            task.get_name()
            for loop, before in self._before.items()
            if not loop.is_closed()
            for task in asyncio.all_tasks(loop) - before
        )


@contextmanager
def intercepting(*, armed: bool, tasks: TasksBegun) -> Iterator[None]:
    """Hold every tool of the process in the block.

    Args:
        armed: refuse calls that belong to no episode; False where this test records real ones.
        tasks: of the loops that the test's runs were on.

    Raises:
        RealCallBlocked: at the end, when an episode is still running.
    """
    before, was_installed = _at_work(), installed()
    refusal, PROCESS.refusal = PROCESS.refusal, TestRealCallBlocked
    install()
    try:
        with holding() if armed else nullcontext():
            yield
    finally:
        left = [*_left_running(before), *tasks.left()]
        PROCESS.refusal = refusal
        if any(not session.mode.bare for session in live_sessions()):
            raise RealCallBlocked("an episode is still running; end it before its test ends")
        if not (was_installed or left):
            uninstall()
    if left:
        names = ", ".join(f"'{name}'" for name in left)
        warnings.warn(
            f"threads or tasks begun in this test still run; tools that they call are refused: {names}",
            DreamWarning,
            stacklevel=2,
        )


def _at_work() -> set[threading.Thread]:
    """The threads that do something; idle ones of a pool do nothing by themselves."""
    frames = sys._current_frames()
    return {
        thread
        for thread in threading.enumerate()
        if not (_of_pool(thread) and _waits_for_work(frames.get(thread.ident or 0)))
    }


def _of_pool(thread: threading.Thread) -> bool:
    return getattr(thread, "_target", None) is _WORKER


def _waits_for_work(frame: FrameType | None) -> bool:
    """A pool's thread without work stands in its own loop with none in its hand, and none is on its way."""
    if frame is None:
        return True
    if frame.f_code is not getattr(_WORKER, "__code__", None):
        return False
    queue = frame.f_locals.get("work_queue")
    return frame.f_locals.get("work_item") is None and (queue is None or queue.empty())


def _left_running(before: set[threading.Thread]) -> list[str]:
    """Threads that were set to work since and do not end within a moment."""
    until = time.monotonic() + _SETTLE_S
    while since := _at_work() - before - {threading.current_thread()}:
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_S)
    return sorted(thread.name for thread in since)
