"""T4: every planted fault is named, within one step of where it shows; clean trainings raise no alarm."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from each_row import each_row
from training.loop_doubles import Planted
from training.loop_run import QUICK, Ran, run_loop

from dreamgym_kit.settings.schema import AlarmSettings

AT = 5
LONG = replace(QUICK, steps=24, eval_every=0)

NAMED = {
    "stale weights": "stale_weights",
    "version not taken": "stale_weights",
    "half a sync": "stale_weights",
    "wrong tokenizer": "tokenizer",
    "NaN reward": "not_finite",
    "NaN loss": "not_finite",
    "equal rewards": "no_signal",
    "nothing decided": "no_signal",
    "log-probs off by 1 %": "logprobs",
    "KL blow-up": "kl",
    "entropy collapse": "entropy",
    "judges disagree": "judges_disagree",
    "server is gone": "server",
}


@dataclass(frozen=True)
class Figures:
    planted: int
    named: int
    late: int
    false_alarms: int


def shows_at(fault: str) -> int:
    """The step in which a fault can first be seen."""
    return 0 if fault == "wrong tokenizer" else AT


def measured(root: Path, seeds: range) -> Figures:
    named = late = false_alarms = 0
    for seed in seeds:
        for fault, alarm in NAMED.items():
            ran = run_loop(root / f"{fault} {seed}", replace(QUICK, seed=seed), planted=Planted(fault, AT))
            raised = ran.trained.alarm
            named += raised is not None and raised.alarm == alarm
            late += raised is not None and raised.step - shows_at(fault) not in (0, 1)
    for seed in range(20):
        ran = run_loop(root / f"clean {seed}", replace(LONG, seed=seed, staleness=seed % 2), lr=0.3)
        false_alarms += ran.trained.alarm is not None
    return Figures(len(NAMED) * len(seeds), named, late, false_alarms)


@pytest.mark.slow
def test_t4_every_planted_fault_is_named_within_a_step_and_clean_runs_raise_none(tmp_path: Path) -> None:
    figures = measured(tmp_path, range(3))
    print(f"T4: {figures}")
    assert figures.named == figures.planted
    assert figures.late == 0
    assert figures.false_alarms == 0


@each_row("fault", sorted(NAMED))
def test_t4_one_planted_fault_is_named(tmp_path: Path, fault: str) -> None:
    ran = run_loop(tmp_path / "run", planted=Planted(fault, AT))
    assert ran.trained.alarm is not None
    assert ran.trained.alarm.alarm == NAMED[fault]
    assert ran.trained.checkpoint == max(0, ran.trained.alarm.step - 1)


def test_t4_wrong_log_probs_are_named_though_rollouts_overlap_the_update(tmp_path: Path) -> None:
    """The trainer never has the weights that sampled: the server's own word is what they are held against."""
    planted = Planted("log-probs off by 1 %", AT)
    ran = run_loop(tmp_path / "run", replace(QUICK, staleness=1), planted=planted)
    assert alarm_of(ran) == "logprobs"
    assert ran.trained.checkpoint == AT - 1


def test_t4_reward_hacking_is_named_once_it_is_a_trend(tmp_path: Path) -> None:
    ran = run_loop(
        tmp_path / "run",
        replace(QUICK, steps=30, tasks_per_step=8),
        planted=Planted("reward hacking"),
        alarms=AlarmSettings(judges_disagree=1.0, reward_gap=0.1),
        lr=0.02,
    )
    assert alarm_of(ran) == "reward_gap"


def test_t4_an_alarm_with_a_bound_out_of_reach_is_found_out(tmp_path: Path) -> None:
    ran = run_loop(
        tmp_path / "run", planted=Planted("log-probs off by 1 %", AT), alarms=AlarmSettings(logprobs=1.0)
    )
    assert alarm_of(ran) is None


def alarm_of(ran: Ran) -> str | None:
    return ran.trained.alarm.alarm if ran.trained.alarm is not None else None
