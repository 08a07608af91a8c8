"""The curriculum in the training loop: its choices are in the files, and a killed training goes on alike."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from training.loop_run import QUICK, run_loop

from dreamgym_kit.curriculum.records import DRAWS
from dreamgym_kit.training.records import read_courses

SCRIPT = Path(__file__).parents[1] / "training" / "loop_run.py"


def courses(folder: Path) -> list[str]:
    return (folder / "curriculum.jsonl").read_text().splitlines()


def test_what_each_step_chose_and_saw_is_kept_beside_it(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run", curriculum=True)
    told = read_courses(tmp_path / "run")
    assert [one.step for one in told] == list(range(1, 9))
    for one, (_, asked, _) in zip(told, ran.collector.asked, strict=True):
        (draw,) = [DRAWS.read(draw) for draw in one.course]
        assert tuple(group.task for group in draw.groups) == asked
        assert all(
            group.success + group.failure + group.inconclusive == QUICK.group_size for group in draw.groups
        )


def test_estimates_choose_other_tasks_than_turns_do(tmp_path: Path) -> None:
    chosen, in_turn = (
        [asked for _, asked, _ in run_loop(tmp_path / str(use), curriculum=use).collector.asked]
        for use in (True, False)
    )
    assert chosen != in_turn


def test_made_tasks_join_those_that_were_given_within_their_share(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run", replace(QUICK, steps=14, tasks_per_step=6), curriculum=True)
    draws = [DRAWS.read(one.course[0]) for one in read_courses(tmp_path / "run")]
    made = [len(draw.made) for draw in draws]
    assert made[:4] == [0, 0, 2, 0]
    assert all(one.like.startswith("t") and one.task.id.startswith(one.like) for one in draws[2].made)
    counts = [sum("~" in task for task in asked) for _, asked, _ in ran.collector.asked]
    assert max(counts) == 1  # 0.3 of 6 tasks
    assert sum(counts) > 2


def program(folder: Path, staleness: int, save_every: int, die_at: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, SCRIPT, folder, str(staleness), str(save_every), "curriculum"],
        env={**os.environ, "DIE_AT": die_at, "PYTHONPATH": str(SCRIPT.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_killed_curriculum_goes_on_as_the_unbroken_one(tmp_path: Path) -> None:
    staleness, save_every = 2, 3
    whole = program(tmp_path / "whole", staleness, save_every)
    assert whole.returncode == 0, whole.stderr
    for phase in ("rollout 4", "update 5", "sync 5", "save 6"):
        folder = tmp_path / phase.replace(" ", "-")
        assert program(folder, staleness, save_every, phase).returncode == -signal.SIGKILL
        resumed = program(folder, staleness, save_every)
        assert resumed.stdout == whole.stdout, (phase, resumed.stderr)
        assert courses(folder) == courses(tmp_path / "whole"), phase
