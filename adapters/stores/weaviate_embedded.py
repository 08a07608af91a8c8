"""A Weaviate server of one's own: its binary, started for one buffer and stopped with it.

Nothing is downloaded: the binary has to be there. It listens on free ports, for REST on this machine alone
(for gRPC it knows no such choice), takes no one without the key that is drawn for this start, and sends no
telemetry. The folder of its data is locked while it runs: two servers over one folder destroy it.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from dreamgym_kit.adapters.models.addresses import ApiKey
from dreamgym_kit.adapters.stores.weaviate_server import ServerTarget
from dreamgym_kit.errors import RunDirectoryError, StoreError, StoreUnavailable
from dreamgym_kit.rollout.atomic_files import RunLock
from dreamgym_kit.settings.buffer_url import Address

_HOST = "127.0.0.1"
_NAMES = ("weaviate", "weaviate-server")
_START_S = 60.0
_STOP_S = 15.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "SYSTEMROOT")  # no keys of the person's environment
_TRIES = 3
_LOG_BYTES = 2**20  # of what a start has said
_MORE_PORTS = 3  # besides HTTP and gRPC; the server wants the data port right after the gossip port


@dataclass(frozen=True, slots=True)
class Running:
    """A started server."""

    target: ServerTarget
    key: ApiKey
    stop: Callable[[], None]


def start_embedded(address: Address, *, binary: str | None) -> Running:
    """Start a server over the folder of an address.

    Args:
        address: whose path is the folder of the data; `weaviate` where it names none.
        binary: the program; else $WEAVIATE_BINARY, else `weaviate` of the path.

    Raises:
        StoreError: no binary, or its folder is in use.
        StoreUnavailable: it did not start in time; its log says why.
    """
    program = _program(address, binary)
    folder = Path(address.path or "weaviate").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        lock = _locked(address, folder)
        undo.callback(lock.close)
        token = secrets.token_urlsafe(24)
        process, target = _ready(address, program, folder, token, lock)
        undo.callback(_stop, process)
        return Running(target, ApiKey(token), undo.pop_all().close)


class _PortTaken(StoreUnavailable):
    """A port that was free went to another process before the server had it."""


def _ready(
    address: Address, program: str, folder: Path, token: str, lock: RunLock
) -> "tuple[subprocess.Popen[bytes], ServerTarget]":
    """A server that answers, and where; started anew where others were given its ports."""
    for _ in range(_TRIES - 1):
        with suppress(_PortTaken):
            return _started(address, program, folder, token, lock)
    return _started(address, program, folder, token, lock)


def _started(
    address: Address, program: str, folder: Path, token: str, lock: RunLock
) -> "tuple[subprocess.Popen[bytes], ServerTarget]":
    http, grpc, *more = _free_ports(2 + _MORE_PORTS)
    log = folder / "server.log"
    with log.open("ab") as says:
        said_before = says.tell()
        process = subprocess.Popen(  # noqa: S603  # the program that the person named
            [program, "--host", _HOST, "--port", str(http), "--scheme", "http"],
            env=_environment(folder, token, grpc, more),
            stdin=subprocess.DEVNULL,
            stdout=says,
            stderr=says,
            pass_fds=(lock.descriptor,),  # it may outlive us, where we are killed
            start_new_session=True,  # Ctrl-C is for us: it is stopped when the buffer was closed
        )
    try:
        lock.sign(process.pid)
        _wait(address, process, http, grpc, log)
    except BaseException as error:
        _stop(process)
        if isinstance(error, StoreUnavailable) and _met_another(log, said_before):
            raise _PortTaken(str(error)) from None
        raise
    return process, ServerTarget(_HOST, http, _HOST, grpc)


def _met_another(log: Path, offset: int) -> bool:
    with log.open("rb") as stream:
        stream.seek(offset)
        return b"address already in use" in stream.read(_LOG_BYTES).lower()


def _program(address: Address, binary: str | None) -> str:
    named = binary or os.environ.get("WEAVIATE_BINARY")
    if named:
        if not (Path(named).is_file() and os.access(named, os.X_OK)):
            raise StoreError(f"{address}: {named} is no program; name Weaviate's binary by binary=")
        return named
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        raise StoreError(
            f"{address}: there is no Weaviate on this machine; get its binary from its releases on GitHub "
            "and name it by WEAVIATE_BINARY or binary=, or use a server: weaviate://HOST"
        )
    return program


def _locked(address: Address, folder: Path) -> RunLock:
    """Held by this process and by the server that it starts, until both are gone."""
    try:
        return RunLock(folder / "server.lock")
    except RunDirectoryError as error:
        raise StoreError(
            f"{address}: a server runs over {folder} already: {error} Or run one server for all and use "
            "weaviate://HOST"
        ) from None


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            taken = held.enter_context(socket.socket())
            taken.bind((_HOST, 0))
            ports.append(int(taken.getsockname()[1]))
        return ports


def _environment(folder: Path, token: str, grpc: int, more: list[int]) -> dict[str, str]:
    gossip, raft, raft_rpc = more
    return {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        "PERSISTENCE_DATA_PATH": str(folder / "data"),
        "GRPC_PORT": str(grpc),
        "DISABLE_TELEMETRY": "true",
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "false",
        "AUTHENTICATION_APIKEY_ENABLED": "true",
        "AUTHENTICATION_APIKEY_ALLOWED_KEYS": token,
        "AUTHENTICATION_APIKEY_USERS": "dreamgym",
        "DEFAULT_VECTORIZER_MODULE": "none",
        "ENABLE_MODULES": "",
        "OBJECTS_TTL_DELETE_SCHEDULE": "@every 1h",
        "CLUSTER_HOSTNAME": "dreamgym",
        "CLUSTER_IN_LOCALHOST": "true",
        "CLUSTER_BIND_ADDR": _HOST,
        "CLUSTER_ADVERTISE_ADDR": _HOST,
        "CLUSTER_GOSSIP_BIND_PORT": str(gossip),
        "CLUSTER_DATA_BIND_PORT": str(gossip + 1),
        "RAFT_PORT": str(raft),
        "RAFT_INTERNAL_RPC_PORT": str(raft_rpc),
        "RAFT_BOOTSTRAP_EXPECT": "1",
        "RAFT_JOIN": f"dreamgym:{raft}",
        "GO_PROFILING_DISABLE": "true",  # it would listen on every address
        "CLUSTER_BASIC_AUTH_USERNAME": "dreamgym",
        "CLUSTER_BASIC_AUTH_PASSWORD": secrets.token_urlsafe(24),
    }


def _wait(address: Address, process: "subprocess.Popen[bytes]", http: int, grpc: int, log: Path) -> None:
    opener = build_opener(ProxyHandler({}))
    ends = time.monotonic() + _START_S
    while time.monotonic() < ends and process.poll() is None:
        try:
            with opener.open(f"http://{_HOST}:{http}/v1/.well-known/ready", timeout=1.0) as answer:
                ready = answer.status == 200
            with socket.create_connection((_HOST, grpc), timeout=1.0):
                if ready:
                    return
        except (URLError, HTTPException, OSError):
            time.sleep(0.1)
    gone = process.poll()
    how = f"did not start within {_START_S:g} s" if gone is None else f"ended at once (code {gone})"
    raise StoreUnavailable(f"{address}: its server {how}; its log says why: {log}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
