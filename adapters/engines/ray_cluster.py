"""A Ray cluster of this command's own, or one that was there before and stays.

Its own lives as long as the block: a random token in the environment keeps other users out (Ray would else
write one into the home), nothing is reported to its makers, and its files lie in a short folder of their own,
since socket paths end at 107 bytes. At the end every process of it is gone, and of it only: others may run
clusters of their own beside it, which `ray stop` would end too.

Ray's start replaces the handler of SIGTERM by one that leaves at once, so handlers are put back.
"""

import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.guard.egress import exempt

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
