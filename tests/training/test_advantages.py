"""Advantages: what they must be whatever the rewards."""

import itertools

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.training.samples import group_advantages

rewards = st.lists(st.floats(0, 1), min_size=2, max_size=16)


@given(rewards, st.floats(-5, 5))
def test_adding_a_constant_to_every_reward_changes_nothing(group: list[float], shift: float) -> None:
    moved = [reward + shift for reward in group]
    if max(group) - min(group) > 1e-3:
        assert group_advantages(moved) == pytest.approx(group_advantages(group), abs=1e-6)


@given(rewards)
def test_advantages_of_a_group_sum_to_zero(group: list[float]) -> None:
    assert sum(group_advantages(group)) == pytest.approx(0, abs=1e-9)


@given(rewards, st.randoms())
def test_order_of_siblings_changes_nothing(group: list[float], dice) -> None:
    order = list(range(len(group)))
    dice.shuffle(order)
    told = group_advantages([group[place] for place in order])
    assert told == pytest.approx([group_advantages(group)[place] for place in order], abs=1e-9)


@given(rewards)
def test_a_better_sibling_never_gets_less(group: list[float]) -> None:
    told = sorted(zip(group, group_advantages(group), strict=True))
    assert all(one[1] <= other[1] for one, other in itertools.pairwise(told))


@given(st.lists(st.integers(0, 10), min_size=2, max_size=16), st.floats(1, 1000))
def test_the_unit_of_rewards_does_not_matter(group: list[int], scale: float) -> None:
    told = group_advantages([reward * scale for reward in group])
    if max(group) != min(group):
        assert told == pytest.approx(
            group_advantages([float(reward) for reward in group]), rel=1e-2, abs=1e-3
        )


@given(st.floats(-1e6, 1e6), st.integers(2, 16))
def test_a_dead_group_teaches_exactly_nothing(reward: float, repeats: int) -> None:
    assert group_advantages([reward] * repeats) == [0.0] * repeats


@each_row("group", [[], [1.0], [0.0, float("nan")], [0.0, float("inf")]])
def test_one_without_siblings_or_without_a_number_is_refused(group: list[float]) -> None:
    with pytest.raises(ValueError, match="reward"):
        group_advantages(group)
