"""Open a Weaviate buffer from its URL: server, key, collection and tenant.

`weaviate://host[:port][/Collection]`, `weaviates://` for TLS and Weaviate Cloud, and
`weaviate+embedded:folder` for a local server started for the buffer; options follow. The key comes from the
environment or a file, never from the URL.

Nothing is downloaded for a local server: install the binary yourself. It listens on free ports: REST on
localhost only, gRPC and cluster ports on all addresses, since these cannot be restricted. It accepts only a
key generated for this start and sends no telemetry. Its data folder is locked while it runs, since two
servers on one folder destroy it. The server ends with its parent process; if not, the next start on the
folder stops it.
"""

import atexit
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from dreamgym_kit.adapters.models.addresses import ApiKey, read_host, read_key
from dreamgym_kit.adapters.stores.weaviate_server import TIMEOUT_S, ServerTarget, WeaviateServer
from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore
from dreamgym_kit.errors import RunDirectoryError, StoreError, StoreUnavailable, UnknownName, UserError
from dreamgym_kit.interfaces import Embedder, Room
from dreamgym_kit.rollout.atomic_files import RunLock
from dreamgym_kit.settings.buffer_url import COLLECTION, TENANT, Address
from dreamgym_kit.settings.schema import Settings

_KEY = "WEAVIATE_API_KEY"
_FORM = "weaviate://HOST[:PORT], and grpc=[HOST:]PORT if gRPC has another"
_NUMBERS = {"replicas": (1, 99), "timeout": (1, 600)}
_CHOICES = {
    "consistency": ("one", "quorum", "all"),
    "index": ("hnsw", "flat"),
    "proxy": ("none", "environment"),
}


def open_weaviate(
    address: Address, settings: Settings, *, read_only: bool, embedder: Embedder | None, room: Room | None
) -> WeaviateStore:
    """Open the buffer at a URL; raises the errors of `factory.open_store`. See docs/weaviate.md."""
    options, replay = _options(address), settings.replay
    running = None
    if address.scheme == "weaviate+embedded":
        running = start_embedded(address, binary=options.get("binary"))
        target, key = running.target, running.key
    else:
        key, target = _key(settings), target_of(address)
    try:
        return WeaviateStore(
            WeaviateServer(
                str(address),
                target,
                key,
                key_name=replay.weaviate_key_env or replay.weaviate_key_file or _KEY,
                timeout_s=float(options.get("timeout", TIMEOUT_S)),
                proxy=options.get("proxy") == "environment",
                ended=running.ended if running else lambda: None,
            ),
            collection=COLLECTION if running else address.path.strip("/") or COLLECTION,
            tenant=options.get("tenant", TENANT),
            read_only=read_only,
            embedder=embedder,
            room=room,
            consistency=options.get("consistency", "quorum").upper(),
            replicas=int(options.get("replicas", "1")),
            flat=options.get("index") == "flat",
            on_close=running.stop if running else None,
        )
    except BaseException:
        if running:
            running.stop()
        raise


def target_of(address: Address) -> ServerTarget:
    """Return host and ports of a URL's server; the option `grpc` is a port or `host:port`."""
    secure = address.scheme == "weaviates"
    host = read_host(address.host, source=str(address), form=_FORM)
    grpc_host, grpc_port = host, 50051
    if secure and host.endswith(".weaviate.cloud"):
        grpc_host, grpc_port = f"grpc-{host}", 443
    elif secure and host.endswith(".weaviate.network"):
        grpc_host, grpc_port = host.replace(".", ".grpc.", 1), 443
    if grpc := address.options.get("grpc"):
        named, colon, port = grpc.rpartition(":")
        if not port.isdecimal() or int(port) > 65535 or (colon and not named):
            raise UserError(f"{address}: grpc must be a port or HOST:PORT")
        if named:
            named = read_host(named.removeprefix("[").removesuffix("]"), source=str(address), form=_FORM)
        grpc_host, grpc_port = named or host, int(port)
    http_port = address.port or address.kind.port
    assert http_port is not None  # an embedded server has chosen its own
    if (host, http_port) == (grpc_host, grpc_port):
        raise UserError(
            f"{address}: HTTP and gRPC cannot share port {http_port}; set the gRPC port with grpc="
        )
    return ServerTarget(host, http_port, grpc_host, grpc_port, secure)


def _options(address: Address) -> Mapping[str, str]:
    for name, value in address.options.items():
        if name not in (valid_names := (*address.kind.how, "tenant")):
            raise UnknownName(
                "option", name, known=valid_names, source=str(address), where="the options of Weaviate"
            )
        if name in _NUMBERS:
            low, high = _NUMBERS[name]
            if not value.isdecimal() or not low <= int(value) <= high:
                raise UserError(f"{address}: {name} must be from {low} to {high}, not {value!r}")
        if name in _CHOICES and value.lower() not in _CHOICES[name]:
            *first, last = _CHOICES[name]
            raise UserError(f"{address}: {name} must be {', '.join(first)} or {last}, not {value!r}")
    return address.options


def _key(settings: Settings) -> ApiKey:
    """Return the key that the settings name, else $WEAVIATE_API_KEY, else no key."""
    variable, file = settings.replay.weaviate_key_env, settings.replay.weaviate_key_file
    if variable is None and file is None:
        variable = _KEY if os.environ.get(_KEY) else None
    named = "weaviate_key_file" if file is not None else "weaviate_key_env"
    return read_key(variable, file=file, source=settings.where("replay", named))


_HOST = "127.0.0.1"
_NAMES = ("weaviate", "weaviate-server")
_START_S, _STOP_S = 60.0, 15.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "SYSTEMROOT")  # not the user's keys
_PARENT = "DREAMGYM_SERVER_OF"  # in the server's environment: ID of its parent process
_PR_SET_PDEATHSIG = 1


class Running(NamedTuple):
    """A started server; `ended` returns why it ended, None while it runs."""

    target: ServerTarget
    key: ApiKey
    stop: Callable[[], None]
    ended: Callable[[], str | None]


def start_embedded(address: Address, *, binary: str | None) -> Running:
    """Start a server on the folder of an address.

    The binary is `binary`, else $WEAVIATE_BINARY, else `weaviate` on the PATH.

    Raises:
        StoreError: the binary is missing, or the folder is in use.
        StoreUnavailable: the server did not start in time; see its log.
    """
    program = _program(address, binary)
    folder = Path(address.path or "weaviate").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        lock = _locked(address, folder)
        undo.callback(lock.close)
        token = secrets.token_urlsafe(24)
        process, target = _started(address, program, folder, token, lock)
        undo.callback(_stop, process)
        stop = undo.pop_all().close
        atexit.register(stop)

        def ended() -> str | None:
            code = process.poll()
            return (
                None if code is None else f"its server ended (code {code}); see its log: {folder}/server.log"
            )

        def stopped() -> None:
            atexit.unregister(stop)
            stop()

        return Running(target, ApiKey(token), stopped, ended)


def _started(
    address: Address, program: str, folder: Path, token: str, lock: RunLock
) -> "tuple[subprocess.Popen[bytes], ServerTarget]":
    http, grpc, gossip, raft = _free_ports()
    log = folder / "server.log"
    with log.open("ab") as says:
        process = subprocess.Popen(  # noqa: S603  # the program that the person named
            [program, "--host", _HOST, "--port", str(http), "--scheme", "http"],
            env=_environment(folder, token, grpc, gossip, raft),
            stdin=subprocess.DEVNULL,
            stdout=says,
            stderr=says,
            pass_fds=(lock.descriptor,),  # the server may outlive this process if it is killed
            start_new_session=True,  # Ctrl-C must not reach the server: it stops after the buffer closes
            preexec_fn=_ends_with_parent(),  # a single system call, resolved before the fork
        )
    try:
        lock.sign(process.pid)
        _wait(address, process, http, grpc, log)
    except BaseException:
        _stop(process)
        raise
    return process, ServerTarget(_HOST, http, _HOST, grpc)


def _ends_with_parent() -> Callable[[], None] | None:
    """Return a hook for the child: Linux kills it when its starting thread ends, so main thread only."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _program(address: Address, binary: str | None) -> str:
    named = binary or os.environ.get("WEAVIATE_BINARY")
    if named:
        if not (Path(named).is_file() and os.access(named, os.X_OK)):
            raise StoreError(f"{address}: {named} is not executable; set binary= to the Weaviate binary")
        return named
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        raise StoreError(
            f"{address}: the Weaviate binary was not found; get it from Weaviate's GitHub releases and set "
            "WEAVIATE_BINARY or binary=, or use a server: weaviate://HOST"
        )
    return program


def _locked(address: Address, folder: Path) -> RunLock:
    """Lock the folder for this process and its server, until both have ended."""
    ends = time.monotonic() + _STOP_S
    while True:
        try:
            return RunLock(folder / "server.lock")
        except RunDirectoryError as error:
            if time.monotonic() > ends or not _stop_orphan(folder):
                raise StoreError(
                    f"{address}: a server already runs on {folder}: {error} Or run one server for all and "
                    "use weaviate://HOST"
                ) from None
            time.sleep(0.1)


def _stop_orphan(folder: Path) -> bool:
    """Stop a server on the folder whose parent ended; return whether the folder will soon be free."""
    try:
        process = Path("/proc", str(int(json.loads((folder / "server.lock").read_bytes())["pid"])))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    try:
        state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        if state == "Z":  # it has ended, but a thread of it may not have, and holds the lock
            return True
        text = (process / "environ").read_text()
    except (OSError, ValueError):
        return sys.platform == "linux" and not process.exists()
    variables = dict(part.split("=", 1) for part in text.split("\0") if "=" in part)
    if (
        variables.get("PERSISTENCE_DATA_PATH") != str(folder / "data")
        or variables.get(_PARENT, parent) == parent
    ):
        return False  # not a server of this folder, or its parent is alive (an orphan has a new parent)
    with suppress(ProcessLookupError):
        os.kill(int(process.name), signal.SIGTERM)
    return True


def _free_ports() -> list[int]:
    """Return free ports for HTTP, gRPC, gossip and Raft; the port after each of the last two is free too."""
    for _ in range(100):
        with ExitStack() as stack, suppress(OSError, OverflowError):
            ports = list[int]()
            for pair in (False, False, True, True):
                for port in (0, 1)[: 1 + pair]:
                    taken = stack.enter_context(socket.socket())
                    taken.bind((_HOST, port and ports[-1] + 1))
                    if not port:
                        ports.append(int(taken.getsockname()[1]))
            return ports
    raise StoreUnavailable("no free ports for a Weaviate server on this machine")


def _environment(folder: Path, token: str, grpc: int, gossip: int, raft: int) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        _PARENT: str(os.getpid()),
        "PERSISTENCE_DATA_PATH": str(folder / "data"),
        "GRPC_PORT": str(grpc),
        "DISABLE_TELEMETRY": "true",
        "AUTOSCHEMA_ENABLED": "false",
        "API_BASED_MODULES_DISABLED": "true",  # they call external services
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
        "RAFT_INTERNAL_RPC_PORT": str(raft + 1),
        "RAFT_BOOTSTRAP_EXPECT": "1",
        "RAFT_JOIN": f"dreamgym:{raft}",
        "GO_PROFILING_DISABLE": "true",  # its profiler would listen on every address
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
    raise StoreUnavailable(f"{address}: its server {how}; see its log: {log}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
