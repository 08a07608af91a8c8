"""Supervised fine-tuning on token ids: the same as a bare loop, and what it refuses."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from each_row import each_row

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
import torch
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.models.folders import load_model
from dreamgym_kit.adapters.trainers.options import LoraOptions
from dreamgym_kit.adapters.trainers.sft import SftOptions, SftRow, SftStep, train_sft
from dreamgym_kit.errors import TrainingStopped, UserError

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

OPTIONS = SftOptions(steps=3, batch=4, learning_rate=1e-3, warmup_steps=2)
EXACT = replace(OPTIONS, dtype="float64")  # what differs there is no rounding, on whatever processor
CHILD = Path(__file__).with_name("sft_child.py")
WEIGHTS = [0.5, 0.0, 0.1, 1.0, 4.0] * 3


def rows() -> list[SftRow]:
    chance = torch.Generator().manual_seed(3)
    return [
        SftRow(torch.randint(3, 43, (length,), generator=chance).tolist(), WEIGHTS[:length])
        for length in (5, 9, 7, 12)
    ]


def bare_loop(folder: Path) -> torch.nn.Module:
    """The same by hand: every step sees all four rows, one by one and without padding."""
    model = load_model(folder, dtype="float64")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 2) * max(0.1, 1 - step / 3)
        total, weight = torch.zeros(()), 0.0
        for row in rows():
            told = model(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
            for place in range(1, len(row.ids)):
                total = total - told[place - 1, row.ids[place]] * row.weights[place]
                weight += row.weights[place]
        optimizer.zero_grad()
        (total / weight).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def furthest(one: torch.nn.Module, other: torch.nn.Module) -> float:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def test_fine_tuning_by_weights_equals_a_bare_loop(tmp_path: Path) -> None:
    start = write_tiny_model(tmp_path / "start")
    heard: list[SftStep] = []
    told = train_sft(start, rows(), tmp_path / "end", EXACT, tell=heard.append)
    assert [step.step for step in heard] == [1, 2, 3]
    assert told == heard
    assert told[-1].loss < told[0].loss
    by_hand, ours = bare_loop(start), load_model(tmp_path / "end", dtype="float64")
    assert furthest(load_model(start), ours) > 1e-4
    assert furthest(by_hand, ours) < 1e-6


def test_what_fine_tuning_writes_is_a_model_directory_that_others_can_read(tmp_path: Path) -> None:
    train_sft(write_tiny_model(tmp_path / "start"), rows(), tmp_path / "end", OPTIONS)
    names = {path.name for path in (tmp_path / "end").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in (tmp_path / "end").iterdir())
    assert not list(tmp_path.glob(".*"))


@each_row(
    ("row", "said"),
    [
        (SftRow([3, 4], [1.0]), "row 1: 2 ids, but 1 weights."),
        (SftRow([3, 4], [0.0, -1.0]), "row 1: a weight is negative or not finite."),
        (
            SftRow([3, 4], [1.0, 0.0]),
            "no row has a token to learn; give weights above 0 to what the model shall say.",
        ),
    ],
)
def test_rows_without_anything_to_learn_or_with_weights_that_do_not_fit_are_refused(
    row: SftRow, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        train_sft(tmp_path, [row], tmp_path / "end", OPTIONS)
    assert str(refused.value) == said


def test_fine_tuning_that_runs_away_writes_nothing(tmp_path: Path) -> None:
    wild = SftOptions(steps=20, batch=4, learning_rate=1e30, warmup_steps=1)
    with pytest.raises(TrainingStopped, match=r"^step \d+: not_finite: "):
        train_sft(write_tiny_model(tmp_path / "start"), rows(), tmp_path / "end", wild)
    assert not (tmp_path / "end").exists()


@each_row("lora", [None, LoraOptions(rank=2, alpha=4)])
def test_a_batch_in_pieces_comes_to_the_same_weights(lora: LoraOptions | None, tmp_path: Path) -> None:
    start = write_tiny_model(tmp_path / "start")
    for pieces in (1, 2):
        told = train_sft(start, rows(), tmp_path / f"in-{pieces}", replace(EXACT, pieces=pieces, lora=lora))
        assert len(told) == 3
    one, two = (load_model(tmp_path / f"in-{pieces}", dtype="float64") for pieces in (1, 2))
    assert furthest(one, two) < 1e-6
    assert furthest(load_model(start), one) > 1e-5  # and what is written is merged: the names are the base's


def test_a_batch_that_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a batch of 4 rows cannot be cut into 3 equal pieces"):
        train_sft(tmp_path, rows(), tmp_path / "end", replace(OPTIONS, pieces=3))


def in_a_process(base: Path, folder: Path, lora: bool, *kill: object) -> list[str]:
    """What the child printed."""
    asked = [sys.executable, str(CHILD), str(base), str(folder), "lora" if lora else "full", *map(str, kill)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == (-9 if kill else 0), done.stderr
    return done.stdout.splitlines()


@pytest.mark.nightly
@pytest.mark.parametrize("lora", [False, True])
def test_a_fine_tuning_that_was_killed_goes_on_and_is_the_unbroken_one(lora: bool, tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base")
    unbroken = in_a_process(base, tmp_path / "unbroken", lora)
    broken = tmp_path / "broken"
    kills = [(3, "step"), (6, "end")] if lora else [(2, "save"), (3, "step"), (4, "saved"), (6, "end")]
    legs = [in_a_process(base, broken, lora, *kill) for kill in kills]
    assert legs[-1] == [f"step {step}" for step in range(3 if lora else 5, 7)]  # from the last checkpoint
    assert not (broken / "model").exists()
    last = in_a_process(base, broken, lora)
    assert last == unbroken[-2:]  # nothing was left to do but to write it: same weights, all losses
    assert not (broken / "checkpoints").exists()


def test_a_fine_tuning_of_other_lessons_or_options_does_not_go_on_with_a_broken_one(tmp_path: Path) -> None:
    start, kept = write_tiny_model(tmp_path / "start"), tmp_path / "kept"
    asked = replace(OPTIONS, save_every=1)

    def stop(step: SftStep) -> None:
        if step.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_sft(start, rows(), tmp_path / "end", asked, checkpoints=kept, tell=stop)
    for changed, options, said in (
        (rows()[:3], asked, "with lessons = "),
        (rows(), replace(asked, learning_rate=0.5), "with learning_rate = 0.001; this one has 0.5"),
        (rows(), replace(asked, lora=LoraOptions(2, 4)), "with lora = null; this one has {"),
    ):
        with pytest.raises(UserError, match="a training that was broken off lies there") as refused:
            train_sft(start, changed, tmp_path / "end", options, checkpoints=kept)
        assert said in str(refused.value)
    heard: list[SftStep] = []
    train_sft(start, rows(), tmp_path / "end", asked, checkpoints=kept, tell=heard.append)
    assert [step.step for step in heard] == [2, 3]
