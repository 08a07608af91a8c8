"""What others get: weights that load by themselves, an adapter that names its base, a card on both."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from trainers.bare_loop import mixed_batch
from trainers.tiny_model import write_tiny_model

from dreamgym_kit.adapters.models.folders import calm
from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.trainer import Card, ExportedWeights, TrlTrainer, export, rendered

pytestmark = pytest.mark.slow  # importing trl alone takes seconds

OPTIONS = GrpoOptions(learning_rate=1e-3, warmup_steps=1)
IDS = [list(sample.ids) for sample in mixed_batch(9).samples]
CARD = Card(name="Desk", base="start", data="desk recordings", seed=7, scores={"held out": "52 % (47 to 57)"})


def exported(base: Path, folder: Path, options: GrpoOptions) -> tuple[TrlTrainer, ExportedWeights]:
    trainer = TrlTrainer(base, folder / "run", options)
    trainer.fit(mixed_batch, steps=2, after=lambda _: None)
    return trainer, export(trainer, folder / "out", replace(CARD, base=str(base)))


def worst(one: list[list[float]], other: list[list[float]]) -> float:
    pairs = [pair for both in zip(one, other, strict=True) for pair in zip(*both, strict=True)]
    return max(abs(a - b) for a, b in pairs)


def test_merged_weights_and_the_adapter_on_its_base_say_what_the_trained_model_says(tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    from dreamgym_kit.adapters.trainers.tensors import score

    base = write_tiny_model(tmp_path / "base", scale=2.0)
    trainer, out = exported(base, tmp_path, replace(OPTIONS, lora=LoraOptions(4, 8)))
    scored = trainer.score(IDS)
    assert out.adapter is not None
    assert json.loads((out.adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        base
    )
    assert (out.adapter / "adapter_model.safetensors").stat().st_mode & 0o444 == 0o444
    with calm():
        on_its_base = AutoPeftModelForCausalLM.from_pretrained(out.adapter)
    assert worst(score(on_its_base, IDS), scored) < 1e-5
    assert worst(TrlTrainer(out.merged, tmp_path / "other", OPTIONS).score(IDS), scored) < 1e-5
    assert worst(TrlTrainer(base, tmp_path / "third", OPTIONS).score(IDS), scored) > 1e-4
    for folder in (out.merged, out.adapter):
        card = (folder / "README.md").read_text("utf-8")
        assert "- Steps: 2\n" in card
        assert "| held out | 52 % (47 to 57) |" in card
        assert (folder / "tokenizer.json").is_file()


def test_where_all_weights_were_trained_there_is_no_adapter(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base", scale=2.0)
    _, out = exported(base, tmp_path, OPTIONS)
    assert out.adapter is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["merged"]


def test_texts_in_a_card_are_data() -> None:
    hostile = replace(CARD, name="# <script>\n---\n| x", data="[click](http://e.vil) `rm`")
    card = replace(hostile, scores={"a|b": "*1*"}, notes="\x1b[31m")
    text = rendered(card, steps=3, merged=True)
    assert "# \\# \\<script\\> --- \\| x\n" in text
    assert "- Data: \\[click\\](http://e.vil) \\`rm\\`\n" in text
    assert "| a\\|b | \\*1\\* |" in text
    assert "\x1b" not in text
    assert text.count("\n---\n") == 1
