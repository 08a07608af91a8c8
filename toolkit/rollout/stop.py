"""The switch that ends a run early (first finish running episodes, then cancel), and its signal handlers.

An executed real call cancels with its own exit code, which no signal changes.

Any thread and any signal handler may use the switch, so it has no lock: it only sets attributes (one at a
time, each complete) and calls listeners, which must return at once.
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


class StopSwitch:
    """A stopped run begins no more episodes; a cancelled run also drops running ones.

    Attributes:
        requested: whether the run must begin no more episodes.
        cancelled: whether running episodes are dropped.
        reason: why, in a few words; "" before a request.
        signal: number of the last signal, if any.
        code: the exit code of the cancellation, if it has one.
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
        """The exit code of a command stopped by a signal (130, 143), or None."""
        if self.code is not None:
            return self.code
        return None if self.signal is None else 128 + self.signal

    def request(self, reason: str) -> None:
        """Finish running episodes, then stop. The first reason stays."""
        if not self.requested:
            self.reason = reason
            self.requested = True
            self._tell()

    def cancel(self, reason: str, *, code: int | None = None) -> None:
        """Stop now: a resume repeats the dropped episodes. With a `code`, its reason replaces others."""
        if code is not None and self.code is None:
            self.reason, self.code = reason, code
        if not self.cancelled:
            self.reason = self.reason or reason
            self.requested = True
            self.cancelled = True
            self._tell()

    def press(self, signal_number: int) -> None:
        """Handle a signal: the first requests a stop, further ones cancel."""
        again = self.signal is not None
        self.signal = signal_number
        name = signal.Signals(signal_number).name
        if again:
            self.cancel(name)
        else:
            self.request(name)

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Handle a KeyboardInterrupt like Ctrl-C, once, even if it is caught several times."""
        if error is not self._interrupt:
            self._interrupt = error
            self.press(signal.SIGINT)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at each change; return a function that removes it."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return end

    def listen_on_loop(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Like `listen`, but call `listener` on the current event loop."""
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
    """Let SIGINT and SIGTERM press `stop` inside the block; then restore the earlier handlers.

    The handlers are Python's, not the event loop's: they also run while a tool blocks the loop. The journal
    is always complete, so exiting is safe whatever blocks the process (a tool in a thread, a coroutine that
    swallows its cancellation). Outside the main thread signals cannot be handled: the block changes nothing.

    Args:
        stop: the switch of the run.
        leave_after_s: for a command that owns its process: seconds after the second signal until the process
            exits with `stop.exit_code`, also after the block. None: never.
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
    """Exit the process now, without waiting for threads of tools."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with exempt():
        os._exit(code)


@contextmanager
def _watchdog(stop: StopSwitch, after_s: float | None) -> Iterator[Callable[[], None]]:
    """Yield a signal-safe function that lets the process exit `after_s` seconds later."""
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
