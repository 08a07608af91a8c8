"""Seconds until a run ends after a first signal, and after a second one: the slowest of all ways."""

import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # `bars` lies beside this folder
from bars.test_r3_signals import ENDLESS, SIGNALS, press, running

TIMES = 3
WORKERS = ((), ("--workers", "2"))
WAYS = (*WORKERS, *(("--way", way) for way in ("thread", "blocks", "stubborn")))


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance: the seed changes nothing."""
    finite = ("--episodes", "4000", "--seconds", "0.3")
    first = max(_ends((number,), finite + more) for number in SIGNALS * TIMES for more in WORKERS)
    second = max(_ends((number, number), (*ENDLESS, *way)) for number in SIGNALS * TIMES for way in WAYS)
    return [("first_s", first, "s"), ("second_s", second, "s")]


def _ends(numbers: tuple[signal.Signals, ...], options: tuple[str, ...]) -> float:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), *options) as process:
        sent = press(Path(folder), process, *numbers)
        process.communicate()
        return time.monotonic() - sent
