"""Waiting for an event with a deadline: a test that uses this passes at any speed of the machine."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import psutil

PATIENCE_S = 120.0  # a loaded machine is slow; only a hang is a failure

T = TypeVar("T")


def wait_until(happened: Callable[[], T], what: str, within_s: float = PATIENCE_S) -> T:
    """Poll `happened` until it returns something true, and return that; fail with `what` at the deadline."""
    deadline = time.monotonic() + within_s
    while not (found := happened()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not seen within {within_s:g} s")
        time.sleep(0.005)
    return found


async def wait_until_async(happened: Callable[[], T], what: str, within_s: float = PATIENCE_S) -> T:
    """Like `wait_until`, while other tasks of the loop run."""
    deadline = time.monotonic() + within_s
    while not (found := happened()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not seen within {within_s:g} s")
        await asyncio.sleep(0.005)
    return found


def gone(processes: Sequence[psutil.Process]) -> bool:
    """Wait until all of these processes have ended; a killed one may take a while to free its memory."""
    wait_until(lambda: all(_ended(process) for process in processes), "the end of the processes")
    return True


def _ended(process: psutil.Process) -> bool:
    """A zombie has ended: its parent may never collect it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
