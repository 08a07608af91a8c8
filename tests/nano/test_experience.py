"""The nano experience model: its words are its tokens, it learns from recordings, the shipped one decides."""

import hashlib
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from vllm_double import VllmDouble

from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience, with_decisions
from dreamgym_kit.adapters.models.folders import load_tokenizer
from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.chain import FallbackChain
from dreamgym_kit.dream.learned.experience import LearnedExperience
from dreamgym_kit.dream.learned.vocabulary import LEARNED_FILE, read_decision, read_learned
from dreamgym_kit.dream.programs.experience import ProgramTracker
from dreamgym_kit.recipes.desk.cases import HELD_OUT_SEEDS, TRAIN_SEEDS
from dreamgym_kit.recipes.nano import __main__ as command
from dreamgym_kit.recipes.nano.build import Progress, Schedule, Shape
from dreamgym_kit.recipes.nano.experience.build import WEIGHTS, ExperiencePlan, build, card, lessons_of
from dreamgym_kit.recipes.nano.experience.environments import recorded, worked
from dreamgym_kit.recipes.nano.learn import asked_text, build_word_tokenizer, decided_text, teach
from dreamgym_kit.recipes.nano.start import new_model
from dreamgym_kit.settings.schema import ExperienceSettings, Settings
from dreamgym_kit.types import Split

MADE: dict[str, Any] = json.loads((WEIGHTS / LEARNED_FILE).read_text(encoding="utf-8"))
WORDS = read_learned(WEIGHTS).vocabulary.words()
ORDER = "order_id@get_order<args.order_id>"
SMALL = ExperiencePlan(
    seed=4,
    environments=6,
    tried=2,
    held_out=1,
    buffer=6,
    shape=Shape(width=64, inner=64),
    course=Schedule(steps=3),
)


def test_every_word_is_one_token_and_any_text_goes_there_and_back() -> None:
    tokenizer = build_word_tokenizer(WORDS)
    for word in WORDS:
        assert len(tokenizer.encode(f" {word}", add_special_tokens=False)) == 1, word
    for text in ("order.status packed => ok", "Ünïcode and 'quotes' => order.statuses\n"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_chat_template_says_what_it_was_taught_with() -> None:
    tokenizer = load_tokenizer(WEIGHTS)
    record = ("cancel_order", "order.status", "packed")
    asked = [{"role": "user", "content": " ".join(record)}]
    rendered = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert rendered == asked_text(record)
    said = [*asked, {"role": "assistant", "content": "=> ok"}]
    assert tokenizer.apply_chat_template(said, tokenize=False) == (
        asked_text(record) + decided_text(("=>", "ok")) + tokenizer.eos_token
    )


def test_the_shipped_directory_is_whole_and_served_as_any_qwen3() -> None:
    weights = (WEIGHTS / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == MADE["weights_sha256"]
    assert (WEIGHTS / "README.md").read_text(encoding="utf-8") == card(MADE)
    config = json.loads((WEIGHTS / "config.json").read_text())
    assert (config["architectures"], config["tie_word_embeddings"]) == (["Qwen3ForCausalLM"], False)
    files = [path for path in WEIGHTS.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8 * 2**20  # policy and experience model together
    assert load_tokenizer(WEIGHTS).get_vocab() == build_word_tokenizer(WORDS).get_vocab()


def test_the_page_says_what_lies_beside_the_weights() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experience-training.md").read_text(encoding="utf-8")
    for arm in ("composed", "nano", "layered"):
        for where in ("crawled", "unseen"):
            assert f"{MADE[where][arm]['writes'][1]:.3f}" in page


async def test_the_shipped_model_decides_what_the_desk_would() -> None:
    with closing(open_local(WEIGHTS)) as endpoint:
        learned = read_learned(WEIGHTS)
        model = LearnedExperience(endpoint, learned, programs=ProgramTracker(lambda _: (), {}))
        said = {
            status: read_decision(
                (await model.words(f"cancel_order {ORDER}? true {ORDER}.status {status} done false"))[0]
            )
            for status in ("packed", "cancelled")
        }
        assert said["packed"].outcome == "ok"
        refusal = learned.vocabulary.tools["cancel_order"].form(said["cancelled"].outcome)
        assert refusal is not None
        assert "is already cancelled" in refusal


@pytest.mark.slow
async def test_behind_a_server_of_vllm_it_says_the_same_as_in_process() -> None:
    """Records of real calls of every tool: equal words, as probable, and all of them decisions."""
    by_tool: dict[str, list[str]] = {}
    for one in lessons_of(TRAIN_SEEDS[:3]).lessons:
        by_tool.setdefault(one.tool, []).append(" ".join(one.record))
    records = [text for some in by_tool.values() for text in list(dict.fromkeys(some))[:3]]
    assert len(by_tool) >= 10
    said: list[list[tuple[str, float]]] = []
    server = VllmDouble(WEIGHTS, name="experience")
    with closing(server), closing(MemoryStore()) as store:
        for learned in (
            ExperienceSettings(dir=str(WEIGHTS)),
            ExperienceSettings(dir=str(WEIGHTS), urls=(server.url,), served_name="experience"),
        ):
            settings = Settings(experience=learned)
            with with_decisions(chained_experience(store, settings), settings) as model:
                assert isinstance(model, FallbackChain)
                assert isinstance(model.then, LearnedExperience)
                said.append([await model.then.words(text) for text in records])
    for (words, probability), (served_words, served_probability) in zip(*said, strict=True):
        assert served_words == words
        assert served_probability == pytest.approx(probability, abs=1e-4)
        read_decision(words)
    assert {one["temperature"] for one in server.asked} == {0.0}
    assert len(server.asked) == len(records)


def test_it_learns_from_train_worlds_and_is_measured_on_held_out_ones() -> None:
    assert {row.split for rows in recorded([TRAIN_SEEDS.start]) for row in rows} == {Split.TRAIN}
    assert {row.split for rows in worked(HELD_OUT_SEEDS.start) for row in rows} == {Split.HELD_OUT}
    assert lessons_of([HELD_OUT_SEEDS.start]).lessons == ()


def test_without_reasons_the_same_is_taught_but_why() -> None:
    worlds = TRAIN_SEEDS[:3]
    with_reasons, bare = lessons_of(worlds), lessons_of(worlds, reasons=False)
    assert any(one.label.why for one in with_reasons.lessons)
    assert [replace(one, label=replace(one.label, why=())) for one in with_reasons.lessons] == list(
        bare.lessons
    )
    assert with_reasons.vocabulary == bare.vocabulary
    assert card(MADE | {"reasons": False}).rstrip().endswith("--no-reasoning")
    assert "--no-reasoning" not in card(MADE)


@pytest.mark.slow
def test_it_learns_and_equal_seeds_learn_the_same() -> None:
    lessons = lessons_of(TRAIN_SEEDS[:8]).lessons
    words = sorted({word for one in lessons for word in (*one.record, *one.label.words())})
    tokenizer = build_word_tokenizer(words)
    heard: list[list[Progress]] = [[], []]
    for steps in heard:
        model = new_model(tokenizer, seed=1)
        teach(model, tokenizer, lessons, course=Schedule(steps=40), seed=1, tell=steps.append)
    assert [one.loss for one in heard[0]] == [one.loss for one in heard[1]]
    assert heard[0][-1].accuracy > 0.9 > heard[0][0].accuracy


@pytest.mark.slow
def test_a_built_experience_model_says_how_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told_lines: list[str] = []
    facts = build(tmp_path / "model", SMALL, tell=told_lines.append)
    assert (facts["seed"], facts["worlds"], facts["held_out"]) == (4, 6, 1)
    assert read_learned(tmp_path / "model").facts["lessons"] == facts["lessons"] > 400
    assert "6 train worlds" in (tmp_path / "model" / "README.md").read_text().replace("\n", " ")
    assert command.main(["experience", str(tmp_path / "model")]) == 2
    assert capsys.readouterr().err.endswith("is there already; name another directory, or delete it first\n")
