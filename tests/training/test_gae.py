"""Generalised advantages are what their sums say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.training.samples import generalised_advantages

values = st.lists(st.floats(-2, 2), max_size=12)
share = st.floats(0, 1)


@given(values, st.floats(-1, 1), share, share)
def test_an_advantage_is_the_sum_of_later_surprises(
    told: list[float], reward: float, discount: float, decay: float
) -> None:
    after = [*told[1:], 0.0]
    given_then = [0.0] * (len(told) - 1) + [reward]
    surprises = [r + discount * v2 - v for r, v, v2 in zip(given_then, told, after, strict=False)]
    found = generalised_advantages(told, reward, discount=discount, decay=decay)
    for place, one in enumerate(found):
        later = surprises[place:]
        assert one == pytest.approx(
            sum((discount * decay) ** ahead * surprise for ahead, surprise in enumerate(later)), abs=1e-9
        )


@given(values, st.floats(-1, 1))
def test_undecayed_it_is_the_reward_less_what_was_expected(told: list[float], reward: float) -> None:
    found = generalised_advantages(told, reward)
    assert found == pytest.approx([reward - value for value in told], abs=1e-9)


@given(values.filter(bool), st.floats(-1, 1))
def test_values_that_were_right_leave_nothing_to_learn(told: list[float], reward: float) -> None:
    found = generalised_advantages([reward] * len(told), reward, decay=0.5)
    assert found == pytest.approx([0.0] * len(told), abs=1e-9)
