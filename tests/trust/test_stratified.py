"""The exact test of few tasks, against all splits counted out and against its own promise."""

import random
from itertools import combinations

import pytest

from dreamgym_kit.trust.comparison import exact_test
from dreamgym_kit.trust.outcomes import TaskOutcome


def side(*counts: tuple[int, int]) -> list[TaskOutcome]:
    return [TaskOutcome(f"t{at}", good, bad) for at, (good, bad) in enumerate(counts)]


def test_one_task_is_what_counting_all_splits_gives() -> None:
    tries = [1, 1, 1, 0, 0, 0, 0]  # the last three were B's
    splits = list(combinations(range(len(tries)), 3))
    as_few = sum(sum(tries[at] for at in split) <= 0 for split in splits)
    assert exact_test(side((3, 1)), side((0, 3))) == pytest.approx(as_few / len(splits))


def test_two_tasks_are_what_counting_both_gives() -> None:
    def chance(good: int) -> float:
        return sum(sum(split) == good for split in combinations([1, 1, 0, 0], 2)) / 6

    both = sum(chance(one) * chance(other) for one in range(3) for other in range(3) if one + other <= 1)
    assert exact_test(side((1, 1), (2, 0)), side((1, 1), (0, 2))) == pytest.approx(both)


def test_nothing_shared_or_decided_is_no_evidence() -> None:
    assert exact_test([], []) == 1.0
    assert exact_test(side((0, 0)), side((0, 4))) == 1.0
    assert exact_test(side((2, 2)), side((4, 0))) > 0.9


def test_of_equals_one_in_twenty_is_found_at_most() -> None:
    draw, found, rounds = random.Random(5), 0, 400
    for _ in range(rounds):
        chances = [draw.random() for _ in range(6)]
        sides = []
        for _ in range(2):
            good = [sum(draw.random() < chance for _ in range(4)) for chance in chances]
            sides.append(side(*((count, 4 - count) for count in good)))
        found += exact_test(*sides) < 0.05
    assert found / rounds < 0.06
