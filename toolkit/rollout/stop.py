"""The one switch that ends a run early (first finish what runs, then cancel), and the signals that press it.

What must not happen, and did, cancels with an exit code of its own, which no signal takes back.

Anyone may press it, from any thread and from a signal handler, so it holds no lock: it only sets
attributes (one at a time, each complete) and calls listeners that must return at once.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dreamgym_kit.guard.egress import exempt

EXECUTED = 6  # exit code: a real call was executed; before all others


class StopSwitch:
    """Asked to stop, a run begins no more episodes; cancelled, it drops those that run too.

    Attributes:
        requested: no episode may begin any more.
        cancelled: those that run are to be dropped.
        reason: why, in a few words; "" while nobody asked.
        signal: the number of the signal that asked last, if one did.
        code: the exit code of whoever cancelled, where that has one of its own.
    """

    def __init__(self) -> None:
        self.requested = False
        self.cancelled = False
        self.reason = ""
        self.signal: int | None = None
        self.code: int | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._interrupt: KeyboardInterrupt | None = None

    @property
    def exit_code(self) -> int | None:
        """What a command ends with when a signal stopped it (130, 143), None when none did."""
        if self.code is not None:
            return self.code
        return None if self.signal is None else 128 + self.signal

    def request(self, reason: str) -> None:
        """Finish what runs, then stop. The first reason stays."""
        if not self.requested:
            self.reason = reason
            self.requested = True
            self._tell()

    def cancel(self, reason: str, *, code: int | None = None) -> None:
        """Stop now: what runs is dropped and run again by a resume. A `code` makes its reason the run's."""
        if code is not None and self.code is None:
            self.reason, self.code = reason, code
        if not self.cancelled:
            self.reason = self.reason or reason
            self.requested = True
            self.cancelled = True
            self._tell()

    def press(self, signal_number: int) -> None:
        """Take a signal: the first one asks to finish, any further one cancels."""
        again = self.signal is not None
        self.signal = signal_number
        name = signal.Signals(signal_number).name
        if again:
            self.cancel(name)
        else:
            self.request(name)

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Take a KeyboardInterrupt as Ctrl-C, once, however often the same one is met on its way out."""
        if error is not self._interrupt:
            self._interrupt = error
            self.press(signal.SIGINT)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at each change; gives the function that ends it."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return end

    def listen_on_loop(self, listener: Callable[[], object]) -> Callable[[], None]:
        """The same, where `listener` has to be called on the event loop that runs now."""
        loop = asyncio.get_running_loop()

        def soon() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(listener)

        return self.listen(soon)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: StopSwitch, *, leave_after_s: float | None = None) -> Iterator[None]:
    """Let SIGINT and SIGTERM press `stop` inside the block; the handlers of before come back after it.

    The handler is Python's own, not the event loop's: it also runs while a tool blocks the loop. The journal
    is whole at any moment, so leaving is safe whatever holds the process (a tool in a thread, a coroutine
    that swallows its cancellation). Outside the main thread signals cannot be taken: the block changes
    nothing there.

    Args:
        stop: the switch of the run.
        leave_after_s: for a command that owns its process: seconds after the second signal at which the
            process ends by itself with `stop.exit_code`, also after the block. None: never.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _watchdog(stop, leave_after_s) as wake:

        def pressed(number: int, _frame: FrameType | None) -> None:
            stop.press(number)
            if stop.cancelled:
                wake()

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


@contextmanager
def _watchdog(stop: StopSwitch, after_s: float | None) -> Iterator[Callable[[], None]]:
    """Give what wakes a thread that ends the process `after_s` later; one byte: all that a handler may do."""
    if after_s is None:
        yield lambda: None
        return
    reading, writing = os.pipe()

    def watch() -> None:
        woken = os.read(reading, 1)
        os.close(reading)
        if woken:
            time.sleep(after_s)
            with exempt():
                os._exit(stop.exit_code or 1)

    def wake() -> None:
        with suppress(OSError):
            os.write(writing, b"!")

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield wake
    finally:
        os.close(writing)
