"""The switch and the signals that press it, in this process; bar R3 tries them on whole processes."""

import asyncio
import os
import signal
import threading
import time

import pytest
from each_row import each_row

from dreamgym_kit.errors import RealCallBlocked
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.stop import StopSwitch, stop_on_signals


def test_the_first_signal_asks_and_the_second_cancels() -> None:
    stop = StopSwitch()
    with stop_on_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.requested, stop.cancelled, stop.reason, stop.exit_code) == (True, False, "SIGTERM", 143)
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.cancelled, stop.reason, stop.exit_code) == (True, "SIGTERM", 130)


@each_row("leave_after_s", [None, 60.0])
def test_the_handlers_of_before_come_back(leave_after_s: float | None) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyError), stop_on_signals(StopSwitch(), leave_after_s=leave_after_s):
        assert signal.getsignal(signal.SIGINT) not in before
        raise KeyError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_in_a_worker_thread_nothing_is_changed() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    async def work() -> None:
        with stop_on_signals(StopSwitch()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_signal_that_another_thread_takes_is_handled_while_the_loop_waits() -> None:
    stop, pressed, seen = StopSwitch(), threading.Event(), []
    stop.listen(pressed.set)

    async def waiting() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()

        def take() -> None:
            time.sleep(0.3)  # sleeps: nothing shows that the loop waits; one that is late is no harder
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            seen.append(pressed.wait(30))
            loop.call_soon_threadsafe(over.set)

        threading.Thread(target=take).start()
        await over.wait()

    with stop_on_signals(stop):
        run_to_end(waiting())
    assert seen == [True]


def test_a_refusal_in_a_signal_s_handler_does_not_end_the_run() -> None:
    def refused(*_: object) -> None:
        raise RealCallBlocked("refused to connect")

    before = signal.signal(signal.SIGUSR1, refused)
    try:
        seen = run_to_end(_sent_while_it_waits())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == "over"


async def _sent_while_it_waits() -> str:
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def send() -> None:
        time.sleep(0.3)  # sleeps: nothing shows that the loop waits; before that the signal is the task's
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=send).start()
    await over.wait()
    return "over"


def test_the_first_reason_stays_and_each_change_is_told_once() -> None:
    stop, told = StopSwitch(), []
    end = stop.listen(lambda: told.append((stop.requested, stop.cancelled)))
    stop.request("budget")
    stop.request("again")
    stop.cancel("now")
    stop.cancel("again")
    assert (stop.reason, told) == ("budget", [(True, False), (True, True)])
    assert (stop.signal, stop.exit_code) == (None, None)
    end()
    other = StopSwitch()
    other.listen(lambda: told.append("x"))()
    other.request("x")
    assert "x" not in told


def test_ctrl_c_after_a_budget_stopped_the_run_still_needs_two() -> None:
    stop = StopSwitch()
    stop.request("budget")
    stop.press(signal.SIGINT)
    assert (stop.cancelled, stop.exit_code) == (False, 130)
    stop.press(signal.SIGINT)
    assert stop.cancelled
