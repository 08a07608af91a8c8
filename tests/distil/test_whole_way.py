"""Recordings to a model directory and back: what was taught is what it says, and its gate is obeyed."""

import asyncio
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed", exc_type=ImportError)
from distil.shop_recordings import SPECS, episode, shop, taught
from nano_double import model_double, tokenizer_double

from dreamgym_kit.adapters.distilling.material import Material, begin, material, read_begun
from dreamgym_kit.adapters.distilling.training import held_out_calls, rows_of, taught_to, train
from dreamgym_kit.adapters.models.named_models import (
    allowance,
    directory_of,
    gate_of_settings,
    open_directory,
)
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.adapters.trainers.sft import SftOptions, train_sft
from dreamgym_kit.chat import ChatRequest
from dreamgym_kit.deployment.model_files import digest_of_folder
from dreamgym_kit.dream.decision import SCHEMA
from dreamgym_kit.dream.held_out import situation_of
from dreamgym_kit.dream.llm_experience import question_messages
from dreamgym_kit.errors import UserError
from dreamgym_kit.settings.schema import ExperienceSettings, Settings
from dreamgym_kit.training.annotation import KeptAnnotations, annotate
from dreamgym_kit.training.annotators import RecordedNotes
from dreamgym_kit.training.lessons import Leaving
from dreamgym_kit.trust.acceptance import FILE, exactness, gate_of, write_gate

pytestmark = pytest.mark.slow  # importing trl alone takes seconds
SHORT = Leaving(1, 1, 1)


def base(folder: Path) -> Path:
    """A tiny model that reads the rules in a few tokens."""
    row = episode(1, 0)[0]
    rules = question_messages(row.call, situation_of(row, [], SPECS["get_order"]))[0].content
    chunks = {rules[start : start + 100] for start in range(0, len(rules), 100)}
    tokenizer = tokenizer_double((*sorted(chunks), '", "', ": null, ", "get_order", "cancel_order"))
    model = model_double(vocab=len(tokenizer), context=4096, sharp=1.0)
    model.config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def known(tmp_path: Path):
    """A shop of eight worlds on two sides, annotated by itself."""
    with closing(SqliteStore(tmp_path / "shop.db")) as store:
        store.put(shop(8, 2))
        settings = Settings(buffer=str(tmp_path / "shop.db"))
        out = tmp_path / "out"
        begun = begin(out, store, settings, list(SPECS.values()), by=("environment",), share=0.25, seed=0)
        found = material(begun, store, settings)
        asyncio.run(annotate(RecordedNotes(), found.sides.taught, KeptAnnotations(out)))
        yield found, out


def test_a_model_says_what_it_was_taught_to_its_last_token(tmp_path: Path) -> None:
    (lesson, *_), _, _ = taught(tmp_path, shop(4, 2), SHORT)
    start = base(tmp_path / "base")
    rows = rows_of([lesson], start).rows
    options = SftOptions(steps=80, batch=1, learning_rate=5e-3, warmup_steps=5)
    told = train_sft(start, rows, tmp_path / "model", options)
    assert told[-1].loss < 0.2 < told[0].loss
    with closing(open_directory(tmp_path / "model")) as model:
        reply = asyncio.run(model.chat(ChatRequest(lesson.messages, schema=SCHEMA, max_tokens=600)))
    assert (reply.content, reply.finish_reason) == (lesson.answer, "stop")


def test_what_is_not_known_has_no_weight(tmp_path: Path) -> None:
    lessons, _, _ = taught(tmp_path, shop(4, 2), SHORT)
    start = base(tmp_path / "base")
    masked = replace(lessons[0], unlearned=((0, 14),))  # {"reasoning": "
    row, all_of_it = rows_of([masked], start).rows[0], rows_of(lessons[:1], start).rows[0]
    assert row.ids == all_of_it.ids
    given, learned = row.weights.count(0.0), all_of_it.weights.count(0.0)
    assert 0 < given - learned < 15
    assert all_of_it.weights[-1] == 1.0  # the end is learned


def test_half_a_character_in_an_answer_is_taught_as_a_sign_for_one(tmp_path: Path) -> None:
    lessons, _, _ = taught(tmp_path, shop(4, 2), SHORT)
    odd = replace(lessons[0], answer='{"reasoning": "\ud83d"}', unlearned=((15, 16),))
    given, learned = rows_of([odd, replace(odd, unlearned=())], base(tmp_path / "base")).rows
    assert given.ids == learned.ids
    assert len(given.ids) == len(given.weights)
    assert given.weights.count(0.0) > learned.weights.count(0.0)


def test_lessons_longer_than_the_model_reads_are_counted(tmp_path: Path) -> None:
    lessons, _, _ = taught(tmp_path, shop(4, 2), SHORT)
    found = rows_of(lessons, base(tmp_path / "base"), most=300)
    assert found.too_long + len(found.rows) == len(lessons)
    assert found.too_long > 0


def test_the_whole_way_and_the_gate_at_its_end(known, tmp_path: Path) -> None:
    found, out = known
    done = train(out, found, base(tmp_path / "base"), SftOptions(steps=2, batch=2), leaving=SHORT)
    assert done.counts.lessons.total() == sum(len(one.steps) for one in found.sides.taught)
    assert taught_to(done.folder) == {one.key for one in found.sides.taught}
    assert "reasoning" in (done.folder / "README.md").read_text()
    with closing(open_directory(done.folder)) as model:
        calls = asyncio.run(held_out_calls(found, model, most=4))
        none = asyncio.run(
            held_out_calls(found, model, without=frozenset(one.key for one in found.sides.measured))
        )
    assert (len(calls), none) == (4, [])
    figures = exactness(calls, threshold=0.5)
    assert figures.prompt_tokens > 0
    gate = gate_of(figures, weights=digest_of_folder(done.folder))
    settings = Settings(experience=ExperienceSettings(dir=str(done.folder)))
    assert directory_of(settings) == done.folder
    with pytest.raises(UserError, match="was never tried on held-out recordings, and training with it"):
        allowance(settings, gate_of_settings(settings), training=True)
    assert allowance(settings, gate_of_settings(settings), training=False) is None
    write_gate(done.folder / FILE, gate, figures.to_json())
    assert gate_of_settings(settings) == gate
    barred = allowance(settings, gate_of_settings(settings), training=True)
    assert barred is not None
    assert barred("get_order") is not None  # two steps taught it nothing: it has not passed
    (done.folder / "config.json").write_text((done.folder / "config.json").read_text() + " ")
    with pytest.raises(UserError, match="is of other weights"):
        gate_of_settings(settings)


def test_code_answers_beside_no_model_at_all(known) -> None:
    found, _ = known
    calls = asyncio.run(held_out_calls(found, None))
    assert len(calls) == sum(len(one.steps) for one in found.sides.measured)
    assert all(call.model is None for call in calls)
    assert exactness(calls, threshold=0.5).share("composed") > 0.5


def test_held_out_recordings_stay_held_out(known, tmp_path: Path) -> None:
    found, out = known
    with pytest.raises(UserError, match=r"was begun with share 0[.]25, not 0[.]5: its held-out"):
        begin(out, found.store, found.settings, [], by=("environment",), share=0.5, seed=0)
    assert read_begun(out).tools == dict(SPECS)
    again = material(read_begun(out), found.store, found.settings)
    assert isinstance(again, Material)
    assert again.sides == found.sides
    with pytest.raises(UserError, match="no distillation was begun there; begin one"):
        read_begun(tmp_path / "none")
    (out / "distil.json").write_text(json.dumps({"tools": 1}))
    with pytest.raises(UserError, match="cannot be read"):
        read_begun(out)
