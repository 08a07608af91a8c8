"""Run episodes in workers: which worker runs which episode, and what happens to episodes of a lost worker.

It implements the runner interface, so journal, budget, stopping and resuming stay in the engine. A lost
worker is started again, and its episodes go to any worker once more, identified by (episode, attempt):
answers of earlier attempts are never read. An episode on real tools is never repeated: its effects are
unknown, and the report says so.
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

ATTEMPTS = 3  # per episode; one that loses three workers is probably the cause
FRUITLESS = 3  # maximum losses in a row of a worker that finished no episode
OPEN_S = 300.0  # time for a worker to import the agent and open its runner
UNHEARD_S = 10.0  # silence after an episode's limit before its worker is stopped
GOODBYE_S = 60.0  # time for a worker to close; later its last report is lost
LOST = "lost"  # `Episode.stop` of an episode whose worker was lost too often


class _HeldUp(Exception):
    """A worker did not answer within the episode's limit, so the episode may be the cause."""


@dataclass(eq=False, slots=True)
class _Seat:
    """A slot for a worker: its current worker and number of running episodes."""

    number: int
    worker: WorkerLink | None = None
    running: int = 0
    fruitless: int = 0
    starting: "asyncio.Task[None] | None" = None
    given_up: str = ""  # why the slot has no worker any more


class DistributedRunner:
    """Implements `interfaces.EpisodeRunner` over the workers of a host. An async context manager.

    Args:
        host: starts workers.
        spec: opens each worker, so that it imports what this process can; its `lanes` are the concurrent
            episodes of a worker.
        workers: number of workers.
        budget: limits all workers together.
        events: receives the episodes' events, and lost workers.
        stop: the run's switch.
        repeatable: whether lost episodes run again; never with real tools.
        on_executed: called with an episode as soon as a worker detects a real call in it.

    Attributes:
        on_turns: called with the policy's turns of an episode, by its ID.
        gone: called when the policy's server is gone.
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
        on_executed: Callable[[Episode], None] = lambda _: None,
    ) -> None:
        if workers < 1:
            raise ValueError("workers must be 1 or more")
        self.reports = WorkerReports()
        self.events, self.on_executed = events, on_executed
        self.on_turns: Callable[[str, tuple[Turn, ...]], None] = lambda *_: None
        self.gone: Callable[[EndpointError], None] = lambda _: None
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
        self._standing: bytes | None = None  # the current collection, which later workers begin, too
        self._closed = False

    async def __aenter__(self) -> "DistributedRunner":
        fills = [asyncio.create_task(self._fill(seat)) for seat in self._seats]
        filling = asyncio.gather(*fills)
        mine, end_listening = asyncio.current_task(), self._stop.listen_on_loop(filling.cancel)
        try:
            await filling
        except BaseException as error:
            for fill in fills:  # before closing the host: a worker may be starting
                fill.cancel()
            await asyncio.gather(*fills, return_exceptions=True)
            await self._end()
            if self._stop.requested and mine is not None and not mine.cancelling():
                for seat in self._seats:  # no episode runs, and none may begin
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
        """Let every worker begin another collection of episodes; later workers begin it, too.

        Args:
            facts: see `WorkerContext.prepare`.

        Raises:
            UserError: a worker cannot.
        """
        self._standing = request("prepare", **facts)
        seated = [(seat, seat.worker) for seat in self._seats if not seat.given_up]
        # a starting worker gets it when it is opened
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
            if first:  # its other episodes are not the cause and run again
                raise _HeldUp from None
            raise WorkerLost(why) from None
        except WorkerLost as lost:
            await self._drop(seat, worker, str(lost))
            raise

    def _take(self, job: Job, answer: bytes) -> Episode:
        """Return the episode of an answer; pass on its events, turns and notes."""
        try:
            result = result_from_bytes(answer)
        except RuntimeError as error:
            return ended(job, f"its runner failed: {error}", "error")
        for kind, facts in result.events:
            self.events.emit(kind, **facts)
        self._hear(result.strays, result.notes)
        if result.turns:
            self.on_turns(job.episode, result.turns)
        if result.gone:
            self.gone(EndpointError(result.gone[0], result.gone[1]))
        if result.interrupted:
            self._stop.press(signal.SIGINT)
        return result.episode

    def _hear(self, strays: Sequence[str], notes: Sequence[str]) -> None:
        for why in strays:  # reported like those of this process
            keep_stray(why)
        self.reports.notes.update(dict.fromkeys(notes))

    async def _seat_for(self) -> _Seat | None:
        """Return the slot with the fewest episodes and a free lane; None if no worker is left."""
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
        """Stop a lost worker and start another; the first of its episodes to notice does this."""
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
            worker = WorkerLink(channel, budget)  # its messages reach event sinks, which write files
        try:
            facts = await worker.facts(open_request(self._spec), OPEN_S, channel.origin)
            begun = None
            while self._standing is not None and self._standing is not begun:  # it may have changed meanwhile
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
        """Close the workers and read their last reports."""
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
    return f"{worker.channel.name} did not answer for {limit_s:g} s: something blocks it"
