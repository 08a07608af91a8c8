"""Runs many episodes: at most so many at once, each finished one into the journal before it is counted.

Decides what happens around an episode, nothing within it: which begin (those that the journal lacks, or has
as errors), what becomes of one whose runner fails or never ends (an error, or inconclusive; never the end of
the run), when none begins any more (the switch, a spent budget) and when those that run are dropped. Which
episodes a run has and what each does is independent of the order in which they finish; the journal keeps that
order.

One in which a real call was executed is in the journal from the moment that this was noticed, and cancels the
run; it is told of at the end, whether its own end was waited for or not.

An episode that was cancelled or ran out of the run's budget is not finished: it is not in the journal,
and a resume runs it again.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.interfaces import EpisodeRunner, EventSink
from dreamgym_kit.rollout.event_loop import SlotStagger, frozen_heap, lane_threads
from dreamgym_kit.rollout.jobs import Job, ended, run_bounded, unstorable
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.stop import EXECUTED, StopSwitch
from dreamgym_kit.types import Episode, Verdict

GRACE_S = 5.0  # what a runner gets beyond its own limit before the engine cancels it
LATE_WRITE_S = 30.0  # what a real write gets to end that outlives its episode, beyond the grace
UNFINISHED = frozenset({"cancelled", "budget"})


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What became of the episodes of a run, earlier legs included."""

    total: int
    earlier: int  # were in the journal before this leg
    passed: int
    failed: int
    inconclusive: int
    errors: int
    cut: int  # begun in this leg and not finished: cancelled, or out of the run's budget
    not_run: int  # not begun
    calls: int
    cost_usd: float
    stopped: str = ""  # why the run ended before its end

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
    """Run every job that the journal lacks or has as an error, and say what became of all of them.

    Args:
        jobs: the episodes of the run, ids unique.
        runner: runs one; must be usable for `concurrency` at once on one loop.
        journal: keeps the finished ones; those in it are not run, but for errors.
        concurrency: the most that run at once, 1 or more.
        events: hears of beginnings and ends.
        stop: ends the run early; may be pressed from any thread.
        on_episode: is given each finished episode once it is in the journal.
        limit_s: wall time that the runner allows an episode; `grace_s` later the engine ends it.
        grace_s: seconds.

    Raises:
        RunDirectoryError: the journal cannot be written. Finished episodes stay, the others are dropped.
    """
    if concurrency < 1:
        raise ValueError("concurrency is 1 or more")
    if len({job.episode for job in jobs}) != len(jobs):
        raise ValueError("two jobs have the same episode id")
    backstop_s = None if limit_s is None else limit_s + grace_s
    with lane_threads(concurrency), frozen_heap():
        run = _Run(jobs, runner, journal, events, stop, on_episode, backstop_s)
        await run.go(concurrency)
    return run.totals()


@dataclass(eq=False)
class _Run:
    """The state of one leg of a run; everything in it happens on one event loop."""

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
        """Run the lanes to their end, or until the switch cancels or one of them fails."""
        cancelled = asyncio.Event()

        def heard() -> None:
            self._say_stopping()
            if self._stop.cancelled:
                cancelled.set()

        end_listening = self._stop.listen_on_loop(heard)
        heard()
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
        """Count over the journal, so that a resumed run and an unbroken one count alike."""
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
            self._stop.cancel(episode.reason, code=EXECUTED)
            return  # told of once all lanes have ended
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
        )

    def _say_stopping(self) -> None:
        if self._stop.requested and not self._said_stopping:
            self._said_stopping = True
            self._events.emit("run_stopping", reason=self._stop.reason)


def kept_at_once(journal: Journal, stop: StopSwitch, events: EventSink) -> Callable[[Episode], None]:
    """Give what an episode is handed to as soon as a real call is noticed in it, from any thread.

    It is in the journal before the run is cancelled; the run is cancelled also where the disk refuses.
    """

    def keep(episode: Episode) -> None:
        try:
            if journal.append(episode):
                events.emit("executed", episode=episode.id, text=episode.reason)
        finally:
            stop.cancel(episode.reason, code=EXECUTED)

    return keep


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
