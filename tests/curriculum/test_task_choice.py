"""Which tasks a draw takes."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from training.loop_doubles import tasks_named

from dreamgym_kit.curriculum.records import SCORE, TURN
from dreamgym_kit.curriculum.task_sampler import (
    Doubt,
    Estimate,
    SeenOutcomes,
    Standing,
    drawn,
    estimated,
    rests,
    score_of,
)
from dreamgym_kit.settings.schema import CurriculumSettings

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
    told = [
        Standing(task, one, score_of(one, SETTINGS.explore), met=1)
        for task, one in zip(tasks, [half] * 10 + [easy] * 10, strict=True)
    ]
    met = Counter(
        pick.task.id for seed in range(200) for pick in drawn(told, 4, settings=SETTINGS, key=[seed])
    )
    hard = sum(met[task.id] for task in tasks[:10])
    assert hard > 3 * sum(met[task.id] for task in tasks[10:])
    assert all(met[task.id] for task in tasks)


def test_a_share_of_each_draw_goes_to_those_not_met_for_longest() -> None:
    told = [replace(one, met=place) for place, one in enumerate(standings(12), start=1)]
    picks = drawn(told, 8, settings=replace(SETTINGS, round_robin_share=0.25), key=[0])
    assert {pick.task.id for pick in picks if pick.why == TURN} == {"t0", "t1"}
    assert sum(pick.why == SCORE for pick in picks) == 6


def test_made_tasks_get_no_more_than_their_share() -> None:
    given_, made = standings(10), [replace(one, made=True, score=9.0) for one in standings(30)[10:]]
    picks = drawn([*given_, *made], 10, settings=replace(SETTINGS, synthetic=0.3), key=[1])
    assert sum(int(pick.task.id[1:]) >= 10 for pick in picks) == 3
    none = drawn([*given_, *made], 10, settings=replace(SETTINGS, synthetic=0.0), key=[1])
    assert all(int(pick.task.id[1:]) < 10 for pick in none)


def test_tasks_that_rest_are_drawn_only_where_others_are_too_few() -> None:
    told = [replace(one, rests="mastered" if place else "") for place, one in enumerate(standings(6))]
    assert [pick.task.id for pick in drawn(told, 1, settings=SETTINGS, key=[0])] == ["t0"]
    assert len(drawn(told, 4, settings=SETTINGS, key=[0])) == 4


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
