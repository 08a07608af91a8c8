"""Bar S1: what a recording process was told is stored is there after `kill -9`."""

import pytest
from bench import acks


@pytest.mark.slow
def test_a_store_that_acknowledges_too_early_is_found_out() -> None:
    assert acks.run_trial(3, 4, store="LateCommitDouble").lost > 0


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.nightly)])
def test_kills_lose_nothing_that_was_acknowledged(kills: int) -> None:
    trial = acks.run_trial(0, kills)
    print("S1", trial)
    assert (trial.kills, trial.lost) == (kills, 0)
