"""The terminal that is asked about held calls: what counts as a yes, and when nobody is asked any more."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest

from dreamgym_kit.cli.approving import TerminalApprover
from dreamgym_kit.vocabulary import Answer, Approval, Call, Effect, HeldCall, World


class TerminalDouble:
    """A terminal of the process's own; types a line each time that a question is shown."""

    def __init__(self) -> None:
        self.ours, theirs = os.openpty()
        self.stdin = os.fdopen(theirs, "r")
        self.shown: list[str] = []
        self.lines: list[str] = []

    def tell(self, text: str) -> None:
        self.shown.append(text)
        if text.startswith("\nHELD") and self.lines:
            line = self.lines.pop(0)
            threading.Timer(0.1, lambda: os.write(self.ours, line.encode())).start()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TerminalDouble]:
    made = TerminalDouble()
    monkeypatch.setattr("sys.stdin", made.stdin)
    monkeypatch.setattr("dreamgym_kit.cli.approving.tell", made.tell)
    yield made
    made.stdin.close()
    os.close(made.ours)


def held(number: int = 1) -> HeldCall:
    call, world = Call("refund", {"payment": f"P{number}"}), World("shop", 3)
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
    approver, begun = TerminalApprover(), time.monotonic()

    async def asked() -> Approval | None:
        return await asyncio.wait_for(approver.approve(held()), 0.3)

    with pytest.raises(TimeoutError):
        asyncio.run(asked())
    assert time.monotonic() - begun < 10
    for _ in range(50):
        if not any(one.name == "dreamgym-terminal" for one in threading.enumerate()):
            break
        time.sleep(0.1)
    else:
        raise AssertionError("a thread still waits for the terminal")
    terminal.lines = ["yes\n"]
    assert asyncio.run(approver.approve(held())) is None
    assert terminal.shown[-1] == "No answer is waited for any more: it does not run."


def test_nobody_is_asked_any_more_once_a_person_has_asked_to_stop(terminal: TerminalDouble) -> None:
    approver, pressed, begun = TerminalApprover(), threading.Event(), time.monotonic()
    approver.until(pressed.is_set)
    threading.Timer(0.2, pressed.set).start()  # Ctrl-C while a question is shown
    assert asyncio.run(approver.approve(held(1))) is None
    assert asyncio.run(approver.approve(held(2))) is None
    assert time.monotonic() - begun < 10
    assert [text[:5] for text in terminal.shown] == ["\nHELD", "No an"]
