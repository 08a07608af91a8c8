"""Workers in a Ray cluster: one async actor each, one call an episode, bytes both ways.

Ray repeats nothing and restarts nothing (`max_task_retries=0`, `max_restarts=0`): it would run an episode
again without a word, and whether that may be is for the driver alone to know. A worker whose process or
machine is gone fails at once, and so does every later call: it is lost, and another is started in its place,
wherever there is room. Actors are never detached: those of a driver that is gone end with it.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.engines.ray_actor import DriverPlace, RayActor
from dreamgym_kit.adapters.engines.ray_cluster import Cluster, processors, ray_cluster
from dreamgym_kit.errors import UserError, WorkerLost
from dreamgym_kit.ports import Worker
from dreamgym_kit.settings.secrets import names_secret

READY_S = 60.0  # after which a worker that has not said so is not waited for
STARTS_PER_HOUR = 60  # beside the first ones: where more are lost, another one will be, too
_CALLS = 1000  # that an actor takes at once: how many episodes it runs is for the driver to say


class RayHost:
    """Implements `ports.WorkerHost` in a Ray cluster, which it starts or joins with its first worker.

    Args:
        workers: how many there are to be.
        address: of the cluster to join; None: one of this command's own, on this machine.
        ready_s: seconds that a worker may take to say that it is there.
    """

    def __init__(self, workers: int, *, address: str | None = None, ready_s: float = READY_S) -> None:
        self._workers, self._address, self._ready_s = workers, address, ready_s
        self._stack = ExitStack()
        self._cluster: Cluster | None = None
        self._starts: deque[float] = deque(maxlen=workers + STARTS_PER_HOUR)

    async def start(self, number: int, answer: Callable[[bytes], bytes]) -> Worker:
        """See `WorkerHost.start`.

        Raises:
            MissingExtra: Ray is not installed.
        """
        if self._cluster is None:  # waits in the way of the loop: Ray's processes live as long as this thread
            self._cluster = self._stack.enter_context(ray_cluster(self._address, self._workers))
        self._check_starts()
        return await self._started(number, answer, _here(same_machine=self._cluster.own))

    async def close(self) -> None:
        """See `WorkerHost.close`."""
        self._stack.close()

    def _check_starts(self) -> None:
        now = time.monotonic()
        if len(self._starts) == self._starts.maxlen and now - self._starts[0] < 3600:
            raise UserError(f"{STARTS_PER_HOUR} workers were lost within an hour; no more are started.")
        self._starts.append(now)

    async def _started(self, number: int, answer: Callable[[bytes], bytes], here: DriverPlace) -> Worker:
        import ray

        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        kind = ray.remote(**options)(RayActor).options(max_concurrency=_CALLS)
        actor = kind.remote(here)
        try:
            pid, machine = await asyncio.wait_for(_awaited(actor.ready.remote()), self._ready_s)
        except BaseException as error:
            ray.kill(actor)
            if isinstance(error, TimeoutError):
                raise WorkerLost(
                    f"worker {number} was not ready within {self._ready_s:g} s: each takes a processor, and "
                    f"the cluster has {processors()} in all"
                ) from None
            if isinstance(error, ray.exceptions.RayError):
                raise _not_started(number, error) from None
            raise
        return RayWorker(actor, f"worker {number}, process {pid} on {machine}", pid, answer)


class RayWorker:
    """Implements `ports.Worker`: one actor."""

    def __init__(self, actor: Any, name: str, pid: int, answer: Callable[[bytes], bytes]) -> None:
        self.name, self.pid = name, pid
        self._actor = actor
        self._answer = answer
        self._answering = asyncio.create_task(self._answer_all())

    async def call(self, request: bytes) -> bytes:
        """See `Worker.call`."""
        import ray

        sent = None
        try:
            sent = self._actor.submit.remote(request)
            answer: bytes = await sent
        except asyncio.CancelledError:
            if sent is not None:
                ray.cancel(sent)
            raise
        except ray.exceptions.RayError as error:
            raise WorkerLost(f"{self.name}: {_said(error)}") from None
        return answer

    async def end(self) -> None:
        """See `Worker.end`."""
        import ray

        self._answering.cancel()
        await asyncio.wait({self._answering})
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)

    async def _answer_all(self) -> None:
        """Answer what the worker asks, until it is no more."""
        import ray

        with suppress(ray.exceptions.RayError):
            while True:
                asked = await self._actor.questions.remote()
                await self._actor.told.remote({number: self._answer(question) for number, question in asked})


def _here(*, same_machine: bool) -> DriverPlace:
    names = tuple(sorted(name for name in os.environ if names_secret(name) and not name.startswith("RAY_")))
    return DriverPlace(str(Path.cwd()), names, same_machine)


async def _awaited(sent: Any) -> Any:
    """A call of Ray's is awaited, but is no coroutine."""
    return await sent


def _not_started(number: int, error: Exception) -> Exception:
    if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
        told = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        return UserError(
            f"a Ray worker could not import the kit ({told[-1] if told else 'it is not installed'}): install "
            "dreamgym-kit, and all that the graph needs, on every machine of the cluster. Nothing was run."
        )
    return WorkerLost(f"worker {number} could not be started: {_said(error)}")


def _said(error: Exception) -> str:
    """What Ray says of a loss, in a line: it tells a page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith("The actor is")), lines[0] if lines else "")
    why = why.partition(" Worker exit type")[0]
    return f"{type(error).__name__}: {why[:200]}" if why else type(error).__name__
