"""What the workers of these tests open: a runner double that tells where it runs."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dreamgym_kit.interfaces import EventSink
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.worker import WorkerContext
from dreamgym_kit.types import Episode, Task, Verdict


class TellingDouble:
    """Ends at once, or once the file `after` is there; says in which process and on which kind of loop."""

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        while "after" in task.meta and not Path(str(task.meta["after"])).exists():
            await asyncio.sleep(0.05)
        made = asyncio.new_event_loop()
        made.close()
        loops = [type(asyncio.get_running_loop()).__module__, type(made).__module__]
        return Episode(
            id=f"{task.id}.{repeat}",
            task=task.id,
            repeat=repeat,
            environment=task.environment,
            verdict=Verdict.PASSED,
            reason="as asked",
            attempt=attempt,
            final={"pid": os.getpid(), "folder": os.getcwd(), "loops": loops},
        )


@asynccontextmanager
async def opened(
    given: Mapping[str, Any], _events: EventSink, _budget: RunBudget
) -> AsyncIterator[WorkerContext]:
    if "module" in given:
        __import__(given["module"])
    yield WorkerContext(runner=TellingDouble())
