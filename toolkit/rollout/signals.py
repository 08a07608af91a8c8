"""Ctrl-C and SIGTERM: the first finishes what runs, the second stops now.

The handler is Python's own, not the event loop's: it also runs while a tool blocks the loop. After the
second signal a command may be told to leave within a bound whatever holds it (a tool in a thread, a
coroutine that swallows its cancellation): the journal is whole at any moment, so leaving is safe.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

from dreamgym_kit.gate.egress import exempt
from dreamgym_kit.rollout.stop import StopSwitch

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: StopSwitch, *, leave_after_s: float | None = None) -> Iterator[None]:
    """Let SIGINT and SIGTERM press `stop` inside the block; the handlers of before come back after it.

    Outside the main thread signals cannot be taken: the block changes nothing there.

    Args:
        stop: the switch of the run.
        leave_after_s: for a command that owns its process: seconds after the second signal at which the
            process ends by itself with `stop.exit_code`, also after the block. None: never.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _Watchdog(stop, leave_after_s) as watchdog:

        def pressed(number: int, _frame: FrameType | None) -> None:
            stop.press(number)
            if stop.cancelled:
                watchdog.wake()

        before = {number: signal.signal(number, pressed) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def leave(code: int) -> None:
    """End the process now, without waiting for threads that a tool still holds."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with exempt():
        os._exit(code)


class _Watchdog:
    """A thread that sleeps until woken by one byte: all that a signal handler may safely do."""

    def __init__(self, stop: StopSwitch, after_s: float | None) -> None:
        self._stop = stop
        self._after_s = after_s
        self._wake: Callable[[], object] = lambda: None
        self._close: Callable[[], object] = lambda: None

    def __enter__(self) -> "_Watchdog":
        if self._after_s is not None:
            reading, writing = os.pipe()
            self._wake = lambda: os.write(writing, b"!")
            self._close = lambda: os.close(writing)
            threading.Thread(target=self._watch, args=(reading, self._after_s), daemon=True).start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._close()

    def wake(self) -> None:
        with suppress(OSError):
            self._wake()

    def _watch(self, reading: int, after_s: float) -> None:
        woken = os.read(reading, 1)
        os.close(reading)
        if woken:
            time.sleep(after_s)
            with exempt():
                os._exit(self._stop.exit_code or 1)
