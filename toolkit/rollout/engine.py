"""Runs many episodes: at most so many at once, each finished one into the journal before it is counted.

Decides what happens around an episode, nothing within it: which begin (those that the journal lacks),
what becomes of one whose runner fails or never ends (undetermined, never the end of the run), when none
begins any more (the switch, a spent budget) and when those that run are dropped. Which episodes a run
has and what each does is independent of the order in which they finish; the journal keeps that order.

An episode that was cancelled or ran out of the run's budget is not finished: it is not in the journal,
and a resume runs it again.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dreamgym_kit.errors import BudgetSpent, DreamAbstained, EpisodeStop, GateRefused, NotJson
from dreamgym_kit.ports import EpisodeRunner, EventSink
from dreamgym_kit.replay.masking import masked_text
from dreamgym_kit.rollout.heap import settled_heap
from dreamgym_kit.rollout.journal import Journal
from dreamgym_kit.rollout.pace import Pace
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.threads import lane_threads
from dreamgym_kit.vocabulary import Episode, Task, Verdict

GRACE_S = 5.0  # what a runner gets beyond its own limit before the engine cancels it
LAST_WORD_S = 0.3  # what a cancelled episode gets to clean up before it is left behind
UNFINISHED = frozenset({"cancelled", "budget"})

_LEFT_BEHIND: set[asyncio.Task[Episode]] = set()  # a loop holds its tasks only weakly


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to run: a task and its place among its siblings."""

    task: Task
    sibling: int  # 1-based
    attempt: int = 1

    @property
    def episode(self) -> str:
        """The episode's id: unique, since a sibling's number holds no dot."""
        return f"{self.task.id}.{self.sibling}"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What became of the episodes of a run, earlier legs included."""

    total: int
    earlier: int  # were in the journal before this leg
    success: int
    failure: int
    undetermined: int
    cut: int  # begun in this leg and not finished: cancelled, or out of the run's budget
    not_run: int  # not begun
    calls: int
    cost_usd: float
    stopped: str = ""  # why the run ended before its end

    @property
    def finished(self) -> int:
        """Episodes in the journal."""
        return self.success + self.failure + self.undetermined


def jobs_for(tasks: Iterable[Task], n: int) -> list[Job]:
    """Groups of n siblings: 1..n of the first task, then of the next."""
    return [Job(task, sibling) for task in tasks for sibling in range(1, n + 1)]


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
    """Run every job that the journal lacks and say what became of all of them.

    Args:
        jobs: the episodes of the run, ids unique.
        runner: runs one; must be usable for `concurrency` at once on one loop.
        journal: keeps the finished ones; those in it are not run.
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
    with lane_threads(concurrency), settled_heap():
        run = _Run(jobs, runner, journal, events, stop, on_episode, backstop_s)
        await run.go(concurrency)
    return run.totals()


class _Run:
    """The state of one leg of a run; everything in it happens on one event loop."""

    def __init__(
        self,
        jobs: Sequence[Job],
        runner: EpisodeRunner,
        journal: Journal,
        events: EventSink,
        stop: StopSwitch,
        on_episode: Callable[[Episode], None] | None,
        backstop_s: float | None,
    ) -> None:
        self._jobs = jobs
        self._runner = runner
        self._journal = journal
        self._events = events
        self._stop = stop
        self._on_episode = on_episode
        self._backstop_s = backstop_s
        self._todo = [job for job in jobs if job.episode not in journal.done]
        self._waiting: Iterator[Job] = iter(self._todo)
        self._done = len(jobs) - len(self._todo)
        self._begun = self._cut = 0
        self._said_stopping = False

    async def go(self, concurrency: int) -> None:
        """Run the lanes to their end, or until the switch cancels or one of them fails."""
        cancelled = asyncio.Event()
        loop = asyncio.get_running_loop()

        def heard() -> None:
            self._say_stopping()
            if self._stop.cancelled:
                cancelled.set()

        end_listening = self._stop.listen(lambda: _call_soon(loop, heard))
        heard()
        pace, number = Pace(), min(concurrency, len(self._todo))
        lanes = [asyncio.create_task(self._lane(pace, place)) for place in range(number)]
        try:
            await _first_of(lanes, cancelled)
        finally:
            end_listening()
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    def totals(self) -> RunTotals:
        """Count over the journal, so that a resumed run and an unbroken one count alike."""
        done = [self._journal.done[job.episode] for job in self._jobs if job.episode in self._journal.done]
        verdicts = [episode.verdict for episode in done]
        return RunTotals(
            total=len(self._jobs),
            earlier=len(self._jobs) - len(self._todo),
            success=verdicts.count(Verdict.SUCCESS),
            failure=verdicts.count(Verdict.FAILURE),
            undetermined=verdicts.count(Verdict.UNDETERMINED),
            cut=self._cut,
            not_run=len(self._todo) - self._begun,
            calls=sum(episode.calls for episode in done),
            cost_usd=sum(episode.cost_usd for episode in done),
            stopped=self._stop.reason if len(done) < len(self._jobs) else "",
        )

    async def _lane(self, pace: Pace, place: int) -> None:
        for begun, job in enumerate(self._waiting):
            if begun == 1:
                await asyncio.sleep(pace.pause_s(place))
            if self._stop.requested:
                return
            await self._one(job)

    async def _one(self, job: Job) -> None:
        self._begun += 1
        self._events.emit("episode_started", episode=job.episode)
        try:
            episode = await self._bounded(job)
        except asyncio.CancelledError:
            self._drop(_undetermined(job, "dropped when the run was stopped", "cancelled"))
            raise
        if episode.stop in UNFINISHED:
            self._drop(episode)
        else:
            self._keep(job, episode)

    async def _bounded(self, job: Job) -> Episode:
        """Run one episode in a task (and context) of its own, ended by us if it does not end itself."""
        began = time.time()
        running = asyncio.create_task(_guarded(self._runner, job, self._stop))
        try:
            await asyncio.wait({running}, timeout=self._backstop_s)
            if running.done():
                return _result(running, job)
        finally:
            if not running.done():
                await self._end(running)
        reason = f"did not end within {self._backstop_s:g} s, its limit and some grace"
        return _undetermined(job, reason, "limit", began)

    async def _end(self, running: asyncio.Task[Episode]) -> None:
        """Cancel an episode; one that does not obey is left behind, its result unheard."""
        running.cancel()
        await asyncio.wait({running}, timeout=LAST_WORD_S)
        if not running.done():
            _LEFT_BEHIND.add(running)
            running.add_done_callback(_LEFT_BEHIND.discard)

    def _keep(self, job: Job, episode: Episode) -> None:
        try:
            self._journal.append(episode)
        except NotJson as error:
            episode = _undetermined(job, f"its record cannot be kept: {error}", "error", episode.started_at)
            self._journal.append(episode)
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
        )

    def _say_stopping(self) -> None:
        if self._stop.requested and not self._said_stopping:
            self._said_stopping = True
            self._events.emit("run_stopping", reason=self._stop.reason)


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


async def _guarded(runner: EpisodeRunner, job: Job, stop: StopSwitch) -> Episode:
    """The boundary: whatever a runner raises becomes an undetermined episode that says so."""
    began = time.time()
    try:
        return _checked(await runner.run(job.task, sibling=job.sibling, attempt=job.attempt), job)
    except asyncio.CancelledError:
        raise
    except EpisodeStop as error:
        return _undetermined(job, str(error), _stop_word(error), began)
    except KeyboardInterrupt:  # Ctrl-C where no handler was installed; it would tear the loop down
        stop.cancel("SIGINT")
        return _undetermined(job, "interrupted", "cancelled", began)
    except BaseException as error:  # noqa: BLE001  also SystemExit: a tool that exits ends its episode only
        return _undetermined(job, f"its runner failed: {_one_line(error)}", "error", began)


def _checked(episode: Episode, job: Job) -> Episode:
    if not isinstance(episode, Episode):
        raise TypeError(f"the runner gave {type(episode).__name__} instead of an episode")
    if episode.id != job.episode:
        raise ValueError(f"the runner gave episode {episode.id!a} instead of {job.episode!a}")
    return episode


def _result(running: asyncio.Task[Episode], job: Job) -> Episode:
    if running.cancelled():  # not by us: the agent's own code cancelled the task that it ran in
        return _undetermined(job, "its runner failed: it cancelled itself", "error")
    return running.result()


def _stop_word(error: EpisodeStop) -> str:
    match error:
        case GateRefused():
            return "violation"
        case DreamAbstained():
            return "abstained"
        case BudgetSpent():
            return "budget"
    return "error"


def _undetermined(job: Job, reason: str, stop: str, began: float | None = None) -> Episode:
    now = time.time()
    began = now if began is None else began
    return Episode(
        id=job.episode,
        task=job.task.id,
        sibling=job.sibling,
        world=job.task.world,
        verdict=Verdict.UNDETERMINED,
        reason=masked_text(reason),
        stop=stop,
        attempt=job.attempt,
        started_at=began,
        elapsed_s=now - began,
    )


def _one_line(error: BaseException) -> str:
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  a foreign error's own __str__ may fail
        said = ""
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__


def _call_soon(loop: asyncio.AbstractEventLoop, heard: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(heard)
