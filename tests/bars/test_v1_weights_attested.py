"""V1: a server with other weights, or one that a sync reached by half, is caught by canary log-probs."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from training.loop_doubles import Planted
from training.loop_run import QUICK, run_loop

from dreamgym_kit.training.attestation import attest

TRIES = 20


@pytest.mark.parametrize("fault", ["stale weights", "half a sync"])
def test_v1_a_sync_that_did_not_arrive_is_caught_every_time(tmp_path: Path, fault: str) -> None:
    caught = 0
    for seed in range(TRIES):
        at = 1 + seed % 5
        ran = run_loop(tmp_path / str(seed), replace(QUICK, steps=6, seed=seed), planted=Planted(fault, at))
        alarm = ran.trained.alarm
        caught += alarm is not None and (alarm.alarm, alarm.step) == ("stale_weights", at)
        assert max((step for step, _, _ in ran.collector.asked), default=0) <= at  # no rollout after it
    print(f"V1 {fault}: caught {caught} of {TRIES}")
    assert caught == TRIES


def scores(seed: int, moved: float = 0.0, noise: float = 0.0) -> list[list[float]]:
    dice, shaken = random.Random(seed), random.Random(seed + 1)
    return [
        [dice.uniform(-5, 0) + moved * dice.uniform(-1, 1) + noise * shaken.uniform(-1, 1) for _ in range(60)]
        for _ in range(4)
    ]


@pytest.mark.parametrize("moved", [1e-4, 1e-3, 1e-2])
def test_v1_a_tiny_step_that_is_missing_is_seen_though_it_is_within_the_bound(moved: float) -> None:
    before = scores(3)
    now = [[one + moved for one in row] for row in before]
    stale = attest([[one + 1e-6 for one in row] for row in before], now, before, most=0.2)
    assert stale.alarm is not None
    served = attest([[one + 1e-6 for one in row] for row in now], now, before, most=0.2)
    assert served.alarm is None
    assert served.gap < 1e-5


def test_v1_a_server_in_16_bits_is_no_stale_one() -> None:
    before = scores(5)
    for seed in range(TRIES):
        dice = random.Random(seed)
        now = [[one + dice.uniform(-1e-3, 1e-3) for one in row] for row in before]
        served = [[one + dice.uniform(-0.05, 0.05) for one in row] for row in now]
        assert attest(served, now, before, most=0.2).alarm is None


def test_v1_scores_that_are_no_numbers_or_too_few_are_no_proof() -> None:
    now = scores(1)
    assert attest(now[:-1], now, None, most=1.0).alarm is not None
    assert attest([[float("nan")] * 60, *now[1:]], now, None, most=1.0).alarm is not None
    assert attest(now, now, now, most=0.0).alarm is None  # nothing moved, nothing to tell apart
