"""Whether B beats A: the word, the sentence, and that nothing is claimed that the episodes do not carry."""

import numpy as np
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.trust.comparison import Conclusion, PairedComparison, beaten
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
