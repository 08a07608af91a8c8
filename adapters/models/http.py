"""The `openai` client on one event loop and thread, and what holds for every request that it sends.

All event loops and worker threads share its connections. The egress guard lets pass exactly what is opened
here, and nothing that the agent's code opens to the same host. No redirects, proxies or compressed answers;
no header or key that the environment holds for the agent's own `openai`. The body is read up to a bound,
within one time limit for all of it: a server that drips a byte a second is as late as one that hangs.

Importing this imports `openai`, which takes 0.3 s: to be imported where an endpoint is opened.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, TypeVar

import httpx2
from openai import APIConnectionError, APIStatusError, APITimeoutError, AsyncOpenAI

from dreamgym_kit.adapters.models.addresses import EndpointAddress, Resolver
from dreamgym_kit.adapters.models.wire import MAX_BODY, Response
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.guard.egress import exempt

T = TypeVar("T")

_MAX_REFUSAL = 100_000  # bytes of an error's body, which `openai` parses without bounds
_CONNECT_S = 10.0
_ALWAYS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",  # nothing to inflate: no bomb
}
_given: ContextVar[Mapping[str, str]] = ContextVar("dreamgym_kit_headers")  # `openai` sees no key of ours


class Transport:
    """Sends requests; closed once, after which nothing is sent.

    `timeout_s`: for all of one try. `retries`: after a lost connection, a late answer, 408, 409, 429 and 5xx,
    as `openai` does it; 0 where the caller chooses another replica.
    """

    def __init__(self, *, timeout_s: float, max_body: int = MAX_BODY, retries: int = 0) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._client = AsyncOpenAI(
            api_key="unused",  # `_Bounded` sends the key
            base_url="http://unused.invalid",
            max_retries=retries,
            http_client=httpx2.AsyncClient(transport=_Bounded(max_body), trust_env=False),
        )
        self._under_way: set[Coroutine[Any, Any, Any]] = set()
        self._closed = False

    def opened(self) -> int:
        """How many connections were opened so far."""
        return self._loop.opened if self._loop is not None else 0

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's own loop and wait for it here, on the caller's."""
        return await asyncio.wrap_future(self._begun(work))

    async def post(
        self, address: EndpointAddress, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response:
        """`send` a POST to what lies below the address's own path."""
        return await self.send("POST", address, address.path + path, body, headers)

    async def send(
        self,
        method: str,
        address: EndpointAddress,
        target: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        timeout_s: float | None = None,
    ) -> Response:
        """Send one request; to be called inside of `run`.

        `target`: the whole path, that of the address included. `timeout_s`: for all of it; None: as ever.

        Raises:
            EndpointError: timeout, connection, too_large or malformed; its text names the address only.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        _given.set(headers)
        ask = self._client.get if method == "GET" else partial(self._client.post, content=body)
        try:
            answer = await ask(
                f"{address.origin}{target}",
                cast_to=httpx2.Response,
                options={"timeout": httpx2.Timeout(limit, connect=_CONNECT_S)},
            )
        except APIStatusError as refused:
            answer = refused.response
        except APITimeoutError:
            why = f"{address} gave no whole answer within {limit:g} s"
            raise EndpointError("timeout", why, retryable=True) from None
        except (APIConnectionError, OSError) as error:
            why = f"{address} did not answer ({_cause(error)})"
            raise EndpointError("connection", why, retryable=True) from None
        return Response(
            answer.status_code, answer.headers, answer.content, answer.extensions["dreamgym.connection"]
        )

    def run_now(self, work: Coroutine[Any, Any, T]) -> T:
        """`run` for sync code: blocks this thread."""
        return self._begun(work).result()

    def post_now(
        self, address: EndpointAddress, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response:
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
            self._loop = _Loop()
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
        await self._client.close()
        await asyncio.get_running_loop().shutdown_default_executor()


class _Loop(asyncio.SelectorEventLoop):  # not the policy's: the guard cannot see into uvloop
    """Connects to the addresses that were looked at, and lets exactly that past the egress guard."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self._numbers: dict[int, int] = {}  # of connections, by descriptor
        self._resolver = Resolver()

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """See `asyncio`."""
        name = host if isinstance(host, str) else host.decode("ascii")
        ips = await self.run_in_executor(None, self._resolver.resolve, name, port)
        families = (socket.AF_INET, socket.AF_INET6)
        return [(families[":" in ip], socket.SOCK_STREAM, 0, "", (ip, port)) for ip in ips]

    async def create_connection(self, *args: Any, **how: Any) -> Any:
        """See `asyncio`."""
        with exempt():
            made = await super().create_connection(*args, **how)
        self.opened += 1
        self._numbers[made[0].get_extra_info("socket").fileno()] = self.opened
        return made

    def connection_number(self, connection: Any) -> int:
        """Which connection it is; one that is not known counts as a new one."""
        return self._numbers.get(connection.get_extra_info("socket").fileno(), self.opened + 1)


@cache  # reading the certificates takes longer than most requests
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class _Bounded(httpx2.AsyncHTTPTransport):
    """Sends the headers that `send` was given, and reads an answer up to a bound."""

    def __init__(self, max_body: int) -> None:
        limits = httpx2.Limits(max_connections=256, keepalive_expiry=30.0)
        super().__init__(verify=_certificates(), limits=limits)
        self._max_body = max_body

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        own = {name: request.headers[name] for name in ("host", "content-length") if name in request.headers}
        request.headers = httpx2.Headers({**own, **_ALWAYS, **_given.get()})
        try:
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                return await self._whole(request)
        except TimeoutError:
            raise httpx2.ReadTimeout("it sends, but not to the end") from None

    async def _whole(self, request: httpx2.Request) -> httpx2.Response:
        answer = await super().handle_async_request(request)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        number = loop.connection_number(answer.extensions["network_stream"])
        try:
            body = await self._read(answer, f"{request.url.scheme}://{request.url.netloc.decode()}")
        finally:
            await answer.aclose()
        return httpx2.Response(
            answer.status_code,
            headers=answer.headers,
            content=body,
            extensions={"dreamgym.connection": number},
        )

    async def _read(self, answer: httpx2.Response, where: str) -> bytes:
        most = self._max_body if answer.is_success else _MAX_REFUSAL
        if answer.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise EndpointError("malformed", f"{where} sent a compressed answer that was not asked for")
        read = bytearray()
        async for chunk in answer.aiter_raw():
            read += chunk
            if len(read) > most:
                break
        if len(read) > most and answer.is_success:
            raise EndpointError("too_large", f"{where} sent more than {most} bytes; not read on")
        del read[most:]
        return bytes(read)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _cause(error: BaseException) -> str:
    """The innermost word on it: libraries wrap what the socket said, sometimes without any text."""
    while error.__cause__ is not None or (error.__context__ is not None and not str(error)):
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
