"""A dry run in which a learned model decides: named in settings, opened before anything runs, or refused."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from deciding_double import DecidingDouble, by_heart
from each_row import each_row
from strict_shop_double import EFFECTS, READS, mined_shop, probed, recordings_of

from dreamgym_kit.adapters.langgraph.run import experiences
from dreamgym_kit.adapters.langgraph.run.api import _answering
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience, with_decisions, with_model
from dreamgym_kit.adapters.models.named_models import learned_directory, open_endpoint, open_experience
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.chain import FallbackChain
from dreamgym_kit.dream.learned.training_data import Taught, met, taught
from dreamgym_kit.dream.learned.vocabulary import LEARNED_FILE, LearnedCheckpoint, learned_to_json
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import ExperienceSettings, Settings, SimulateSettings
from dreamgym_kit.types import Answer, Call, Environment, Source, ToolSpec


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[DecidingDouble]:
    """In place of weights; what was opened."""
    made: list[DecidingDouble] = []

    @contextmanager
    def opening(folder: Path, settings: Settings, *, served: bool):
        made.append(DecidingDouble(lambda text: made[-1].says(text)))  # type: ignore[attr-defined]
        yield made[-1]

    monkeypatch.setattr(experiences, "_opened", opening)
    return made


@cache
def shop_lessons() -> Taught:
    return taught(list(met(*mined_shop(12))))


def written(folder: Path) -> tuple[Path, Callable[[str], str]]:
    """A model's directory without weights, and what the model would say."""
    lessons = shop_lessons()
    (folder / LEARNED_FILE).write_text(json.dumps(learned_to_json(LearnedCheckpoint(lessons.vocabulary))))
    return folder, by_heart(lessons.lessons)


async def test_the_model_that_settings_name_decides_what_the_chain_leaves_open(
    tmp_path: Path, opened: list[DecidingDouble]
) -> None:
    folder, says = written(tmp_path)
    store, world = MemoryStore(), Environment("shop", 900)
    reads = [row for row in probed(900, 0, writes=0) if row.call.tool in READS]
    store.put([*recordings_of(range(12)), *reads])
    settings = Settings(experience=ExperienceSettings(dir=str(folder)))
    done = next(row.answer.content for row in reads if row.answer.content.get("status") == "done")
    with with_decisions(chained_experience(store, settings), settings) as model:
        opened[0].says = says  # type: ignore[attr-defined]
        assert isinstance(model, FallbackChain)
        situation = Situation(world, "t", "e", (), "", ToolSpec("reship", EFFECTS["reship"]))
        answer = await model.answer(Call("reship", {"order_id": done["order_id"]}), situation)
    assert answer.source in (Source.DERIVED, Source.MODEL)
    assert answer.error == f"{done['order_id']} is not under way"


@pytest.mark.parametrize(("parts", "layered"), [((), True), (("reasoning",), False)])
def test_a_block_of_ones_own_code_is_answered_by_the_same(
    tmp_path: Path, opened: list[DecidingDouble], parts: tuple[str, ...], layered: bool
) -> None:
    folder, _ = written(tmp_path)
    settings = Settings(
        experience=ExperienceSettings(dir=str(folder)), simulate=SimulateSettings(disable=parts)
    )
    with _answering(None, MemoryStore(), settings) as model:
        assert isinstance(model, FallbackChain) == layered
        assert (model is not None, type(model).__name__ == "_Without") == (True, not layered)
    assert len(opened) == layered


def test_without_the_setting_nothing_is_opened(opened: list[DecidingDouble]) -> None:
    chain = chained_experience(MemoryStore(), Settings())
    with with_decisions(chain, Settings()) as model:
        assert model is chain
    assert opened == []


def test_where_reasons_are_left_out_the_one_decides_that_was_taught_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[tuple[str, bool]] = []

    @contextmanager
    def opening(folder: Path, settings: Settings, *, served: bool):
        folders.append((folder.name, served))
        yield DecidingDouble(lambda text: "")

    monkeypatch.setattr(experiences, "_opened", opening)
    for name in ("model", "plain"):
        (tmp_path / name).mkdir()
        written(tmp_path / name)
    said = ExperienceSettings(
        dir=str(tmp_path / "model"),
        no_reasoning_model=str(tmp_path / "plain"),
        urls=("http://h/v1",),
        served_name="model",
    )
    for parts in ((), ("reasoning",), ("state",), ("reasoning", "history")):
        settings = Settings(experience=said, simulate=SimulateSettings(disable=parts))
        with with_decisions(chained_experience(MemoryStore(), settings), settings):
            pass
    assert folders == [
        ("model", True),
        ("plain", False),
        ("plain", False),
    ]  # its decisions are of state


async def test_its_decisions_are_left_out_only_where_nobody_else_decides() -> None:
    told = Answer("shipped", source=Source.MODEL, confidence=0.9)

    class ModelDouble:
        waits = False

        async def answer(self, call: Call, situation: Situation) -> Answer:
            return told

    situation = Situation(Environment("shop", 1), "t", "e", (), "", ToolSpec("reship", EFFECTS["reship"]))
    for plain, provenance in ((None, Source.UNANSWERED), ("plain", Source.MODEL)):
        settings = Settings(
            experience=ExperienceSettings(dir="model", no_reasoning_model=plain),
            simulate=SimulateSettings(disable=("reasoning",)),
        )
        model = with_model(ModelDouble(), None, settings, None)
        assert model is not None
        assert (await model.answer(Call("reship", {}), situation)).source is provenance


def test_without_recordings_there_is_nothing_to_write_answers_from(
    tmp_path: Path, opened: list[DecidingDouble]
) -> None:
    folder, _ = written(tmp_path)
    with with_decisions(None, Settings(experience=ExperienceSettings(dir=str(folder)))) as model:
        assert model is None
    assert opened == []


@each_row(
    ("toml", "wrong"),
    [
        ('[experience]\ndir = "nowhere"', r"nowhere: is no model directory"),
        ('[experience]\nmodel = "qwen"', r"dreamgym.toml:2: experience.model is the name of a served model"),
        ('[experience]\nurls = ["http://h/v1"]', r"experience.urls is set, but neither experience.model"),
    ],
)
def test_a_model_that_is_none_is_named_before_anything_runs(tmp_path: Path, toml: str, wrong: str) -> None:
    settings = parse_settings(toml, path=tmp_path / "dreamgym.toml")
    with pytest.raises(UserError, match=wrong):
        open_experience(settings)


def test_a_learned_model_and_a_language_model_share_a_section(tmp_path: Path) -> None:
    """`served_name` says that the directory is served too; else it decides in this process."""
    folder, _ = written(tmp_path)
    both = ExperienceSettings(dir=str(folder), urls=("http://h/v1",), model="qwen")
    alone = ExperienceSettings(dir=str(folder), urls=("http://h/v1",))
    assert (
        learned_directory(Settings(experience=both))
        == learned_directory(Settings(experience=alone))
        == folder
    )
    assert open_endpoint(Settings(experience=alone)) is None
    assert open_endpoint(Settings(experience=both)) is not None


def test_a_role_may_have_a_model_of_its_own() -> None:
    said = ExperienceSettings(
        urls=("http://h/v1",), model="a", judge_model="b", user_model="http://other/v1", dir="models/x"
    )
    assert (said.of("judge").urls, said.of("judge").model) == (("http://h/v1",), "b")
    assert (said.of("user").urls, said.of("user").model) == (("http://other/v1",), "a")
    assert said.of("teacher") == said


@pytest.mark.slow
def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")
    folder, _ = written(tmp_path)
    settings = Settings(experience=ExperienceSettings(dir=str(folder)))
    chain = chained_experience(MemoryStore(), settings)
    with pytest.raises(UserError, match=r"config\.json"), with_decisions(chain, settings):
        pass
