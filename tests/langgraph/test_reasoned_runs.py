"""A whole dry run whose answers a model reasons, over an endpoint named in settings."""

import json
import re
from dataclasses import replace

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.report.terminal import render_run
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import (
    BudgetSettings,
    ExperienceSettings,
    Settings,
    SimulateSettings,
    ToolSettings,
)
from dreamgym_kit.types import Answer, Call, Effect, Environment, Task, Transition

EFFECTS = {"get_order": ToolSettings(Effect.READ), "cancel_order": ToolSettings(Effect.WRITE)}
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
        tools=EFFECTS,
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
        settings = Settings(tools=EFFECTS, experience=endpoint)
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
