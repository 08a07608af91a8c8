"""The episodes of a run or shard, and the substitute for an episode that did not end properly.

The same code runs in the process with the journal and in workers: whatever a runner raises, or returns
instead of an episode, becomes an episode with the verdict error, or inconclusive if it was stopped.

Shard i of n takes every n-th task with all its repeats and is a run of its own, for machines that share
nothing, such as a Kubernetes Indexed Job or a Slurm array. Its tasks follow from their order alone;
`report.merging` combines the shards.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dreamgym_kit.errors import (
    BudgetExceeded,
    CallUnanswered,
    EpisodeStop,
    NotSerializable,
    RealCallBlocked,
    UserError,
)
from dreamgym_kit.interfaces import EpisodeRunner
from dreamgym_kit.replay.masking import masked
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.types import Episode, Task, Verdict, error_line

ERRORS = frozenset({"error", "lost"})
"""Values of `Episode.stop` for failures of the set-up or the kit, not of the agent."""

LAST_WORD_S = 0.3  # time for a cancelled episode to clean up before it is abandoned

_LEFT_BEHIND: set[asyncio.Task[Episode]] = set()  # a loop keeps only weak references to tasks


_FORM = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a run."""

    number: int  # from 1
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the shard's tasks, in order.

        Raises:
            UserError: the shard has no task.
        """
        part = list(tasks[self.number - 1 :: self.of])
        if not part:
            raise UserError(
                f"shard {self}: only {len(tasks)} tasks; use at most as many shards. Nothing was run."
            )
        return part


def shard_from(text: str) -> Shard:
    """Parse a shard such as "2/8".

    Raises:
        UserError: another form.
    """
    form = _FORM.fullmatch(text)
    if form is None or not 1 <= int(form[1]) <= int(form[2]):
        raise UserError(f"shard {text}: write I/N with I from 1 to N, such as 2/8. Nothing was run.")
    return Shard(int(form[1]), int(form[2]))


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to run: a task and the number of its repeat."""

    task: Task
    repeat: int  # 1-based
    attempt: int = 1

    @property
    def episode(self) -> str:
        """The episode's ID: unique, since a repeat number has no dot."""
        return f"{self.task.id}.{self.repeat}"


@dataclass(slots=True)
class WorkerReports:
    """Warnings, notes and last facts of workers; each once, in order of arrival."""

    warnings: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    last: list[dict[str, Any]] = field(default_factory=list)


def jobs_for(tasks: Iterable[Task], n: int) -> list[Job]:
    """Return n repeats (1..n) of the first task, then of the next."""
    return [Job(task, repeat) for task in tasks for repeat in range(1, n + 1)]


async def run_bounded(
    runner: EpisodeRunner, job: Job, stop: StopSwitch, backstop_s: float | None = None
) -> Episode:
    """Run one episode in its own asyncio task and context, with a limit if it does not end itself.

    Args:
        runner: runs the episode.
        job: the episode to run.
        stop: pressed if the episode raises KeyboardInterrupt.
        backstop_s: seconds until it is cancelled; None: never.
    """
    began = time.time()
    running = asyncio.create_task(_guarded(runner, job, stop))
    try:
        await asyncio.wait({running}, timeout=backstop_s)
        if running.cancelled():  # the agent's code cancelled its own task
            return ended(job, "its runner failed: it cancelled itself", "error")
        if running.done():
            return running.result()
    finally:
        if not running.done():
            await _end(running)
    return ended(job, f"did not end within {backstop_s:g} s, its limit and some grace", "limit", began)


async def _end(running: asyncio.Task[Episode]) -> None:
    """Cancel an episode; one that does not end is abandoned and its result ignored."""
    running.cancel()
    await asyncio.wait({running}, timeout=LAST_WORD_S)
    if not running.done():
        _LEFT_BEHIND.add(running)
        running.add_done_callback(_LEFT_BEHIND.discard)


def unstorable(job: Job, error: NotSerializable, episode: Episode) -> Episode:
    """Return the substitute for an episode whose record has no JSON form."""
    return ended(job, f"its record cannot be kept: {error}", "error", episode.started_at)


async def _guarded(runner: EpisodeRunner, job: Job, stop: StopSwitch) -> Episode:
    """Turn every exception of a runner into an episode with its reason."""
    began = time.time()
    try:
        return _checked(await runner.run(job.task, repeat=job.repeat, attempt=job.attempt), job)
    except asyncio.CancelledError:
        raise
    except EpisodeStop as error:
        return ended(job, str(error), _stop_value(error), began)
    except KeyboardInterrupt as error:  # Ctrl-C without a handler, or raised by the agent
        stop.interrupt(error)
        return ended(job, "interrupted", "cancelled", began)
    except BaseException as error:  # noqa: BLE001  also SystemExit: a tool that exits ends its episode only
        return ended(job, f"its runner failed: {error_line(error)}", "error", began)


def _checked(episode: Episode, job: Job) -> Episode:
    if not isinstance(episode, Episode):
        raise TypeError(f"the runner gave {type(episode).__name__} instead of an episode")
    if episode.id != job.episode:
        raise ValueError(f"the runner gave episode {episode.id!a} instead of {job.episode!a}")
    return episode


def _stop_value(error: EpisodeStop) -> str:
    match error:
        case RealCallBlocked():
            return "violation"
        case CallUnanswered():
            return "abstained"
        case BudgetExceeded():
            return "budget"
    return "error"


def verdict_of(stop: str) -> Verdict:
    """Return the verdict of an ungraded episode, from its `stop`."""
    return Verdict.ERROR if stop in ERRORS else Verdict.INCONCLUSIVE


def ended(job: Job, reason: str, stop: str, began: float | None = None) -> Episode:
    """Return an unfinished episode with a reason; `began`: Unix time, default now."""
    now = time.time()
    began = now if began is None else began
    return Episode(
        id=job.episode,
        task=job.task.id,
        repeat=job.repeat,
        environment=job.task.environment,
        verdict=verdict_of(stop),
        reason=masked(reason),
        stop=stop,
        attempt=job.attempt,
        started_at=began,
        elapsed_s=now - began,
    )
