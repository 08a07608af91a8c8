"""Run many episodes with bounded concurrency; each finished one is in the journal before it is counted.

The engine decides what happens around an episode: which begin (those that the journal lacks or has as
errors), the verdict if a runner fails or never ends (error or inconclusive; the run continues), when none
begins any more (stop switch, spent budget) and when running ones are dropped. The set of episodes and their
results do not depend on the order in which they finish; the journal has that order.

An episode in which a real call was executed is written to the journal as soon as this is noticed, and cancels
the run; it is reported at the end, even if the episode itself did not end.

An episode that was cancelled or exceeded the run's budget is not finished: it is not in the journal, and a
resume runs it again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.errors import ExitCode, NotSerializable
from dreamgym_kit.interfaces import EpisodeRunner, EventSink
from dreamgym_kit.rollout.event_loop import SlotStagger, frozen_heap, lane_threads
from dreamgym_kit.rollout.jobs import Job, ended, run_bounded, unstorable
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.types import Episode, Verdict

GRACE_S = 5.0  # time beyond a runner's own limit before the engine cancels it
LATE_WRITE_S = 30.0  # further time for a real write that outlives its episode
UNFINISHED = frozenset({"cancelled", "budget"})


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Numbers of a run's episodes, including earlier parts of a resumed run."""

    total: int
    earlier: int  # in the journal before this part
    passed: int
    failed: int
    inconclusive: int
    errors: int
    cut: int  # begun in this part and not finished: cancelled, or the budget was spent
    not_run: int  # not begun
    calls: int
    cost_usd: float
    stopped: str = ""  # why the run ended early

    @property
    def finished(self) -> int:
        """Episodes in the journal."""
        return self.passed + self.failed + self.inconclusive + self.errors


async def run_episodes(
    jobs: Sequence[Job],
    runner: EpisodeRunner,
    *,
    journal: Journal,
    concurrency: int,
    events: EventSink,
    stop: StopSwitch,
    on_episode: Callable[[Episode], None] | None = None,
    limit_s: float | None = None,
    grace_s: float = GRACE_S,
) -> RunTotals:
    """Run every job that the journal lacks or has as an error, and return the totals.

    Args:
        jobs: the episodes of the run, with unique IDs.
        runner: runs an episode; must allow `concurrency` at once on one loop.
        journal: stores finished episodes; those in it are not run, except errors.
        concurrency: maximum episodes at once, 1 or more.
        events: receives beginnings and ends.
        stop: ends the run early; thread-safe.
        on_episode: called with each finished episode after it is in the journal.
        limit_s: wall time that the runner allows an episode; `grace_s` later the engine ends it.
        grace_s: seconds.

    Raises:
        RunDirectoryError: the journal cannot be written. Finished episodes stay, the others are dropped.
    """
    if concurrency < 1:
        raise ValueError("concurrency must be 1 or more")
    if len({job.episode for job in jobs}) != len(jobs):
        raise ValueError("two jobs have the same episode id")
    backstop_s = None if limit_s is None else limit_s + grace_s
    with lane_threads(concurrency), frozen_heap():
        run = _Run(jobs, runner, journal, events, stop, on_episode, backstop_s)
        await run.go(concurrency)
    return run.totals()


@dataclass(eq=False)
class _Run:
    """The state of one part of a run; used on one event loop only."""

    _jobs: Sequence[Job]
    _runner: EpisodeRunner
    _journal: Journal
    _events: EventSink
    _stop: StopSwitch
    _on_episode: Callable[[Episode], None] | None
    _backstop_s: float | None

    def __post_init__(self) -> None:
        self._todo = [
            replace(job, attempt=attempt)
            for job in self._jobs
            if (attempt := self._journal.next_attempt(job.episode, job.attempt))
        ]
        self._waiting: Iterator[Job] = iter(self._todo)
        self._done = len(self._jobs) - len(self._todo)
        self._begun = self._cut = 0
        self._said_stopping = False

    async def go(self, concurrency: int) -> None:
        """Run the lanes until they end, the switch cancels, or one fails."""
        cancelled = asyncio.Event()

        def wake() -> None:
            if self._stop.requested and not self._said_stopping:
                self._said_stopping = True
                self._events.emit("run_stopping", reason=self._stop.reason)
            if self._stop.cancelled:
                cancelled.set()

        end_listening = self._stop.listen_on_loop(wake)
        wake()
        pace, number = SlotStagger(), min(concurrency, len(self._todo))
        lanes = [asyncio.create_task(self._lane(pace, place)) for place in range(number)]
        try:
            await _first_of(lanes, cancelled)
        finally:
            end_listening()
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        executed = self._journal.executed
        for episode in [executed[job.episode] for job in self._todo if job.episode in executed]:
            self._count(episode)

    def totals(self) -> RunTotals:
        """Count from the journal, so that a resumed run has the totals of an uninterrupted one."""
        done = [self._journal.done[job.episode] for job in self._jobs if job.episode in self._journal.done]
        verdicts = [episode.verdict for episode in done]
        whole = min(len(done), len(self._jobs) - len(self._todo) + self._begun - self._cut)
        return RunTotals(
            total=len(self._jobs),
            earlier=len(self._jobs) - len(self._todo),
            passed=verdicts.count(Verdict.PASSED),
            failed=verdicts.count(Verdict.FAILED),
            inconclusive=verdicts.count(Verdict.INCONCLUSIVE),
            errors=verdicts.count(Verdict.ERROR),
            cut=self._cut,
            not_run=sum(job.episode not in self._journal.done for job in self._todo[self._begun :]),
            calls=sum(episode.calls for episode in done),
            cost_usd=sum(episode.cost_usd for episode in done),
            stopped=self._stop.reason if whole < len(self._jobs) else "",
        )

    async def _lane(self, pace: SlotStagger, place: int) -> None:
        for begun, job in enumerate(self._waiting):
            if begun == 1:
                await asyncio.sleep(pace.pause_s(place))
            if self._stop.requested:
                return
            try:
                await self._run_job(job)
            except KeyboardInterrupt as error:
                self._stop.interrupt(error)

    async def _run_job(self, job: Job) -> None:
        self._begun += 1
        self._events.emit("episode_started", episode=job.episode)
        try:
            episode = await run_bounded(self._runner, job, self._stop, self._backstop_s)
        except asyncio.CancelledError:
            if job.episode in self._journal.executed:
                raise
            self._drop(ended(job, "dropped when the run was stopped", "cancelled"))
            raise
        if episode.stop in UNFINISHED:
            self._drop(episode)
        else:
            self._keep(job, episode)

    def _keep(self, job: Job, episode: Episode) -> None:
        try:
            self._journal.append(episode)
        except NotSerializable as error:
            episode = unstorable(job, error, episode)
            self._journal.append(episode)
        if episode.executed:
            self._stop.cancel(episode.reason, code=ExitCode.EXECUTED)
            return  # reported after all lanes have ended
        self._count(episode)

    def _count(self, episode: Episode) -> None:
        self._done += 1
        self._say_finished(episode)
        if self._on_episode is not None:
            self._on_episode(episode)

    def _drop(self, episode: Episode) -> None:
        self._cut += 1
        if episode.stop == "budget":
            self._stop.request(episode.reason)
        self._say_finished(episode)

    def _say_finished(self, episode: Episode) -> None:
        self._events.emit(
            "episode_finished",
            episode=episode.id,
            verdict=str(episode.verdict),
            reason=episode.reason,
            calls=len(episode.transitions),
            done=self._done,
            total=len(self._jobs),
            finished=episode.stop not in UNFINISHED,
            imagined=episode.rests_on_imagined,
        )


def append_executed(journal: Journal, stop: StopSwitch, events: EventSink) -> Callable[[Episode], None]:
    """Return a thread-safe function that journals an episode as soon as a real call is noticed in it.

    It then cancels the run, even if the disk refuses.
    """

    def append(episode: Episode) -> None:
        try:
            if journal.append(episode):
                events.emit("executed", episode=episode.id, text=episode.reason)
        finally:
            stop.cancel(episode.reason, code=ExitCode.EXECUTED)

    return append


async def _first_of(lanes: Sequence[asyncio.Task[None]], cancelled: asyncio.Event) -> None:
    """Return when all lanes are done or the run is cancelled; raise what a lane raises."""
    called_off = asyncio.create_task(cancelled.wait())
    pending = set(lanes)
    try:
        while pending and not called_off.done():
            await asyncio.wait({*pending, called_off}, return_when=asyncio.FIRST_COMPLETED)
            for lane in [lane for lane in pending if lane.done()]:
                lane.result()
                pending.discard(lane)
    finally:
        called_off.cancel()
