"""A model directory stands in for an agent's models: exact turns of a real engine, in runs and rollouts."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nano_double import write_double
from training.conversations import merged
from vllm_double import VllmDouble

from dreamgym_kit import simulate
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.interfaces import Group
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.types import Task

pytestmark = pytest.mark.slow

AGENT = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def get_order(order_id: str) -> str:
    """Read an order."""
    raise AssertionError("a real tool ran")

graph = create_agent(ChatOpenAI(model="gpt-x"), [get_order])
'''
SETTINGS = '[tools.get_order]\neffect = "read"\n[policy]\nmax_output = 24\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double(tmp_path_factory.mktemp("policy") / "model")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "dreamgym.toml").write_text(SETTINGS)
    (tmp_path / "in_process_agent.py").write_text(AGENT)
    tasks = [
        {"id": f"t{one}", "input": {"messages": [{"role": "user", "content": f"order {one}?"}]}}
        for one in range(3)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return tmp_path


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    kit = Path(sys.executable).with_name("dreamgym-kit")
    return subprocess.run([str(kit), *words], cwd=folder, capture_output=True, text=True, timeout=600)


def test_evaluate_asks_the_directory_and_no_provider(folder: Path, model: Path) -> None:
    named = ("in_process_agent.py:graph", "--tasks", "tasks.jsonl")
    said = (*named, "--policy", str(model), "-n", "2", "--json")
    done = command("evaluate", *said, folder=folder)
    assert done.returncode == 3, done.stderr  # nothing says what is right
    told = json.loads(done.stdout)
    assert told["b"]["counts"]["inconclusive"] == 6
    (run,) = (folder / "runs").iterdir()
    episodes = list(RunDirectory.open(run).episodes())
    assert [(one.stop, one.model_calls) for one in episodes] == [("finished", 1)] * 6
    assert all(one.tokens > 0 for one in episodes)


@pytest.mark.nightly
def test_a_directory_that_is_no_model_is_named_and_nothing_runs(folder: Path) -> None:
    said = ("in_process_agent.py:graph", "--tasks", "tasks.jsonl", "--policy", "nothing_here")
    done = command("evaluate", *said, folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing_here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "runs").exists()


def test_rollouts_in_lockstep_are_the_same_to_the_last_bit(folder: Path, model: Path) -> None:
    policy = open_local(model, lockstep=True, patience_s=3600)
    request = RunRequest(
        graph="in_process_agent.py:graph",
        tasks=folder / "tasks.jsonl",
        settings=parse_settings(SETTINGS, path=folder / "dreamgym.toml"),
        policy=policy,
        directory=folder / "rollouts",
    )
    asked: list[Task] = [
        Task(f"t{one}", {"messages": [{"role": "user", "content": f"order {one}?"}]}) for one in range(3)
    ]

    async def work() -> list[list[Group]]:
        async with open_rollouts(request) as rollouts:
            return [await rollouts.collect(asked, 4, step=step, seed=5) for step in (1, 1, 2)]

    try:
        once, again, later = asyncio.run(work())
    finally:
        policy.close()
    assert turns(once) == turns(again)
    assert turns(once) != turns(later)
    samples, counts = merged([turn for group in once for one in group.rollouts for turn in one.turns])
    assert (len(samples), counts.unfit, counts.trained) == (12, {}, counts.sampled)


BLOCKING = """
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="gpt-x")

async def agent(state):
    return {"messages": [model.invoke(state["messages"])]}

graph = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent").compile()
"""


def test_nodes_that_hold_up_the_loop_do_not_wait_for_episodes_that_cannot_ask(
    folder: Path, model: Path
) -> None:
    (folder / "blocking_agent.py").write_text(BLOCKING)
    policy = open_local(model, lockstep=True, patience_s=3600)
    request = RunRequest(
        graph="blocking_agent.py:graph",
        tasks=folder / "tasks.jsonl",
        settings=parse_settings("[policy]\nmax_output = 8\n", path=folder / "dreamgym.toml"),
        policy=policy,
        directory=folder / "rollouts",
    )
    asked = [Task("t0", {"messages": [{"role": "user", "content": "order 0?"}]})]

    async def work() -> list[Group]:
        async with open_rollouts(request) as rollouts:
            return await rollouts.collect(asked, 4, step=1, seed=5)

    try:
        (group,) = asyncio.run(work())
    finally:
        policy.close()
    assert [len(one.turns) for one in group.rollouts] == [1] * 4


def test_a_policy_behind_a_server_is_asked_by_its_served_name(folder: Path, model: Path) -> None:
    server = VllmDouble(model)
    try:
        settings = parse_settings(f'{SETTINGS}urls = ["{server.url}"]\n', path=folder / "dreamgym.toml")
        result = simulate("in_process_agent.py:graph", "tasks.jsonl", settings=settings, policy=server.name)
    finally:
        server.close()
    episodes = list(RunDirectory.open(result.directory).episodes())
    assert [(one.stop, one.model_calls) for one in episodes] == [("finished", 1)] * 3
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["matters"]["policy"]["model"] == server.name


def turns(groups: list[Group]) -> list[Any]:
    return [
        (turn.ids, turn.logprobs, turn.version)
        for group in groups
        for one in group.rollouts
        for turn in one.turns
    ]
