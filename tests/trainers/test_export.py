"""What others get: weights that load by themselves, an adapter that names its base."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from trainers.bare_loop import mixed_batch
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.models.folders import calm
from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

OPTIONS = GrpoOptions(learning_rate=1e-3, warmup_steps=1)
IDS = [list(sample.ids) for sample in mixed_batch(9).samples]


def exported(base: Path, folder: Path, options: GrpoOptions) -> TrlTrainer:
    trainer = TrlTrainer(base, folder / "run", options)
    trainer.fit(mixed_batch, steps=2, after=lambda _: None)
    trainer.write_weights(folder / "merged")
    return trainer


def worst(one: list[list[float]], other: list[list[float]]) -> float:
    pairs = [pair for both in zip(one, other, strict=True) for pair in zip(*both, strict=True)]
    return max(abs(a - b) for a, b in pairs)


def test_merged_weights_and_the_adapter_on_its_base_say_what_the_trained_model_says(tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    from dreamgym_kit.adapters.trainers.tensors import score

    base = write_tiny_model(tmp_path / "base", scale=2.0)
    trainer = exported(base, tmp_path, replace(OPTIONS, lora=LoraOptions(4, 8)))
    merged, adapter = tmp_path / "merged", tmp_path / "adapter"
    scored = trainer.score(IDS)
    assert trainer.write_adapter(adapter, base=str(base))
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    assert (adapter / "adapter_model.safetensors").stat().st_mode & 0o444 == 0o444
    with calm():
        on_its_base = AutoPeftModelForCausalLM.from_pretrained(adapter)
    assert worst(score(on_its_base, IDS), scored) < 1e-5
    assert worst(TrlTrainer(merged, tmp_path / "other", OPTIONS).score(IDS), scored) < 1e-5
    assert worst(TrlTrainer(base, tmp_path / "third", OPTIONS).score(IDS), scored) > 1e-4
    assert all((folder / "tokenizer.json").is_file() for folder in (merged, adapter))


def test_where_all_weights_were_trained_there_is_no_adapter(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base", scale=2.0)
    assert not exported(base, tmp_path, OPTIONS).write_adapter(tmp_path / "adapter", base=str(base))
    assert not (tmp_path / "adapter").exists()
