"""Workers in a Ray cluster: one async actor each, one call an episode, bytes both ways.

Ray repeats nothing and restarts nothing (`max_task_retries=0`, `max_restarts=0`): it would run an episode
again without a word, and whether that may be is for the driver alone to know. A worker whose process or
machine is gone fails at once, and so does every later call: it is lost, and another is started in its place,
wherever there is room. Actors are never detached: those of a driver that is gone end with it.
"""

import asyncio
import itertools
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.engines.ray_cluster import processors, ray_cluster
from dreamgym_kit.errors import UserError, WorkerLost
from dreamgym_kit.guard.connections import claim_open
from dreamgym_kit.interfaces import Worker
from dreamgym_kit.rollout.worker import EpisodeWorker
from dreamgym_kit.rollout.worker_protocol import read, spelled
from dreamgym_kit.settings.secrets import names_secret

_ANSWER_S = 60.0
_OPEN = b'{"do":"open"'


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """Where the driver runs, for a worker that is to find what the driver finds. Holds no secret.

    Attributes:
        folder: its working directory.
        variables: names of the environment variables that hold its secrets; never what they hold.
        same_machine: the worker has the driver's files and variables for sure.
    """

    folder: str
    variables: tuple[str, ...]
    same_machine: bool


class RayActor:
    """The actor; Ray makes it in a worker, on whichever machine. Its methods raise only when cancelled.

    Ray runs an async actor on its own loop, uvloop's where that is installed, and makes uvloop the choice of
    the whole process: connections made on such a loop cannot be guarded. So the choice is taken back, and the
    kit's own worker (`rollout.working`) has a loop and a thread of its own, one for the life of the process.
    Ray's loop only passes bytes on, and so says that the worker is there also while a tool blocks.

    A driver is no actor, so it cannot be called: it waits in `questions` for what the worker asks it. A
    question that nobody answers fails after a while: a worker that lost its driver comes to an end.
    """

    def __init__(self, driver: DriverPlace) -> None:
        asyncio.set_event_loop_policy(None)
        self._driver = driver
        self._where = f"process {os.getpid()} on {socket.gethostname()}"
        self._loop: asyncio.AbstractEventLoop | None = None  # Ray's, too
        self._questions: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._open: dict[int, Future[bytes]] = {}
        self._numbers = itertools.count(1)
        self._working = EpisodeWorker(self._ask)
        threading.Thread(target=self._working.run, name="dreamgym-worker", daemon=True).start()

    async def ready(self) -> tuple[int, str]:
        """Say which process the worker is, and on which machine."""
        self._loop = asyncio.get_running_loop()
        return os.getpid(), socket.gethostname()

    async def submit(self, request: bytes) -> bytes:
        """Have a request answered; cancelling the call cancels what answers it."""
        opens = request.startswith(_OPEN)
        if opens:
            claim_open()  # Ray's
            request = self._localized(request)
        answer = await asyncio.wrap_future(self._working.submit(request))
        return self._with_origin(answer) if opens else answer

    async def questions(self) -> list[tuple[int, bytes]]:
        """Wait for what the worker has to ask its driver, and give all of it; with the numbers of `take`."""
        questions = [await self._questions.get()]
        while not self._questions.empty():
            questions.append(self._questions.get_nowait())
        return questions

    async def take(self, answers: Mapping[int, bytes]) -> None:
        """Take the driver's answers."""
        for number, answer in answers.items():
            waiting = self._open.pop(number, None)
            if waiting is not None:
                waiting.set_result(answer)

    def _ask(self, question: bytes) -> bytes:
        """Put a question to the driver; from any thread but Ray's."""
        assert self._loop is not None
        number, waiting = next(self._numbers), Future[bytes]()
        self._open[number] = waiting
        self._loop.call_soon_threadsafe(self._questions.put_nowait, (number, question))
        try:
            return waiting.result(_ANSWER_S)
        except TimeoutError:
            self._open.pop(number, None)
            raise ConnectionError(f"the driver has not answered for {_ANSWER_S:g} s") from None

    def _localized(self, request: bytes) -> bytes:
        """Use the driver's working directory and module search path where they exist on this machine."""
        if Path(self._driver.folder).is_dir():
            os.chdir(self._driver.folder)
        parsed = read(request)
        theirs = [path for path in parsed["spec"]["paths"] if Path(path).exists()]
        sys.path[:] = dict.fromkeys([*theirs, *sys.path])
        return spelled({**parsed, "spec": {**parsed["spec"], "paths": []}})

    def _with_origin(self, answer: bytes) -> bytes:
        """Add to an error from another machine its name and the variables that are not set there."""
        facts: dict[str, Any] = read(answer)
        if self._driver.same_machine:
            return spelled(facts)
        missing = [name for name in self._driver.variables if name not in os.environ]
        lacks = f"{self._where}: not set there, and set here: {', '.join(missing)}" if missing else ""
        if "error" in facts:
            lines = (
                facts["error"],
                f"in a worker, {self._where}. It imports the agent itself: on every machine of the cluster",
                f"its code and files have to lie at the same path ({self._driver.folder}).",
                lacks,
            )
            facts["error"] = "\n  ".join(line for line in lines if line)
        elif lacks:
            facts["warnings"].append(lacks)
        return spelled(facts)


READY_S = 60.0  # after which a worker that has not said so is not waited for
STARTS_PER_HOUR = 60  # beside the first ones: where more are lost, another one will be, too
_CALLS = 1000  # that an actor takes at once: how many episodes it runs is for the driver to say


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

    async def start(self, number: int, answer: Callable[[bytes], bytes]) -> Worker:
        """See `WorkerHost.start`.

        Raises:
            MissingExtra: Ray is not installed.
        """
        if self._own is None:  # waits in the way of the loop: Ray's processes live as long as this thread
            self._own = self._stack.enter_context(ray_cluster(self._address, self._workers))
        self._check_starts()
        return await self._started(number, answer, _here(same_machine=self._own))

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
    """Implements `interfaces.Worker`: one actor."""

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
            raise WorkerLost(f"{self.name}: {_reason(error)}") from None
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
                batch = await self._actor.questions.remote()
                await self._actor.take.remote({number: self._answer(question) for number, question in batch})


def _here(*, same_machine: bool) -> DriverPlace:
    names = tuple(sorted(name for name in os.environ if names_secret(name) and not name.startswith("RAY_")))
    return DriverPlace(str(Path.cwd()), names, same_machine)


async def _awaited(sent: Any) -> Any:
    """A call of Ray's is awaited, but is no coroutine."""
    return await sent


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
