"""What is known of a task's success rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.curriculum.records import GroupSeen
from dreamgym_kit.curriculum.task_sampler import Doubt, SeenOutcomes, estimated, evidence_of, pooled

CERTAIN = Doubt(impossible=0.0)
NOBODY = SeenOutcomes()
counts = st.integers(0, 30)


@given(counts, counts)
def test_without_doubt_it_is_the_beta_posterior(success: int, failure: int) -> None:
    found = estimated(SeenOutcomes(success, failure), NOBODY, CERTAIN)
    a, b = success + 0.5, failure + 0.5
    assert found.mean == pytest.approx(a / (a + b), abs=5e-3)
    assert found.spread**2 == pytest.approx(a * b / (a + b) ** 2 / (a + b + 1), abs=1e-3)
    assert found.value == pytest.approx(a * b / (a + b) / (a + b + 1), abs=5e-3)


def test_a_dead_group_of_a_task_that_succeeds_one_time_in_ten_leaves_it_worth_drawing() -> None:
    """The last group alone would call it dead in 43 of 100 cases."""
    dead = estimated(SeenOutcomes(0, 8), NOBODY, Doubt())
    solved = estimated(SeenOutcomes(60, 0), NOBODY, Doubt())
    assert dead.value > 3 * solved.value
    assert dead.impossible < 0.5


def test_one_success_that_a_checker_vouches_for_is_no_impossible_task() -> None:
    assert estimated(SeenOutcomes(1, 200), NOBODY, Doubt()).impossible == 0
    assert estimated(SeenOutcomes(0, 200), NOBODY, Doubt()).impossible > 0.5


def test_under_a_judge_that_errs_a_few_successes_prove_nothing() -> None:
    erring = Doubt(error=0.05, impossible=0.3)
    assert estimated(SeenOutcomes(1, 7), NOBODY, erring).impossible > 0.3
    assert estimated(SeenOutcomes(4, 36), NOBODY, erring).impossible > 0.3
    assert estimated(SeenOutcomes(5, 3), NOBODY, erring).impossible < 0.01
    assert estimated(SeenOutcomes(5, 3), NOBODY, erring).mean > 5 / 8 - 0.05


def test_what_a_judges_errors_explain_is_worth_little() -> None:
    evidence = SeenOutcomes(4, 76)
    told = estimated(evidence, NOBODY, Doubt(0.05))
    untold = estimated(evidence, NOBODY, Doubt())
    assert told.value < untold.value / 3


def test_of_a_task_that_was_never_met_its_likes_speak() -> None:
    good, bad = (
        estimated(NOBODY, likes, CERTAIN).mean for likes in (SeenOutcomes(45, 5), SeenOutcomes(5, 45))
    )
    assert good > 0.8
    assert bad < 0.2
    assert estimated(SeenOutcomes(0, 16), SeenOutcomes(45, 5), CERTAIN).mean < 0.3


def test_what_was_seen_counts_half_after_a_half_life() -> None:
    groups = (1, "a", 8, 0), (11, "a", 0, 8), (11, "b", 2, 0)
    seen = [(at, GroupSeen(task, "score", 0.0, good, bad)) for at, task, good, bad in groups]
    found = evidence_of(seen, step=21, half_life=10)
    assert found["a"] == SeenOutcomes(2, 4)
    assert found["b"] == SeenOutcomes(1, 0)


def test_a_clusters_evidence_is_the_sum_of_its_tasks() -> None:
    told = {"a": SeenOutcomes(1, 2), "b": SeenOutcomes(3, 0), "c": SeenOutcomes(0, 5)}
    assert pooled(told, {"a": 0, "b": 0, "c": 1}) == {0: SeenOutcomes(4, 2), 1: SeenOutcomes(0, 5)}


@given(counts, counts, st.floats(0, 0.3), st.floats(0, 0.5), counts, counts)
def test_an_estimate_is_always_a_share(
    success: int, failure: int, error: float, impossible: float, others: int, more: int
) -> None:
    found = estimated(SeenOutcomes(success, failure), SeenOutcomes(others, more), Doubt(error, impossible))
    assert 0 <= found.mean <= 1
    assert 0 <= found.impossible <= 1
    assert 0 <= found.value <= 0.25 + 1e-9
