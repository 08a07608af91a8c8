from collections import Counter
from pathlib import Path

from dreamgym_kit.recipes.desk.cases import FAMILIES, HELD_OUT_SEEDS, TRAIN_SEEDS, make_case
from dreamgym_kit.recipes.desk.checkers import goal
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE, desk_tasks, drawn_tasks, write_tasks
from dreamgym_kit.rollout.tasks import read_tasks, task_from_record
from dreamgym_kit.types import Split

TASKS = read_tasks(TASKS_FILE)


def test_the_shipped_file_is_what_the_code_writes(tmp_path: Path) -> None:
    assert write_tasks(tmp_path / "tasks.jsonl") == len(TASKS)
    assert (tmp_path / "tasks.jsonl").read_bytes() == TASKS_FILE.read_bytes()
    assert [task_from_record(record, source="desk") for record in desk_tasks()] == TASKS


def test_there_are_enough_tasks_of_every_family_on_both_sides() -> None:
    count = Counter((task.meta["family"], task.split) for task in TASKS)
    assert len(TASKS) >= 60
    assert all(count[family, Split.TRAIN] >= 4 and count[family, Split.HELD_OUT] >= 2 for family in FAMILIES)


def test_train_and_held_out_tasks_are_in_worlds_of_their_side() -> None:
    sides = {Split.TRAIN: TRAIN_SEEDS, Split.HELD_OUT: HELD_OUT_SEEDS}
    assert all(task.environment.variant in sides[task.split] for task in TASKS)
    assert len({task.environment for task in TASKS}) == len(TASKS)


def test_enough_tasks_move_money_and_about_ten_meet_a_slow_gateway() -> None:
    refunding, slow = set(), set()
    for task in TASKS:
        case = make_case(task.environment.variant)
        gateway = {row[0]: row[4] for row in case.rows["payments"]}
        for payment, refund in goal(case.seed, case.text).payments.items():
            if refund.times:
                refunding.add(task.id)
                if gateway[payment] == "slow":
                    slow.add(task.id)
    assert len(refunding) >= 20
    assert 8 <= len(slow) <= 14
    assert {BY_SPLIT[task] for task in slow} == {Split.TRAIN, Split.HELD_OUT}


BY_SPLIT = {task.id: task.split for task in TASKS}


def test_each_task_names_the_checker_of_the_settings() -> None:
    assert {task.checker for task in TASKS} == {"desk"}
    assert {task.environment.name for task in TASKS} == {"desk"}


def test_drawn_tasks_are_of_worlds_that_nothing_shipped_has() -> None:
    train, held_out = drawn_tasks(40, seed=1), drawn_tasks(20, split=Split.HELD_OUT, seed=1)
    assert [task.id for task in drawn_tasks(40, seed=1)] == [task.id for task in train]
    assert [task.id for task in drawn_tasks(40, seed=2)] != [task.id for task in train]
    assert [task.meta["family"] for task in train[:9]] == list(FAMILIES)
    assert {task.split for task in train} == {Split.TRAIN}
    assert {task.split for task in held_out} == {Split.HELD_OUT}
    worlds = [task.environment.variant for task in (*train, *held_out)]
    assert len(set(worlds)) == 60
    shipped = {task["world"]["seed"] for task in desk_tasks()}
    assert not shipped & set(worlds)
