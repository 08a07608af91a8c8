"""Promotion: better on the whole, worse in no family by an exact test, and surer with each look."""

import random
from itertools import combinations

import pytest

from dreamgym_kit.trust.comparison import MAX_LOOKS, exact_test, level_of_look, promotion
from dreamgym_kit.trust.outcomes import TaskOutcome


def outcomes(solved: list[int], *, n: int = 4, families: int = 1, inconclusive: int = 0) -> list[TaskOutcome]:
    return [
        TaskOutcome(f"t{at}", count, n - count, inconclusive, f"kind {at % families}")
        for at, count in enumerate(solved)
    ]


def test_what_is_clearly_better_may_take_its_place() -> None:
    found = promotion(outcomes([1] * 30), outcomes([3] * 30))
    assert found.allowed
    assert found.reasons == ()


def test_what_is_not_clearly_better_may_not_and_says_why() -> None:
    found = promotion(outcomes([2] * 30), outcomes([2] * 29 + [3]))
    assert not found.allowed
    assert found.reasons[0].startswith("No difference can be seen: the candidate solves")
    worse = promotion(outcomes([3] * 30), outcomes([1] * 30))
    assert worse.reasons[0].startswith(
        "The candidate solves 50 points less than what is deployed on the same"
    )


def test_a_gain_that_hides_a_regression_in_one_family_is_refused() -> None:
    before = [2] * 60
    after = [0 if at % 3 == 0 else 4 for at in range(60)]
    found = promotion(outcomes(before, families=3), outcomes(after, families=3))
    assert found.whole.change > 0.1
    assert [one.name for one in found.worse_families] == ["kind 0"]
    assert found.reasons[0].startswith("At 'kind 0' the candidate is clearly worse: -50 points on 20 tasks")


def test_a_later_look_has_to_be_surer() -> None:
    a, b = outcomes([2] * 40), outcomes([2] * 26 + [3] * 14)
    assert promotion(a, b).allowed
    late = promotion(a, b, look=6)
    assert not late.allowed
    assert late.reasons[0].startswith("This is look 6 at the same baseline, and has to hold at 99.84 %: ")
    assert late.strict.low < late.whole.low


def test_over_all_looks_chance_has_five_percent() -> None:
    assert level_of_look(1) == 0.05
    assert sum(level_of_look(look) / 2 for look in range(1, MAX_LOOKS + 1)) < 0.05
    with pytest.raises(ValueError, match="no look 0"):
        level_of_look(0)


def test_after_the_last_look_nothing_is_promoted() -> None:
    found = promotion(outcomes([0] * 30), outcomes([4] * 30), look=MAX_LOOKS + 1)
    assert not found.allowed
    assert "looked at 8 times" in found.reasons[0]


def test_inconclusive_episodes_that_could_turn_it_round_promote_nothing() -> None:
    found = promotion(outcomes([1] * 30), outcomes([3] * 30, inconclusive=40))
    assert not found.allowed
    assert found.reasons[0].startswith("It cannot be said:")


def test_a_family_of_few_tasks_that_is_lost_is_seen() -> None:
    before = [2] * 36
    after = [0 if at % 9 == 0 else 4 for at in range(36)]
    found = promotion(outcomes(before, families=9), outcomes(after, families=9))
    assert [one.name for one in found.worse_families] == ["kind 0"]


def test_a_family_that_is_never_solved_any_more_needs_less_proof() -> None:
    before = [1 if at % 9 == 0 else 2 for at in range(45)]  # five tasks, one of four tries each
    lost = promotion(
        outcomes(before, families=9), outcomes([0 if at % 9 == 0 else 4 for at in range(45)], families=9)
    )
    assert [one.name for one in lost.worse_families] == ["kind 0"]
    assert 0.1 / 9 < lost.worse_families[0].luck < 0.05
    rare = [1 if at == 0 else 0 if at % 9 == 0 else 2 for at in range(45)]
    kept = promotion(
        outcomes(rare, families=9), outcomes([0 if at % 9 == 0 else 4 for at in range(45)], families=9)
    )
    assert kept.worse_families == ()


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
