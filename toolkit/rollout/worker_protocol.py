"""What a driver and its workers say to each other: frames over a channel, whatever carries them.

A frame is a kind, a number and a message: a request of the driver's and the worker's answer to it, a
question of the worker's and the driver's answer, or the driver's word that it no longer waits for the answer
to a request, which ends the episode. A message is JSON:

    open     the spec: who opens what a runner stands on, with which facts      -> facts of the worker
    episode  a task, its sibling's number and attempt                           -> `EpisodeResult`
    prepare  what a collection of episodes begins with: weights, tasks, a seed  -> nothing
    close    nothing                                                            -> last facts, strays

An answer is never an exception: what went wrong is in it as text, and whose fault it was. No secret is sent;
a worker finds those it needs in its own environment.

One budget holds for all workers: they ask (`RemoteBudget`), the driver counts (`BudgetServer`, one for each).
Every call and every dollar is counted where the limit is, before it is spent, so the limits hold as they hold
in one process: calls are never passed, dollars by at most what was in flight. Where a run has no limit nobody
is asked. What a worker that was lost had reserved and not spent is given back. Where the tools are real every
call is asked for, limit or not: a worker that was given up while it still lives (a frozen machine, a broken
line) gets no answer, or a no, and calls nothing any more. On the same way it says that a real call was
executed, and waits until that is in the driver's journal.
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
"""Puts a question to the driver and waits for the answer; from any thread."""

_spell = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def framed(kind: bytes, number: int, message: bytes) -> bytes:
    """A frame of `kind`; the answer to a frame bears its number."""
    return _HEAD.pack(kind, number) + message


def unframed(frame: bytes) -> tuple[bytes, int, bytes]:
    """Kind, number and message of a frame."""
    return *_HEAD.unpack_from(frame), frame[_HEAD.size :]


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker is opened with; plain JSON, the same for all workers of a run, and no secret in it.

    The last five are filled in by `DistributedRunner`.

    Attributes:
        opener: "module:function" in the worker's own installation; see `worker.Opener`.
        given: what the opener is given.
        lanes: episodes that it runs at once.
        limit_s: wall time of an episode, grace included, after which the worker ends it; None: no end.
        paths: what the driver's `sys.path` is; empty: the worker's stays as it is.
        kit: the version of the kit that the driver runs; a worker of another one refuses.
        every_call: each call is asked for, limit or not: the tools are real.
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
    """What came of one episode in a worker.

    Attributes:
        events: what was heard meanwhile, in order.
        turns: what the policy said.
        strays: refused calls that belonged to no episode, since the last answer.
        notes: what a person should know.
        interrupted: somebody's code raised KeyboardInterrupt: the run is to be stopped.
        gone: why the policy's server is there no more: (kind, text); else empty.
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
    """A message in bytes.

    Raises:
        NotSerializable: a value in it has no JSON form.
    """
    try:
        return _spell(message).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(str(error)) from None


def read(message: bytes) -> dict[str, Any]:
    """A message that `spelled` made: by our own process, so the plain parser will do."""
    record = read_own_json(message)
    if not isinstance(record, dict):
        raise NotSerializable("a message is an object")
    return record


def request(do: str, **facts: Any) -> bytes:
    """A request, one of those above."""
    return spelled({"do": do, **facts})


def open_request(spec: WorkerSpec) -> bytes:
    """Ask a worker to open what it runs episodes on."""
    return request("open", spec=SPECS.write(spec))


def episode_request(job: Job) -> bytes:
    """Ask a worker to run an episode."""
    return request("episode", job=JOBS.write(job))


def result_to_bytes(result: EpisodeResult) -> bytes:
    """What came of an episode, as the answer to its request.

    Raises:
        NotSerializable: the episode holds a value without JSON form.
    """
    canonical(result.episode.final)  # the digest leaves it out: what cannot be written is refused here
    events = tuple((kind, dict(facts)) for kind, facts in result.events)
    return spelled(_RESULTS.write(replace(result, events=events)))


def result_from_bytes(answer: bytes) -> EpisodeResult:
    """Read what `result_to_bytes` wrote.

    Raises:
        NotSerializable: it is something else.
        RuntimeError: the worker failed; says how.
    """
    record = read(answer)
    if "error" in record:
        raise RuntimeError(record["error"])
    return _RESULTS.read(record)


class WorkerLink:
    """The driver's end of a channel: requests, and what the worker asks meanwhile, which `budget` answers."""

    def __init__(self, channel: WorkerChannel, budget: "BudgetServer") -> None:
        self.channel, self.budget = channel, budget
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._lost = ""
        self._reading = asyncio.create_task(self._read())
        self._cancelling: set[asyncio.Task[None]] = set()  # a loop holds its tasks only weakly

    async def call(self, request: bytes) -> bytes:
        """Put a request and wait for its answer; any number at once. Cancelled, it is cancelled there, too.

        Raises:
            WorkerLost: it is no more, or cannot be reached; what it was asked may or may not have been done.
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
            # not waited for: the caller's time may be up, and a worker that hangs takes no frames
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
        """The facts of an answer that is no episode; `origin`: lines that end an error.

        Raises:
            UserError: the worker said what a person did wrong.
            RuntimeError: it failed otherwise.
            TimeoutError: it has not answered for so long.
            WorkerLost: as `call`.
        """
        record = read(await asyncio.wait_for(self.call(request), limit_s))
        if "error" not in record:
            return record
        text = "\n  ".join([record["error"], *origin])
        raise UserError(text) if record["user"] else RuntimeError(text)

    async def end(self) -> None:
        """End the process, whatever it does; twice does no harm. Waiting calls raise `WorkerLost`.

        Nothing more is charged to the budget, whether the process can be ended or not.
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
    """The driver's side for one worker. Thread-safe; knows nothing but numbers, so it may live anywhere."""

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
        """The worker is no more, or is not to be heard any more: what it had reserved is free again."""
        self._closed = True
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for reservation in left:
            self._budget.refund(reservation)

    def _answered(self, do: str, message: dict[str, Any]) -> dict[str, Any]:
        if do == "executed":  # also of a worker that was given up: it happened
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
            held = self._open.pop(message["number"], None)
        if held is not None and do == "settle":
            self._budget.settle(held, usd=message["usd"])
        elif held is not None:
            self._budget.refund(held)
        return {}


class RemoteBudget(RunBudget):
    """The driver's budget in a worker, which itself counts only what has no limit. Thread-safe.

    Args:
        ask: reaches the driver's `BudgetServer`.
        calls: the run's limit; None is no limit, and then nobody is asked about calls.
        usd: the same for dollars.
        every_call: ask before each call though there is no limit: it is a real one.
    """

    def __init__(self, ask: Ask, *, calls: int | None, usd: float | None, every_call: bool = False) -> None:
        super().__init__()
        self._ask, self._every_call = ask, every_call
        self._calls_limited, self._usd_limited = calls is not None, usd is not None

    def before_call(self, call: Call, tool: ToolSpec) -> None:
        """See `RunBudget.before_call`.

        Raises:
            WorkerDetached: the driver has given this worker up.
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
        except ConnectionError:  # no failure of the tool that is asked for: nobody can say whether it may run
            raise WorkerDetached from None
        if "closed" in reply:
            raise WorkerDetached
        if "spent" in reply:
            raise BudgetExceeded(reply["spent"], limit=reply["limit"])
        return reply
