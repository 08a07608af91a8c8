"""A whole dry run whose answers a model reasons, over an endpoint named in settings."""

import json

import pytest
from bench.faulty_endpoint_double import FaultyEndpointDouble, serving

from dreamgym_kit.adapters.langgraph.runs import RunRequest, run
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.settings.model import EndpointSettings, Settings, SimulateSettings, ToolSettings
from dreamgym_kit.vocabulary import Effect, Task

EFFECTS = {"get_order": ToolSettings(Effect.READ), "cancel_order": ToolSettings(Effect.WRITE)}
TASK = Task("t", {"messages": [{"role": "user", "content": "cancel o1"}]})
DECISION = {"reasoning": "", "outcome": "ok", "like": None, "leaves": [], "answer": "open", "error": ""}


def say(body: dict) -> str:
    """What the double says to a question of the kit."""
    if "judge whether" in body["messages"][0]["content"]:
        return json.dumps({"reasoning": "it was cancelled", "verdict": "success"})
    return json.dumps({**DECISION, "set": [], "confidence": 1.0})


async def dry_run(spec: str, url: str):
    settings = Settings(
        tools=EFFECTS, simulate=SimulateSettings(n=3), endpoint=EndpointSettings(urls=(url,), model="m")
    )
    return await run(RunRequest(graph=spec, tasks=[TASK], settings=settings), events=NoEvents())


async def test_siblings_are_answered_by_the_model_and_no_tool_runs(project) -> None:
    with serving(FaultyEndpointDouble(content=say)) as server:
        result = await dry_run(project.write(), server.url)
    assert result.summary.provenance == {"reasoned": 9}
    assert [line.reason for line in result.summary.episodes] == ["judged by a model: it was cancelled"] * 3
    assert result.summary.violations == ()
    assert project.touched() == []


async def test_a_run_whose_model_cannot_be_asked_does_not_begin(project) -> None:
    with (
        serving(FaultyEndpointDouble(way=lambda number: "401")) as server,
        pytest.raises(UserError, match=r"^the dream's model cannot be asked: .*Nothing was run\.$"),
    ):
        await dry_run(project.write(), server.url)
    assert project.touched() == []
