"""The one thread that owns a model: requests wait here, and batches are made of them.

In a window, what comes within a few milliseconds starts together, and what comes later joins at the next
step. In lockstep, a batch of episodes starts when every live episode waits for the model and the last batch
has ended, in the order of episodes: who is in a batch, and so each float, does not depend on timing.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from dreamgym_kit.adapters.models.kv_cache import FinishedTurn, PrefixCache
from dreamgym_kit.adapters.models.local_batch import Ask, RunningBatch, Sampled
from dreamgym_kit.adapters.models.local_network import Network
from dreamgym_kit.deployment.model_files import one_line
from dreamgym_kit.errors import EndpointError


@dataclass(frozen=True, slots=True)
class Pace:
    """When a batch starts."""

    lockstep: bool = False
    window_s: float = 0.002  # how long the first request waits for others; in lockstep: an episode for more
    patience_s: float = 60.0  # how long lockstep waits for an episode that does not ask
    most_rows: int = 256


class Engine:
    """Serves one model until it is closed."""

    def __init__(
        self,
        network: Network,
        version: str,
        *,
        pace: Pace,
        ends: frozenset[int],
        decode: Callable[[Sequence[int]], str],
        cache: PrefixCache,
    ) -> None:
        self.version = version
        self.network = network
        self.impatient = 0  # batches that lockstep started without waiting longer
        self._pace, self._ends, self._decode, self._cache = pace, ends, decode, cache
        self._changed = threading.Condition()
        self._waiting: list[Ask] = []
        self._since = 0.0  # when the last request came
        self._first = 0.0  # when the first of those waiting came
        self._live: dict[str, int] = {}
        self._jobs: list[tuple[Callable[[], Any], Future[Any], bool]] = []
        self._closed = False
        self._batch: RunningBatch | None = None
        self._under_way: dict[int, Ask] = {}  # taken in, and without an answer yet
        self._thread = threading.Thread(target=self._run, name="dreamgym-policy", daemon=True)
        self._thread.start()

    def ask(self, ask: Ask) -> "Future[Sampled]":
        """Put a request in line. Its future fails with EndpointError where it gets no answer."""
        with self._changed:
            if self._closed:
                raise EndpointError("connection", "the policy's engine was closed")
            self._since = time.monotonic()
            if not self._waiting:
                self._first = self._since
            self._waiting.append(ask)
            self._changed.notify()
        return ask.future

    def do(self, job: Callable[[], Any], *, between_batches: bool) -> "Future[Any]":
        """Have something done on the engine's thread, between two steps or when no batch is under way."""
        done: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise EndpointError("connection", "the policy's engine was closed")
            self._jobs.append((job, done, between_batches))
            self._changed.notify()
        return done

    def begin(self, key: str) -> None:
        """An episode lives: lockstep waits for it."""
        with self._changed:
            self._live[key] = self._live.get(key, 0) + 1

    def end(self, key: str) -> None:
        """An episode is over: nobody waits for it."""
        with self._changed:
            self._live[key] = self._live.get(key, 0) - 1
            if self._live[key] <= 0:
                del self._live[key]
                self._cache.forget(key)
            self._changed.notify()

    def close(self) -> None:
        """End the thread; what waits fails. Calling it twice does no harm."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def serve(self, network: Network, version: str) -> None:
        """Answer with other weights from now on; on the engine's thread, between batches."""
        self.network, self.version = network, version
        self._cache.new_weights()

    def _run(self) -> None:
        torch.set_num_threads(1)  # two on busy cores wait for each other
        try:
            with torch.inference_mode():
                while self._turn():
                    pass
        except BaseException as error:  # noqa: BLE001  whoever waits has to hear of it, whatever it is
            self._fail_all(_as_endpoint_error(error))
        else:
            self._fail_all(EndpointError("connection", "the policy's engine was closed"))

    def _turn(self) -> bool:
        """Take what came, and make one step; False once the engine is closed."""
        with self._changed:
            while (work := self._work()) is None:
                self._changed.wait(self._wait_s())
            if self._closed:
                return False
            jobs, asks = work
            self._under_way |= {id(ask): ask for ask in asks}
        for job, done in jobs:
            _run_job(job, done)
        try:
            if asks:
                self._join(asks)
            if self._batch is not None:
                self._step(self._batch)
        except Exception as error:  # noqa: BLE001  a batch failed, not the engine: its requests hear why
            self._fail_batch(_as_endpoint_error(error))
        return True

    def _work(self) -> tuple[list[tuple[Callable[[], Any], "Future[Any]"]], list[Ask]] | None:
        """Jobs to run and requests to take in now; None where there is nothing to do."""
        if self._closed:
            return [], []
        idle = self._batch is None
        jobs = [(job, done) for job, done, between in self._jobs if idle or not between]
        self._jobs = [entry for entry in self._jobs if not idle and entry[2]]
        asks = [] if self._jobs else self._starting(idle=idle)
        return (jobs, asks) if jobs or asks or not idle else None

    def _starting(self, *, idle: bool) -> list[Ask]:
        """Return the requests to start now, in an order that does not depend on when they came."""
        self._waiting = [ask for ask in self._waiting if not ask.future.done()]
        lockstep = self._pace.lockstep and bool(self._live)
        if not self._waiting or (not idle and lockstep):
            return []
        chosen = self._in_step() if lockstep else self._in_window(idle=idle)
        live_rows = 0 if self._batch is None else len(self._batch.asks)
        chosen = sorted(chosen, key=lambda ask: (ask.key, ask.seed or 0, ask.prompt))[
            : max(0, self._pace.most_rows - live_rows)
        ]
        taken = set(map(id, chosen))
        self._waiting = [ask for ask in self._waiting if id(ask) not in taken]
        self._first = time.monotonic()
        return chosen

    def _in_step(self) -> list[Ask]:
        strangers = [ask for ask in self._waiting if ask.key not in self._live]
        if strangers:  # a judge or a user that a live episode waits for may be among them
            return strangers
        now = time.monotonic()
        if len({ask.key for ask in self._waiting}) == len(self._live):
            return self._waiting if now - self._since >= self._pace.window_s else []
        if now - self._since < self._pace.patience_s:
            return []
        self.impatient += 1
        return self._waiting

    def _in_window(self, *, idle: bool) -> list[Ask]:
        everybody = self._live and len({ask.key for ask in self._waiting}) >= len(self._live)
        late = time.monotonic() - self._first >= self._pace.window_s
        return self._waiting if not idle or everybody or late else []

    def _wait_s(self) -> float | None:
        """How long nothing can change unless somebody comes."""
        if not self._waiting:
            return None
        now = time.monotonic()
        waits = [self._first + self._pace.window_s - now, self._since + self._pace.window_s - now]
        if self._pace.lockstep:
            waits.append(self._since + self._pace.patience_s - now)
        return max(0.0005, min((wait for wait in waits if wait > 0), default=0.0005))

    def _join(self, asks: Sequence[Ask]) -> None:
        if self._batch is None:
            self._batch = RunningBatch(self.network, self.version, ends=self._ends, decode=self._decode)
        self._batch.join([(ask, *self._cache.find(ask.key, ask.prompt)) for ask in asks])

    def _step(self, batch: RunningBatch) -> None:
        for ask, sampled, row in batch.step():
            ended = sampled.finish == "stop" and sampled.cut < 0
            text = ask.text + ask.render_answer(sampled.ids)
            self._cache.keep(ask.key, FinishedTurn(text, (*ask.prompt, *sampled.ids), ended, row))
            del self._under_way[id(ask)]
            if not ask.future.done() and ask.future.set_running_or_notify_cancel():
                ask.future.set_result(sampled)
        if not batch.asks:
            self._batch = None
            self._under_way.clear()  # those that were cancelled

    def _fail_batch(self, error: EndpointError) -> None:
        self._batch = None
        for ask in self._under_way.values():
            _fail(ask.future, error)
        self._under_way.clear()

    def _fail_all(self, error: EndpointError) -> None:
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            jobs, self._jobs = self._jobs, []
        self._fail_batch(error)
        for ask in waiting:
            _fail(ask.future, error)
        for _, done, _between in jobs:
            _fail(done, error)


def _run_job(job: Callable[[], Any], done: "Future[Any]") -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(job())
    except Exception as error:  # noqa: BLE001  it is the caller's to hear
        done.set_exception(error)


def _fail(future: "Future[Any]", error: EndpointError) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)


def _as_endpoint_error(error: BaseException) -> EndpointError:
    if isinstance(error, EndpointError):
        return error
    return EndpointError("server", f"the policy's engine failed: {type(error).__name__}: {one_line(error)}")
