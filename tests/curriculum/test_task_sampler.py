"""Which tasks are alike, what is known of their success rate, and which of them a draw takes."""

from collections import Counter
from dataclasses import replace

import pytest
from curriculum.making_doubles import asking
from hypothesis import given
from hypothesis import strategies as st
from training.loop_doubles import tasks_named

from dreamgym_kit.adapters.embedders.models import HashedEmbedder
from dreamgym_kit.curriculum.records import SCORE, TURN, GroupSeen
from dreamgym_kit.curriculum.task_sampler import (
    Clusters,
    Doubt,
    Estimate,
    SeenOutcomes,
    Standing,
    drawn,
    estimated,
    evidence_of,
    pooled,
    rests,
    score_of,
    text_of,
)
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.settings.schema import CurriculumSettings
from dreamgym_kit.types import Task

CANCEL = [
    asking(f"c{place}", f"{name} here. Please cancel order O1{place}.") for place, name in enumerate("AB")
]
LATE = [asking(f"l{place}", f"Where is my order O2{place}?") for place in range(2)]


def test_a_task_that_comes_later_joins_and_moves_no_other() -> None:
    found = Clusters(None, HashedEmbedder())
    found.add([CANCEL[0], LATE[0]])
    before = dict(found.of)
    found.add([CANCEL[1], *LATE])
    assert found.of["c1"] == before["c0"] != found.of["l0"] == found.of["l1"]
    assert before.items() <= found.of.items()


def test_a_field_of_meta_says_it_where_it_is_named_and_words_where_a_task_lacks_it() -> None:
    one, two = (asking(f"m{place}", text, meta={"family": "f"}) for place, text in enumerate(("Hi.", "No!")))
    found = Clusters("family", HashedEmbedder())
    found.add([one, two, *CANCEL])
    assert found.of["m0"] == found.of["m1"] != found.of["c0"] == found.of["c1"]


def test_without_field_and_embedder_each_task_is_alone() -> None:
    found = Clusters(None, None)
    found.add([*CANCEL, *LATE])
    assert sorted(found.of.values()) == [0, 1, 2, 3]


def test_on_the_desk_most_tasks_are_with_their_own_kind() -> None:
    tasks = drawn_tasks(90)
    found = Clusters(None, HashedEmbedder())
    found.add(tasks)
    kinds: dict[int, list[str]] = {}
    for task in tasks:  # strangers ask as those who cancel do
        kinds.setdefault(found.of[task.id], []).append(str(task.meta["family"]).replace("stranger", "cancel"))
    assert sum(max(map(kind.count, kind)) for kind in kinds.values()) / len(tasks) > 0.9
    assert len(kinds) < 25


def test_the_text_of_a_task_is_what_is_said_in_it_in_any_form() -> None:
    assert text_of(asking("a", "Hi.")) == "Hi."
    assert text_of(Task("b", {"messages": [["user", "Hi."]]})) == "user Hi."
    assert text_of(Task("c", {"question": "Hi.", "count": 3})) == "Hi."


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
    doubted = estimated(evidence, NOBODY, Doubt(0.05))
    undoubted = estimated(evidence, NOBODY, Doubt())
    assert doubted.value < undoubted.value / 3


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
    listed = {"a": SeenOutcomes(1, 2), "b": SeenOutcomes(3, 0), "c": SeenOutcomes(0, 5)}
    assert pooled(listed, {"a": 0, "b": 0, "c": 1}) == {0: SeenOutcomes(4, 2), 1: SeenOutcomes(0, 5)}


@given(counts, counts, st.floats(0, 0.3), st.floats(0, 0.5), counts, counts)
def test_an_estimate_is_always_a_share(
    success: int, failure: int, error: float, impossible: float, others: int, more: int
) -> None:
    found = estimated(SeenOutcomes(success, failure), SeenOutcomes(others, more), Doubt(error, impossible))
    assert 0 <= found.mean <= 1
    assert 0 <= found.impossible <= 1
    assert 0 <= found.value <= 0.25 + 1e-9


SETTINGS = CurriculumSettings(enabled=True)
MIDDLE = Estimate(0.5, 0.1, 0.24, 0.0)


def standings(number: int, **more: object) -> list[Standing]:
    return [Standing(task, MIDDLE, 0.25, **more) for task in tasks_named(number)]


@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 9))
def test_a_draw_has_no_task_twice_and_as_many_as_there_are(number: int, count: int, seed: int) -> None:
    picks = drawn(standings(number), count, settings=SETTINGS, key=[seed])
    assert len({pick.task.id for pick in picks}) == len(picks) == min(number, count)


def test_hard_but_solvable_tasks_are_drawn_more_often_and_none_is_forgotten() -> None:
    easy = estimated(SeenOutcomes(15, 1), SeenOutcomes(), Doubt())
    half = estimated(SeenOutcomes(8, 8), SeenOutcomes(), Doubt())
    tasks = tasks_named(20)
    listed = [
        Standing(task, one, score_of(one, SETTINGS.explore), met=1)
        for task, one in zip(tasks, [half] * 10 + [easy] * 10, strict=True)
    ]
    met = Counter(
        pick.task.id for seed in range(200) for pick in drawn(listed, 4, settings=SETTINGS, key=[seed])
    )
    hard = sum(met[task.id] for task in tasks[:10])
    assert hard > 3 * sum(met[task.id] for task in tasks[10:])
    assert all(met[task.id] for task in tasks)


def test_a_share_of_each_draw_goes_to_those_not_met_for_longest() -> None:
    listed = [replace(one, met=place) for place, one in enumerate(standings(12), start=1)]
    picks = drawn(listed, 8, settings=replace(SETTINGS, round_robin_share=0.25), key=[0])
    assert {pick.task.id for pick in picks if pick.why == TURN} == {"t0", "t1"}
    assert sum(pick.why == SCORE for pick in picks) == 6


def test_made_tasks_get_no_more_than_their_share() -> None:
    given_, made = standings(10), [replace(one, made=True, score=9.0) for one in standings(30)[10:]]
    picks = drawn([*given_, *made], 10, settings=replace(SETTINGS, synthetic=0.3), key=[1])
    assert sum(int(pick.task.id[1:]) >= 10 for pick in picks) == 3
    none = drawn([*given_, *made], 10, settings=replace(SETTINGS, synthetic=0.0), key=[1])
    assert all(int(pick.task.id[1:]) < 10 for pick in none)


def test_tasks_that_rest_are_drawn_only_where_others_are_too_few() -> None:
    listed = [replace(one, rests="mastered" if place else "") for place, one in enumerate(standings(6))]
    assert [pick.task.id for pick in drawn(listed, 1, settings=SETTINGS, key=[0])] == ["t0"]
    assert len(drawn(listed, 4, settings=SETTINGS, key=[0])) == 4


def test_a_further_draw_of_a_step_takes_other_tasks_while_there_are_any() -> None:
    picks = drawn(standings(6), 3, settings=SETTINGS, key=[0], without=["t0", "t1", "t2"])
    assert {pick.task.id for pick in picks} == {"t3", "t4", "t5"}


def test_one_task_more_changes_nobody_elses_luck() -> None:
    settings = replace(SETTINGS, round_robin_share=0.0)
    few = {pick.task.id for pick in drawn(standings(20), 5, settings=settings, key=["x"])}
    more = {pick.task.id for pick in drawn(standings(21), 5, settings=settings, key=["x"])}
    assert len(few - more) <= 1


def test_a_task_rests_once_it_is_mastered_or_hopeless() -> None:
    assert rests(Estimate(0.97, 0.01, 0.03, 0.0), SETTINGS) == "mastered"
    assert rests(Estimate(0.01, 0.01, 0.01, 0.95), SETTINGS) == "hopeless"
    assert rests(MIDDLE, SETTINGS) == ""
