"""A worker's side: takes frames, gives frames, and runs what they ask for on an event loop of its own.

Whatever carries the frames (a socket, an actor of Ray) calls `take` from any thread and hands on what comes.
No exception gets out, whatever an episode does: KeyboardInterrupt and SystemExit of somebody's code become
data, and a `sys.exit()` in a task of the agent's does not end the loop.
"""

import asyncio
import contextvars
import itertools
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pkgutil import resolve_name
from typing import Any

from dreamgym_kit.errors import NotSerializable, UserError
from dreamgym_kit.interfaces import EpisodeRunner, EventSink
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.event_loop import frozen_heap, lane_threads, run_to_end
from dreamgym_kit.rollout.jobs import Job, run_bounded, unstorable
from dreamgym_kit.rollout.journal import episode_to_record
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.worker_protocol import (
    ANSWER,
    CANCEL,
    JOBS,
    QUESTION,
    RESULT,
    SPECS,
    Ask,
    EpisodeResult,
    Event,
    RemoteBudget,
    WorkerSpec,
    framed,
    read,
    request,
    result_to_bytes,
    spelled,
    unframed,
)
from dreamgym_kit.serialization import JsonValue, to_json
from dreamgym_kit.types import Episode, error_line


def _failure(text: str, *, user: bool = False) -> bytes:
    """An answer that says what went wrong; a mistake of the user's is told from one of ours."""
    return spelled({"error": text, "user": user})


_CANCELLED = _failure("its task in the worker was cancelled")


@dataclass(kw_only=True)
class WorkerContext:
    """What an open worker stands on: who runs its episodes, and what it can do beside that.

    Attributes:
        runner: runs its episodes.
        warnings: what a person should know of how it was opened.
    """

    runner: EpisodeRunner
    warnings: Sequence[str] = ()

    def report(self, episode: str) -> Mapping[str, Any]:  # noqa: ARG002
        """Give and forget what goes with an episode's result: its turns, strays, notes and gone."""
        return {}

    def last(self) -> Mapping[str, JsonValue]:
        """Facts that the driver wants when all is done; strays and notes among them."""
        return {}

    async def prepare(self, message: Mapping[str, Any]) -> None:
        """Begin another collection of episodes.

        `message` has its `label`, `seed` and `scope`, the `weights` that the driver serves, where those
        change, and all `tasks` that came since the worker was opened.
        """


Opener = Callable[[Mapping[str, Any], EventSink, RunBudget], AbstractAsyncContextManager[WorkerContext]]
"""Opens a worker: `given` of the spec, who hears its events, what it is charged to. Named in the spec."""


def kit_version() -> str:
    """The version of the kit that this process runs."""
    try:
        return version("dreamgym-kit")
    except PackageNotFoundError:
        return "unknown"


class WorkerEvents:
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
            self._ask(request("executed", episode=episode_to_record(episode)))

    def take(self, episode: str) -> tuple[Event, ...]:
        """What an episode told so far; it is not kept any longer."""
        with self._lock:
            return tuple(self._by_episode.pop(episode, ()))


def _import_as_driver(paths: Sequence[str]) -> None:
    sys.path[:] = paths or sys.path


class EpisodeWorker:
    """One worker. `run` holds a thread until `stop`; `take` may be called from any other.

    Args:
        send: hands a frame to the driver, from any thread.
        adopt: is given the driver's module search path, before anything of the user's is imported.
        answer_s: seconds after which the driver is taken for gone where it does not answer; None: whoever
            carries the frames knows.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        *,
        adopt: Callable[[Sequence[str]], None] = _import_as_driver,
        answer_s: float | None = None,
    ) -> None:
        self._send, self._adopt, self._answer_s = send, adopt, answer_s
        self._numbers = itertools.count(1)
        self._questions: dict[int, Future[bytes]] = {}
        self._requests: dict[int, Future[bytes]] = {}
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._place: _Open | None = None

    def run(self) -> None:
        """Serve until `stop`; nothing that an episode raises ends it."""
        run_to_end(self._serve(), StopSwitch())

    def stop(self) -> None:
        """End `run`; what is open is closed first."""
        self._ready.wait()
        self._loop.call_soon_threadsafe(self._ended.set)

    def take(self, frame: bytes) -> None:
        """Take a frame of the driver's; what a request came to is sent later."""
        kind, number, message = unframed(frame)
        if kind == ANSWER:
            if (question := self._questions.pop(number, None)) is not None:
                question.set_result(message)
            return
        if kind == CANCEL:
            if (working := self._requests.get(number)) is not None:
                working.cancel()
            return
        self._ready.wait()
        working = asyncio.run_coroutine_threadsafe(self._answered(message), self._loop)
        self._requests[number] = working
        working.add_done_callback(partial(self._send_result, number))

    def _send_result(self, number: int, working: "Future[bytes]") -> None:
        del self._requests[number]
        # cancelled: by the driver, or by code of the agent's that cancels every task it finds
        self._send(framed(RESULT, number, _CANCELLED if working.cancelled() else working.result()))

    def _ask(self, question: bytes) -> bytes:
        number, answer = next(self._numbers), Future[bytes]()
        self._questions[number] = answer
        self._send(framed(QUESTION, number, question))
        try:
            return answer.result(self._answer_s)
        except TimeoutError:
            self._questions.pop(number, None)
            raise ConnectionError(f"the driver has not answered for {self._answer_s:g} s") from None

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        try:
            await self._ended.wait()
        finally:
            if self._place is not None:
                await self._place.close()

    async def _answered(self, message: bytes) -> bytes:
        try:
            return await self._done(read(message))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  the boundary: everything becomes data
            user = isinstance(error, UserError)
            return _failure(str(error) if user else error_line(error), user=user)

    async def _done(self, message: dict[str, Any]) -> bytes:
        do = message["do"]
        if do == "open":
            return await self._open(SPECS.read(message["spec"]))
        if self._place is None:
            raise RuntimeError("this worker is not open")
        match do:
            case "episode":
                return await self._place.episode(JOBS.read(message["job"]))
            case "prepare":
                await self._place.apart(self._place.context.prepare(message))
                return spelled({})
            case "close":
                place, self._place = self._place, None
                return spelled(await place.close())
        raise ValueError(f"no such request: {do}")

    async def _open(self, spec: WorkerSpec) -> bytes:
        self._adopt(spec.paths)
        here = kit_version()
        if spec.kit and spec.kit != here:
            raise UserError(
                f"a worker runs dreamgym-kit {here}, and the driver {spec.kit}; install the same on both."
            )
        self._place = _Open(spec, self._ask)
        context = await self._place.opened()
        return spelled({"warnings": list(context.warnings)})


class _Open:
    """What is open in a worker; opened and closed in one task, as context managers of users' want it."""

    def __init__(self, spec: WorkerSpec, ask: Ask) -> None:
        self._spec, self._events = spec, WorkerEvents(ask)
        self._budget = RemoteBudget(
            ask, calls=spec.calls_limit, usd=spec.usd_limit, every_call=spec.every_call
        )
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[WorkerContext] = asyncio.get_running_loop().create_future()
        self._variables = contextvars.copy_context()
        self._last: dict[str, Any] = {}
        self._keeper = asyncio.create_task(self._keep())
        self.context: WorkerContext

    async def opened(self) -> WorkerContext:
        """Wait until it is open; raises what opening raised."""
        self.context = await asyncio.shield(self._ready)
        return self.context

    async def close(self) -> dict[str, Any]:
        """Close it and give the last facts."""
        self._closing.set()
        await asyncio.wait({self._keeper})
        return self._last

    async def apart(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something with the context variables of when all was opened."""
        return await asyncio.create_task(work, context=self._variables.copy())

    async def episode(self, job: Job) -> bytes:
        """Run one and tell what came of it."""
        stop, context = StopSwitch(), self.context
        episode = await self.apart(run_bounded(context.runner, job, stop, self._spec.limit_s))
        result = EpisodeResult(
            episode=episode,
            events=self._events.take(job.episode),
            interrupted=stop.requested,
            **context.report(job.episode),
        )
        try:
            return result_to_bytes(result)
        except NotSerializable as error:
            lost = unstorable(job, error, episode)
            return result_to_bytes(EpisodeResult(lost, strays=result.strays, notes=result.notes))

    async def _keep(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(lane_threads(self._spec.lanes))
                opener: Opener = resolve_name(self._spec.opener)
                opened = opener(self._spec.given, self._events, self._budget)
                context = await stack.enter_async_context(opened)
                stack.enter_context(frozen_heap())
                self._variables = contextvars.copy_context()
                self._ready.set_result(context)
                await self._closing.wait()
                self._last = dict(context.last())
        except BaseException as error:  # noqa: BLE001  whoever waits for it hears of it
            if not self._ready.done():
                # in another error's place: a future takes no StopIteration, nor what is no Exception
                failed = RuntimeError(f"a worker could not be opened: {error_line(error)}")
                self._ready.set_exception(error if isinstance(error, UserError) else failed)
