"""The way to one Weaviate server: its address, its key, and a deadline around everything that is asked.

The official client tries again for up to 63 seconds whatever timeout it is given, and its blocking form
cannot be interrupted in that. So its asynchronous form is used, on one event loop in a thread of its own:
what takes longer than the deadline is cancelled, tries and all. Nothing is asked of the package index.
"""

import asyncio
import logging
import threading
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from dreamgym_kit.adapters.models.addresses import ApiKey, Resolver, is_metadata, read_host
from dreamgym_kit.adapters.stores.weaviate_errors import store_error
from dreamgym_kit.errors import EndpointError, StoreError, StoreUnavailable, UserError
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.connections import of_the_kit
from dreamgym_kit.settings.buffer_url import PORTS, Address

TIMEOUT_S = 20.0
_GRACE_S = 5.0  # for the loop's own turn, beyond the deadline
_CLOUD = ".weaviate.cloud"
_OLD_CLOUD = ".weaviate.network"
_FORM = "weaviate://HOST[:PORT], and grpc=[HOST:]PORT where gRPC is elsewhere"
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # by default a server that is back is not seen for two minutes
    ("grpc.enable_http_proxy", 0),  # as REST: proxies of the environment are not used
]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """Where a server listens."""

    http_host: str
    http_port: int
    grpc_host: str
    grpc_port: int
    secure: bool = False


def target_of(address: Address) -> ServerTarget:
    """Where the server of an address listens; `grpc` says a port or `host:port`.

    Raises:
        UserError: no port where one has to be, or a host that is none or a cloud's metadata service.
    """
    secure = address.scheme == "weaviates"
    host = read_host(address.host, source=str(address), form=_FORM)
    cloud = secure and host.endswith((_CLOUD, _OLD_CLOUD))
    grpc_host, grpc_port = (_grpc_of_cloud(host), 443) if cloud else (host, 50051)
    grpc = address.options.get("grpc")
    if grpc:
        named, colon, port = grpc.rpartition(":")
        if not port.isdecimal() or int(port) > 65535 or (colon and not named):
            raise UserError(f"{address}: grpc is no port and no HOST:PORT")
        if named:
            named = read_host(named.removeprefix("[").removesuffix("]"), source=str(address), form=_FORM)
        grpc_host, grpc_port = named or host, int(port)
    http_port = address.port or PORTS[address.scheme]
    if (host, http_port) == (grpc_host, grpc_port):
        raise UserError(f"{address}: HTTP and gRPC cannot share port {http_port}; say the other one by grpc=")
    return ServerTarget(host, http_port, grpc_host, grpc_port, secure)


def _grpc_of_cloud(host: str) -> str:
    """Where Weaviate Cloud listens for gRPC."""
    if host.endswith(_OLD_CLOUD):
        cluster, _, domain = host.partition(".")
        return f"{cluster}.grpc.{domain}"
    return f"grpc-{host}"


class _InContext(ThreadPoolExecutor):
    """Looks names up in the context of who asks: a dream lets its own buffer's requests pass, by context."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> "Future[_T]":
        return super().submit(copy_context().run, fn, *args, **kwargs)


class GuardedLoop(asyncio.SelectorEventLoop):
    """Connects to no metadata service, whatever a name leads to by the time it is connected."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        """See `asyncio`."""
        entries = await super().getaddrinfo(host, port, **how)
        if any(is_metadata(str(entry[4][0])) for entry in entries):
            raise OSError(f"{host} leads to a cloud's metadata service; it was not asked")
        return entries


class _Loop:
    """One event loop for all servers of this process: gRPC wants its calls on one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Awaitable[_T]) -> "Future[_T]":
        with self._lock:
            if self._loop is None:
                self._loop = GuardedLoop()
                self._loop.set_default_executor(_InContext(max_workers=4))
                threading.Thread(target=self._loop.run_forever, name="dreamgym-weaviate", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)


async def _awaited(work: Awaitable[_T]) -> _T:
    return await work


LOOP = _Loop()


class WeaviateServer:
    """A server, connected when it is first asked; threads may share it.

    Args:
        place: the buffer as a person named it, for messages.
        target: where it listens.
        key: sent with every request.
        key_name: the environment variable or the file that holds the key, for messages.
        timeout_s: how long a request may take in all, connecting and the client's own tries included.
    """

    def __init__(
        self, place: str, target: ServerTarget, key: ApiKey, *, key_name: str, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.place = place
        self._target = target
        self._key = key
        self._key_name = key_name
        self._timeout_s = timeout_s
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._resolver = Resolver()
        self._closed = False

    def ask(self, doing: str, question: Callable[[Any], Awaitable[_T]]) -> _T:
        """Ask the server, which ends within the deadline one way or the other.

        Args:
            doing: for messages, "reading rows".
            question: given the client, what to await.

        Raises:
            StoreUnavailable: no answer in time, or one that says: not now.
            StoreError: the server refused.
        """
        if self._closed:
            raise StoreError(f"{self.place}: this store was closed; open it again")
        future = LOOP.submit(self._answered(doing, question))
        try:
            return future.result(self._timeout_s + _GRACE_S)
        except FutureTimeout:
            raise self._too_late(doing) from None
        finally:
            future.cancel()  # Ctrl-C while waiting: nobody is left to hear the answer

    def close(self) -> None:
        """Let the connection go; what is asked afterwards is refused."""
        if self._closed:
            return
        self._closed = True
        if self._client is not None:
            try:
                LOOP.submit(self._client.close()).result(_GRACE_S)
            except (FutureTimeout, RuntimeError, OSError):
                return  # it is gone anyway

    async def _answered(self, doing: str, question: Callable[[Any], Awaitable[_T]]) -> _T:
        try:
            async with asyncio.timeout(self._timeout_s):
                ports = (self._target.http_port, self._target.grpc_port)
                # gRPC connects at its first question; under the guard nobody looks for open doors any more
                with of_the_kit(ports) if not egress.armed() else nullcontext():
                    return await question(await self._connected())
        except TimeoutError:
            raise self._too_late(doing) from None
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # the boundary: whatever the client raises is told as ours
            refusal = store_error(self.place, doing, error, key=self._key_name)
            raise type(refusal)(self._key.mask(str(refusal))) from None

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is None:
                await self._looked_up()
                client = self._made()
                try:
                    await client.connect()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
        return self._client

    async def _looked_up(self) -> None:
        """Refuse names that lead to a cloud's metadata service, whatever settings call them."""
        at, loop = self._target, asyncio.get_running_loop()
        for host, port in ((at.http_host, at.http_port), (at.grpc_host, at.grpc_port)):
            try:
                await loop.run_in_executor(None, self._resolver.resolve, host, port)
            except EndpointError as error:
                kind = StoreUnavailable if error.retryable else StoreError
                raise kind(f"{self.place}: {error}") from None

    def _made(self) -> Any:
        weaviate = imported()
        from weaviate.classes.init import AdditionalConfig, Auth, Timeout
        from weaviate.config import GrpcConfig

        at, waits = self._target, self._timeout_s
        token = self._key.headers().get("authorization", "").removeprefix("Bearer ")
        return weaviate.use_async_with_custom(
            http_host=_bracketed(at.http_host),
            http_port=at.http_port,
            http_secure=at.secure,
            grpc_host=_bracketed(at.grpc_host),
            grpc_port=at.grpc_port,
            grpc_secure=at.secure,
            auth_credentials=Auth.api_key(token) if token else None,
            skip_init_checks=True,  # they ask the public package index
            additional_config=AdditionalConfig(
                timeout=Timeout(init=waits, query=waits, insert=waits),
                grpc_config=GrpcConfig(channel_options=_CHANNEL),
            ),
        )

    def _too_late(self, doing: str) -> StoreUnavailable:
        at = self._target
        ports = f"{at.http_host}:{at.http_port} and gRPC {at.grpc_host}:{at.grpc_port}"
        return StoreUnavailable(
            f"{self.place}: {doing}: no answer within {self._timeout_s:g} s from {ports}; see whether it is "
            "up and both can be reached"
        )


def _bracketed(host: str) -> str:
    """As the client wants it, who puts a port behind it."""
    return f"[{host}]" if ":" in host else host


def imported() -> Any:
    """The client's package; it logs whole rows where the server refuses them, which is kept out of logs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of packages that it imports
        import weaviate
    logging.getLogger("weaviate-client").addFilter(_no_rows)
    return weaviate


def _no_rows(record: logging.LogRecord) -> bool:
    return isinstance(record.msg, str)
