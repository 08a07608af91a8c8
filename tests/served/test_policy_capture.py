"""An agent that streams, its models replaced by a real vLLM: each turn's tokens are those that it sampled."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from served.starter import POLICY, remote
from training.conversations import merged

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.adapters.models.vllm.launch import VllmServer
from dreamgym_kit.interfaces import Group
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Task

pytestmark = pytest.mark.vllm

AGENT = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def get_order(order_id: str) -> str:
    """Read an order."""
    raise AssertionError("a real tool ran")

graph = create_agent(ChatOpenAI(model="gpt-x", streaming=True), [get_order])
'''
SETTINGS = '[tools.get_order]\neffect = "read"\n[policy]\nmax_output = 12\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "streaming_agent.py").write_text(AGENT)
    return tmp_path


def test_a_streaming_agents_turns_are_captured_from_a_real_server(
    policy_server: VllmServer, folder: Path
) -> None:
    asked = [
        Task(f"t{one}", {"messages": [{"role": "user", "content": f"Where is order o{one}?"}]})
        for one in range(2)
    ]

    async def work(policy: object) -> list[Group]:
        request = RunRequest(
            graph="streaming_agent.py:graph",
            tasks=asked,
            settings=parse_settings(SETTINGS, path=folder / "dreamgym.toml"),
            policy=policy,
            directory=folder / "rollouts",
        )
        async with open_rollouts(request) as rollouts:
            return await rollouts.collect(asked, 4, step=1, seed=5)

    with remote(policy_server) as served:
        groups = asyncio.run(work(served))
    rollouts = [one for group in groups for one in group.rollouts]
    assert len(rollouts) == 8
    assert all(one.turns for one in rollouts)  # one, or more where the model made a call
    turns = [turn for one in rollouts for turn in one.turns]
    _, counts = merged(turns)
    assert (counts.unfit, counts.trained) == ({}, counts.sampled)
    local = open_local(POLICY)
    try:
        scored = asyncio.run(local.score([[*turn.prompt_ids, *turn.ids] for turn in turns]))
    finally:
        local.close()
    for turn, scores in zip(turns, scored, strict=True):
        assert scores[len(turn.prompt_ids) - 1 :] == pytest.approx(turn.logprobs, abs=2e-3)
