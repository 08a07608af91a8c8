"""Whether B beats A: the conclusion, its interval, and when B may replace A."""

import random
from itertools import combinations

import numpy as np
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.trust.comparison import (
    MAX_LOOKS,
    Conclusion,
    PairedComparison,
    beaten,
    bootstrapped_change,
    exact_test,
    level_of_look,
    mean_change,
    promotion,
)
from dreamgym_kit.trust.outcomes import TaskOutcome, task_outcomes
from dreamgym_kit.types import Verdict

SIGNS = {".": Verdict.PASSED, "x": Verdict.FAILED, "-": Verdict.INCONCLUSIVE}


def tasks(*marks: str) -> tuple[TaskOutcome, ...]:
    return task_outcomes((f"t{at}", SIGNS[sign]) for at, signs in enumerate(marks) for sign in signs)


def test_a_clear_gain_is_told_in_points_over_the_same_tasks() -> None:
    found = beaten(tasks(*["xx"] * 10, *[".."] * 30), tasks(*[".."] * 40))
    assert found.word is Conclusion.BETTER
    assert found.sentence.startswith("B solves 25 points more than A on the same 40 tasks (95 %: ")
    assert (found.better, found.worse, found.tasks) == (10, 0, 40)
    low, high = round(100 * found.low), round(100 * found.high)
    assert found.sentence.endswith(f"(95 %: {low} to {high}).")
    assert 5 < low < 25 < high < 45
    assert found.phrase("a", "the copy").startswith("The copy solves 25 points more than a on the same 40")


@each_row(
    ("a", "b", "word", "sentence"),
    [
        (tasks(*["."] * 20), tasks(*["x"] * 20), Conclusion.WORSE,
         "B solves 100 points less than A on the same 20 tasks (95 %: -100 to -"),
        (tasks(*[".x"] * 10), tasks(*[".x"] * 9, ".."), Conclusion.NO_DIFFERENCE,
         "No difference can be seen: B solves 5 points more than A on the same 10"),
        (tasks(".", "x"), tasks(".", "x"), Conclusion.NO_DIFFERENCE, "B solves as many as A on the same 2"),
        (tasks(*["xx"] * 30), tasks(*[".."] * 29, ".-"), Conclusion.BETTER,
         "1 of 60 episodes of B is inconclusive and counts as neither."),
        (tasks("."), (TaskOutcome("o", 1, 0),), Conclusion.NO_COMMON_TASKS, "A and B have no task in common"),
        (tasks("-"), tasks("."), Conclusion.INCONCLUSIVE, "is not conclusive in both A and B."),
    ],
)  # fmt: skip
def test_the_conclusion_is_a_word_and_a_sentence(a, b, word: Conclusion, sentence: str) -> None:
    found = beaten(a, b)
    assert found.word is word
    assert sentence in found.sentence


def test_a_gain_that_the_inconclusive_could_turn_round_is_not_claimed() -> None:
    found = beaten(tasks(*["....xxxx"] * 30), tasks(*["...x----"] * 30))
    assert (found.change, found.low > 0) == (0.25, True)
    assert found.word is Conclusion.INCONCLUSIVE
    assert found.sentence.startswith("It cannot be said: B solves 25 points more than A on the same 30 tasks")
    assert "but 120 of 240 episodes of B are inconclusive and count as neither: between -12" in found.sentence


def test_a_task_that_one_side_could_not_decide_is_left_out_and_weighs_in_the_bounds() -> None:
    found = beaten(tasks("x", "x", "-"), tasks(".", ".", "x"))
    assert (found.tasks, found.left_out, found.change) == (2, 1, 1.0)
    assert found.least == pytest.approx((1 + 1 - 1) / 3)


signs = st.lists(st.sampled_from(".x-"), max_size=4).map("".join)
rows = st.lists(st.tuples(signs, signs), min_size=1, max_size=15)


@given(rows)
def test_the_judgement_turns_round_with_the_sides(found: list[tuple[str, str]]) -> None:
    a, b = tasks(*[one for one, _ in found]), tasks(*[other for _, other in found])
    there, back = beaten(a, b), beaten(b, a)
    assert there.change == pytest.approx(-back.change)
    assert (there.least, there.most) == pytest.approx((-back.most, -back.least))
    assert there.least <= there.most
    assert (there.better, there.worse) == (back.worse, back.better)
    assert there.sentence.endswith(".")


@given(rows, st.randoms(use_true_random=False))
def test_no_way_of_settling_the_inconclusive_leaves_the_bounds(found: list[tuple[str, str]], luck) -> None:
    def settled(marks: str) -> str:
        return "".join(luck.choice(".x") if sign == "-" else sign for sign in marks)

    told = beaten(tasks(*[one for one, _ in found]), tasks(*[other for _, other in found]))
    truth = beaten(tasks(*[settled(one) for one, _ in found]), tasks(*[settled(other) for _, other in found]))
    if truth.tasks:
        assert told.least - 1e-9 <= truth.change <= told.most + 1e-9


def test_equal_agents_are_seldom_called_unequal() -> None:
    draw = np.random.default_rng(11)

    def tried(chance) -> tuple[TaskOutcome, ...]:
        return tuple(
            TaskOutcome(f"t{at}", int(won), 4 - int(won)) for at, won in enumerate(draw.binomial(4, chance))
        )

    def judged() -> PairedComparison:
        chance = draw.beta(1, 1, 30)
        return beaten(tried(chance), tried(chance), seed=1)

    claimed = sum(judged().word in (Conclusion.BETTER, Conclusion.WORSE) for _ in range(150))
    assert claimed <= 12  # 5 % of 150 are 7.5; three standard errors more are 15.5


shares = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30)


def test_a_mean_is_compared_by_the_same_draws_each_time() -> None:
    before, after = [1.0, 2.0, 3.0, 2.0] * 4, [2.0, 3.0, 5.0, 2.0] * 4
    found = mean_change(before, after)
    assert found == mean_change(before, after)
    assert found[0] == 1.0
    assert 0.5 < found[1] < 1 < found[2] < 1.5


@each_row("figure", [mean_change, bootstrapped_change])
def test_unequal_sides_are_refused(figure) -> None:
    with pytest.raises(ValueError, match="same tasks"):
        figure([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="same tasks"):
        figure([], [])


def tried(draw, tasks: int, n: int, kind: str) -> tuple[float, list[float], list[float]]:
    """The true change, and the shares that n episodes a task show of it."""
    if kind == "gain":
        chance = draw.beta(1, 1, tasks) * 0.7
        true, later = 0.2, chance + 0.2
    elif kind == "few tasks mended":
        chance = np.where(draw.random(tasks) < 0.5, 0.95, 0.05)
        true, later = 0.2 * 0.45, np.where(draw.random(tasks) < 0.2, 0.95, chance)
    else:
        chance = later = draw.beta(0.5, 2, tasks)
        true = 0.0
    return true, list(draw.binomial(n, chance) / n), list(draw.binomial(n, later) / n)


@each_row("kind", ["gain", "few tasks mended", "none"])
@each_row(("tasks", "n"), [(5, 1), (10, 4), (40, 1), (40, 4)])
def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says(tasks: int, n: int, kind: str) -> None:
    draw = np.random.default_rng(7)
    hits = 0
    for seed in range(300):
        true, before, after = tried(draw, tasks, n, kind)
        _, low, high = bootstrapped_change(before, after, seed=seed, resamples=300)
        hits += low <= true <= high
    assert hits / 300 >= 0.915  # 95 % less 2.7 standard errors of 300 trials


def test_equal_outcomes_of_few_tasks_are_not_sure_to_be_equal() -> None:
    change, low, high = bootstrapped_change([1.0] * 5, [1.0] * 5)
    assert change == 0
    assert low < -0.2
    assert high > 0.2


def test_the_bootstrap_narrows_with_tasks_and_with_episodes_that_agree() -> None:
    draw = np.random.default_rng(1)

    def width(tasks: int, n: int) -> float:
        _, before, after = tried(draw, tasks, n, "gain")
        _, low, high = bootstrapped_change(before, after)
        return high - low

    assert width(400, 1) < width(40, 1) / 2
    assert width(40, 16) < width(40, 1)


@given(shares, st.integers(0, 2**32 - 1))
def test_a_bootstrap_holds_its_change_and_is_the_same_for_the_same_seed(
    found: list[tuple[float, float]], seed: int
) -> None:
    before, after = [one for one, _ in found], [other for _, other in found]
    change, low, high = bootstrapped_change(before, after, seed=seed, resamples=150)
    assert -1 <= low <= change <= high <= 1
    assert bootstrapped_change(before, after, seed=seed, resamples=150) == (change, low, high)


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
