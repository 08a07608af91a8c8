"""The one switch that ends a run early: first finish what runs, then cancel.

What must not happen, and did, cancels with an exit code of its own, which no signal takes back.

Anyone may press it, from any thread and from a signal handler, so it holds no lock: it only sets
attributes (one at a time, each complete) and calls listeners that must return at once.
"""

from collections.abc import Callable
from signal import SIGINT, Signals

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
        name = Signals(signal_number).name
        if again:
            self.cancel(name)
        else:
            self.request(name)

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Take a KeyboardInterrupt as Ctrl-C, once, however often the same one is met on its way out."""
        if error is not self._interrupt:
            self._interrupt = error
            self.press(SIGINT)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at each change; gives the function that ends it."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(kept for kept in self._listeners if kept is not listener)

        return end

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
