"""One bounded HTTP request to one endpoint: no redirects, no proxies, no retries, no decompression.

Requests run on a loop and thread of the client's own, so that every event loop and every tool's worker
thread shares the same connections. The second wall lets pass exactly what is opened here, and nothing
that the agent's code opens to the same host. The body is read up to a bound, within one time limit for
all of it: a server that drips a byte a second is as late as one that hangs.
"""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpcore

from dreamgym_kit.adapters.models.addresses import Address, Resolver
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.guard.egress import exempt

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]

MAX_BODY = 4 * 2**20  # bytes of an answer: far above any message, far below what hurts
_CONNECT_S = 10.0
_NUMBER = "dreamgym.connection"  # what a connection is asked by which one it is


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer of a server."""

    status: int
    headers: dict[str, str]  # names in small letters
    body: bytes
    connection: int = 0  # it came over; the first to its host and port is 1


class Transport:
    """Sends requests; closed once, after which nothing is sent."""

    def __init__(self, *, timeout_s: float, max_body: int = MAX_BODY) -> None:
        self._timeout_s = timeout_s
        self._max_body = max_body
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._under_way: set[Coroutine[Any, Any, Any]] = set()
        self._backend = _NamedHostsOnly()
        self._closed = False

    def opened(self, address: Address) -> int:
        """How many connections to a host and port were opened so far."""
        return self._backend.opened[address.host, address.port]

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's own loop and wait for it here, on the caller's."""
        return await asyncio.wrap_future(self._begun(work))

    async def post(self, address: Address, path: str, body: bytes, headers: Headers) -> Response:
        """`send` a POST to what lies below the address's own path."""
        return await self.send("POST", address, address.path + path, body, headers)

    async def send(
        self,
        method: str,
        address: Address,
        target: str,
        body: bytes,
        headers: Headers,
        *,
        timeout_s: float | None = None,
    ) -> Response:
        """Send one request; to be called inside of `run`.

        `target`: the whole path, that of the address included. `timeout_s`: for all of it; None: as ever.

        Raises:
            EndpointError: timeout, connection, too_large or malformed; its text names the address only.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit):
                return await self._send(method, address, target, body, headers)
        except (TimeoutError, httpcore.TimeoutException):
            why = f"{address} gave no whole answer within {limit:g} s"
            raise EndpointError("timeout", why, retryable=True) from None
        except httpcore.UnsupportedProtocol as error:
            raise EndpointError("rejected", f"{address}: {error}") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            why = f"{address} did not answer ({_cause(error)})"
            raise EndpointError("connection", why, retryable=True) from None

    def run_now(self, work: Coroutine[Any, Any, T]) -> T:
        """`run` for sync code: blocks this thread."""
        return self._begun(work).result()

    def post_now(self, address: Address, path: str, body: bytes, headers: Headers) -> Response:
        """`post` for sync code: blocks this thread. Raises as `post` does."""
        return self.run_now(self.post(address, path, body, headers))

    def close(self) -> None:
        """Close connections, loop and thread; calling it twice does no harm."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._end(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)

    async def _send(
        self, method: str, address: Address, target: str, body: bytes, headers: Headers
    ) -> Response:
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                max_connections=256,
                keepalive_expiry=30.0,
                retries=0,
                network_backend=self._backend,
            )
        url = httpcore.URL(
            scheme=address.scheme.encode(),
            host=address.host.encode("ascii"),
            port=address.port,
            target=target.encode("ascii", "strict"),
        )
        host = f"[{address.host}]" if ":" in address.host else address.host
        sent = [
            (b"host", f"{host}:{address.port}".encode("ascii")),
            *headers,
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),  # nothing to inflate: no bomb
        ]
        limits = {"timeout": {"connect": _CONNECT_S, "pool": None, "read": None, "write": None}}
        async with self._pool.stream(method, url, headers=sent, content=body, extensions=limits) as answer:
            named = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers
            }
            body = await self._bounded(address, answer, named)
            connection = answer.extensions["network_stream"].get_extra_info(_NUMBER)
            return Response(answer.status, named, body, connection or 0)

    async def _bounded(self, address: Address, answer: httpcore.Response, named: dict[str, str]) -> bytes:
        too_large = EndpointError(
            "too_large", f"{address} sent more than {self._max_body} bytes; not read on"
        )
        if named.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise EndpointError("malformed", f"{address} sent a compressed answer that was not asked for")
        length = named.get("content-length", "")
        if length.isdigit() and (len(length) > 12 or int(length) > self._max_body):
            raise too_large
        read = bytearray()
        async for chunk in answer.aiter_stream():
            read += chunk
            if len(read) > self._max_body:
                raise too_large
        return bytes(read)

    def _begun(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._lock:  # until the loop has it: `close` ends what it finds there, and then the loop
            try:
                loop = self._own_loop()
            except BaseException:
                work.close()
                raise
            self._under_way.add(work)
            begun = asyncio.run_coroutine_threadsafe(work, loop)
        begun.add_done_callback(lambda _: self._under_way.discard(work))
        return begun

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """To be called with the lock held."""
        if self._closed:
            raise EndpointError("connection", "the endpoint's client was closed")
        if self._loop is None:
            # not whatever loop a policy makes: the guard cannot see into uvloop
            self._loop = asyncio.SelectorEventLoop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="dreamgym-endpoint", daemon=True
            )
            self._thread.start()
        return self._loop

    async def _end(self) -> None:
        """Cancel what was asked for. What a library started for that, it ends itself."""
        under_way = [task for task in asyncio.all_tasks() if task.get_coro() in self._under_way]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None
        await asyncio.get_running_loop().shutdown_default_executor()


class _NamedHostsOnly(httpcore.AsyncNetworkBackend):
    """Connects to the addresses that were looked at, and lets exactly that past the second wall."""

    def __init__(self) -> None:
        self.opened: Counter[tuple[str, int]] = Counter()
        self._resolver = Resolver()
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the library's own signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        failure: Exception | None = None
        for address in await loop.run_in_executor(None, self._resolver.resolve, host, port):
            try:
                with exempt():
                    stream = await self._inner.connect_tcp(
                        address, port, timeout, local_address, socket_options
                    )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                self.opened[host, port] += 1
                return _Numbered(stream, self.opened[host, port])
        raise failure or httpcore.ConnectError(f"{host} has no address")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol(f"{path}: an endpoint is a host")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Numbered(httpcore.AsyncNetworkStream):
    """A connection that knows which one it is, also below TLS."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, number: int) -> None:
        self._stream, self._number = stream, number

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return _Numbered(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._number)

    def get_extra_info(self, info: str) -> Any:
        return self._number if info == _NUMBER else self._stream.get_extra_info(info)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _cause(error: BaseException) -> str:
    """The innermost word on it: httpcore wraps what the socket said, sometimes without any text."""
    while error.__context__ is not None and not str(error):
        error = error.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
