"""Nothing that measures shares a world, a task or an entity with what teaches, as was asked for."""

from collections.abc import Sequence

import pytest
from distil.shop_recordings import episode, shop
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.adapters.distilling.material import Sides, split, trajectories
from dreamgym_kit.errors import UserError
from dreamgym_kit.types import Split, Transition

TWELVE, TWO = trajectories(shop(12, 2)), trajectories(shop(2, 1))  # made once: examples have a deadline


def worlds_of(side) -> set[str]:
    return {str(one.environment) for one in side}


def things_of(side) -> set[str]:
    return {str(step.call.args["order_id"]) for one in side for step in one.steps}


def parted(rows: Sequence[Transition], *by: str, **more) -> Sides:
    return split(trajectories(rows), by, **more)


@given(st.integers(0, 50))
def test_no_world_is_on_both_sides(seed: int) -> None:
    sides = split(TWELVE, share=0.3, seed=seed)
    assert sides.taught
    assert sides.measured
    assert not worlds_of(sides.taught) & worlds_of(sides.measured)
    assert len(sides.taught) + len(sides.measured) == 24


def test_a_task_that_is_in_two_worlds_ties_them_together() -> None:
    rows = [
        *episode(1, 0, task="a"),
        *episode(2, 0, task="a"),
        *episode(3, 0, task="b"),
        *episode(4, 0, task="c"),
    ]
    rows += [row for seed in range(5, 15) for row in episode(seed, 0)]
    for seed in range(20):
        sides = parted(rows, "environment", "task", share=0.5, seed=seed)
        tasks = [{one.task for one in side} for side in (sides.taught, sides.measured)]
        assert not tasks[0] & tasks[1]
        assert sides.groups == 13


def test_episodes_of_one_world_are_apart_by_the_things_they_speak_of() -> None:
    rows = [row for number in range(9) for row in episode(1, number)]
    again = [
        Transition(row.call, row.answer, row.effect, "again", row.step, row.environment)
        for row in episode(1, 0)
    ]
    for seed in range(20):
        sides = parted([*rows, *again], "entity", share=0.4, seed=seed)
        assert not things_of(sides.taught) & things_of(sides.measured)
        assert sides.groups == 9


def test_what_a_person_held_out_measures_with_all_of_its_group() -> None:
    rows = [*shop(4, 2), *episode(1, 7, split=Split.HELD_OUT)]
    sides = parted(rows, "environment", share=0.0)
    assert worlds_of(sides.measured) == {"shop:1"}
    assert worlds_of(sides.taught) == {"shop:2", "shop:3", "shop:4"}


def test_more_recordings_move_no_world_to_the_other_side() -> None:
    before = parted(shop(8, 1), "environment", share=0.4)
    after = parted([*shop(8, 3), *episode(20, 0)], "environment", share=0.4)
    assert worlds_of(before.measured) == worlds_of(after.measured) - {"shop:20"}


@given(st.integers(0, 50), st.sampled_from([0.01, 0.25, 0.9]))
def test_few_worlds_are_two_sides_too(seed: int, share: float) -> None:
    sides = split(TWO, share=share, seed=seed)
    assert (len(sides.taught), len(sides.measured)) == (1, 1)


def test_a_side_without_a_trajectory_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match="1 groups, and none is left to measure with; record more"):
        parted(shop(1), "environment")
    with pytest.raises(UserError, match="did you mean 'environment'"):
        parted(shop(2), "enviroment")


def test_folds_share_no_world_and_hold_everything() -> None:
    sides = parted(shop(9, 2), "environment", share=0.2)
    folds = sides.folds(4)
    assert len(folds) == 4
    assert sum(map(len, folds)) == len(sides.taught)
    assert sum(len(worlds_of(fold)) for fold in folds) == len(worlds_of(sides.taught))


def test_one_world_alone_is_folded_by_episode() -> None:
    rows = [row for number in range(9) for row in episode(1, number)]
    assert len(parted(rows, "episode", share=0.3).folds(4)) == 4
