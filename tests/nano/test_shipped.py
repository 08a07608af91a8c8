"""The policy that ships with the package: what its manifest says, held against the weights themselves."""

import hashlib
import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from dreamgym_kit.adapters.models.folders import load_model, load_tokenizer
from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.recipes.desk.cases import FAMILIES
from dreamgym_kit.recipes.nano.build import MANIFEST, WEIGHTS, card
from dreamgym_kit.recipes.nano.episodes import TOOL_ARGS
from dreamgym_kit.recipes.nano.score import held_out_worlds, measure, play
from dreamgym_kit.recipes.nano.tokens import Stream, build_tokenizer

MADE: dict[str, Any] = json.loads((WEIGHTS / MANIFEST).read_text(encoding="utf-8"))


def shipped() -> tuple[Network, Stream]:
    return Network(load_model(WEIGHTS)), Stream(load_tokenizer(WEIGHTS))


def test_the_manifest_belongs_to_these_weights_and_the_card_to_the_manifest() -> None:
    weights = (WEIGHTS / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == MADE["weights_sha256"]
    assert (WEIGHTS / "README.md").read_text(encoding="utf-8") == card(MADE)


def test_the_page_says_what_the_manifest_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
    for name in ("sampled", "greedy"):
        solved = MADE["scores"][name]["solved"]
        assert f"{100 * solved:.1f}%" in page
        assert f"({MADE['scores'][name]['episodes']:,} episodes)" in page


def test_all_that_ships_is_small_and_weights_are_only_safetensors() -> None:
    files = [path for path in WEIGHTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8 * 2**20
    assert {path.suffix for path in files} == {".safetensors", ".json", ".jinja", ".md"}


def test_its_tokenizer_is_the_desks_of_today() -> None:
    kept, built = load_tokenizer(WEIGHTS), build_tokenizer()
    assert kept.get_vocab() == built.get_vocab()
    assert kept.chat_template == built.chat_template


@pytest.mark.slow
def test_it_makes_calls_that_the_desk_takes() -> None:
    network, stream = shipped()
    played = play(network, stream, held_out_worlds(3), temperature=0)
    calls = [call for each in played for said, _ in each.turns for call in said.calls]
    assert len(calls) > 50
    known = [name in TOOL_ARGS and set(args) == {*TOOL_ARGS[name]} for name, args in calls]
    assert sum(known) / len(known) > 0.97
    assert {each.family for each in played if each.solved} > set(FAMILIES[:3])


@pytest.mark.slow
def test_its_scores_come_out_again() -> None:
    network, stream = shipped()
    said = MADE["scores"]["sampled"]
    again = measure(network, stream, held_out_worlds(10), samplings=2, seed=900)
    noise = sqrt(
        said["solved"] * (1 - said["solved"]) * (1 / 90 + 1 / said["episodes"])
    )  # worlds weigh, not tries
    assert abs(again.solved - said["solved"]) < 3 * noise
