"""A Ray cluster of this command's own, or one that was there before and stays; and workers in it.

Its own lives as long as the block: a random token in the environment keeps other users out (Ray would else
write one into the home), nothing is reported to its makers, and its files lie in a short folder of their own,
since socket paths end at 107 bytes. At the end every process of it is gone, and of it only: others may run
clusters of their own beside it, which `ray stop` would end too.

Ray's start replaces the handler of SIGTERM by one that leaves at once, so handlers are put back.

A worker is an async actor that passes frames on both ways. Ray repeats and restarts nothing
(`max_task_retries=0`, `max_restarts=0`): whether an episode may run again is for the driver alone to know. A
worker whose process or machine is gone fails at once; another is started in its place. Actors are never
detached: those of a driver that is gone end with it.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dreamgym_kit.errors import UserError, WorkerLost, require_extra
from dreamgym_kit.guard.connections import claim_open
from dreamgym_kit.guard.egress import exempt
from dreamgym_kit.interfaces import WorkerChannel
from dreamgym_kit.rollout.worker import EpisodeWorker
from dreamgym_kit.settings.secrets import names_secret

_REACH_S = 5.0


def checked_address(address: str | None) -> str | None:
    """The cluster to join, or None for one of this machine's own.

    Raises:
        UserError: it is one that cannot be used; or none was named where RAY_ADDRESS names one, which Ray
            would silently join.
    """
    if address is None:
        if there := os.environ.get("RAY_ADDRESS"):
            raise UserError(
                f'RAY_ADDRESS is set ({there}): set workers.address = "auto" to join that cluster, or unset '
                "it to start one of this machine's own. Nothing was run."
            )
        return None
    if "://" in address:
        raise UserError(
            f"workers.address {address}: the client protocol is not supported, since it drops every call "
            'when its connection drops. Run the command on a machine of it, workers.address = "auto" '
            "(from outside: ray job submit -- dreamgym-kit ...). Nothing was run."
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(f"workers.address {address}: write HOST:PORT, or auto. Nothing was run.")
    return address


def check_reached(address: str) -> None:
    """Raise where nobody listens at HOST:PORT: Ray itself needs most of a minute to say so."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        why = f"no Ray cluster answers there ({error})"
        raise UserError(f"workers.address {address}: {why}. Nothing was run.") from None


def usable(address: str | None) -> str:
    """Which Ray there is, and what a run would do with it; nothing is started or joined.

    Raises:
        MissingExtra: it is not installed.
        UserError: the address cannot be used, or nobody listens there.
    """
    require_extra("ray", needed_by='workers.backend = "ray"')
    there = checked_address(address)
    if there is None:
        return f"{version('ray')}; a run starts a cluster of its own on this machine"
    check_reached(there)
    return f"{version('ray')}; a run joins the cluster at {there}"


_OBJECTS_BYTES = 100 * 2**20  # episodes travel inline; this holds nothing
_END_S = 3.0  # what a process gets between being asked to end and being ended
_MEMORY_MONITOR = "RAY_memory_monitor_refresh_ms"  # ends workers where memory is full, whoever filled it
_QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


@contextmanager
def ray_cluster(address: str | None, workers: int) -> Iterator[bool]:
    """Start a cluster with room for so many workers, or join the one at `address`.

    Yields whether it is this command's own: on this machine, and at its end with the block. A process that is
    in a cluster already uses that one, and stays in it.

    Raises:
        MissingExtra: Ray is not installed.
        UserError: it cannot be started, reached or joined.
    """
    require_extra("ray", needed_by='workers.backend = "ray"')
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read as Ray is imported
    with exempt():
        import ray

    if ray.is_initialized():
        yield False
        return
    there = checked_address(address)
    with _silence(), _own(workers) if there is None else _joined(there) as own:
        yield own


@contextmanager
def _own(workers: int) -> Iterator[bool]:
    import ray

    with _environment(), _folder() as folder:
        try:
            with exempt(), _handlers_restored():
                ray.init(
                    address="local",
                    num_cpus=workers,
                    include_dashboard=False,
                    object_store_memory=_OBJECTS_BYTES,
                    _temp_dir=str(folder),
                    **_QUIET,
                )
        except Exception as error:
            _end_all(_processes(folder))
            raise UserError(
                f"Ray could not be started here: {_first_line(error)}. Nothing was run."
            ) from error
        try:
            yield True
        finally:
            with exempt():
                ours = _processes(folder)
                ray.shutdown()
                _end_all(ours)


@contextmanager
def _joined(address: str) -> Iterator[bool]:
    import ray

    with exempt():
        check_reached(address)
        try:
            with _handlers_restored():
                ray.init(address=address, **_QUIET)
        except Exception as error:
            raise UserError(
                f"workers.address {address}: cannot join the Ray cluster there: {_first_line(error)}. The "
                "command has to run on one of its machines, with the same Ray and Python, and its token: "
                "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH. Nothing was run."
            ) from error
    try:
        yield False
    finally:
        with exempt():
            ray.shutdown()


@contextmanager
def _silence() -> Iterator[None]:
    """Ray prints a page for each process that it loses, whatever its options say; the run tells of it."""
    switches = vars(sys.modules["ray._private.worker"])
    before = switches.get("_worker_logs_enabled", True)
    switches["_worker_logs_enabled"] = False
    try:
        yield
    finally:
        switches["_worker_logs_enabled"] = before


def processors() -> int:
    """Of all the machines of the cluster that this process is in."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


@contextmanager
def _environment() -> Iterator[None]:
    """What a cluster of its own is started with; it hands this on to its workers."""
    variables = {"RAY_AUTH_TOKEN": _token(), _MEMORY_MONITOR: os.environ.get(_MEMORY_MONITOR, "0")}
    before = {name: os.environ.get(name) for name in (*variables, "RAY_AUTH_MODE")}
    os.environ.pop("RAY_AUTH_MODE", None)  # read with Ray's import; without it Ray turns tokens on itself
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@cache
def _token() -> str:
    """One for the life of the process: Ray reads it once."""
    return secrets.token_hex(32)


@contextmanager
def _folder() -> Iterator[Path]:
    short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108  mkdtemp makes a folder of our own in it
    with exempt():
        folder = tempfile.TemporaryDirectory(prefix="dg", dir=short, ignore_cleanup_errors=True)
    try:
        yield Path(folder.name)
    finally:
        with exempt():
            folder.cleanup()


@contextmanager
def _handlers_restored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _processes(folder: Path) -> list[Any]:
    """Those that our cluster's start began, and theirs: workers rename themselves and no longer say whose."""
    import psutil

    processes: list[Any] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(folder) in word for word in child.cmdline()):
                processes += [child, *child.children(recursive=True)]
    return processes


def _end_all(processes: Sequence[Any]) -> None:
    import psutil

    _, left = psutil.wait_procs(processes, timeout=_END_S)
    for end in ("terminate", "kill"):
        for process in left:
            with suppress(psutil.Error):
                getattr(process, end)()
        _, left = psutil.wait_procs(left, timeout=_END_S)


def _first_line(error: BaseException) -> str:
    line = str(error).strip().partition("\n")[0].rstrip(". ")
    return f"{type(error).__name__}: {line[:300]}" if line else type(error).__name__


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
