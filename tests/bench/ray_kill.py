"""Workers of a Ray cluster that are killed while they run: is an episode lost, or done twice?

Two workers run episodes of a runner double that waits as for a model; one of them is killed (SIGKILL) 20
times at random moments, whenever both are there. Lost is what began and is not in the journal with its own
end, or ended as inconclusive or as an error; doubled what is in the journal twice, or was told as finished
twice.
"""

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILLS = 20
PACE_S = (1.0, 3.0)  # between a worker that is there again and its end
EPISODE_S = 0.2
LANES = 8  # of each worker
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run with kills has shown."""

    episodes: int
    kills: int
    lost: int  # not in the journal, or there without an end of their own
    doubled: int  # twice in the journal, or kept twice
    again: int  # run a second time, as they should be: their worker was killed


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner."""
    return figures(run_trial(seed))


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The same in small."""
    return figures(run_trial(seed, kills=2))


def figures(trial: Trial) -> list[tuple[str, float, str]]:
    """The trial's figures."""
    return [
        ("lost", trial.lost, "episodes"),
        ("doubled", trial.doubled, "episodes"),
        ("kills", trial.kills, "workers"),
        ("again", trial.again, "episodes"),
        ("episodes", trial.episodes, "episodes"),
    ]


def run_trial(seed: int, *, kills: int = KILLS, repeatable: bool = True) -> Trial:
    """Run until so many workers were killed, and what they ran is done; again, where it is `repeatable`."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_trial(Path(folder), kills, random.Random(seed), repeatable))


async def _trial(folder: Path, kills: int, chance: random.Random, repeatable: bool) -> Trial:
    from dreamgym_kit.adapters.engines.ray_cluster import RayHost
    from dreamgym_kit.rollout.budgets import RunBudget
    from dreamgym_kit.rollout.distributed import DistributedRunner
    from dreamgym_kit.rollout.engine import run_episodes
    from dreamgym_kit.rollout.jobs import jobs_for
    from dreamgym_kit.rollout.journal import Journal, JournalReader
    from dreamgym_kit.rollout.stop import StopSwitch
    from dreamgym_kit.rollout.worker import kit_version
    from dreamgym_kit.rollout.worker_protocol import WorkerSpec
    from dreamgym_kit.types import Task

    host, stop, heard = _Counted(RayHost(WORKERS)), StopSwitch(), _Heard()
    lanes = WORKERS * LANES
    seconds = kills * (PACE_S[1] + 5.0)  # five: until a worker is there again
    tasks = [Task(f"t{number}", {}) for number in range(int(seconds / EPISODE_S) * lanes)]
    runner = DistributedRunner(
        host,
        WorkerSpec("ray_kill:opened", {}, lanes=LANES, limit_s=60, kit=kit_version()),
        workers=WORKERS,
        budget=RunBudget(),
        events=heard,
        stop=stop,
        repeatable=repeatable,
    )
    path = folder / "episodes.jsonl"
    async with runner:
        killing = asyncio.create_task(_kill(host, kills, chance, stop))
        with Journal(path) as journal:
            totals = await run_episodes(
                jobs_for(tasks, 1), runner, journal=journal, concurrency=lanes, events=heard, stop=stop
            )
        killed = await killing
    if killed < kills:
        raise RuntimeError(f"the run was over after {killed} kills of {kills}")
    kept = Counter(episode.id for episode in JournalReader(path))
    return Trial(
        episodes=len(kept),
        kills=killed,
        lost=len(heard.begun - set(kept)) + totals.inconclusive + totals.errors,
        doubled=sum(count - 1 for count in kept.values()) + heard.twice,
        again=heard.lost,
    )


async def _kill(host: "_Counted", kills: int, chance: random.Random, stop: Any) -> int:
    """Kill one of the workers again and again; then let the run come to its end."""
    for number in range(kills):
        await asyncio.sleep(chance.uniform(*PACE_S))
        while len(host.alive) < WORKERS:
            await asyncio.sleep(0.05)
        victim = chance.choice(sorted(host.alive))
        host.alive.discard(victim)
        os.kill(victim, signal.SIGKILL)
        if number + 1 == kills:
            await asyncio.sleep(PACE_S[1])
    stop.request("all kills are done")
    return kills


class _Counted:
    """A host that knows which processes its workers are."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self.alive: set[int] = set()

    async def start(self, number: int) -> Any:
        worker = await self._host.start(number)
        self.alive.add(worker.pid)
        return worker

    async def close(self) -> None:
        await self._host.close()


class _Heard:
    """Hears what begins, what is lost, and what ends more than once."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self._finished: Counter[str] = Counter()
        self.lost = 0

    @property
    def twice(self) -> int:
        return sum(count - 1 for count in self._finished.values())

    def emit(self, kind: str, /, **facts: Any) -> None:
        if kind == "episode_started":
            self.begun.add(facts["episode"])
        elif kind == "episode_finished":
            self._finished[facts["episode"]] += 1
        elif kind == "lost":
            self.lost += 1


@asynccontextmanager
async def opened(_given: Mapping[str, Any], events: Any, budget: Any) -> AsyncIterator[Any]:
    """What a worker opens; see `rollout.worker.Opener`."""
    from dreamgym_kit.rollout.worker import WorkerContext

    yield WorkerContext(runner=RunnerDouble())


class RunnerDouble:
    """Stands for a graph that waits for its model."""

    async def run(self, task: Any, *, repeat: int, attempt: int) -> Any:
        from dreamgym_kit.types import Episode, Verdict

        await asyncio.sleep(EPISODE_S * random.uniform(0.5, 1.5))
        return Episode(
            id=f"{task.id}.{repeat}",
            task=task.id,
            repeat=repeat,
            environment=task.environment,
            verdict=Verdict.PASSED,
            reason="as asked",
            attempt=attempt,
        )
