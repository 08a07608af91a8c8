"""Dry runs whose answers a model gives: a learned one that settings name, or one behind an endpoint."""

import json
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving
from deciding_double import DecidingDouble, by_heart
from each_row import each_row
from strict_shop_double import EFFECTS, READS, mined_shop, probed, recordings_of

from dreamgym_kit.adapters.langgraph.run import experiences
from dreamgym_kit.adapters.langgraph.run.api import _answering
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience, with_decisions, with_model
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.models.named_models import learned_directory, open_endpoint, open_experience
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.dream.chain import FallbackChain
from dreamgym_kit.dream.learned.training_data import Taught, met, taught
from dreamgym_kit.dream.learned.vocabulary import LEARNED_FILE, LearnedCheckpoint, learned_to_json
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import (
    BudgetSettings,
    ExperienceSettings,
    Settings,
    SimulateSettings,
    ToolSettings,
)
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Task, ToolSpec, Transition


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


TOOL_EFFECTS = {"get_order": ToolSettings(Effect.READ), "cancel_order": ToolSettings(Effect.WRITE)}


TASK = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})


ANSWER = '{"order_id": "o1", "status": "open"}'


DECISION = {
    "reasoning": "",
    "outcome": "ok",
    "like": None,
    "leaves": [],
    "answer": ANSWER,
    "error": "",
}


def say(body: dict) -> str:
    """What the double says to a question of the kit."""
    if "You play the user" in body["messages"][0]["content"]:
        return json.dumps({"reasoning": "", "action": "done", "text": ""})
    if "judge whether" in body["messages"][0]["content"]:
        return json.dumps({"reasoning": "it was cancelled", "verdict": "success"})
    asked = " ".join(str(message["content"]) for message in body["messages"])
    named = re.findall(r'"order_id": ?"(o\d+)"', asked)  # the call stands last
    answer = DECISION["answer"].replace("o1", named[-1]) if named else DECISION["answer"]
    return json.dumps({**DECISION, "answer": answer, "set": [], "confidence": 1.0})


async def dry_run(
    spec: str, url: str, *, task: Task = TASK, budget: BudgetSettings | None = None, **endpoint
):
    settings = Settings(
        tools=TOOL_EFFECTS,
        simulate=SimulateSettings(repeats=3, concurrency=1),
        experience=ExperienceSettings(urls=(url,), model="m", **endpoint),
        budget=budget or BudgetSettings(),
    )
    return await run(RunRequest(graph=spec, tasks=[task], settings=settings), events=NoEvents())


async def test_siblings_are_answered_by_the_model_and_no_tool_runs(project) -> None:
    with serving(FaultyEndpointDouble(content=say)) as server:
        result = await dry_run(project.write(), server.url, judge=True)
    assert result.summary.sources == {"model": 9}
    assert [line.reason for line in result.summary.episodes] == ["judged by a model: it was cancelled"] * 3
    assert result.summary.violations == ()
    assert project.touched() == []


async def test_what_each_part_of_the_dream_cost_is_counted_into_the_episodes(project) -> None:
    task = replace(TASK, meta={"user": {"goal": "cancel"}})
    with serving(FaultyEndpointDouble(content=say)) as server:
        prices = {"usd_per_million_input": 10.0, "usd_per_million_output": 100.0}  # 0.002 an answer
        result = await dry_run(project.write(), server.url, task=task, judge=True, **prices)
    cost = result.summary.to_json()["cost"]
    calls = {part: spend["calls"] for part, spend in cost["dream"].items()}
    assert calls == {"experience": 3, "judge": 3, "user": 3}  # siblings share what was reasoned
    assert cost["dream"]["judge"]["prompt_tokens"] == 300
    assert cost["usd"] == pytest.approx(9 * 0.002)
    assert len(server.requests) == 10  # and one before the run
    episodes = list(RunDirectory.open(result.directory).episodes())
    assert sum(episode.cost_usd for episode in episodes) == pytest.approx(cost["usd"])
    assert sorted(episodes[0].dream_spend) == ["experience", "judge", "user"]


async def test_the_models_of_the_dream_stop_at_the_budget(project) -> None:
    with serving(FaultyEndpointDouble(content=say)) as server:
        prices = {"usd_per_million_output": 100.0}  # 0.001 an answer
        result = await dry_run(
            project.write(), server.url, budget=BudgetSettings(max_usd=0.003), judge=True, **prices
        )
    assert len(server.requests) == 3
    assert result.totals.stopped == "budget spent: spend in USD (limit 0.003)"
    assert (result.totals.cut, result.totals.not_run) == (1, 2)
    assert project.touched() == []


async def test_a_role_asks_the_model_that_settings_name_for_it(project) -> None:
    task = replace(TASK, meta={"user": {"goal": "cancel"}})
    with serving(FaultyEndpointDouble(content=say)) as server:
        named = {"judge": True, "judge_model": "strict", "user_model": "talkative"}
        await dry_run(project.write(), server.url, task=task, **named)
    roles = {"judge whether": "strict", "You play the user": "talkative"}
    for words, model in roles.items():
        bodies = [body for body in server.requests if words in body["messages"][0]["content"]]
        assert {body["model"] for body in bodies} == {model}
    assert {body["model"] for body in server.requests} == {"m", *roles.values()}


async def test_no_model_judges_unless_it_is_asked_to(project) -> None:
    with serving(FaultyEndpointDouble(content=say)) as server:
        result = await dry_run(project.write(), server.url)
    assert not any("judge whether" in body["messages"][0]["content"] for body in server.requests)
    assert result.summary.inconclusive == 3


async def test_a_run_asks_held_out_recordings_first_and_only_once(project) -> None:
    rows = [
        Transition(
            Call("get_order", {"order_id": f"o{world}"}),
            Answer({"order_id": f"o{world}", "status": f"s{world}"}),
            *(Effect.READ, f"e{world}", 1, Environment("w", world)),
        )
        for world in range(8)
    ]
    store = MemoryStore()
    store.put(rows)
    spec = project.write()
    with serving(FaultyEndpointDouble(content=say)) as server:
        endpoint = ExperienceSettings(urls=(server.url,), model="m", judge=False, usd_per_million_input=10.0)
        settings = Settings(tools=TOOL_EFFECTS, experience=endpoint)
        request = RunRequest(graph=spec, tasks=[TASK], settings=settings, store=store)
        result = await run(request, events=NoEvents())
        asked = len(server.requests)
        kept = RunDirectory.open(result.directory).read_trials()
        again = await run(replace(request, directory=result.directory, resume=True), events=NoEvents())
    assert kept is not None
    assert [(one.form, one.exact) for one in kept[0]] == [("whole", False)] * 2
    assert result.summary.dream_spend["calibration"].calls == 2
    table = result.summary.to_json()["manifest"]["reasoned_support"]
    assert [(row["form"], row["right"], row["tried"]) for row in table] == [("whole", 0, 2)]
    assert "the model was right in 0 of 2 held-out calls" in " ".join(render_run(result.summary).split())
    assert len(server.requests) == asked + 1  # whether the server answers at all
    assert again.summary.dream_spend["calibration"] == result.summary.dream_spend["calibration"]
    assert again.summary.to_json()["manifest"]["reasoned_support"] == table
    assert "confidence 0.32, required 0.50" in result.summary.episodes[0].reason


async def test_a_run_whose_model_cannot_be_asked_does_not_begin(project) -> None:
    with (
        serving(FaultyEndpointDouble(way=lambda number: "401")) as server,
        pytest.raises(UserError, match=r"^the dream's model cannot be asked: .*Nothing was run\.$"),
    ):
        await dry_run(project.write(), server.url)
    assert project.touched() == []
