"""A worker's side: takes requests in bytes, gives answers in bytes, on an event loop of its own.

Whatever carries the bytes (a socket, an actor of Ray) calls `submit` from any thread and hands on what comes.
No exception gets out, whatever an episode does: KeyboardInterrupt and SystemExit of somebody's code become
data, and a `sys.exit()` in a task of the agent's does not end the loop.
"""

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pkgutil import resolve_name
from typing import Any

from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.interfaces import EpisodeRunner, EventSink
from dreamgym_kit.rollout.budgets import Budget
from dreamgym_kit.rollout.event_loop import frozen_heap, lane_threads, run_to_end
from dreamgym_kit.rollout.jobs import Job, run_bounded, unstorable
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import task_from_record
from dreamgym_kit.rollout.worker_protocol import (
    Ask,
    Came,
    Event,
    RemoteBudget,
    WorkerSpec,
    came_to_bytes,
    executed_question,
    failure_to_bytes,
    read,
    read_job,
    read_spec,
    spelled,
)
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Task, error_line


async def _cannot(_: Any) -> Mapping[str, JsonValue]:
    raise UserError("this worker has no policy whose weights could be changed")


def _nothing() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What an open worker stands on.

    Attributes:
        runner: runs its episodes.
        warnings: what a person should know of how it was opened.
        turns: gives and forgets what the policy said in an episode, by its id.
        notes: what a person should know by now.
        strays: gives and forgets the refused calls that belonged to no episode.
        gone: why the policy's server is there no more: (kind, text); else empty.
        last: facts that the driver wants when all is done.
        load: takes other weights of the policy; gives what is served then.
        admit: lets more tasks be run.
        prepare: what a collection of episodes begins with.
    """

    runner: EpisodeRunner
    warnings: Sequence[str] = ()
    turns: Callable[[str], tuple[Turn, ...]] = lambda _: ()
    notes: Callable[[], Iterable[str]] = _nothing
    strays: Callable[[], Iterable[str]] = _nothing
    gone: Callable[[], tuple[str, ...]] = _nothing
    last: Callable[[], Mapping[str, JsonValue]] = dict
    load: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, JsonValue]]] = _cannot
    admit: Callable[[Sequence[Task]], None] = lambda _: None
    prepare: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, JsonValue]]] = _cannot


Opener = Callable[[Mapping[str, Any], EventSink, Budget], AbstractAsyncContextManager[WorkerContext]]
"""Opens a worker: `given` of the spec, who hears its events, what it is charged to. Named in the spec."""


def kit_version() -> str:
    """The version of the kit that this process runs."""
    try:
        return version("dreamgym-kit")
    except PackageNotFoundError:
        return "unknown"


class Heard:
    """Implements `interfaces.EventSink`: keeps what each episode told until its answer goes. Thread-safe.

    What cannot wait for that is told to the driver at once.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._by_episode: dict[str, list[Event]] = {}

    def emit(self, kind: str, /, **facts: JsonValue) -> None:
        """See `EventSink.emit`."""
        plain = {name: to_json(fact) for name, fact in facts.items()}
        with self._lock:
            self._by_episode.setdefault(str(facts.get("episode", "")), []).append((kind, plain))

    def executed(self, episode: Episode) -> None:
        """Tell of a real call; it is in the driver's journal once this returns."""
        with suppress(ConnectionError):  # nobody is there any more who keeps a journal
            self._ask(executed_question(episode))

    def take(self, episode: str) -> tuple[Event, ...]:
        """What an episode told so far; it is not kept any longer."""
        with self._lock:
            return tuple(self._by_episode.pop(episode, ()))


class EpisodeWorker:
    """One worker. `run` holds a thread until `stop`; `submit` may be called from any other.

    Args:
        ask: puts a question about the budget to the driver, and waits for its answer.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._place: _Open | None = None

    def run(self) -> None:
        """Serve until `stop`; nothing that an episode raises ends it."""
        run_to_end(self._serve(), StopSwitch())

    def stop(self) -> None:
        """End `run`; what is open is closed first."""
        self._ready.wait()
        assert self._loop is not None
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._ended.set)

    def submit(self, request: bytes) -> "Future[bytes]":
        """Take a request; the answer comes later, and never as an exception."""
        self._ready.wait()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._answered(request), self._loop)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        try:
            await self._ended.wait()
        finally:
            if self._place is not None:
                await self._place.close()

    async def _answered(self, request: bytes) -> bytes:
        try:
            return await self._done(read(request))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  the boundary: everything becomes data
            text = str(error) if isinstance(error, UserError) else error_line(error)
            return failure_to_bytes(error, text)

    async def _done(self, request: dict[str, Any]) -> bytes:
        match request["do"]:
            case "open":
                return await self._open(read_spec(request))
            case "episode":
                return await self._opened.episode(read_job(request))
            case "load":
                return spelled(await self._opened.apart(self._opened.place.load(request)))
            case "prepare":
                return spelled(await self._opened.apart(self._opened.place.prepare(request)))
            case "admit":
                tasks = [task_from_record(task, source="admit") for task in request["tasks"]]
                self._opened.place.admit(tasks)
                return spelled({})
            case "close":
                return await self._close()
        raise ValueError(f"no such request: {request['do']}")

    @property
    def _opened(self) -> "_Open":
        if self._place is None:
            raise RuntimeError("this worker is not open")
        return self._place

    async def _open(self, spec: WorkerSpec) -> bytes:
        here = kit_version()
        if spec.kit and spec.kit != here:
            raise UserError(
                f"a worker runs dreamgym-kit {here}, and the driver {spec.kit}; install the same on both."
            )
        budget = RemoteBudget(
            self._ask, calls=spec.calls_limit, usd=spec.usd_limit, every_call=spec.every_call
        )
        self._place = _Open(spec, budget, Heard(self._ask))
        place = await self._place.opened()
        return spelled({"pid": os.getpid(), "kit": here, "warnings": list(place.warnings)})

    async def _close(self) -> bytes:
        place, self._place = self._place, None
        return spelled({} if place is None else await place.close())


class _Open:
    """What is open in a worker; opened and closed in one task, as context managers of users' want it."""

    def __init__(self, spec: WorkerSpec, budget: RemoteBudget, heard: Heard) -> None:
        self._spec, self._budget, self._heard = spec, budget, heard
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[WorkerContext] = asyncio.get_running_loop().create_future()
        self._context = contextvars.copy_context()
        self._last: dict[str, Any] = {}
        self._keeper = asyncio.create_task(self._keep())
        self.place: WorkerContext

    async def opened(self) -> WorkerContext:
        """Wait until it is open; raises what opening raised."""
        self.place = await asyncio.shield(self._ready)
        return self.place

    async def close(self) -> dict[str, Any]:
        """Close it and give the last facts."""
        self._closing.set()
        await asyncio.wait({self._keeper})
        return self._last

    async def apart(self, work: Any) -> Any:
        """Do something in the context in which all was opened."""

        async def done() -> Any:
            return await work

        return await asyncio.create_task(done(), context=self._context.copy())

    async def episode(self, job: Job) -> bytes:
        """Run one and tell what came of it."""
        stop = StopSwitch()
        running = run_bounded(self.place.runner, job, stop, self._spec.limit_s)
        episode = await asyncio.create_task(running, context=self._context.copy())
        place = self.place
        came = Came(
            episode=episode,
            events=self._heard.take(job.episode),
            turns=place.turns(job.episode),
            strays=tuple(place.strays()),
            notes=tuple(place.notes()),
            interrupted=stop.requested,
            gone=place.gone(),
        )
        try:
            return came_to_bytes(came)
        except NotSerializable as error:
            return came_to_bytes(Came(unstorable(job, error, episode), strays=came.strays, notes=came.notes))

    async def _keep(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(lane_threads(self._spec.lanes))
                opener: Opener = resolve_name(self._spec.opener)
                place = await stack.enter_async_context(opener(self._spec.given, self._heard, self._budget))
                stack.enter_context(frozen_heap())
                self._context = contextvars.copy_context()
                self._ready.set_result(place)
                await self._closing.wait()
                self._last = {**place.last(), "strays": list(place.strays()), "notes": list(place.notes())}
        except BaseException as error:  # noqa: BLE001  whoever waits for it hears of it
            if not self._ready.done():
                self._ready.set_exception(_told_apart(error))


def _told_apart(error: BaseException) -> Exception:
    """What may be set on a future: StopIteration and what is no Exception may not."""
    if isinstance(error, UserError):
        return error
    return RuntimeError(f"a worker could not be opened: {error_line(error)}")
