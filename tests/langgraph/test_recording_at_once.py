"""Real episodes run one at a time on a system that they share, and at once where each has its own."""

from typing import Any

import pytest
from each_row import each_row

import dreamgym_kit
from dreamgym_kit import Task
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.langgraph.run.run import run
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import UserError
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.settings.load import parse_settings

STOCK = """
import asyncio
from typing import ClassVar

from langchain_core.tools import tool

class Stock:
    isolated: ClassVar[bool] = {isolated}
    inside: ClassVar[set] = set()
    most: ClassVar[int] = 0

    def configurable(self, world, episode): return {{}}

    async def reset(self, world, episode):
        Stock.inside.add(episode)
        Stock.most = max(Stock.most, len(Stock.inside))
        for _ in range(50):  # the others get their turn
            await asyncio.sleep(0)

    async def close(self, episode):
        Stock.inside.discard(episode)

@tool
async def count_stock_{name}(shelf: str) -> str:
    "Count what lies on a shelf."
    return "7"

lazy = create_agent(
    ScriptedModelDouble(turns=["Nothing to do."]), [count_stock_{name}]
)
"""
TASKS = [Task(f"count-{n}", {"messages": [{"role": "user", "content": "hello"}]}) for n in range(4)]


def stock(project: Any, *, isolated: bool) -> tuple[str, Any]:
    graph = project.write(STOCK.format(isolated=isolated, name="isolated" if isolated else "shared"))
    text = f'[environments.default]\nref = "{project.module}:Stock"\n'
    return graph.replace(":graph", ":lazy"), parse_settings(text)


def most_at_once(project: Any) -> int:
    import sys

    return int(sys.modules[project.module].Stock.most)


@each_row(("isolated", "most"), [(False, 1), (True, 4)])
def test_record_runs_episodes_at_once_only_on_systems_of_their_own(
    project: Any, isolated: bool, most: int
) -> None:
    graph, settings = stock(project, isolated=isolated)
    done = dreamgym_kit.record(graph, TASKS, settings=settings, buffer=MemoryStore())
    assert (done.totals.finished, most_at_once(project)) == (4, most)


@each_row("isolated", [False, True])
def test_asking_for_episodes_at_once_on_a_shared_system_is_refused(project: Any, isolated: bool) -> None:
    graph, settings = stock(project, isolated=isolated)
    request = RunRequest(
        graph=graph, tasks=TASKS, settings=settings, mode=Mode.RECORD, store=MemoryStore(), overlap=True
    )
    if isolated:
        assert run_to_end(run(request, events=NoEvents())).totals.finished == 4
        return
    with pytest.raises(UserError, match=r"share the environment 'default'.*isolated = True"):
        run_to_end(run(request, events=NoEvents()))
    assert most_at_once(project) == 0


class NeverAskedOverseerDouble:
    """Lets episodes begin; none of theirs calls a tool."""

    def affords(self, episodes: int) -> bool:
        return True


@each_row(
    ("mode", "stage", "isolated", "most"),
    [
        (Mode.RECORD, Stage.SHADOW, False, 1),
        (Mode.S2R, Stage.LIVE, False, 1),
        (Mode.S2R, Stage.APPROVE, False, 1),
        (Mode.S2R, Stage.SHADOW, False, 4),  # nothing that it does changes the system
        (Mode.S2R, Stage.LIVE, True, 4),
    ],
)
async def test_collected_episodes_share_no_real_system_that_they_write_to(
    project: Any, mode: Mode, stage: Stage, isolated: bool, most: int
) -> None:
    graph, settings = stock(project, isolated=isolated)
    request = RunRequest(
        graph=graph,
        tasks=TASKS,
        settings=settings,
        mode=mode,
        stage=stage,
        store=MemoryStore(),
        overseer=NeverAskedOverseerDouble(),  # type: ignore[arg-type]
    )
    async with open_rollouts(request) as rollouts:
        groups = await rollouts.collect(TASKS, 1, step=0, seed=0)
    assert len(groups) == 4
    assert most_at_once(project) == most
