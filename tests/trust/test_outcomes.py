"""Outcomes by task: intervals, pass@k and pass^k, and bounds whatever the inconclusive episodes were."""

from itertools import combinations

import numpy as np
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.trust.outcomes import (
    TaskOutcome,
    pass_all,
    pass_at,
    passed_by_all,
    passed_by_any,
    passed_once,
    share_interval,
    task_outcomes,
    wilson,
)
from dreamgym_kit.types import Verdict

SIGNS = {".": Verdict.PASSED, "x": Verdict.FAILED, "-": Verdict.INCONCLUSIVE}


def tasks(**marks: str) -> tuple[TaskOutcome, ...]:
    return task_outcomes((task, SIGNS[sign]) for task, signs in marks.items() for sign in signs)


def test_tries_are_counted_by_task() -> None:
    found = task_outcomes([("a", Verdict.PASSED), ("b", Verdict.INCONCLUSIVE), ("a", Verdict.FAILED)])
    assert found == (TaskOutcome("a", 1, 1), TaskOutcome("b", 0, 0, 1))
    assert (found[0].share, found[1].share) == (0.5, None)


def test_an_inconclusive_episode_is_neither_and_its_bounds_are_told() -> None:
    found = passed_once(tasks(a="..", b="x-", c="--"))
    assert found is not None
    assert found.mean == 0.5
    assert (found.tasks, found.left_out) == (2, 1)
    assert found.worst == pytest.approx(1 / 3)
    assert found.best == pytest.approx((1 + 0.5 + 1) / 3)


def test_k_in_a_row_and_one_of_k() -> None:
    found = tasks(a="....", b="..xx", c="xxxx")
    in_a_row, any_of = passed_by_all(found, 2), passed_by_any(found, 2)
    assert in_a_row is not None
    assert any_of is not None
    assert in_a_row.mean == pytest.approx((1 + 1 / 6 + 0) / 3)
    assert any_of.mean == pytest.approx((1 + 5 / 6 + 0) / 3)


def test_a_task_with_too_few_decided_episodes_is_left_out_and_counted() -> None:
    found = passed_by_all(tasks(a="...", b=".--"), 3)
    assert found is not None
    assert (found.mean, found.tasks, found.left_out) == (1.0, 1, 1)
    assert passed_by_all(tasks(a=".x"), 3) is None


signs = st.lists(st.sampled_from(".x-"), min_size=1, max_size=5).map("".join)
marks = st.lists(signs, min_size=1, max_size=12)


@given(marks, st.integers(1, 4), st.randoms(use_true_random=False))
def test_whatever_the_inconclusive_were_the_whole_figure_lies_within_the_bounds(
    rows: list[str], k: int, luck
) -> None:
    settled = ["".join(luck.choice(".x") if sign == "-" else sign for sign in row) for row in rows]
    told = passed_by_all(tasks(**{f"t{n}": row for n, row in enumerate(rows)}), k)
    truth = passed_by_all(tasks(**{f"t{n}": row for n, row in enumerate(settled)}), k)
    if told is not None:
        assert truth is not None
        assert told.worst - 1e-9 <= truth.mean <= told.best + 1e-9
        assert 0 <= told.low <= told.mean <= told.high <= 1


@each_row("n", [1, 4])
@each_row("tasks_count", [10, 40])
@each_row("alike", [True, False])
def test_the_interval_of_a_share_covers_the_truth_about_as_often_as_it_says(
    tasks_count: int, n: int, alike: bool
) -> None:
    """`alike`: all episodes of a task end the same way, where a plain Wilson interval is far too sure."""
    draw = np.random.default_rng(5)
    hits = plain = 0
    for _ in range(600):
        chance = np.where(draw.random(tasks_count) < 0.6, 1.0, 0.0) if alike else draw.beta(1, 1, tasks_count)
        shares = list(draw.binomial(n, chance) / n)
        _, low, high = share_interval(shares, episodes=n)
        hits += low <= (0.6 if alike else 0.5) <= high
        _, low, high = share_interval([share for share in shares for _ in range(n)])
        plain += low <= (0.6 if alike else 0.5) <= high
    assert hits / 600 >= 0.925
    assert not (alike and n == 4) or plain / 600 < 0.8  # what the test would say of the usual interval


def test_one_episode_a_task_gives_wilsons_own_interval() -> None:
    from dreamgym_kit.trust.outcomes import wilson

    assert share_interval([1.0] * 7 + [0.0] * 3)[1:] == pytest.approx(wilson(7, 10))
    assert share_interval([1.0] * 5)[1:] == pytest.approx(wilson(5, 5))
    with pytest.raises(ValueError, match="a task"):
        share_interval([])


@each_row(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (63, 88, 0.6142, 0.7996)],
)
def test_known_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_holds_the_rate_and_mirrors(counted: tuple[int, int]) -> None:
    successes, trials = counted
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    assert wilson(trials - successes, trials) == pytest.approx((1 - high, 1 - low))


@each_row(("successes", "trials"), [(0, 0), (3, 2), (-1, 4)])
def test_no_rate_without_trials(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no rate of"):
        wilson(successes, trials)


tried = st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n), st.integers(0, n)))


@given(tried)
def test_both_are_the_mean_over_all_ways_to_choose_k_tries(found: tuple[int, int, int]) -> None:
    k, tries, successes = found
    ways = list(combinations([True] * successes + [False] * (tries - successes), k))
    assert pass_at(*found) == pytest.approx(np.mean([any(way) for way in ways]))
    assert pass_all(*found) == pytest.approx(np.mean([all(way) for way in ways]))


@given(tried)
def test_one_try_is_the_share_and_more_tries_move_both_apart(found: tuple[int, int, int]) -> None:
    k, tries, successes = found
    share = successes / tries
    assert pass_at(1, tries, successes) == pytest.approx(share)
    assert pass_all(1, tries, successes) == pytest.approx(share)
    assert pass_all(k, tries, successes) <= share + 1e-12
    assert pass_at(k, tries, successes) >= share - 1e-12


@each_row(("k", "figure", "true"), [(3, pass_at, 1 - 0.6**3), (3, pass_all, 0.4**3)])
def test_they_are_unbiased_where_the_plug_in_is_not(k: int, figure, true: float) -> None:
    draw = np.random.default_rng(0)
    found = np.mean([figure(k, 5, int(draw.binomial(5, 0.4))) for _ in range(20_000)])
    assert found == pytest.approx(true, abs=0.01)


@each_row("figure", [pass_at, pass_all])
@each_row(("k", "tries", "successes"), [(0, 3, 1), (4, 3, 1), (1, 3, 4), (1, 3, -1)])
def test_no_chance_of_more_tries_than_there_were(figure, k: int, tries: int, successes: int) -> None:
    with pytest.raises(ValueError, match="tries"):
        figure(k, tries, successes)
