"""R6: after the first episodes of a run nothing grows: memory, files, threads, tasks.

Here the engine with a runner double; a whole graph in full is the bench `soak`, in small its test here.
"""

import asyncio
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dreamgym_kit.rollout.engine import Job, run_episodes
from dreamgym_kit.rollout.events import EventLog
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Task, Transition, Verdict

LANES = 16
RUNNER = Path(__file__).parents[1] / "bench" / "run.py"


@dataclass(frozen=True)
class Growth:
    mb: float
    files: int
    threads: int
    tasks: int

    @property
    def within(self) -> bool:
        return self.mb < 50 and max(self.files, self.threads, self.tasks) <= 0


class RunnerDouble:
    """Makes an episode of ten calls out of its task's name."""

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        await asyncio.sleep(0)
        await self.work()
        name = f"{task.id}.{repeat}"
        steps = tuple(
            Transition(Call("look", {"id": step}), Answer("x" * 200), Effect.READ, name, step)
            for step in range(1, 11)
        )
        return Episode(name, task.id, repeat, Environment(), Verdict.PASSED, "done", steps)

    async def work(self) -> None:
        """What an episode does beside its calls."""


class LeakyRunnerDouble(RunnerDouble):
    """Planted bug: keeps a file, a task and 100 kB of each episode."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: list[object] = []

    async def work(self) -> None:
        self._kept += [self._file.open("rb"), asyncio.create_task(asyncio.sleep(600)), bytearray(100_000)]

    def close(self) -> None:
        for one in self._kept:
            if not isinstance(one, (bytearray, asyncio.Task)):
                one.close()  # type: ignore[attr-defined]


def grown(folder: Path, runner: RunnerDouble, *, episodes: int, settled: int) -> Growth:
    """Run so many episodes; the least of each kind in the last tenth against the window up to `settled`."""
    process, samples = psutil.Process(), []

    def sample(_: Episode) -> None:
        tasks = len(asyncio.all_tasks())
        samples.append((process.memory_info().rss, process.num_fds(), threading.active_count(), tasks))

    async def go() -> None:
        jobs = [Job(Task(f"t{number}", {}), 1) for number in range(episodes)]
        with Journal(folder / "episodes.jsonl") as journal, EventLog(folder / "events.jsonl") as events:
            await run_episodes(
                jobs,
                runner,
                journal=journal,
                concurrency=LANES,
                events=events,
                stop=StopSwitch(),
                on_episode=sample,
            )

    asyncio.run(go())
    window = settled // 2
    before, after = samples[settled - window : settled], samples[-window - LANES : -LANES]
    memory, *_ = zip(*after, strict=True)
    earlier, *_ = zip(*before, strict=True)
    least = [min(row[kind] for row in after) - min(row[kind] for row in before) for kind in (1, 2, 3)]
    growth = Growth((statistics.median(memory) - statistics.median(earlier)) / 2**20, *least)
    print(f"R6 episodes {episodes} {growth}")
    return growth


def test_a_run_that_keeps_what_it_opened_is_caught(tmp_path: Path) -> None:
    (tmp_path / "held").write_text("x")
    runner = LeakyRunnerDouble(tmp_path / "held")
    growth = grown(tmp_path, runner, episodes=300, settled=100)
    runner.close()
    assert min(growth.files, growth.tasks) > 50
    assert not growth.within


@pytest.mark.nightly
def test_ten_thousand_episodes_leave_nothing_behind(tmp_path: Path) -> None:
    assert grown(tmp_path, RunnerDouble(), episodes=10_000, settled=1_000).within


@pytest.mark.nightly
@pytest.mark.bench
def test_a_short_soak_keeps_memory_and_files_where_they_are() -> None:
    done = subprocess.run(
        [sys.executable, RUNNER, "soak", "--quick"], capture_output=True, text=True, check=False
    )
    figures = dict(line.split()[:2] for line in done.stdout.splitlines())
    print(f"R6 whole graph {figures}")
    assert float(figures["growth_mb"]) < 50
    assert float(figures["growth_files"]) <= 0
    assert float(figures["growth_threads"]) <= 0
