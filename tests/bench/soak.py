"""Ten thousand episodes in one dream: what grows after the first thousand?

Files, threads and tasks are counted as each episode ends. A leak raises the least that is ever there; what
only comes and goes does not. Tasks are counted after the run too, when none of it may be left: while it
goes on, their number wavers by some for each lane. Memory is the resident set, by medians.
Run as a program this file measures in its own process and prints JSON.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

EPISODES = 10_000
SETTLED = 1_000  # episodes, after which nothing may grow
WINDOW = 200  # episodes
IN_FLIGHT = 64
LAST = 2 * IN_FLIGHT  # episodes at the end, in which one lane after the other has nothing more to do


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process holds as one episode ends."""

    rss_mb: float
    files: int
    threads: int
    tasks: int


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Figures for the bench runner. Nothing is drawn by chance: the seed changes nothing."""
    return figures()


def quick(seed: int) -> list[tuple[str, float, str]]:
    """The figures in small."""
    return figures(1_200, settled=500)


def figures(episodes: int = EPISODES, settled: int = SETTLED) -> list[tuple[str, float, str]]:
    """Growth from the window that ends at `settled` to the last one; tasks count with the threads."""
    command = [sys.executable, __file__, str(episodes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    return growth([Sample(**row) for row in found["samples"]], settled, left=found["left"])


def growth(samples: Sequence[Sample], settled: int, *, left: int) -> list[tuple[str, float, str]]:
    """Compare two windows of samples; `left` tasks were there after the run and not before it."""
    before, after = samples[settled - WINDOW : settled], samples[-WINDOW - LAST : -LAST]
    least = {
        name: min(getattr(one, name) for one in after) - min(getattr(one, name) for one in before)
        for name in ("files", "threads", "tasks")
    }
    tasks = left + (least["tasks"] if least["tasks"] > IN_FLIGHT else 0)
    memory = statistics.median(one.rss_mb for one in after) - statistics.median(one.rss_mb for one in before)
    return [
        ("growth_mb", memory, "MB"),
        ("growth_files", least["files"], "files"),
        ("growth_threads", least["threads"] + tasks, "threads and tasks"),
    ]


async def _soak(episodes: int, folder: Path) -> tuple[list[Sample], int]:
    import psutil
    from agent_double import ModelDouble, agent, look, question, weigh

    from dreamgym_kit.adapters.langgraph.run.request import RunRequest
    from dreamgym_kit.adapters.langgraph.run.run import run
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.rollout.events import NoEvents
    from dreamgym_kit.routing.router import Mode
    from dreamgym_kit.settings.schema import Settings
    from dreamgym_kit.types import Task

    samples: list[Sample] = []
    process = psutil.Process()

    class Samples:
        def emit(self, kind: str, /, **facts: object) -> None:
            if kind == "episode_finished":
                counts = (process.num_fds(), threading.active_count(), len(asyncio.all_tasks()))
                samples.append(Sample(process.memory_info().rss / 2**20, *counts))

    graph = agent(ModelDouble(tools=("look", "weigh")), look, weigh)
    settings = Settings().with_overrides({"runs": str(folder / "runs"), "simulate.concurrency": IN_FLIGHT})
    store = SqliteStore(folder / "recordings.db")
    tasks = [Task(f"t{number}", question(number), expect={"calls": ["look"]}) for number in range(episodes)]
    recording = RunRequest(graph=graph, tasks=tasks[:1], settings=settings, mode=Mode.RECORD, store=store)
    await run(recording, events=NoEvents())
    before = len(asyncio.all_tasks())
    result = await run(RunRequest(graph=graph, tasks=tasks, settings=settings, store=store), events=Samples())
    store.close()
    if (result.totals.passed, len(samples)) != (episodes, episodes):
        raise RuntimeError(f"these are not the episodes to be measured: {result.totals}")
    return samples, len(asyncio.all_tasks()) - before


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        samples, left = asyncio.run(_soak(int(sys.argv[1]), Path(name)))
    print(json.dumps({"samples": [asdict(sample) for sample in samples], "left": left}))
