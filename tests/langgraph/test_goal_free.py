"""Learning without goals, through the graph: recorded runs make the judge, and nobody else is asked."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.adapters.langgraph.api import record
from dreamgym_kit.adapters.langgraph.goal_free import goal_free
from dreamgym_kit.adapters.langgraph.run_request import RunRequest
from dreamgym_kit.adapters.langgraph.runs import run
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.checklist.gate import Bounds
from dreamgym_kit.errors import UserError
from dreamgym_kit.gate.policy import Mode
from dreamgym_kit.ports import Judgement, Outcome
from dreamgym_kit.recipes.desk.graph import graph
from dreamgym_kit.recipes.desk.record import RECORDINGS_FILE, SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.replay.jsonl import import_jsonl
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.tasks import read_tasks
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Split, Task, Verdict

LENIENT = Bounds(agreement=0.0, false_positives=1.0, least=1)


def settings(tmp_path: Path) -> Settings:
    said = load_settings(file=SETTINGS_FILE, environ={})
    return said.with_overrides({"runs": str(tmp_path / "runs"), "simulate.n": 1})


def test_a_judge_is_asked_instead_of_the_tasks_own_checkers(tmp_path: Path) -> None:
    tasks = [replace(read_tasks(SETTINGS_FILE.parent / "data" / "tasks.jsonl")[0], checker="desk")]
    asked: list[Outcome] = []

    def judge(outcome: Outcome) -> Judgement:
        asked.append(outcome)
        return Judgement(Verdict.FAILED, "the judge says so", 0.0)

    import_jsonl(RECORDINGS_FILE, store := MemoryStore())
    request = RunRequest(
        graph=graph("scripted"),
        tasks=tasks,
        settings=settings(tmp_path),
        mode=Mode.DREAM,
        store=store,
        judge=judge,
    )
    done = asyncio.run(run(request, events=NoEvents()))
    assert len(asked) == 1
    assert done.totals.failed == 1


@pytest.mark.slow
def test_recorded_runs_make_a_judge_for_tasks_that_nobody_recorded(tmp_path: Path) -> None:
    recorded, new = drawn_tasks(54), [replace(task, checker=None) for task in drawn_tasks(18, seed=1)]
    store, wanted = MemoryStore(), settings(tmp_path)
    record(graph("scripted:mixed"), recorded, settings=wanted, store=store, n=2, directory=tmp_path / "run")
    run_directory = [tmp_path / "run"]
    dream = goal_free(
        new, run_directory, recorded_tasks=recorded, store=store, settings=wanted, bounds=LENIENT
    )
    assert {*dream.found.left_out, *(task.id for task in dream.tasks)} == {task.id for task in new}
    assert set(dream.found.imagined) == {task.world for task in new}
    assert "recorded outcomes on worlds unseen" in str(dream.found)
    request = RunRequest(
        graph=graph("scripted"),
        tasks=list(dream.tasks),
        settings=wanted,
        mode=Mode.DREAM,
        experience=dream.experience,
        judge=dream.judge,
    )
    done = asyncio.run(run(request, events=NoEvents()))
    assert done.totals.passed >= 1  # a good colleague, in worlds that nobody recorded, by nobody's goal
    with pytest.raises(UserError, match="no task can be learned without its goal"):
        goal_free(new, run_directory, recorded_tasks=recorded, store=store, settings=wanted)


@pytest.mark.parametrize("tenant", ["default", "acme"])
def test_nothing_that_is_held_out_reaches_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    """Not by split, not by the task that is measured with, not by a world that only such tasks are set in."""
    store, wanted = MemoryStore(), settings(tmp_path).with_overrides({"tenant": tenant})
    by_split, by_task, alone, shared, *rest = drawn_tasks(6)
    by_split = replace(by_split, split=Split.HELD_OUT)
    also_there = replace(shared, id="another request in a world that is shared")
    every = [by_split, by_task, alone, shared, also_there, *rest]
    record(graph("scripted"), every, settings=wanted, store=store, n=1, directory=tmp_path / "run")
    given: list[Any] = []

    def making(works: list[Any], rows: list[Any], *_: object, **__: object) -> None:
        given.extend((works, rows))
        raise UserError("enough")

    monkeypatch.setattr("dreamgym_kit.adapters.langgraph.goal_free.without_goals", making)
    measured = [replace(task, split=Split.HELD_OUT) for task in (by_task, shared)]
    measured.append(Task("never recorded", {"messages": "?"}, world=alone.world))
    with pytest.raises(UserError, match="enough"):
        goal_free(
            rest,
            [tmp_path / "run"],
            recorded_tasks=[one for one in every if one is not alone],
            store=store,
            settings=wanted,
            held_out=measured,
        )
    works, rows = given
    assert {work.task for work in works} == {also_there.id, *(task.id for task in rest)}
    assert {row.world for row in rows} == {shared.world, *(task.world for task in rest)}


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no episodes; name the run directory of a recording"):
        goal_free([], [tmp_path], recorded_tasks=[], store=MemoryStore(), settings=settings(tmp_path))
