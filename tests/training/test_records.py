"""What a training keeps: read as written, cut back to a checkpoint, named where it is damaged."""

from pathlib import Path

import pytest
from each_row import each_row
from training.loop_run import QUICK, run_loop

from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.training.batching import StepFacts
from dreamgym_kit.training.records import (
    EVALUATIONS,
    STEPS,
    Drawn,
    EvaluationRecord,
    StateFolder,
    StepRecord,
    append_record,
    cut_back,
    read_evaluations,
    read_steps,
)
from dreamgym_kit.turns import Batch, Sample


def records(number: int) -> list[StepRecord]:
    return [
        StepRecord(
            step, StepFacts(groups=2, unfit={"no prompt": 1}), loss=0.1 * step, seconds={"update": 1.5}
        )
        for step in range(1, number + 1)
    ]


def test_what_was_written_is_read_and_cut_back_to_a_step(tmp_path: Path) -> None:
    for record in records(4):
        append_record(tmp_path, record)
    assert read_steps(tmp_path) == records(4)
    cut_back(tmp_path, 2)
    assert read_steps(tmp_path) == records(2)
    evaluation = EvaluationRecord(2, True, {"a": [1, 2, 3]})
    append_record(tmp_path, evaluation)
    assert read_evaluations(tmp_path) == [evaluation]
    assert (evaluation.success, evaluation.decided, evaluation.inconclusive) == (1, 3, 3)


def test_a_torn_last_line_is_no_line_and_a_resume_takes_it_away(tmp_path: Path) -> None:
    for record in records(2):
        append_record(tmp_path, record)
    with (tmp_path / STEPS).open("a") as file:
        file.write('{"step":3,"fac')
    assert read_steps(tmp_path) == records(2)
    cut_back(tmp_path, 2)
    append_record(tmp_path, records(3)[-1])
    assert read_steps(tmp_path) == records(3)


@each_row(
    ("name", "content", "said"),
    [
        (STEPS, "oops\n", r"steps\.jsonl:1: "),
        (STEPS, '{"no":1}\n', r"steps\.jsonl:1: is no record of a training"),
        (STEPS, '{"step":1}\n', r"steps\.jsonl:1: is no record of a training"),
        (EVALUATIONS, '{"step":1}\n', r"evaluations\.jsonl:1: is no record of a training"),
        ("state/step-000002.json", "x" * 64 + "\n[]", r"step-000002\.json: is damaged; remove it"),
    ],
)
def test_a_damaged_record_of_a_training_is_named(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / name).write_text(content)
    with pytest.raises(RunDirectoryError, match=said):
        read_steps(tmp_path)
        read_evaluations(tmp_path)
        StateFolder(tmp_path / "state").read(2)


def test_batches_that_wait_come_back_to_the_last_bit(tmp_path: Path) -> None:
    sample = Sample("t.1", (1, 2, 3), 1, (1, 0), (-0.1 / 3, 0.0), (0, 1), ("step-000001",), 2 / 3, 1 / 7)
    waiting = [Drawn(Batch(5, (sample,), {"success": 1 / 3}), StepFacts(groups=1, reward=1 / 3), 2, 0.25)]
    state = StateFolder(tmp_path / "state")
    state.write(4, waiting)
    assert state.read(4) == waiting
    assert state.read(3) == []


def test_states_that_no_checkpoint_needs_any_more_go(tmp_path: Path) -> None:
    run_loop(tmp_path / "run", QUICK)
    kept = sorted(path.name for path in (tmp_path / "run" / "state").iterdir())
    assert kept == [f"step-{step:06d}.json" for step in (5, 6, 7, 8)]
