"""Whether processes are gone."""

import time
from collections.abc import Sequence

import psutil


def gone(processes: Sequence[psutil.Process], within_s: float = 60.0) -> bool:
    """What was killed may take a while, on a busy machine and where it held much memory."""
    ends = time.monotonic() + within_s
    while not all(_ended(one) for one in processes) and time.monotonic() < ends:
        time.sleep(0.01)
    return all(_ended(one) for one in processes)


def _ended(process: psutil.Process) -> bool:
    """Nobody may be there to collect what a process that was killed left behind."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
