"""Episodes in workers: who runs which, and what becomes of those whose worker is lost.

Stands where a runner in this process stands, so that journal, budget, stopping and resuming are the
engine's own, unchanged. A worker that is lost is started again, and what it ran is given to any worker once
more, known by (episode, attempt): one call is waited for at a time, and what a lost worker may still do is
never read. What ran on real tools is never given out again: what it did is unknown, and a person is told so.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dreamgym_kit.errors import EndpointError, UserError, WorkerLost
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import EventSink, WorkerHost
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.jobs import Job, WorkerReports, ended
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.worker import kit_version
from dreamgym_kit.rollout.worker_protocol import (
    BudgetServer,
    WorkerLink,
    WorkerSpec,
    episode_request,
    open_request,
    request,
    result_from_bytes,
)
from dreamgym_kit.routing.process import keep_stray
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Task, error_line

ATTEMPTS = 3  # of one episode; who loses three workers is likely to be the cause
FRUITLESS = 3  # times in a row that a worker may be lost without having finished an episode
OPEN_S = 300.0  # that a worker may take to import the agent and to open what it runs on
UNHEARD_S = 10.0  # beyond an episode's own end that a worker may stay silent before it is ended
GOODBYE_S = 60.0  # that a worker may take to close what it holds; what it would have told last is lost then
LOST = "lost"  # how an episode ended whose worker was lost for good


class _HeldUp(Exception):
    """A worker stayed silent for longer than the episode may take: it is this one's own doing, or may be."""


@dataclass(eq=False, slots=True)
class _Seat:
    """A worker's place: the worker that is in it now, and what it runs."""

    number: int
    worker: WorkerLink | None = None
    running: int = 0
    fruitless: int = 0
    starting: "asyncio.Task[None] | None" = None
    given_up: str = ""  # why nobody sits in it any more


class DistributedRunner:
    """Implements `interfaces.EpisodeRunner` over the workers of a host. An async context manager.

    Args:
        host: where workers are started.
        spec: what each is opened with, to import what this process can; its `lanes` are the episodes that one
            worker runs at once.
        workers: how many.
        budget: what all of them are charged to.
        events: hears what the episodes told, with their answers, and of workers that were lost.
        stop: of the run.
        repeatable: whether a lost episode may be run again; never where its tools are real.
        on_turns: is given what the policy said in an episode, by its id.
        gone: hears when the policy's server is there no more.
        on_executed: is given an episode at the moment that a worker notices a real call in it.
    """

    def __init__(
        self,
        host: WorkerHost,
        spec: WorkerSpec,
        *,
        workers: int,
        budget: RunBudget,
        events: EventSink,
        stop: StopSwitch,
        repeatable: bool,
        on_turns: Callable[[str, tuple[Turn, ...]], None] | None = None,
        gone: Callable[[EndpointError], None] = lambda _: None,
        on_executed: Callable[[Episode], None] = lambda _: None,
    ) -> None:
        if workers < 1:
            raise ValueError("workers are 1 or more")
        self.reports = WorkerReports()
        self.events, self.on_turns, self.gone, self.on_executed = events, on_turns, gone, on_executed
        calls, usd = budget.limits
        self._spec = replace(
            spec,
            paths=tuple(sys.path),
            kit=spec.kit or kit_version(),
            calls_limit=calls,
            usd_limit=usd,
            every_call=not repeatable,
        )
        self._host, self._budget, self._stop = host, budget, stop
        self._repeatable = repeatable
        self._seats = [_Seat(number) for number in range(1, workers + 1)]
        self._free = asyncio.Condition()
        self._standing: bytes | None = None  # the collection that a worker that comes later begins, too
        self._closed = False

    async def __aenter__(self) -> "DistributedRunner":
        fills = [asyncio.create_task(self._fill(seat)) for seat in self._seats]
        filling = asyncio.gather(*fills)
        mine, end_listening = asyncio.current_task(), self._stop.listen_on_loop(filling.cancel)
        try:
            await filling
        except BaseException as error:
            for fill in fills:  # before the host is closed: a worker may be on its way
                fill.cancel()
            await asyncio.gather(*fills, return_exceptions=True)
            await self._end()
            if self._stop.requested and mine is not None and not mine.cancelling():
                for seat in self._seats:  # nothing ran that would have to end, and nothing begins
                    seat.given_up = f"the run was stopped ({self._stop.reason}) while workers were started"
                return self
            if isinstance(error, WorkerLost):
                raise UserError(f"{error}. Nothing was run.") from None
            raise
        finally:
            end_listening()
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is None and not self._stop.cancelled:
            with suppress(UserError, RuntimeError):
                await self._say_goodbye()
        await self._end()

    async def run(self, task: Task, *, repeat: int, attempt: int) -> Episode:
        """See `EpisodeRunner.run`."""
        why = ""
        for number in range(attempt, attempt + ATTEMPTS):
            job = Job(task, repeat, number)
            began = time.time()
            seat = await self._seat_for()
            if seat is None:
                self._stop.request(self._why_nobody())
                return ended(job, self._why_nobody(), "cancelled")
            try:
                answer = await self._called(seat, job)
                seat.fruitless = 0
                return self._take(job, answer)
            except _HeldUp:
                reason = f"did not end within {self._spec.limit_s:g} s, its limit and some grace"
                return ended(job, reason, "limit", began)
            except WorkerLost as lost:
                why = str(lost)
                self.events.emit(
                    "lost", episode=job.episode, attempt=number, worker=f"worker {seat.number}", error=why
                )
            finally:
                await self._leave(seat)
            if not self._repeatable:
                reason = (
                    f"its worker was lost while it ran on the real tools ({why}): what it did there is "
                    "unknown, and nothing runs it again but --resume"
                )
                return ended(job, reason, LOST, began)
        return ended(job, f"lost its worker {ATTEMPTS} times, the last time: {why}", LOST, began)

    async def prepare(self, **facts: Any) -> None:
        """Have every worker begin another collection of episodes; one that comes later begins it, too.

        Args:
            facts: see `WorkerContext.prepare`.

        Raises:
            UserError: one of them cannot.
        """
        self._standing = request("prepare", **facts)
        seated = [(seat, seat.worker) for seat in self._seats if not seat.given_up]
        # one that is being started hears of it as it is opened
        await asyncio.gather(*(self._send(seat, worker, self._standing) for seat, worker in seated if worker))

    async def _send(self, seat: _Seat, worker: WorkerLink, message: bytes) -> None:
        try:
            await worker.facts(message, OPEN_S)
        except WorkerLost as lost:
            await self._drop(seat, worker, str(lost))
        except TimeoutError:
            await self._drop(seat, worker, _held_up(worker, OPEN_S))

    async def _called(self, seat: _Seat, job: Job) -> bytes:
        worker = seat.worker
        if worker is None:
            raise WorkerLost(seat.given_up or "it is being started")
        limit = None if self._spec.limit_s is None else self._spec.limit_s + UNHEARD_S
        try:
            return await asyncio.wait_for(worker.call(episode_request(job)), limit)
        except TimeoutError:
            why = _held_up(worker, limit)
            first = seat.worker is worker
            await self._drop(seat, worker, why)
            if first:  # whoever else it ran was held up with it, and is run again
                raise _HeldUp from None
            raise WorkerLost(why) from None
        except WorkerLost as lost:
            await self._drop(seat, worker, str(lost))
            raise

    def _take(self, job: Job, answer: bytes) -> Episode:
        """The episode in an answer; whatever else it tells goes where it belongs."""
        try:
            result = result_from_bytes(answer)
        except RuntimeError as error:
            return ended(job, f"its runner failed: {error}", "error")
        for kind, facts in result.events:
            self.events.emit(kind, **facts)
        self._hear(result.strays, result.notes)
        if self.on_turns is not None and result.turns:
            self.on_turns(job.episode, result.turns)
        if result.gone:
            self.gone(EndpointError(result.gone[0], result.gone[1]))
        if result.interrupted:
            self._stop.press(signal.SIGINT)
        return result.episode

    def _hear(self, strays: Sequence[str], notes: Sequence[str]) -> None:
        for why in strays:  # told of as those of this process are
            keep_stray(why)
        self.reports.notes.update(dict.fromkeys(notes))

    async def _seat_for(self) -> _Seat | None:
        """The seat with the fewest episodes that has a lane free; None where nobody is left."""
        async with self._free:
            while True:
                able = [seat for seat in self._seats if not seat.given_up]
                if not able:
                    return None
                free = [seat for seat in able if seat.worker is not None and seat.running < self._spec.lanes]
                if free:
                    seat = min(free, key=lambda candidate: candidate.running)
                    seat.running += 1
                    return seat
                await self._free.wait()

    async def _leave(self, seat: _Seat) -> None:
        async with self._free:
            seat.running -= 1
            self._free.notify_all()

    async def _drop(self, seat: _Seat, worker: WorkerLink, why: str) -> None:
        """The first of its episodes that hears of a lost worker ends it and has another one started."""
        if seat.worker is worker:
            seat.worker = None
            if not self._closed:
                seat.fruitless += 1
                seat.starting = asyncio.create_task(self._again(seat, why))
        with egress.exempt():
            await worker.end()

    async def _again(self, seat: _Seat, why: str) -> None:
        while seat.worker is None and not seat.given_up and not self._closed:
            if seat.fruitless >= FRUITLESS:
                seat.given_up = f"worker {seat.number} was lost {seat.fruitless} times in a row: {why}"
                break
            try:
                await self._fill(seat)
            except (WorkerLost, RuntimeError) as error:
                seat.fruitless, why = seat.fruitless + 1, str(error)
            except Exception as error:  # noqa: BLE001  whoever waits for the seat has to hear of it
                seat.given_up = str(error) if isinstance(error, UserError) else error_line(error)
        async with self._free:
            self._free.notify_all()

    async def _fill(self, seat: _Seat) -> None:
        """Start a worker and open it."""
        with egress.exempt():
            channel = await self._host.start(seat.number)
            budget = BudgetServer(self._budget, lambda episode: self.on_executed(episode))
            worker = WorkerLink(channel, budget)  # what it reads reaches event sinks, which write files
        try:
            facts = await worker.facts(open_request(self._spec), OPEN_S, channel.origin)
            begun = None
            while self._standing is not None and self._standing is not begun:  # another may be meanwhile
                begun = self._standing
                await worker.facts(begun, OPEN_S)
        except BaseException as error:
            await worker.end()
            if isinstance(error, TimeoutError):
                raise UserError(f"{channel.name} was not open after {OPEN_S:g} s.") from None
            raise
        seat.worker = worker
        self.reports.warnings.update(dict.fromkeys([*facts["warnings"], *channel.lacks]))
        async with self._free:
            self._free.notify_all()

    async def _say_goodbye(self) -> None:
        """Close what the workers hold, and hear what they tell last."""
        self._closed = True

        async def closed(worker: WorkerLink) -> None:
            try:
                facts = await worker.facts(request("close"), GOODBYE_S)
            except WorkerLost:
                return
            except TimeoutError:
                self.reports.warnings[
                    f"{worker.channel.name} did not close within {GOODBYE_S:g} s and was ended: what it "
                    "counted (rows added, calls refused late) is not in these figures."
                ] = None
                return
            self._hear(facts.pop("strays", ()), facts.pop("notes", ()))
            self.reports.last.append(facts)

        await asyncio.gather(*(closed(seat.worker) for seat in self._seats if seat.worker is not None))

    async def _end(self) -> None:
        self._closed = True
        starting = [seat.starting for seat in self._seats if seat.starting is not None]
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        with egress.exempt():
            workers = [seat.worker for seat in self._seats if seat.worker is not None]
            for worker in workers:
                worker.budget.close()
            for worker in workers:
                await worker.end()
            await self._host.close()

    def _why_nobody(self) -> str:
        reasons = "; ".join(dict.fromkeys(seat.given_up for seat in self._seats))
        return f"no worker is left: {reasons}"


def _held_up(worker: WorkerLink, limit_s: float | None) -> str:
    return f"{worker.channel.name} did not answer for {limit_s:g} s: something holds it up"
