"""The gate for the length of one test: in before the test, armed, and out again as if nothing had been.

Between the runs of a test only tools are held; while a run is on, the egress guard stands too.
"""

import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import thread as pools
from contextlib import contextmanager

from dreamgym_kit.adapters.langgraph.install import install, installed, uninstall
from dreamgym_kit.gate.registry import PROCESS, arm, wake

_SETTLE_S = 1.0


class DreamWarning(UserWarning):
    """Something a person should know of a test's dream."""


@contextmanager
def gate_held(*, armed: bool) -> Iterator[None]:
    """Hold every tool of the process in the block.

    Args:
        armed: refuse calls that belong to no episode; False where this test records real ones.

    Raises:
        GateRefused: at the end, when an episode is still running.
    """
    before, was_armed, was_installed = set(threading.enumerate()), PROCESS.armed, installed()
    install()
    if armed:
        arm()
    try:
        yield
    finally:
        left = _left_running(before)
        if not was_armed:
            wake()
            if not was_installed:
                uninstall()
    if left:
        names = ", ".join(f"'{name}'" for name in left)
        warnings.warn(
            f"threads begun in this test still run, and no dream holds them any more: {names}",
            DreamWarning,
            stacklevel=2,
        )


def _left_running(before: set[threading.Thread]) -> list[str]:
    """Threads that were begun since and do not end; idle ones of a pool do nothing by themselves."""
    worker = getattr(pools, "_worker", None)
    since = [
        thread
        for thread in threading.enumerate()
        if thread not in before and (worker is None or getattr(thread, "_target", None) is not worker)
    ]
    for thread in since:
        if thread is not threading.current_thread():
            thread.join(_SETTLE_S / len(since))
    return sorted(thread.name for thread in since if thread.is_alive())
