"""The loop over doubles that learn: order, exactness, staleness, ends."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from each_row import each_row
from training.loop_doubles import Planted
from training.loop_run import QUICK, run_loop

from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.settings.schema import AlarmSettings
from dreamgym_kit.training.records import read_evaluations, read_steps

SCRIPT = Path(__file__).with_name("loop_run.py")


def test_a_training_learns_and_says_so_by_held_out_tasks(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run", replace(QUICK, steps=12, eval_every=0, eval_n=32))
    first, last = ran.trained.evaluations
    assert (first.step, last.step) == (0, 12)
    assert last.success / last.decided > first.success / first.decided + 0.3
    assert ran.trained.alarm is None
    assert ran.trained.checkpoint == 12


def test_each_step_has_its_line_and_its_weights_are_the_servers(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run")
    steps = read_steps(tmp_path / "run")
    assert [one.step for one in steps] == list(range(1, 9))
    assert all(one.canary_gap is not None and one.canary_gap < 1e-9 for one in steps)
    assert all(one.logprob_gap is not None and one.logprob_gap < 1e-9 for one in steps)
    assert ran.server.logits == ran.trainer.logits
    assert ran.trained.weights == tmp_path / "run" / "weights" / "step-000008"
    assert [path.name for path in (tmp_path / "run" / "weights").iterdir()] == ["step-000008"]
    assert [one.step for one in read_evaluations(tmp_path / "run")] == [0, 4, 8]


def test_every_step_samples_with_the_weights_of_the_step_before(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run")
    assert [version for _, _, version in ran.collector.asked] == [f"step-{step:06d}" for step in range(8)]


@each_row("staleness", [1, 2])
def test_overlapped_rollouts_are_exactly_as_stale_as_asked(tmp_path: Path, staleness: int) -> None:
    ran = run_loop(tmp_path / "run", replace(QUICK, staleness=staleness), takes_s=0.01)
    told = [one.staleness for one in ran.trained.steps]
    assert told == [min(step, staleness) for step in range(8)]


def test_overlap_does_not_depend_on_how_long_rollouts_take(tmp_path: Path) -> None:
    slow = run_loop(tmp_path / "slow", replace(QUICK, staleness=1), takes_s=0.03)
    quick = run_loop(tmp_path / "quick", replace(QUICK, staleness=1))
    assert slow.trainer.logits == quick.trainer.logits


def test_what_the_policy_would_hardly_sample_any_more_weighs_less(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run", replace(QUICK, staleness=2), lr=2.0)
    weights = [[sample.weight for sample in batch.samples] for batch in ran.trainer.learned]
    fresh, old = weights[0], weights[5]
    assert max(fresh) == min(fresh)
    assert min(old) < 0.9 * max(old)


def without_times(folder: Path) -> list[str]:
    told = []
    for name in ("steps.jsonl", "evaluations.jsonl"):
        for line in (folder / name).read_text().splitlines():
            record = json.loads(line)
            record.pop("seconds")
            told.append(json.dumps(record))
    return told


def program(folder: Path, staleness: int, save_every: int, die_at: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, SCRIPT, folder, str(staleness), str(save_every)],
        env={**os.environ, "DIE_AT": die_at, "PYTHONPATH": str(SCRIPT.parents[1])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("staleness", "save_every"), [(0, 1), (1, 1), (2, 3)])
def test_killed_in_any_phase_and_resumed_it_is_the_unbroken_run(
    tmp_path: Path, staleness: int, save_every: int
) -> None:
    whole = program(tmp_path / "whole", staleness, save_every)
    assert whole.returncode == 0, whole.stderr
    for phase in ("rollout 4", "update 4", "sync 5", "save 5", "save 6"):
        folder = tmp_path / phase.replace(" ", "-")
        killed = program(folder, staleness, save_every, phase)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        resumed = program(folder, staleness, save_every)
        assert resumed.stdout == whole.stdout, (phase, resumed.stderr)
        assert without_times(folder) == without_times(tmp_path / "whole"), phase


def test_asked_to_stop_it_ends_at_a_checkpoint_and_goes_on_from_it(tmp_path: Path) -> None:
    stop = StopSwitch()
    pressing = run_loop_pressed(tmp_path / "run", stop, at=3)
    assert pressing.trained.stopped == "SIGINT"
    assert pressing.trained.alarm is None
    assert pressing.trained.checkpoint == 3
    resumed = run_loop(tmp_path / "run")
    assert resumed.trainer.logits == run_loop(tmp_path / "whole").trainer.logits


def run_loop_pressed(folder: Path, stop: StopSwitch, *, at: int):
    import training.loop_run as module

    class Pressing(module.Heard):
        def emit(self, kind: str, /, **facts: object) -> None:
            super().emit(kind, **facts)
            if kind == "step_finished" and facts["step"] == at:
                stop.press(signal.SIGINT)

    kept, module.Heard = module.Heard, Pressing
    try:
        return run_loop(folder, stop=stop)
    finally:
        module.Heard = kept


def test_a_draw_without_signal_is_drawn_again(tmp_path: Path) -> None:
    ran = run_loop(
        tmp_path / "run", planted=Planted("equal rewards", 5), alarms=AlarmSettings(max_zero_variance_draws=2)
    )
    assert ran.trained.alarm is not None
    assert [step for step, _, _ in ran.collector.asked] == [1, 2, 3, 4, 5, 5]
    assert len({tasks for _, tasks, _ in ran.collector.asked[-2:]}) == 2


def test_an_alarm_of_nothing_decided_says_why_most_episodes_are_not(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run", planted=Planted("nothing decided", 2))
    assert ran.trained.alarm is not None
    episodes = QUICK.tasks_per_step * QUICK.group_size
    assert ran.trained.alarm.text.endswith(f" (inconclusive, {episodes} times: by the double)")


def test_an_alarm_leaves_neither_weights_nor_figures_of_its_step(tmp_path: Path) -> None:
    ran = run_loop(tmp_path / "run", planted=Planted("stale weights", 6))
    assert ran.trained.alarm is not None
    assert [one.step for one in read_steps(tmp_path / "run")] == [1, 2, 3, 4, 5]
    assert ran.trained.weights == tmp_path / "run" / "weights" / "step-000005"
    assert [path.name for path in (tmp_path / "run" / "weights").iterdir()] == ["step-000005"]


def test_an_alarm_before_the_first_step_of_a_leg_keeps_what_the_leg_before_left(tmp_path: Path) -> None:
    run_loop(tmp_path / "run", replace(QUICK, steps=4))
    ran = run_loop(tmp_path / "run", planted=Planted("wrong tokenizer"))
    assert ran.trained.alarm is not None
    assert (ran.trained.checkpoint, len(ran.trained.steps)) == (4, 4)
    assert ran.trained.weights == tmp_path / "run" / "weights" / "step-000004"


def test_more_steps_asked_for_later_are_those_of_one_long_training(tmp_path: Path) -> None:
    run_loop(tmp_path / "run", replace(QUICK, steps=5))
    assert run_loop(tmp_path / "run").trainer.logits == run_loop(tmp_path / "whole").trainer.logits
