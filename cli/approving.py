"""Asks at the terminal whether a held call may run. What is shown is data: cleaned, one line each."""

import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import tell
from dreamgym_kit.report.sanitize import one_line, shown

if TYPE_CHECKING:
    from dreamgym_kit.types import Approval, HeldCall

_GLANCE_S = 0.2  # between two looks at the clock


class TerminalApprover:
    """Implements `interfaces.Approver` at the terminal that the command runs in; one question at a time.

    Only the word "yes" is a yes. After anything else, and after a question that was not answered in time,
    none is asked any more: the run ends, and nobody could tell to which of them the next word belongs.
    """

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._ended = False
        self._leaving: Callable[[], bool] = bool

    def until(self, leaving: Callable[[], bool]) -> None:
        """From now on nobody is asked any more once this says so: a person has asked to stop."""
        self._leaving = leaving

    async def approve(self, held: "HeldCall") -> "Approval | None":
        """See `Approver.approve`."""
        from dreamgym_kit.threads import run_in_thread_async

        over = threading.Event()
        try:
            return await run_in_thread_async(lambda: self._ask(held, over), name="dreamgym-terminal")
        finally:
            over.set()

    def _ask(self, held: "HeldCall", over: threading.Event) -> "Approval | None":
        from dreamgym_kit.types import Approval

        with self._asking:
            if self._ended or over.is_set() or self._leaving():
                return None
            tell(question(held))
            _forget_what_was_typed()
            answer = _typed(lambda: over.is_set() or self._leaving())
            agreed = answer is not None and answer.strip() == "yes"
            self._ended = not agreed
        if answer is None:
            tell("No answer is waited for any more: it does not run.")
        return Approval(held.digest, "terminal") if agreed else None


def _typed(over: Callable[[], bool]) -> str | None:
    """The line that is typed next; None where it is over before. No thread is left waiting for a terminal."""
    typed = b""
    while not over():
        if not select.select([sys.stdin], [], [], _GLANCE_S)[0]:
            continue
        more = os.read(sys.stdin.fileno(), 4096)
        typed += more
        if not more or b"\n" in more:
            return typed.decode("utf-8", "replace")
    return None


def _forget_what_was_typed() -> None:
    """What was typed before the question is no answer to it."""
    if not sys.stdin.isatty():
        return
    import termios

    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def question(held: "HeldCall") -> str:
    """A held call as a person is shown it."""
    from dreamgym_kit.canonical import canonical
    from dreamgym_kit.dream.state.observed import observation

    lines = [
        f"\nHELD  {one_line(held.call.tool)} ({held.effect}), task {shown(held.task, 60)}, {held.environment}"
    ]
    for name, value in held.call.args.items():
        lines.append(f"  {shown(name, 40)} = {one_line(canonical(value))}")
    if not held.expected.unanswered:
        lines.append(f"  the dream expects: {shown(canonical(observation(held.expected)), 400)}")
    lines += [f"  DOUBT {shown(doubt, 400)}" for doubt in held.doubts]
    lines.append(
        f"  call {held.digest[:12]}; run it for REAL? Only the word yes does; anything else ends the run:"
    )
    return "\n".join(lines)
