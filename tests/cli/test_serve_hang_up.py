"""`serve` ends when its terminal closes, unless it was begun so that it does not (`nohup`)."""

import signal

import pytest

from dreamgym_kit.cli.serve import _signals


@pytest.fixture
def hang_up():
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_closes_is_heard(hang_up: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with _signals() as stops:
        assert signal.getsignal(signal.SIGHUP) == stops.handle
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_where_nobody_is_to_hear_of_it_it_is_left_so(hang_up: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with _signals() as stops:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == stops.handle
