"""The engines that there are, each opened over the runner double of `engine_acts`."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.engine_acts import OPENER, RunnerDouble

from dreamgym_kit.adapters.engines.processes import Processes
from dreamgym_kit.adapters.engines.ray_cluster import RayHost
from dreamgym_kit.interfaces import EpisodeRunner, EventSink, WorkerHost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.engine import GRACE_S, RunTotals, run_episodes
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.jobs import Job, jobs_for
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.worker import kit_version
from dreamgym_kit.rollout.worker_protocol import WorkerSpec
from dreamgym_kit.types import Task


@dataclass(kw_only=True)
class Wanted:
    """How a run is to be; the names are those of `run_episodes`."""

    concurrency: int = 4
    events: EventSink = field(default_factory=NoEvents)
    stop: StopSwitch = field(default_factory=StopSwitch)
    budget: RunBudget = field(default_factory=RunBudget)
    limit_s: float | None = None
    grace_s: float = GRACE_S
    on_episode: Callable[..., None] | None = None
    workers: int = 2
    repeatable: bool = True


@dataclass
class Ran:
    totals: RunTotals
    seconds: float  # of the episodes, without what opening the engine took
    runner: EpisodeRunner


@asynccontextmanager
async def local(wanted: Wanted) -> AsyncIterator[tuple[EpisodeRunner, dict[str, Any]]]:
    runner = RunnerDouble(wanted.events, wanted.budget)
    try:
        yield runner, {"limit_s": wanted.limit_s, "grace_s": wanted.grace_s}
    finally:
        runner.let_go.set()


def over(host: Callable[[], WorkerHost]) -> Callable[[Wanted], AbstractAsyncContextManager[Any]]:
    """An engine whose workers are a host's."""

    @asynccontextmanager
    async def opened(wanted: Wanted) -> AsyncIterator[tuple[EpisodeRunner, dict[str, Any]]]:
        runner = DistributedRunner(
            host(),
            WorkerSpec(
                OPENER,
                {},
                lanes=-(-wanted.concurrency // wanted.workers),
                limit_s=None if wanted.limit_s is None else wanted.limit_s + wanted.grace_s,
                calls_limit=wanted.budget.limits[0],
                usd_limit=wanted.budget.limits[1],
                kit=kit_version(),
            ),
            workers=wanted.workers,
            budget=wanted.budget,
            events=wanted.events,
            stop=wanted.stop,
            repeatable=wanted.repeatable,
        )
        async with runner:
            yield runner, {}

    return opened


ENGINES: dict[str, Callable[[Wanted], AbstractAsyncContextManager[Any]]] = {
    "local": local,
    "workers": over(Processes),
    "ray": over(lambda: RayHost(2)),  # in the cluster of the session, which has room for them
}
HOSTS: dict[str, Callable[[], WorkerHost]] = {  # those that can lose a worker
    "workers": Processes,
    "ray": lambda: RayHost(2),
}


def tasks(count: int, act: str = "soon", **meta: Any) -> list[Task]:
    return [Task(f"t{number}", {}, meta={"act": act, **meta}) for number in range(count)]


def jobs(given: Sequence[Task]) -> list[Job]:
    return jobs_for(given, 1)


async def run(engine: str, path: Path, given: Sequence[Task], **wanted: Any) -> Ran:
    """Run the tasks, one episode each, into the journal at `path`."""
    asked = Wanted(**wanted)
    async with ENGINES[engine](asked) as (runner, limits):
        with Journal(path) as journal:
            began = time.monotonic()
            totals = await run_episodes(
                jobs(given),
                runner,
                journal=journal,
                concurrency=asked.concurrency,
                events=asked.events,
                stop=asked.stop,
                on_episode=asked.on_episode,
                **limits,
            )
            return Ran(totals, time.monotonic() - began, runner)
