"""What every `Collector` promises: the rollouts of a graph, and the double that the loop is tested with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from capture.policy_server_double import PolicyServerDouble
from capture.test_rollouts import asked_for, looks_and_tells
from training.loop_doubles import CollectorDouble, ServerDouble, tasks_named

from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.interfaces import Collector, Group
from dreamgym_kit.types import Task

Given = tuple[Collector, list[Task]]


@pytest.fixture(params=["graph", "double"])
async def given(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Given]:
    """A collector, and three tasks that it can collect."""
    if request.param == "double":
        yield CollectorDouble(ServerDouble(version="step-000000")), tasks_named(3)
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = asked_for(tmp_path, PolicyServerDouble(looks_and_tells), name="collected", tasks=3)
    async with open_rollouts(wanted) as rollouts:
        yield rollouts, list(wanted.tasks)  # type: ignore[arg-type]


def told(groups: list[Group]) -> list[list[tuple[str, str, list[tuple[int, ...]]]]]:
    """What each episode was, and what the policy said in it."""
    return [
        [
            (one.episode.id, str(one.episode.verdict), [turn.ids for turn in one.turns])
            for one in group.rollouts
        ]
        for group in groups
    ]


async def test_groups_come_in_the_order_of_tasks_with_all_their_siblings(given: Given) -> None:
    collector, tasks = given
    groups = await collector.collect(tasks[::-1], 3, step=1, seed=7)
    assert [group.task for group in groups] == [task.id for task in tasks[::-1]]
    for group in groups:
        assert [one.episode.repeat for one in group.rollouts] == [1, 2, 3]
        assert {one.episode.task for one in group.rollouts} == {group.task}
        assert all(turn.episode == one.episode.id for one in group.rollouts for turn in one.turns)


async def test_asked_again_under_the_same_weights_the_same_rollouts_come(given: Given) -> None:
    collector, tasks = given
    first = told(await collector.collect(tasks, 2, step=3, seed=7))
    assert told(await collector.collect(tasks, 2, step=3, seed=7)) == first


async def test_another_seed_gives_other_rollouts(given: Given) -> None:
    collector, tasks = given
    first = told(await collector.collect(tasks, 4, step=3, seed=7))
    assert told(await collector.collect(tasks, 4, step=3, seed=8)) != first


async def test_every_turn_names_the_weights_that_said_it_and_has_a_log_prob_for_each_token(
    given: Given,
) -> None:
    collector, tasks = given
    turns = [
        turn
        for group in await collector.collect(tasks, 2, step=1, seed=1)
        for one in group.rollouts
        for turn in one.turns
    ]
    assert turns
    assert all(turn.version for turn in turns)
    assert all(len(turn.ids) == len(turn.logprobs) for turn in turns)
