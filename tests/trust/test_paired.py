"""A change over the same tasks: its interval holds the truth as often as it says, with few tasks too."""

import numpy as np
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.trust.comparison import bootstrapped_change, mean_change

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
