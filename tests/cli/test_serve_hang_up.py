"""`serve` ends when its terminal closes, unless it was begun so that it does not (`nohup`)."""

import signal

import pytest

from dreamgym_kit.cli.serve import _signals
from dreamgym_kit.rollout.stop import StopSwitch


@pytest.fixture
def hang_up():
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_terminal_that_closes_is_heard(hang_up: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    stop = StopSwitch()
    with _signals(stop):
        signal.raise_signal(signal.SIGHUP)
    assert stop.exit_code == 129
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # the process ends


def test_where_nobody_is_to_hear_of_it_it_is_left_so(hang_up: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop, term = StopSwitch(), signal.getsignal(signal.SIGTERM)
    with _signals(stop):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not term
    assert signal.getsignal(signal.SIGTERM) is term
