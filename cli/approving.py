"""Asks at the terminal whether real tools may run, and whether a held call may. What is shown is cleaned."""

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from dreamgym_kit.cli.output import can_ask, tell
from dreamgym_kit.cli.running import inspected
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.colors import WIDTH, hung
from dreamgym_kit.report.percent import format_count
from dreamgym_kit.report.sanitize import one_line, shown

if TYPE_CHECKING:
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Approval, HeldCall, ToolSpec

_GLANCE_S = 0.2  # between two looks at the clock
_FIRST = 15  # columns before the names
_GAP = 2
_NAME_MAX = 40
_MOST = 160  # columns, also where nothing is folded
_EFFECTS = ("destructive", "write", "read", "pure", "control")


def agree(spec: str, settings: "Settings", *, episodes: int, yes: bool, command: str) -> None:
    """Say what the graph's real tools can do, and go on only if a person agrees that they run."""
    tell(f"{format_count(episodes, 'episode')} will run on the REAL tools. What these can do:")
    tell(format_effects(inspected(spec, settings).tools))
    confirm("Run them?", f"{command} runs real tools", yes=yes)


def confirm(question: str, action: str, *, yes: bool) -> None:
    """Go on only if a person agrees; `action`: what is about to happen.

    Raises:
        UserError: nobody agreed, or nobody can be asked.
    """
    if yes:
        return
    if not can_ask():
        nobody = "nobody to ask in CI" if sys.stdin.isatty() else "no terminal to ask at"
        raise UserError(f"{action}, and there is {nobody}; agree with --yes. Nothing was run.")
    if not typer.confirm(question, default=False, err=True):
        raise UserError("not agreed to. Nothing was run.")


def format_effects(tools: "Sequence[ToolSpec]", *, written: str | None = None) -> str:
    """Names in columns under each effect that the tools can have, the irreversible ones first.

    Args:
        tools: all of them.
        written: the file that the guesses stand in for a person to correct, if there is one.
    """
    lines: list[str] = []
    for effect in _EFFECTS:
        names = [_marked(spec) for spec in tools if spec.effect == effect]
        for number, row in enumerate(_columns(sorted(names))):
            lines.append(f"  {'' if number else effect:<12} {row}")
    if any(spec.source == "guessed" for spec in tools):
        where = f"correct it in {written}" if written else "dreamgym-kit init writes them down to correct"
        lines.append(f"  (? is a guess; {where})")
    return "\n".join(lines) or "  no tools"


def tool_rows(tools: "Sequence[ToolSpec]") -> list[str]:
    """One line a tool: name, effect, who said so."""
    width = min(_NAME_MAX, max((len(one_line(spec.name)) for spec in tools), default=0))
    rows = []
    for spec in tools:
        head = f"  {one_line(spec.name):<{width}}  {spec.effect:<11}  {spec.source:<9}  "
        rows.append(hung(head, one_line(spec.reason)).rstrip())
    return rows


def _marked(spec: "ToolSpec") -> str:
    return one_line(spec.name) + ("?" if spec.source == "guessed" else "")


def _columns(names: Sequence[str]) -> Iterator[str]:
    """Rows of names, read downwards; a name is never cut."""
    if not names:
        return
    width = max(len(name) for name in names) + _GAP
    across = max(1, (min(WIDTH.get(), _MOST) - _FIRST + _GAP) // width)
    down = -(-len(names) // across)
    for row in range(down):
        yield "".join(f"{name:<{width}}" for name in names[row::down]).rstrip()


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

    def _ask(self, held_call: "HeldCall", over: threading.Event) -> "Approval | None":
        from dreamgym_kit.types import Approval

        with self._asking:
            if self._ended or over.is_set() or self._leaving():
                return None
            tell(question(held_call))
            _forget_what_was_typed()
            answer = _typed(lambda: over.is_set() or self._leaving())
            agreed = answer is not None and answer.strip() == "yes"
            self._ended = not agreed
        if answer is None:
            tell("The prompt was closed. The call does not run.")
        return Approval(held_call.digest, "terminal") if agreed else None


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
    import termios

    with suppress(termios.error, OSError):  # no terminal
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def question(held_call: "HeldCall") -> str:
    """Format a held call and its question for a person."""
    from dreamgym_kit.canonical import canonical
    from dreamgym_kit.dream.observed import observation

    lines = [
        (
            f"\nHELD  {one_line(held_call.call.tool)} ({held_call.effect}), "
            f"task {shown(held_call.task, 60)}, {held_call.environment}"
        )
    ]
    for name, value in held_call.call.args.items():
        lines.append(f"  {shown(name, 40)} = {one_line(canonical(value))}")
    if not held_call.expected.unanswered:
        lines.append(f"  the dream expects: {shown(canonical(observation(held_call.expected)), 400)}")
    lines += [f"  DOUBT {shown(doubt, 400)}" for doubt in held_call.doubts]
    lines.append(
        f"  call {held_call.digest[:12]}\n  Run it for REAL? Type yes to run it; anything else ends the run:"
    )
    return "\n".join(lines)
