"""How far an update moved the policy: what one rare token may and may not say."""

import math

import pytest
from each_row import each_row

from dreamgym_kit.adapters.trainers.trainer import distance
from dreamgym_kit.settings.schema import AlarmSettings

MOST = AlarmSettings().max_kl


def test_small_moves_are_half_their_square() -> None:
    assert distance([0.01, -0.01]) == pytest.approx(0.01**2 / 2, rel=0.01)
    assert distance([0.0] * 9) == 0
    assert math.isnan(distance([]))


@each_row("far", [12.0, -12.0])
def test_one_token_that_went_far_is_no_policy_that_came_loose(far: float) -> None:
    tokens = [0.02] * 199 + [far]
    assert sum(one * one for one in tokens) / 2 / len(tokens) > MOST  # what its square alone would say
    assert distance(tokens) < MOST


@each_row("move", [0.5, -0.5])
def test_a_policy_whose_tokens_all_moved_has_come_loose(move: float) -> None:
    assert distance([move] * 50) > MOST
    assert distance([0.0] * 45 + [3.0] * 5) > MOST
