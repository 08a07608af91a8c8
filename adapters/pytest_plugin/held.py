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
        _tell_left_running(before)
        if not was_armed:
            wake()
            if not was_installed:
                uninstall()


def _tell_left_running(before: set[threading.Thread]) -> None:
    """Threads that the agent began and that outlive the test: nothing holds them any more."""
    worker = getattr(pools, "_worker", None)
    for thread in set(threading.enumerate()) - before:
        if worker is not None and getattr(thread, "_target", None) is worker:
            continue
        thread.join(1.0)
        if thread.is_alive():
            warnings.warn(
                f"thread '{thread.name}' was begun in this test and still runs; no dream holds it any more",
                DreamWarning,
                stacklevel=2,
            )
