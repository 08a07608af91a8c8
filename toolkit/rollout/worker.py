"""A worker's side: it receives and sends frames, and runs the requested episodes on its own event loop.

The channel (a socket, a Ray actor) calls `take` from any thread and passes on what is sent. No exception
leaves the worker: KeyboardInterrupt and SystemExit of an agent's code become data, and a `sys.exit()` in a
task of the agent does not end the loop.
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
    """Return an answer with an error text; `user` marks a mistake of the user."""
    return spelled({"error": text, "user": user})


_CANCELLED = _failure("its task in the worker was cancelled")


@dataclass(kw_only=True)
class WorkerContext:
    """An open worker's runner and its other functions.

    Attributes:
        runner: runs the worker's episodes.
        warnings: warnings for the user about opening it.
    """

    runner: EpisodeRunner
    warnings: Sequence[str] = ()

    def report(self, episode: str) -> Mapping[str, Any]:  # noqa: ARG002
        """Return and remove the extras of an episode's result: turns, strays, notes and gone."""
        return {}

    def last(self) -> Mapping[str, JsonValue]:
        """Return the last facts for the driver, including strays and notes."""
        return {}

    async def prepare(self, message: Mapping[str, Any]) -> None:
        """Begin another collection of episodes.

        `message` has its `label`, `seed` and `scope`; the `weights` of the driver's server, if they changed;
        and all `tasks` that were added since the worker was opened.
        """


Opener = Callable[[Mapping[str, Any], EventSink, RunBudget], AbstractAsyncContextManager[WorkerContext]]
"""Opens a worker from the spec's `given`, an event sink and a budget. The spec names it."""


def kit_version() -> str:
    """Return the version of the kit in this process."""
    try:
        return version("dreamgym-kit")
    except PackageNotFoundError:
        return "unknown"


class WorkerEvents:
    """Implements `interfaces.EventSink`: stores an episode's events until its answer is sent. Thread-safe.

    Urgent events are sent to the driver at once.
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
        """Report a real call; it is in the driver's journal when this returns."""
        with suppress(ConnectionError):  # the driver is gone, and its journal with it
            self._ask(request("executed", episode=episode_to_record(episode)))

    def take(self, episode: str) -> tuple[Event, ...]:
        """Return and remove an episode's events so far."""
        with self._lock:
            return tuple(self._by_episode.pop(episode, ()))


def _import_as_driver(paths: Sequence[str]) -> None:
    sys.path[:] = paths or sys.path


class EpisodeWorker:
    """One worker. `run` uses its thread until `stop`; other threads may call `take`.

    Args:
        send: sends a frame to the driver, from any thread.
        adopt: called with the driver's module search path before user code is imported.
        answer_s: seconds without an answer after which the driver counts as gone; None: the channel detects
            it.
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
        """Serve until `stop`; no exception of an episode ends it."""
        run_to_end(self._serve(), StopSwitch())

    def stop(self) -> None:
        """End `run` after closing the open worker."""
        self._ready.wait()
        self._loop.call_soon_threadsafe(self._ended.set)

    def take(self, frame: bytes) -> None:
        """Handle a frame from the driver; the result of a request is sent later."""
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
        # cancelled by the driver, or by agent code that cancels every task
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
                await self._place.run_in_context(self._place.context.prepare(message))
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
    """An open worker; opened and closed in one task, as users' context managers require."""

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
        """Wait until it is open; raises the error of opening."""
        self.context = await asyncio.shield(self._ready)
        return self.context

    async def close(self) -> dict[str, Any]:
        """Close it and return the last facts."""
        self._closing.set()
        await asyncio.wait({self._keeper})
        return self._last

    async def run_in_context(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine with the context variables of the opening."""
        return await asyncio.create_task(work, context=self._variables.copy())

    async def episode(self, job: Job) -> bytes:
        """Run an episode and return its encoded result."""
        stop, context = StopSwitch(), self.context
        episode = await self.run_in_context(run_bounded(context.runner, job, stop, self._spec.limit_s))
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
                # wrapped: a future cannot raise StopIteration or a BaseException
                failed = RuntimeError(f"a worker could not be opened: {error_line(error)}")
                self._ready.set_exception(error if isinstance(error, UserError) else failed)
