"""A driver that is killed: two workers, one of which is held up by C code that lets nobody else run.

python killed_driver.py FOLDER: where an episode leaves a file as it begins. Prints its workers once both run.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contracts.engine_acts import OPENER
from waiting import wait_until_async

from dreamgym_kit.adapters.engines.processes import Processes
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.jobs import Job
from dreamgym_kit.rollout.worker_protocol import (
    BudgetServer,
    WorkerLink,
    WorkerSpec,
    episode_request,
    open_request,
)
from dreamgym_kit.types import Task


async def main() -> None:
    host = Processes()
    budget = BudgetServer(RunBudget())
    workers = [WorkerLink(await host.start(number), budget) for number in (1, 2)]
    begun = Path(sys.argv[1])
    spec = WorkerSpec(OPENER, {}, paths=tuple(sys.path))
    for worker in workers:
        await worker.call(open_request(spec))
    for worker, act in zip(workers, ("hangs", "holds_the_interpreter"), strict=True):
        asyncio.get_running_loop().create_task(
            worker.call(episode_request(Job(Task(act, {}, meta={"act": act, "begun": str(begun)}), 1)))
        )
    await wait_until_async(lambda: len(list(begun.iterdir())) == 2, "two episodes")
    print(*(worker.channel.pid for worker in workers), flush=True)
    await asyncio.sleep(3600)


asyncio.run(main())
