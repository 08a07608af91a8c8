"""The protocol between a driver and its workers: frames over any channel.

A frame is a kind, a number and a message: a driver's request and the worker's answer, a worker's question and
the driver's answer, or the driver's cancellation of a request, which ends the episode. A message is JSON:

    open     the spec: the function that opens a worker, and its arguments -> facts of the worker
    episode  a task, the numbers of its repeat and attempt                 -> `EpisodeResult`
    prepare  start of a collection of episodes: weights, tasks, a seed     -> nothing
    close    nothing                                                       -> last facts, strays

An answer is never an exception: it has the error's text and whether it is the user's mistake. No secret is
sent; a worker reads secrets from its own environment.

One budget limits all workers: they ask (`RemoteBudget`), the driver counts (`BudgetServer`, one per worker).
Every call and dollar is counted at the driver before it is spent, so the limits hold as in one process: calls
are never exceeded, dollars at most by the calls in flight. Without a limit workers do not ask. A lost
worker's unspent reservations are released. With real tools every call is asked for, even without a limit: a
worker that was given up but still lives (a frozen machine, a broken line) gets no answer or a refusal, and
makes no more calls. In the same way it reports an executed real call and waits until the driver's journal has
it.
"""

import asyncio
import itertools
import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dreamgym_kit.bounded_json import read_own_json
from dreamgym_kit.canonical import canonical
from dreamgym_kit.codec import Codec
from dreamgym_kit.errors import BudgetExceeded, NotSerializable, UserError, WorkerDetached, WorkerLost
from dreamgym_kit.interfaces import WorkerChannel
from dreamgym_kit.rollout.budgets import Reservation, RunBudget
from dreamgym_kit.rollout.jobs import Job
from dreamgym_kit.rollout.journal import EPISODES, episode_from_record
from dreamgym_kit.rollout.tasks import TASKS
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Call, Episode, ToolSpec

REQUEST, RESULT = b"c", b"r"
QUESTION, ANSWER = b"a", b"b"
CANCEL = b"x"
_HEAD = struct.Struct(">cQ")
Event = tuple[str, Mapping[str, JsonValue]]
Ask = Callable[[bytes], bytes]
"""Sends a question to the driver and waits for the answer; thread-safe."""

_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def framed(kind: bytes, number: int, message: bytes) -> bytes:
    """Return a frame of `kind`; the answer to a frame has its number."""
    return _HEAD.pack(kind, number) + message


def unframed(frame: bytes) -> tuple[bytes, int, bytes]:
    """Return kind, number and message of a frame."""
    return *_HEAD.unpack_from(frame), frame[_HEAD.size :]


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The spec that opens a worker: plain JSON, the same for all workers of a run, without secrets.

    `DistributedRunner` sets the last five.

    Attributes:
        opener: "module:function" in the worker's own installation; see `worker.Opener`.
        given: the opener's argument.
        lanes: concurrent episodes.
        limit_s: maximum seconds of an episode, including grace; None: no limit.
        paths: the driver's `sys.path`; empty: the worker keeps its own.
        kit: the driver's version of the kit; workers of another version refuse.
        every_call: ask for each call, even without a limit, because tools are real.
    """

    opener: str
    given: Mapping[str, JsonValue] = field(default_factory=dict)
    lanes: int = 1
    limit_s: float | None = None
    paths: tuple[str, ...] = ()
    kit: str = ""
    calls_limit: int | None = None  # of the run's budget, for messages; the driver does the counting
    usd_limit: float | None = None
    every_call: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """The result of one episode in a worker.

    Attributes:
        events: events of the episode, in order.
        turns: the policy's turns.
        strays: refused calls that belonged to no episode, since the last answer.
        notes: notes for the user.
        interrupted: user code raised KeyboardInterrupt: stop the run.
        gone: why the policy's server is gone: (kind, text); else empty.
    """

    episode: Episode
    events: tuple[Event, ...] = ()
    turns: tuple[Turn, ...] = ()
    strays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    gone: tuple[str, ...] = ()


SPECS = Codec(WorkerSpec)
JOBS = Codec(Job, nested=(TASKS,))
_RESULTS = Codec(EpisodeResult, nested=(EPISODES,))


def spelled(message: Mapping[str, Any]) -> bytes:
    """Encode a message.

    Raises:
        NotSerializable: a value in it has no JSON form.
    """
    try:
        return _spell(message).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(str(error)) from None


def read(message: bytes) -> dict[str, Any]:
    """Decode a message of `spelled`; our own processes made it, so the plain parser is enough."""
    record = read_own_json(message)
    if not isinstance(record, dict):
        raise NotSerializable("a message must be an object")
    return record


def request(do: str, **facts: Any) -> bytes:
    """Encode a request of the table above."""
    return spelled({"do": do, **facts})


def open_request(spec: WorkerSpec) -> bytes:
    """Encode the request to open a worker."""
    return request("open", spec=SPECS.write(spec))


def episode_request(job: Job) -> bytes:
    """Encode the request to run an episode."""
    return request("episode", job=JOBS.write(job))


def result_to_bytes(result: EpisodeResult) -> bytes:
    """Encode an episode's result as the answer to its request.

    Raises:
        NotSerializable: the episode has a value without JSON form.
    """
    canonical(result.episode.final)  # not part of the digest, so check here that it can be written
    events = tuple((kind, dict(facts)) for kind, facts in result.events)
    return spelled(_RESULTS.write(replace(result, events=events)))


def result_from_bytes(answer: bytes) -> EpisodeResult:
    """Decode the bytes of `result_to_bytes`.

    Raises:
        NotSerializable: not a result.
        RuntimeError: the worker failed; has its error.
    """
    record = read(answer)
    if "error" in record:
        raise RuntimeError(record["error"])
    return _RESULTS.read(record)


class WorkerLink:
    """The driver's end of a channel: sends requests; `budget` answers the worker's questions."""

    def __init__(self, channel: WorkerChannel, budget: "BudgetServer") -> None:
        self.channel, self.budget = channel, budget
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._lost = ""
        self._reading = asyncio.create_task(self._read())
        self._cancelling: set[asyncio.Task[None]] = set()  # a loop keeps only weak references to tasks

    async def call(self, request: bytes) -> bytes:
        """Send a request and wait for its answer; any number at once. Cancelling also cancels it there.

        Raises:
            WorkerLost: it ended or is unreachable; the request may or may not have been done.
        """
        if self._lost:
            raise WorkerLost(self._lost)
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self.channel.send([framed(REQUEST, number, request)])
            return await answer
        except asyncio.CancelledError:
            # not awaited: the caller may be out of time, and a hanging worker accepts no frames
            cancelling = asyncio.create_task(self._cancel(number))
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)
            raise
        finally:
            del self._waiting[number]

    async def _cancel(self, number: int) -> None:
        with suppress(WorkerLost):
            await self.channel.send([framed(CANCEL, number, b"")])

    async def facts(self, request: bytes, limit_s: float, origin: Sequence[str] = ()) -> dict[str, Any]:
        """Send a request and return the facts of its answer; `origin`: lines appended to an error.

        Raises:
            UserError: the worker reported a mistake of the user.
            RuntimeError: it failed otherwise.
            TimeoutError: no answer within `limit_s` seconds.
            WorkerLost: as `call`.
        """
        record = read(await asyncio.wait_for(self.call(request), limit_s))
        if "error" not in record:
            return record
        text = "\n  ".join([record["error"], *origin])
        raise UserError(text) if record["user"] else RuntimeError(text)

    async def end(self) -> None:
        """Kill the process; safe to call twice. Waiting calls raise `WorkerLost`.

        The budget accepts no more charges, even if the process cannot be killed.
        """
        self.budget.close()
        await self.channel.end()
        tasks = [self._reading, *self._cancelling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        why = f"{self.channel.name} was ended"
        try:
            while True:
                answers = []
                for frame in await self.channel.receive():
                    kind, number, message = unframed(frame)
                    if kind == QUESTION:
                        answers.append(framed(ANSWER, number, self.budget.answer(message)))
                    elif (waiting := self._waiting.get(number)) is not None and not waiting.done():
                        waiting.set_result(message)
                if answers:
                    await self.channel.send(answers)
        except WorkerLost as lost:
            why = str(lost)
        finally:
            self._lost = why
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(WorkerLost(why))


class BudgetServer:
    """The driver's budget for one worker. Thread-safe; it uses numbers only."""

    def __init__(self, budget: RunBudget, on_executed: Callable[[Episode], None] = lambda _: None) -> None:
        self._budget, self._on_executed = budget, on_executed
        self._lock = threading.Lock()
        self._open: dict[int, Reservation] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def answer(self, question: bytes) -> bytes:
        """Answer one question of a `RemoteBudget`."""
        message = read(question)
        try:
            return spelled(self._answered(message["do"], message))
        except BudgetExceeded as spent:
            return spelled({"spent": spent.what, "limit": spent.limit})

    def close(self) -> None:
        """Release the worker's reservations: it ended or was given up."""
        self._closed = True
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for reservation in left:
            self._budget.refund(reservation)

    def _answered(self, do: str, message: dict[str, Any]) -> dict[str, Any]:
        if do == "executed":  # also from a worker that was given up: the call happened
            self._on_executed(episode_from_record(message["episode"]))
            return {}
        if do == "reserve":
            if self._closed:
                return {"closed": True}
            reservation = self._budget.reserve(message["calls"], message["usd"])
            if message["at_once"]:
                self._budget.settle(reservation)
                return {}
            with self._lock:
                number = next(self._numbers)
                self._open[number] = reservation
            return {"number": number}
        with self._lock:
            opened = self._open.pop(message["number"], None)
        if opened is not None and do == "settle":
            self._budget.settle(opened, usd=message["usd"])
        elif opened is not None:
            self._budget.refund(opened)
        return {}


class RemoteBudget(RunBudget):
    """The driver's budget in a worker, which itself counts only unlimited amounts. Thread-safe.

    Args:
        ask: reaches the driver's `BudgetServer`.
        calls: the run's limit of calls; None: no limit, no questions.
        usd: the run's limit of dollars; None: no limit, no questions.
        every_call: ask before each call even without a limit, because calls are real.
    """

    def __init__(self, ask: Ask, *, calls: int | None, usd: float | None, every_call: bool = False) -> None:
        super().__init__()
        self._ask, self._every_call = ask, every_call
        self._calls_limited, self._usd_limited = calls is not None, usd is not None

    def before_call(self, call: Call, tool: ToolSpec) -> None:
        """See `RunBudget.before_call`.

        Raises:
            WorkerDetached: the driver gave this worker up.
        """
        if self._calls_limited or self._every_call:
            self._exchange("reserve", calls=1, usd=0.0, at_once=True)
        else:
            super().before_call(call, tool)

    def reserve(self, calls: int = 1, usd: float | None = 0.0) -> Reservation:
        """See `RunBudget.reserve`."""
        if not (calls and self._calls_limited) and not (usd != 0 and self._usd_limited):
            return super().reserve(calls, usd)
        reply = self._exchange("reserve", calls=calls, usd=usd, at_once=False)
        return Reservation(calls, 0, number=reply["number"])

    def settle(self, reservation: Reservation, *, usd: float | None = None) -> None:
        """See `RunBudget.settle`."""
        if not reservation.number:
            super().settle(reservation, usd=usd)
            return
        reservation.end()
        self._exchange("settle", number=reservation.number, usd=usd)

    def refund(self, reservation: Reservation) -> None:
        """See `RunBudget.refund`."""
        if not reservation.number:
            super().refund(reservation)
        elif reservation.open:
            reservation.end()
            self._exchange("refund", number=reservation.number)

    def _exchange(self, do: str, **facts: Any) -> dict[str, Any]:
        try:
            reply = read(self._ask(request(do, **facts)))
        except ConnectionError:  # not a tool failure: it is unknown whether the call may run
            raise WorkerDetached from None
        if "closed" in reply:
            raise WorkerDetached
        if "spent" in reply:
            raise BudgetExceeded(reply["spent"], limit=reply["limit"])
        return reply
