"""Asks at the terminal whether a held call may run. What is shown is data: cleaned, one line each."""

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from dreamgym_kit.cli.output import tell

if TYPE_CHECKING:
    from dreamgym_kit.vocabulary import Approval, HeldCall


class TerminalApprover:
    """Implements `ports.Approver` at the terminal that the command runs in; one question at a time.

    Only the word "yes" is a yes. After a question that was not answered in time none is asked any more:
    nobody could tell to which of them the next word belongs.
    """

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._waiting = False

    async def approve(self, held: "HeldCall") -> "Approval | None":
        """See `Approver.approve`."""
        import asyncio

        return await asyncio.to_thread(self._ask, held)

    def _ask(self, held: "HeldCall") -> "Approval | None":
        from dreamgym_kit.vocabulary import Approval

        with self._asking:
            if self._waiting:
                return None
            self._waiting = True
            tell(question(held))
            _forget_what_was_typed()
            answer = sys.stdin.readline()
            self._waiting = False
        return Approval(held.digest, "terminal") if answer.strip() == "yes" else None


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
    from dreamgym_kit.report.clean import one_line, shown

    lines = [f"\nHELD  {one_line(held.call.tool)} ({held.effect}), task {shown(held.task, 60)}, {held.world}"]
    for name, value in held.call.args.items():
        lines.append(f"  {shown(name, 40)} = {one_line(canonical(value))}")
    if not held.expected.abstained:
        lines.append(f"  the dream expects: {shown(canonical(observation(held.expected)), 400)}")
    lines += [f"  DOUBT {shown(doubt, 400)}" for doubt in held.doubts]
    lines.append(
        f"  call {held.digest[:12]}; run it for REAL? Only the word yes does; anything else ends the run:"
    )
    return "\n".join(lines)
