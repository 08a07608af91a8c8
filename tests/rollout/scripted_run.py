"""A run by a deterministic runner double, in a process of its own that tests kill and signal.

python scripted_run.py ROOT NAME: begins the run, or goes on with it when it is there; prints its totals.
It leaves a file for whoever watches it: `ROOT/pressed-PID` has a byte for each signal that it took.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.engines.processes import Processes
from dreamgym_kit.interfaces import EventSink
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.distributed import DistributedRunner
from dreamgym_kit.rollout.engine import RunTotals, run_episodes
from dreamgym_kit.rollout.event_loop import run_to_end
from dreamgym_kit.rollout.jobs import jobs_for
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.rundir import Manifest, RunDirectory, directory_name
from dreamgym_kit.rollout.stop import StopSwitch, stop_on_signals
from dreamgym_kit.rollout.worker import WorkerContext, kit_version
from dreamgym_kit.rollout.worker_protocol import WorkerSpec
from dreamgym_kit.types import Answer, Call, Effect, Episode, Source, Task, Transition, Verdict

KEPT = [verdict for verdict in Verdict if verdict is not Verdict.ERROR]  # a resume runs errors again

SIBLINGS = 2
LEAVE_AFTER_S = 0.5  # as the commands have it


class RunnerDouble:
    """Stands for a graph: what an episode does follows from its id alone; how long it takes does not."""

    def __init__(self, seconds: float, way: str, stand_at: int) -> None:
        self._seconds = seconds
        self._way = way
        self._stand_at = stand_at
        self._begun = 0

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        if int(task.id[1:]) * SIBLINGS + repeat > self._stand_at:
            await asyncio.Event().wait()  # until somebody ends the process
        await self._wait(self._seconds * random.Random(f"{task.id}.{repeat} takes").uniform(0.5, 1.5))
        self._begun += 1
        dice = random.Random(f"{task.id}.{repeat}")
        if self._way == "by-order":  # planted bug: what an episode does depends on when it ran
            dice = random.Random(self._begun)
        steps = tuple(
            Transition(
                call=Call(
                    "look_up", {"order": f"A-{dice.randrange(1000)}"}, call_id=str(time.monotonic_ns())
                ),
                answer=Answer(f"total {dice.randrange(10_000)}", Source.RECORDED),
                effect=Effect.READ,
                episode=f"{task.id}.{repeat}",
                step=step,
                environment=task.environment,
                elapsed_s=time.monotonic() % 1,
            )
            for step in range(1, dice.randrange(1, 6) + 1)
        )
        return Episode(
            id=f"{task.id}.{repeat}",
            task=task.id,
            repeat=repeat,
            environment=task.environment,
            verdict=dice.choice(KEPT),
            reason="by the dice",
            transitions=steps,
            reward=dice.random(),
            attempt=attempt,
            started_at=time.time(),
        )

    async def _wait(self, seconds: float) -> None:
        match self._way:
            case "thread":  # a sync tool in a thread, which nobody can cancel
                await asyncio.get_running_loop().run_in_executor(None, time.sleep, seconds)
            case "blocks":  # a sync tool on the loop itself
                until = time.monotonic() + seconds
                while time.monotonic() < until:  # one sleep would keep a signal that came just before it
                    time.sleep(min(seconds, 0.1))
            case "stubborn":  # code that takes its cancellation for an error and goes on
                until = time.monotonic() + seconds
                while (left := until - time.monotonic()) > 0:
                    try:
                        await asyncio.sleep(left)
                    except asyncio.CancelledError:
                        continue
            case _:
                await asyncio.sleep(seconds)


class ForgetfulJournal(Journal):
    """Planted bug: does not remember what earlier legs finished."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.done.clear()


class TellingSwitch(StopSwitch):
    """Writes down that a signal was taken."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def press(self, signal_number: int) -> None:
        super().press(signal_number)
        os.write(self._file, b"!")


class DeafSwitch(TellingSwitch):
    """Planted bug: takes a second signal for the first one again."""

    def cancel(self, reason: str) -> None:
        self.request(reason)


@asynccontextmanager
async def opened(given: Mapping[str, Any], *_: object) -> AsyncIterator[WorkerContext]:
    """The double in a worker."""
    yield WorkerContext(runner=RunnerDouble(given["seconds"], given["way"], given["stand_at"]))


async def in_workers(
    work: Callable[[DistributedRunner], Awaitable[RunTotals]],
    given: argparse.Namespace,
    events: EventSink,
    stop: StopSwitch,
) -> RunTotals:
    here = str(Path(__file__).parent)
    if here not in sys.path:  # left out by PYTHONSAFEPATH; a worker imports by our path
        sys.path.insert(0, here)
    spec = WorkerSpec(
        "scripted_run:opened",
        {"seconds": given.seconds, "way": given.way, "stand_at": given.stand_at},
        lanes=given.lanes,
        kit=kit_version(),
    )
    async with DistributedRunner(
        Processes(),
        spec,
        workers=given.workers,
        budget=RunBudget(),
        events=events,
        stop=stop,
        repeatable=True,
    ) as runner:
        return await work(runner)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("name")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--way", default="await")
    parser.add_argument("--stand-at", type=int, default=sys.maxsize, help="episodes after so many never end")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--plant", default="")
    given = parser.parse_args()
    given.root.mkdir(parents=True, exist_ok=True)
    manifest = Manifest("7f3a", time.time(), {"episodes": given.episodes})
    there = (given.root / directory_name(given.name)).exists()
    begin = RunDirectory.resume if there else RunDirectory.create
    where = (given.root / given.name, manifest) if there else (given.root, given.name, manifest)
    pressed = given.root / f"pressed-{os.getpid()}"
    stop = DeafSwitch(pressed) if given.plant == "deaf" else TellingSwitch(pressed)
    leave_after_s = None if given.plant == "deaf" else LEAVE_AFTER_S
    with begin(*where) as run, stop_on_signals(stop, leave_after_s=leave_after_s):
        journal = (
            ForgetfulJournal(run.path / "episodes.jsonl") if given.plant == "forgetful" else run.journal()
        )
        with journal, run.events() as events:
            tasks = [Task(f"t{number}", {}) for number in range(given.episodes // SIBLINGS)]
            work = partial(
                run_episodes,
                jobs_for(tasks, SIBLINGS),
                journal=journal,
                concurrency=given.lanes,
                events=events,
                stop=stop,
            )
            runner = RunnerDouble(given.seconds, given.way, given.stand_at)
            doing = work(runner) if not given.workers else in_workers(work, given, events, stop)
            totals: RunTotals = run_to_end(doing)
    print(json.dumps(asdict(totals)))
    return stop.exit_code or 0


if __name__ == "__main__":
    sys.exit(main())
