"""What the contract's episodes do, by name, so that a process elsewhere can do it; and a runner double.

A task says in `meta` what its episode does: {"act": "hangs"}. Everything else ends well. One that does not
end by itself leaves a file of its name in the folder `begun`, and has `passes_s` pass for its loop at once.
"""

import asyncio
import os
import re
import signal
import threading
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit.errors import CallUnanswered, RealCallBlocked, UserError
from dreamgym_kit.interfaces import EventSink
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.jobs import Job
from dreamgym_kit.rollout.worker import WorkerContext
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Task, ToolSpec, Transition, Verdict

OPENER = "contracts.engine_acts:opened"


def ended(job: Job, verdict: Verdict = Verdict.PASSED, stop: str = "finished") -> Episode:
    step = Transition(Call("look_up", {}), Answer("x"), Effect.READ, job.episode, 1)
    return Episode(
        *(job.episode, job.task.id, job.repeat, Environment(), verdict, "ok", (step,)),
        stop=stop,
        cost_usd=0.5,
        attempt=job.attempt,
    )


class RunnerDouble:
    """Does in each episode what its task says."""

    def __init__(self, events: EventSink, budget: RunBudget) -> None:
        self.events, self.budget = events, budget
        self.running = 0
        self.let_go = asyncio.Event()  # at the end: an event loop waits for whoever is left on it
        self.meeting: threading.Barrier | None = None

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        job = Job(task, repeat, attempt)
        self.running += 1
        name = str(task.meta.get("act", "soon"))
        try:
            said = await ACTS[name](self, job)
        finally:
            self.running -= 1
        return said if said is not None else ended(job)


async def soon(_: RunnerDouble, job: Job) -> None:
    await asyncio.sleep(0.001 * (zlib.crc32(job.episode.encode()) % 5))


async def takes(_: RunnerDouble, job: Job) -> None:
    await asyncio.sleep(float(job.task.meta["s"]))


async def after(_: RunnerDouble, job: Job) -> None:
    """Ends once a file is there."""
    file = Path(str(job.task.meta["file"]))
    while not file.exists():
        await asyncio.sleep(0.01)


async def begin(job: Job) -> None:
    """Say that it runs, and have time pass."""
    if "begun" in job.task.meta:
        Path(str(job.task.meta["begun"]), job.episode).touch()
    if "passes_s" in job.task.meta:
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        now, passes_s = loop.time, float(job.task.meta["passes_s"])
        loop.time = lambda: now() + passes_s  # type: ignore[method-assign]


async def hangs(_: RunnerDouble, job: Job) -> None:
    await begin(job)
    await asyncio.sleep(3600)


async def hangs_and_tells(_: RunnerDouble, job: Job) -> None:
    """Leaves another file when it is cancelled."""
    try:
        await hangs(_, job)
    finally:
        Path(str(job.task.meta["begun"]), f"{job.episode}-ended").touch()


async def stubborn(runner: RunnerDouble, job: Job) -> None:
    """Takes its cancellation for an error, for as long as the run lasts."""
    await begin(job)
    while not runner.let_go.is_set():
        with suppress(asyncio.CancelledError):
            await runner.let_go.wait()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "type_error": lambda: TypeError("no\nway"),
    "system_exit": lambda: SystemExit(3),
    "memory_error": MemoryError,
    "gate_refused": lambda: RealCallBlocked("mail was about to run"),
    "abstained": lambda: CallUnanswered("never seen"),
    "cancelled": asyncio.CancelledError,
    "mute": Mute,
    "interrupted": KeyboardInterrupt,
}


async def raises(_: RunnerDouble, job: Job) -> None:
    raise ERRORS[str(job.task.meta["error"])]()


async def exits_in_a_task(_: RunnerDouble, _job: Job) -> None:
    """As a node of the agent's that calls sys.exit: the loop itself hears of it."""

    async def node() -> None:
        raise SystemExit(3)

    await asyncio.create_task(node())


async def something_else(_: RunnerDouble, _job: Job) -> Any:
    return "an episode"


async def another(_: RunnerDouble, _job: Job) -> Episode:
    return ended(Job(Task("x", {}), 1))


async def not_json(_: RunnerDouble, job: Job) -> Episode:
    return replace(ended(job), final=float("nan"))


async def undecided(_: RunnerDouble, job: Job) -> Episode:
    return ended(job, Verdict.INCONCLUSIVE)


async def says_cancelled(_: RunnerDouble, job: Job) -> Episode:
    return ended(job, Verdict.INCONCLUSIVE, "cancelled")


async def two_calls(runner: RunnerDouble, job: Job) -> Episode:
    for _ in range(2):
        runner.budget.before_call(Call("pay", {}), ToolSpec("pay", Effect.WRITE))
        await asyncio.sleep(0)
    return ended(job)


async def spends(runner: RunnerDouble, job: Job) -> None:
    """Asks a model ten times, a cent each, counted before and after as an endpoint's answers are."""
    for _ in range(10):
        reserved = runner.budget.reserve(0, usd=None)
        await asyncio.sleep(0.001)
        runner.budget.settle(reserved, usd=0.01)


async def tells(runner: RunnerDouble, job: Job) -> None:
    runner.events.emit("call", episode=job.episode, step=1, tool="look_up")


async def meets_in_a_thread(runner: RunnerDouble, job: Job) -> None:
    """Its sync tool returns once as many as the task says are held in one at the same time, here."""
    if runner.meeting is None:
        runner.meeting = threading.Barrier(int(job.task.meta["lanes"]))
    await asyncio.to_thread(runner.meeting.wait, 60)


_mine: ContextVar[str] = ContextVar("mine", default="")


async def context(_: RunnerDouble, job: Job) -> Episode:
    before = _mine.get()
    _mine.set(job.episode)
    await asyncio.sleep(0.01)
    assert _mine.get() == job.episode
    return replace(ended(job), final=before)


async def counts_itself(_: RunnerDouble, job: Job) -> None:
    """Leaves a file for each time that it began, named by nothing but chance."""
    begun = Path(str(job.task.meta["folder"])) / f"{job.episode}-{time.monotonic_ns()}"
    begun.touch()
    await asyncio.sleep(0.05)


async def dies(_: RunnerDouble, job: Job) -> None:
    """Takes its process along, as often as the task says."""
    mark = Path(str(job.task.meta["folder"]))
    died = len(list(mark.iterdir()))
    if died < int(job.task.meta["times"]):
        (mark / str(died)).touch()
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)


async def pays_on(runner: RunnerDouble, job: Job) -> None:
    """Makes one real call after the other, each allowed first; leaves a file for each."""
    folder = Path(str(job.task.meta["folder"]))
    for number in range(12_000):  # ten minutes: it ends when it is refused, or with its process
        runner.budget.before_call(Call("pay", {}), ToolSpec("pay", Effect.WRITE))
        (folder / f"{os.getpid()}-{number}").touch()
        time.sleep(0.05)  # never lets go of the loop: nobody can cancel it


async def blocks(_: RunnerDouble, job: Job) -> None:
    time.sleep(float(job.task.meta["s"]))


async def holds_the_interpreter(_: RunnerDouble, job: Job) -> None:
    """A match that takes for ever, in C, without ever letting another thread run."""
    await begin(job)
    re.match(r"(a+)+b", "a" * 64)


ACTS: Mapping[str, Callable[[RunnerDouble, Job], Awaitable[Any]]] = {
    act.__name__: act
    for act in (
        *(soon, takes, after, hangs, stubborn, raises, exits_in_a_task, something_else, another, not_json),
        *(
            undecided,
            says_cancelled,
            two_calls,
            spends,
            tells,
            meets_in_a_thread,
            context,
            counts_itself,
            dies,
            blocks,
        ),
        *(holds_the_interpreter, pays_on, hangs_and_tells),
    )
}


@asynccontextmanager
async def opened(
    _given: Mapping[str, Any], events: EventSink, budget: RunBudget
) -> AsyncIterator[WorkerContext]:
    """A worker's side of the double; see `rollout.worker.Opener`."""
    yield WorkerContext(runner=RunnerDouble(events, budget))


@asynccontextmanager
async def refuses(*_: object) -> AsyncIterator[WorkerContext]:
    raise UserError("no such buffer")
    yield


@asynccontextmanager
async def opens_slowly(given: Mapping[str, Any], *_: object) -> AsyncIterator[WorkerContext]:
    Path(given["begun"]).touch()
    await asyncio.sleep(3600)
    yield WorkerContext(runner=RunnerDouble(NoEvents(), RunBudget()))  # nobody waits that long


@asynccontextmanager
async def dies_at_once(*_: object) -> AsyncIterator[WorkerContext]:
    os._exit(7)
    yield


@asynccontextmanager
async def cancels_all(*_: object) -> AsyncIterator[WorkerContext]:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if "_answered" in repr(task.get_coro()):
            task.cancel()
    await asyncio.sleep(3600)
    yield
