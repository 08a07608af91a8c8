"""A training as it is told: the held-out result first, the dream's reward never in its place."""

import json
from pathlib import Path

import pytest
from training.loop_doubles import Planted
from training.trained_runs import trained_run, training_in

from dreamgym_kit.adapters.langgraph.training.train import goes_on, impatience
from dreamgym_kit.report.training import Training, share_of, training_of
from dreamgym_kit.report.training_curves import curves_of
from dreamgym_kit.report.training_text import render_training
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.training.records import EvaluationRecord, StepRecord

MANIFEST = {"matters": {"mode": "train"}, "about": {"steps": 2}}


def step(number: int, success: int, episodes: int = 10) -> StepRecord:
    facts = StepFacts(groups=2, episodes=episodes, success=success, reward=success / episodes)
    return StepRecord(number, facts, entropy=0.5, kl=0.001)


def evaluation(number: int, shares: list[float], *, n: int = 4, real: bool = False) -> EvaluationRecord:
    outcomes = {
        f"t{place}": (round(share * n), n - round(share * n), 0) for place, share in enumerate(shares)
    }
    return EvaluationRecord(number, real, outcomes)


def told(*evaluations: EvaluationRecord, dream: tuple[int, int] = (1, 9), **outcome: object) -> Training:
    steps = [step(1, dream[0]), step(2, dream[1])]
    return Training(MANIFEST, steps, evaluations, {"kept": 2, "weights": "weights/step-000002", **outcome})


def test_the_result_is_what_held_out_tasks_say_however_high_the_dream_rewards() -> None:
    training = told(evaluation(0, [0.5] * 30), evaluation(2, [0.5] * 30), dream=(1, 10))
    assert training.stamp[1] == "NO GAIN SEEN"
    assert "held-out pass rate went from 50 % to 50 % in the dream" in training.sentence
    assert "that is what it learned from, not what it is worth" in render_training(training).replace(
        "\n" + " " * 14, " "
    )


def test_a_clear_gain_and_a_clear_loss_are_called_that() -> None:
    low, high = [0.25, 0.5, 0.25] * 12, [0.75, 1.0, 0.75] * 12
    better = told(evaluation(0, low, real=True), evaluation(2, high, real=True))
    worse = told(evaluation(0, high, real=True), evaluation(2, low, real=True))
    assert (better.stamp, worse.stamp) == (("passed", "BETTER"), ("failed", "WORSE"))
    assert "on the real tools (+50 points" in better.sentence


def test_what_was_not_measured_is_said_to_be_so() -> None:
    assert told().sentence == "What it learned was not measured on held-out tasks."
    assert told().stamp[1] == "NOT MEASURED"


def test_a_dreamed_start_and_a_real_end_are_not_held_against_each_other() -> None:
    """A later leg may have asked for `--eval-real`: what dream and reality differ by is no gain."""
    dreamed, real = evaluation(0, [0.0] * 30), evaluation(2, [1.0] * 30, real=True)
    mixed = told(dreamed, real)
    assert (mixed.gain, mixed.stamp[1]) == (None, "NOT MEASURED")
    assert mixed.sentence.startswith("Nothing can be said: held-out tasks were dreamed before and real after")
    three = told(dreamed, evaluation(1, [1.0] * 30, real=True), real)
    assert three.stamp[1] == "NO GAIN SEEN"


def test_a_leg_that_goes_on_is_not_finished_until_it_has_made_the_steps_that_it_asked_for(
    tmp_path: Path,
) -> None:
    path = trained_run(tmp_path)
    with RunDirectory.resume(path, RunDirectory.open(path).manifest) as directory:
        goes_on(directory, planned=20)
        training = training_of(directory)
    assert (training.stamp[1], training.planned, training.weights) == ("NOT FINISHED", 20, None)


def test_a_training_that_has_not_come_to_its_end_is_not_stamped_with_a_result() -> None:
    training = told(evaluation(0, [0.0] * 30))
    assert Training(MANIFEST, training.steps[:1], training.evaluations, {}).stamp[1] == "NOT FINISHED"


def test_an_alarm_is_the_headline_with_what_is_kept(tmp_path: Path) -> None:
    training = training_in(trained_run(tmp_path, planted=Planted("KL blow-up", 6)))
    text = " ".join(render_training(training).split())
    assert text.startswith("STOPPED BY AN ALARM Step 6 was stopped by the alarm 'kl': one update moved")
    assert "step 5 is kept" in text
    assert training.to_json()["alarm"]["alarm"] == "kl"
    assert training.weights == "weights/step-000005"


def test_terminal_json_and_page_tell_the_same_figures(tmp_path: Path) -> None:
    from dreamgym_kit.report.training_curves import training_block

    training = training_in(trained_run(tmp_path))
    text = " ".join(render_training(training).split())
    as_json, block = training.to_json(), training_block(training, name="a")["training"]
    assert block["sentence"] == training.sentence == as_json["sentence"]
    assert all(" ".join(fact[1].split()) in text for fact in block["facts"])
    last = share_of(training.evaluations[-1])
    assert last is not None
    assert as_json["held_out"][-1]["success"] == last.mean
    json.dumps(as_json, allow_nan=False)


def test_no_line_of_the_terminal_is_longer_than_it_and_all_is_ascii(tmp_path: Path) -> None:
    text = render_training(training_in(trained_run(tmp_path, planted=Planted("stale weights", 5))))
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()


def test_curves_leave_gaps_where_nothing_was_measured() -> None:
    steps = [step(1, 3), StepRecord(2, StepFacts(groups=2, episodes=4, inconclusive=4)), step(3, 5)]
    curves = {curve.key: curve for curve in curves_of(Training(MANIFEST, steps, (), {}))}
    assert curves["success"].lines[0].values == [0.3, None, 0.5]
    assert list(curves["entropy"].lines[0].values) == [0.5, None, 0.5]


@pytest.mark.slow
def test_pictures_are_drawn_of_any_training(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    from dreamgym_kit.adapters.plots import draw_training

    for name, training in (
        ("whole", training_in(trained_run(tmp_path))),
        ("one step", Training(MANIFEST, [step(1, 3)], (), {})),
        ("unmeasured", told()),
    ):
        drawn = draw_training(training, tmp_path / name)
        assert {"training.png", "training-dark.png", "success.png"} <= {path.name for path in drawn}
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert draw_training(Training(MANIFEST, (), (), {}), tmp_path / "none") == []


def test_a_training_whose_batches_hung_on_time_says_so() -> None:
    assert impatience(0) == []
    (warning,) = impatience(3)
    assert warning.startswith("3 times an episode asked the policy nothing")
    assert "may differ in the last bits" in warning
