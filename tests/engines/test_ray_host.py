"""Workers in a real Ray cluster of this machine, beside what every engine promises (tests/contracts)."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dreamgym_kit.adapters.engines import ray_cluster
from dreamgym_kit.adapters.engines.ray_cluster import RayHost
from dreamgym_kit.errors import UserError, WorkerLost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.worker import kit_version
from dreamgym_kit.rollout.worker_protocol import WorkerSpec
from dreamgym_kit.types import Task

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_of_two")]


@pytest.fixture
async def host() -> AsyncIterator[RayHost]:
    host = RayHost(2)
    yield host
    await host.close()


@asynccontextmanager
async def working(host: RayHost, **given: Any) -> AsyncIterator[DistributedRunner]:
    runner = DistributedRunner(
        host,
        WorkerSpec("engines.ray_place:opened", given, lanes=2, limit_s=300, kit=kit_version()),
        workers=1,
        budget=RunBudget(),
        events=NoEvents(),
        stop=StopSwitch(),
        repeatable=True,
    )
    async with runner:
        yield runner


async def test_episodes_run_on_a_loop_that_can_be_guarded_where_the_driver_is(host: RayHost) -> None:
    """Ray makes uvloop the choice of the whole process, where it is installed."""
    async with working(host) as runner:
        episode = await runner.run(Task("a", {}), repeat=1, attempt=1)
    assert isinstance(episode.final, dict)
    assert episode.final["loops"] == ["asyncio.unix_events", "asyncio.unix_events"]
    assert episode.final["folder"] == os.getcwd()
    assert episode.final["pid"] != os.getpid()


async def test_names_of_variables_that_a_worker_lacks_are_told_and_nothing_that_they_hold(
    host: RayHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-5f1d02c47a93"
    monkeypatch.setenv("SHOP_API_KEY", canary)  # after the cluster was started: its workers have none
    async with working(host) as runner:
        (told,) = runner.reports.warnings
        assert told.endswith("not set there, and set here: SHOP_API_KEY")
    from ray._private.worker import _global_node

    session = Path(_global_node.get_session_dir_path())
    written = [file for file in session.rglob("*") if file.is_file()]
    assert len(written) > 5
    assert [file for file in written if canary.encode() in file.read_bytes()] == []


async def test_an_agent_that_cannot_be_imported_there_is_an_error_that_says_where(host: RayHost) -> None:
    with pytest.raises((UserError, RuntimeError), match="no_such_agent") as caught:
        async with working(host, module="no_such_agent"):
            pass
    assert f"code and files have to lie at the same path ({os.getcwd()})" in str(caught.value)


async def test_a_worker_without_room_is_not_waited_for(host: RayHost) -> None:
    workers = [await host.start(number) for number in (1, 2)]
    with pytest.raises(WorkerLost, match=r"worker 3 was not ready within 1 s.+the cluster has 2 in all"):
        await RayHost(3, ready_s=1).start(3)
    for worker in workers:
        await worker.end()
        await worker.end()


async def test_where_more_and_more_are_lost_no_more_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "STARTS_PER_HOUR", 1)
    host = RayHost(1)
    for number in (1, 2):
        await (await host.start(number)).end()
    with pytest.raises(UserError, match="1 workers were lost within an hour"):
        await host.start(3)
