"""Workers in a Ray cluster: one async actor each, which passes frames on both ways.

Ray repeats nothing and restarts nothing (`max_task_retries=0`, `max_restarts=0`): it would run an episode
again without a word, and whether that may be is for the driver alone to know. A worker whose process or
machine is gone fails at once, and so does every later call: it is lost, and another is started in its place,
wherever there is room. Actors are never detached: those of a driver that is gone end with it.
"""

import asyncio
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.engines.ray_cluster import processors, ray_cluster
from dreamgym_kit.errors import UserError, WorkerLost
from dreamgym_kit.guard.connections import claim_open
from dreamgym_kit.interfaces import WorkerChannel
from dreamgym_kit.rollout.worker import EpisodeWorker
from dreamgym_kit.settings.secrets import names_secret

_ANSWER_S = 60.0
READY_S = 60.0  # after which a worker that has not said so is not waited for
STARTS_PER_HOUR = 60  # beside the first ones: where more are lost, another one will be, too
_CALLS = 1000  # that an actor takes at once: how many episodes it runs is for the driver to say


class RayActor:
    """The actor; Ray makes it in a worker, on whichever machine.

    Ray runs an async actor on its own loop, uvloop's where that is installed, and makes uvloop the choice of
    the whole process: connections made on such a loop cannot be guarded. So the choice is taken back, and the
    kit's own worker has a loop and a thread of its own, one for the life of the process. Ray's loop only
    passes frames on, and so says that the worker is there also while a tool blocks.

    A driver is no actor, so it cannot be called: it waits in `give` for what the worker has for it. A
    question that nobody answers fails after a while: a worker that lost its driver comes to an end.
    """

    def __init__(self, folder: str) -> None:
        asyncio.set_event_loop_policy(None)
        self._folder = folder  # the driver's working directory
        self._loop: asyncio.AbstractEventLoop | None = None  # Ray's
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._worker = EpisodeWorker(self._send, adopt=self._adopt, answer_s=_ANSWER_S)
        threading.Thread(target=self._worker.run, name="dreamgym-worker", daemon=True).start()

    async def ready(self, variables: Sequence[str]) -> tuple[int, str, list[str]]:
        """Say which process the worker is, on which machine, and which variables are not set there."""
        self._loop = asyncio.get_running_loop()
        return os.getpid(), socket.gethostname(), [name for name in variables if name not in os.environ]

    async def take(self, frames: Sequence[bytes]) -> None:
        """Hand the driver's frames on."""
        for frame in frames:
            self._worker.take(frame)

    async def give(self) -> list[bytes]:
        """Wait for frames for the driver, and give all that there are."""
        frames = [await self._frames.get()]
        while not self._frames.empty():
            frames.append(self._frames.get_nowait())
        return frames

    def _send(self, frame: bytes) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._frames.put_nowait, frame)

    def _adopt(self, paths: Sequence[str]) -> None:
        """Use the driver's working directory and module search path where they exist on this machine."""
        claim_open()  # Ray's
        if Path(self._folder).is_dir():
            os.chdir(self._folder)
        sys.path[:] = dict.fromkeys([*(path for path in paths if Path(path).exists()), *sys.path])


class RayHost:
    """Implements `interfaces.WorkerHost` in a Ray cluster, which it starts or joins with its first worker.

    Args:
        workers: how many there are to be.
        address: of the cluster to join; None: one of this command's own, on this machine.
        ready_s: seconds that a worker may take to say that it is there.
    """

    def __init__(self, workers: int, *, address: str | None = None, ready_s: float = READY_S) -> None:
        self._workers, self._address, self._ready_s = workers, address, ready_s
        self._stack = ExitStack()
        self._own: bool | None = None  # whether the cluster is; None: there is none yet
        self._starts: deque[float] = deque(maxlen=workers + STARTS_PER_HOUR)

    async def start(self, number: int) -> WorkerChannel:
        """See `WorkerHost.start`.

        Raises:
            MissingExtra: Ray is not installed.
        """
        if self._own is None:  # waits in the way of the loop: Ray's processes live as long as this thread
            self._own = self._stack.enter_context(ray_cluster(self._address, self._workers))
        now = time.monotonic()
        if len(self._starts) == self._starts.maxlen and now - self._starts[0] < 3600:
            raise UserError(f"{STARTS_PER_HOUR} workers were lost within an hour; no more are started.")
        self._starts.append(now)
        import ray

        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        folder = str(Path.cwd())
        actor = ray.remote(**options)(RayActor).options(max_concurrency=_CALLS).remote(folder)
        try:
            async with asyncio.timeout(self._ready_s):
                pid, machine, missing = await actor.ready.remote(_secrets_by_name())
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
        channel = RayChannel(actor, f"worker {number}, process {pid} on {machine}", pid)
        if not self._own:  # it may be another machine
            where = f"process {pid} on {machine}"
            if missing:
                channel.lacks = (f"{where}: not set there, and set here: {', '.join(missing)}",)
            channel.origin = (
                f"in a worker, {where}. It imports the agent itself: on every machine of the cluster",
                f"its code and files have to lie at the same path ({folder}).",
                *channel.lacks,
            )
        return channel

    async def close(self) -> None:
        """See `WorkerHost.close`."""
        self._stack.close()


class RayChannel:
    """Implements `interfaces.WorkerChannel`: one actor."""

    def __init__(self, actor: Any, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self.origin: Sequence[str] = ()
        self.lacks: Sequence[str] = ()
        self._actor = actor

    async def send(self, frames: Sequence[bytes]) -> None:
        """See `WorkerChannel.send`."""
        await self._call("take", frames)

    async def receive(self) -> Sequence[bytes]:
        """See `WorkerChannel.receive`."""
        frames: list[bytes] = await self._call("give")
        return frames

    async def end(self) -> None:
        """See `WorkerChannel.end`."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)

    async def _call(self, method: str, *args: object) -> Any:
        import ray

        try:
            return await getattr(self._actor, method).remote(*args)
        except ray.exceptions.RayError as error:
            raise WorkerLost(f"{self.name}: {_reason(error)}") from None


def _secrets_by_name() -> list[str]:
    """The variables that hold the driver's secrets; never what they hold."""
    return sorted(name for name in os.environ if names_secret(name) and not name.startswith("RAY_"))


def _not_started(number: int, error: Exception) -> Exception:
    if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
        tail = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        return UserError(
            f"a Ray worker could not import the kit ({tail[-1] if tail else 'it is not installed'}): install "
            "dreamgym-kit, and all that the graph needs, on every machine of the cluster. Nothing was run."
        )
    return WorkerLost(f"worker {number} could not be started: {_reason(error)}")


def _reason(error: Exception) -> str:
    """What Ray says of a loss, in a line: it tells a page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith("The actor is")), lines[0] if lines else "")
    why = why.partition(" Worker exit type")[0]
    return f"{type(error).__name__}: {why[:200]}" if why else type(error).__name__
