"""The loop with other algorithms: what they take for signal, and what becomes of old rollouts."""

from dataclasses import replace
from pathlib import Path

from each_row import each_row
from training.loop_doubles import Planted
from training.loop_run import QUICK, run_loop

from dreamgym_kit.settings.schema import AlarmSettings
from dreamgym_kit.training.records import read_steps

STRICT = AlarmSettings(max_zero_variance_draws=2, max_kl=5.0)


@each_row(("algorithm", "kept"), [("grpo", 4), ("dpo", 4), ("ppo", 8), ("sft", 8)])
def test_equal_rewards_end_only_the_algorithms_that_compare(
    tmp_path: Path, algorithm: str, kept: int
) -> None:
    settings = replace(QUICK, algorithm=algorithm)
    ran = run_loop(tmp_path / "run", settings, planted=Planted("equal rewards", 5), alarms=STRICT)
    assert ran.trained.checkpoint == kept


@each_row("algorithm", ["ppo", "sft"])
def test_where_nothing_could_be_judged_nobody_learns(tmp_path: Path, algorithm: str) -> None:
    settings = replace(QUICK, algorithm=algorithm)
    ran = run_loop(tmp_path / "run", settings, planted=Planted("nothing decided", 3), alarms=STRICT)
    assert ran.trained.checkpoint == 2
    assert ran.trained.alarm is not None
    assert ran.trained.alarm.alarm == "no_signal"
    assert "2 draws of tasks in a row without an episode that could be judged" in ran.trained.alarm.text


@each_row(("algorithm", "alike"), [("grpo", False), ("dpo", True)])
def test_old_rollouts_weigh_less_only_where_ratios_are_learned_from(
    tmp_path: Path, algorithm: str, alike: bool
) -> None:
    settings = replace(QUICK, algorithm=algorithm, staleness=2)
    ran = run_loop(tmp_path / "run", settings, alarms=AlarmSettings(max_kl=50.0, entropy_low=0.0), lr=2.0)
    weights = [sample.weight for sample in ran.trainer.learned[5].samples]
    assert (min(weights) > 0.99 * max(weights)) is alike
    assert [one.staleness for one in read_steps(tmp_path / "run")][5] == 2
