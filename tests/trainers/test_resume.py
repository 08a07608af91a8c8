"""A training that ended early and goes on is the unbroken one to the last bit. Bar T3 kills in each phase."""

from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from trainers.bare_loop import mixed_batch
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer
from dreamgym_kit.errors import UserError
from dreamgym_kit.turns import UpdateFacts

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

OPTIONS = GrpoOptions(learning_rate=1e-3, warmup_steps=2)
IDS = [list(sample.ids) for sample in mixed_batch(9).samples]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "model", scale=2.0)


def nothing(_: UpdateFacts) -> None:
    """Hears a step and does nothing."""


@each_row("changed", [{}, {"lora": LoraOptions(4, 8)}, {"save_every": 3}])
def test_legs_of_one_process_are_the_unbroken_run(
    base: Path, tmp_path: Path, changed: dict[str, Any]
) -> None:
    from dataclasses import replace

    options = replace(OPTIONS, **changed)
    whole = TrlTrainer(base, tmp_path / "whole", options)
    whole.fit(mixed_batch, steps=5, after=nothing)
    legs = TrlTrainer(base, tmp_path / "legs", options)
    legs.fit(mixed_batch, steps=2, after=nothing)
    assert legs.step == 2
    legs.fit(mixed_batch, steps=3, after=nothing)
    again = TrlTrainer(base, tmp_path / "legs", options)
    assert again.step == 3
    assert again.score(IDS) == legs.score(IDS)
    again.fit(mixed_batch, steps=5, after=nothing)
    again.fit(mixed_batch, steps=5, after=nothing)  # nothing is left to do
    assert again.step == 5
    assert again.score(IDS) == whole.score(IDS)


@each_row(
    ("changed", "said"),
    [
        ({"lora": LoraOptions(4, 8)}, "was made with lora = None, this training has [4, 8, 'all-linear']"),
        ({"minibatches": 2}, "was made with minibatches = 1, this training has 2"),
    ],
)
def test_a_checkpoint_of_another_kind_of_training_is_refused(
    base: Path, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    from dataclasses import replace

    TrlTrainer(base, tmp_path, OPTIONS).fit(mixed_batch, steps=1, after=nothing)
    with pytest.raises(UserError) as refused:
        TrlTrainer(base, tmp_path, replace(OPTIONS, **changed))
    assert said in str(refused.value)


def test_a_checkpoint_that_somebody_changed_is_never_opened(base: Path, tmp_path: Path) -> None:
    """A pickle that would leave a mark, in place of the optimiser's state."""
    mark = tmp_path / "ran"
    trainer = TrlTrainer(base, tmp_path / "run", OPTIONS)
    trainer.fit(mixed_batch, steps=1, after=nothing)
    evil = b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    (tmp_path / "run" / "step-000001" / "optimizer.pt").write_bytes(evil)
    with pytest.raises(UserError, match=r"optimizer\.pt: is not what was written there"):
        TrlTrainer(base, tmp_path / "run", OPTIONS)
    with pytest.raises(UserError, match=r"optimizer\.pt: is not what was written there"):
        trainer.fit(mixed_batch, steps=2, after=nothing)
    assert not mark.exists()
