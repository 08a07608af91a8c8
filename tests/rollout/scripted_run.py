"""A run by a deterministic runner double, in a process of its own that tests kill and signal.

python scripted_run.py ROOT NAME: begins the run, or goes on with it when it is there; prints its totals.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path

from dreamgym_kit.rollout.engine import RunTotals, jobs_for, run_episodes
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.manifest import Manifest
from dreamgym_kit.rollout.rundir import RunDirectory, directory_name
from dreamgym_kit.rollout.signals import stop_on_signals
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.vocabulary import Answer, Call, Effect, Episode, Provenance, Task, Transition, Verdict

SIBLINGS = 2


class RunnerDouble:
    """Stands for a graph: what an episode does follows from its id alone; how long it takes does not."""

    def __init__(self, seconds: float, way: str) -> None:
        self._seconds = seconds
        self._way = way
        self._begun = 0

    async def run(self, task: Task, *, sibling: int, attempt: int) -> Episode:
        await self._wait(self._seconds * random.uniform(0.5, 1.5))
        self._begun += 1
        dice = random.Random(f"{task.id}.{sibling}")
        if self._way == "by-order":  # planted bug: what an episode does depends on when it ran
            dice = random.Random(self._begun)
        steps = tuple(
            Transition(
                call=Call(
                    "look_up", {"order": f"A-{dice.randrange(1000)}"}, call_id=str(time.monotonic_ns())
                ),
                answer=Answer(f"total {dice.randrange(10_000)}", Provenance.RECORDED),
                effect=Effect.READ,
                episode=f"{task.id}.{sibling}",
                step=step,
                world=task.world,
                elapsed_s=random.random(),
            )
            for step in range(1, dice.randrange(1, 6) + 1)
        )
        return Episode(
            id=f"{task.id}.{sibling}",
            task=task.id,
            sibling=sibling,
            world=task.world,
            verdict=dice.choice(list(Verdict)),
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
                time.sleep(seconds)
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


class DeafSwitch(StopSwitch):
    """Planted bug: takes a second signal for the first one again."""

    def cancel(self, reason: str) -> None:
        self.request(reason)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("name")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--way", default="await")
    parser.add_argument("--plant", default="")
    given = parser.parse_args()
    manifest = Manifest("7f3a", time.time(), {"episodes": given.episodes})
    there = (given.root / directory_name(given.name)).exists()
    begin = RunDirectory.resume if there else RunDirectory.create
    where = (given.root / given.name, manifest) if there else (given.root, given.name, manifest)
    stop = DeafSwitch() if given.plant == "deaf" else StopSwitch()
    leave_after_s = None if given.plant == "deaf" else 0.6
    with begin(*where) as run, stop_on_signals(stop, leave_after_s=leave_after_s):
        journal = (
            ForgetfulJournal(run.path / "episodes.jsonl") if given.plant == "forgetful" else run.journal()
        )
        with journal, run.events() as events:
            tasks = [Task(f"t{number}", {}) for number in range(given.episodes // SIBLINGS)]
            totals: RunTotals = asyncio.run(
                run_episodes(
                    jobs_for(tasks, SIBLINGS),
                    RunnerDouble(given.seconds, given.way),
                    journal=journal,
                    concurrency=given.lanes,
                    events=events,
                    stop=stop,
                )
            )
    print(json.dumps(asdict(totals)))
    return stop.exit_code or 0


if __name__ == "__main__":
    sys.exit(main())
