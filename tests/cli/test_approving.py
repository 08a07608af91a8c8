"""The terminal that is asked about held calls: what counts as a yes, and when nobody is asked any more."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from dreamgym_kit.cli import approving
from dreamgym_kit.cli.approving import TerminalApprover
from dreamgym_kit.types import Answer, Approval, Call, Effect, Environment, HeldCall


class TerminalDouble:
    """A terminal of the process's own; types a line each time that a question is shown.

    A line is typed once what was typed before the question is forgotten: no clock decides which it is.
    """

    def __init__(self) -> None:
        self.ours, theirs = os.openpty()
        self.stdin = os.fdopen(theirs, "r")
        self.shown: list[str] = []
        self.lines: list[str] = []
        self.on_question: Callable[[], object] = bool

    def tell(self, text: str) -> None:
        self.shown.append(text)
        if text.startswith("\nHELD"):
            self.on_question()

    def type(self) -> None:
        if self.lines:
            os.write(self.ours, self.lines.pop(0).encode())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TerminalDouble]:
    made = TerminalDouble()
    monkeypatch.delenv("CI", raising=False)  # there nobody is asked
    monkeypatch.setattr("sys.stdin", made.stdin)
    monkeypatch.setattr(approving, "tell", made.tell)
    forget = approving._forget_what_was_typed

    def forget_and_type() -> None:
        forget()
        made.type()

    monkeypatch.setattr(approving, "_forget_what_was_typed", forget_and_type)
    yield made
    made.stdin.close()
    os.close(made.ours)


def held(number: int = 1) -> HeldCall:
    call, world = Call("refund", {"payment": f"P{number}"}), Environment("shop", 3)
    return HeldCall(f"{number:064}", call, Effect.DESTRUCTIVE, "e", "t", world, Answer(), ())


def test_the_word_yes_and_nothing_else_is_a_yes(terminal: TerminalDouble) -> None:
    approver = TerminalApprover()
    terminal.lines = ["yes\n", " yes \n", "y\n"]
    assert asyncio.run(approver.approve(held(1))) == Approval(held(1).digest, "terminal")
    assert asyncio.run(approver.approve(held(2))) == Approval(held(2).digest, "terminal")
    assert asyncio.run(approver.approve(held(3))) is None


def test_what_was_typed_before_the_question_is_no_answer(terminal: TerminalDouble) -> None:
    os.write(terminal.ours, b"yes\n")
    terminal.lines = ["no\n"]
    assert asyncio.run(TerminalApprover().approve(held())) is None


def test_after_a_no_nobody_is_asked_about_the_calls_that_wait(terminal: TerminalDouble) -> None:
    approver = TerminalApprover()
    terminal.lines = ["no\n", "yes\n", "yes\n"]

    async def together() -> list[Approval | None]:
        return await asyncio.gather(*(approver.approve(held(number)) for number in range(3)))

    assert asyncio.run(together()) == [None, None, None]
    assert len(terminal.shown) == 1


def test_a_question_that_nobody_answers_keeps_no_thread_and_is_the_last(terminal: TerminalDouble) -> None:
    approver, shown = TerminalApprover(), threading.Event()
    terminal.on_question = shown.set

    async def asked() -> Approval | None:
        waits = asyncio.create_task(approver.approve(held()))
        await asyncio.to_thread(shown.wait)
        return await asyncio.wait_for(waits, 0)

    with pytest.raises(TimeoutError):  # at all: nobody will ever type
        asyncio.run(asked())
    waiting = [one for one in threading.enumerate() if one.name == "dreamgym-terminal"]
    for thread in waiting:
        thread.join(100)
    assert not any(thread.is_alive() for thread in waiting), "a thread still waits for the terminal"
    terminal.lines = ["yes\n"]
    assert asyncio.run(approver.approve(held())) is None
    assert terminal.shown[-1] == "The prompt was closed. The call does not run."


def test_nobody_is_asked_any_more_once_a_person_has_asked_to_stop(terminal: TerminalDouble) -> None:
    approver, pressed = TerminalApprover(), threading.Event()
    approver.until(pressed.is_set)
    terminal.on_question = pressed.set  # Ctrl-C while a question is shown, that nobody will ever answer
    assert asyncio.run(approver.approve(held(1))) is None
    assert asyncio.run(approver.approve(held(2))) is None
    assert [text[:5] for text in terminal.shown] == ["\nHELD", "The p"]
