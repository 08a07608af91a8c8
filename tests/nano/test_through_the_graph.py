"""The shipped policy in the real graph: what the lockstep play says of it holds there, to the token."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra train is not installed")

from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.models.folders import load_model, load_tokenizer
from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.interfaces import Group
from dreamgym_kit.recipes.desk.graph import graph
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import task_record
from dreamgym_kit.recipes.nano.build import WEIGHTS
from dreamgym_kit.recipes.nano.score import held_out_worlds, play
from dreamgym_kit.recipes.nano.tokens import Stream
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.types import Verdict

pytestmark = pytest.mark.slow
WORLDS = held_out_worlds(3)


async def played_in_the_graph(directory: Path) -> list[Group]:
    """Greedy, one episode a world, on the real tools."""
    tasks = [task_from_record(task_record(f"t{world}", world), source="here") for world in WORLDS]
    settings = load_settings(file=SETTINGS_FILE, environ={}).with_overrides({"policy.temperature": 0.0})
    policy = open_local(WEIGHTS)
    request = RunRequest(
        graph=graph,
        tasks=tasks,
        settings=settings,
        mode=Mode.RECORD,
        store=MemoryStore(),
        directory=directory,
        policy=policy,
    )
    try:
        async with open_rollouts(request) as rollouts:
            return await rollouts.collect(tasks, 1, step=1, seed=3)
    finally:
        policy.close()


async def test_the_real_graph_and_the_lockstep_play_say_the_same_tokens(tmp_path: Path) -> None:
    groups = await played_in_the_graph(tmp_path / "rollouts")
    stream = Stream(load_tokenizer(WEIGHTS))
    played = play(Network(load_model(WEIGHTS)), stream, WORLDS, temperature=0)
    assert len(groups) == len(played) == len(WORLDS)
    for group, direct in zip(groups, played, strict=True):
        [rollout] = group.rollouts
        last = rollout.turns[-1]
        assert [*last.prompt_ids, *last.ids] == direct.ids
        assert (rollout.episode.verdict is Verdict.PASSED) is direct.solved
    assert 0.2 < sum(direct.solved for direct in played) / len(played) < 0.9
