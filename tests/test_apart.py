"""Work apart: in a thread of its own, waited for, its failure the caller's."""

import threading

import pytest

from dreamgym_kit.apart import apart


def test_it_runs_in_another_thread_of_that_name_and_gives_what_came_of_it() -> None:
    assert apart(lambda: threading.current_thread().name, name="aside") == "aside"


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        apart(fail, name="aside")
