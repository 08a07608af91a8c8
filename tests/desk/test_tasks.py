from pathlib import Path

from dreamgym_kit.recipes.desk.cases import FAMILIES
from dreamgym_kit.recipes.desk.tasks import TASKS_FILE, desk_tasks, drawn_tasks, write_tasks
from dreamgym_kit.rollout.tasks import read_tasks, task_from_record
from dreamgym_kit.types import Split

TASKS = read_tasks(TASKS_FILE)


def test_the_shipped_file_is_what_the_code_writes(tmp_path: Path) -> None:
    assert write_tasks(tmp_path / "tasks.jsonl") == len(TASKS)
    assert (tmp_path / "tasks.jsonl").read_bytes() == TASKS_FILE.read_bytes()
    assert [task_from_record(record, source="desk") for record in desk_tasks()] == TASKS


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
