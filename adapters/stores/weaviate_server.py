"""The connection to a Weaviate server: one deadline for each request, and advice for its errors.

The official client retries for up to 63 seconds, whatever its timeout, can silently send a batch twice, and
drops the status of most answers. So its gRPC stub is wrapped (`_OneTry`): each call gets the rest of the
deadline; reads are repeated while the server is unreachable, writes never are.

A starting server answers before it has loaded its collections. So nothing is reported missing until the
server is ready. An unknown error counts as temporary: waiting loses no row.
"""

import logging
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dreamgym_kit.adapters.models.addresses import ApiKey, Resolver
from dreamgym_kit.errors import EndpointError, StoreError, StoreUnavailable
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.connections import of_the_kit

TIMEOUT_S = 20.0
TOO_LARGE = "larger than max"  # part of an error that smaller batches may avoid
_STILL_S = 3.0  # seconds without an answer before a line reports it
_PAUSE_S = 0.2
_CONNECT_S = 2.0
_WRITES = ("BatchObjects", "BatchDelete")
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # the default notices a restarted server after two minutes
]
_NOT_NOW = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "INTERNAL")  # temporary gRPC statuses
_NOT_NOW_HTTP = ("408", "425", "429", "500", "502", "503", "504")
_GONE = "gone: "  # prefix of advice that a starting server may trigger wrongly
# Substrings of the server's message or status (alternatives separated by |), and advice; the first match
# counts. The status follows the message in angle brackets, so that "401" does not match a number of bytes.
_STAYS = {
    "count limit of|usage_limit_exceeded": "the server reached a limit; raise it, or delete data there",
    "query maximum results": "the server's result limit is too low; set QUERY_MAXIMUM_RESULTS to 10000 there",
    "trying to send message larger": "the answer is above GRPC_MAX_MESSAGE_SIZE; raise it, or read less",
    TOO_LARGE: "a row exceeds the server's message size; raise GRPC_MAX_MESSAGE_SIZE there",
    "illegal request line|unknown service|<unimplemented>": "the ports of HTTP and gRPC are wrong or "
    "swapped: the HTTP port follows the host, the gRPC port goes in grpc=",
    "wrong_version_number|record layer failure": "this port does not use TLS; write weaviate://",
    "cloud's metadata service": "dreamgym-kit never connects to it",
    "certificate_verify_failed": "this machine does not trust its certificate",
    "no authentication scheme is configured": "the server accepts no key; unset {key}",
    "unauthenticated|unauthorized|invalid api key|anonymous access not enabled|<401>": "the server refused "
    "the key; check {key}",
    "forbidden|insufficient permissions|<permission_denied>|<403>": "the key of {key} lacks the permission; "
    "give its user access to the collection and its tenants",
    "tenant not active": "its tenant is not active; activate it on the server",
    "multi-tenancy is not enabled|check if tenant exists": "its collection has no tenants, so it is not "
    "dreamgym-kit's; choose another in the URL: /Collection after the host",
    "tenant not found": _GONE + "its tenant was deleted; choose another, or open it for writing to create it",
    "could not find class|non-existing index|find index for class|no read replica found|class not found|"
    "not have configuration for vector text": _GONE
    + "its collection was deleted; open it for writing to create it",
    "weaviate nodes for replication|minimum replication factor": "the server requires another number of "
    "replicas; set it in the URL: replicas=3",
    "is not supported. please use": "the server is too old; use Weaviate 1.29 or newer",
    "no such prop|invalid|not a valid|vector length|<invalid_argument>|<400>|<404>|<405>|<409>|<422>": "the "
    "server refused it",
}
_LIMITS = tuple(_STAYS.values())[:4]  # permanent, whatever the status

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """Hosts and ports of a server."""

    http_host: str
    http_port: int
    grpc_host: str
    grpc_port: int
    secure: bool = False

    def __str__(self) -> str:
        return f"{self.http_host}:{self.http_port} and gRPC {self.grpc_host}:{self.grpc_port}"


class Refused(Exception):
    """A server's message and status; as an error that the client does not retry."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


def meaning(status: str, text: str) -> str | None:
    """Return the advice for a permanent error; None if the request may succeed later.

    `status` is a gRPC status name or an HTTP status number; "" if there is none, as for single rows.
    """
    low = f"{text} <{status}>".lower()
    words = next(
        (words for signs, words in _STAYS.items() if any(sign in low for sign in signs.split("|"))), None
    )
    return None if status in _NOT_NOW + _NOT_NOW_HTTP and words not in _LIMITS else words


class _OneTry:
    """The client's stub, whose calls get the rest of the deadline, not the client's timeout."""

    def __init__(self, stub: Any, server: "WeaviateServer") -> None:
        self._stub, self._server = stub, server

    def __getattr__(self, name: str) -> Any:
        import grpc

        call, server, writes = getattr(self._stub, name), self._server, name in _WRITES

        def attempt(*args: Any, **options: Any) -> Any:
            still = time.monotonic() + _STILL_S
            while True:
                left = server.left_s()
                quiet = not writes and left > _STILL_S and time.monotonic() < still
                options |= {"timeout": _STILL_S if quiet else left, "wait_for_ready": True}
                try:
                    return call(*args, **options)
                except grpc.RpcError as error:
                    status, text = error.code().name, error.details() or ""
                server.check_alive()
                if quiet and status == "DEADLINE_EXCEEDED" and time.monotonic() > still - _PAUSE_S:
                    server.report_waiting()
                    still = 0.0
                elif (
                    writes
                    or status != "UNAVAILABLE"
                    or "not allowed" in text
                    or server.left_s() < 2 * _PAUSE_S
                ):
                    raise Refused(status, text) from None
                else:
                    time.sleep(_PAUSE_S)

        return attempt


class WeaviateServer:
    """A server, connected at the first request. Thread-safe.

    `key_name` is the environment variable or the file that holds the key; `timeout_s` limits a request,
    including connecting and waiting. With `proxy`, requests use the environment's proxies. `ended` returns
    why a local server ended, None while it runs.
    """

    def __init__(
        self,
        place: str,
        target: ServerTarget,
        key: ApiKey,
        *,
        key_name: str,
        timeout_s: float = TIMEOUT_S,
        proxy: bool = False,
        ended: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.place = place
        self._target, self._proxy, self._ended, self._timeout_s = target, proxy, ended, timeout_s
        self._key, self._key_name = key, key_name
        self._client: Any = None
        self._connecting = threading.Lock()
        self._deadline = threading.local()
        self._settled = False  # True: connections are open, none is added
        self._again = False  # whether to resolve the host name again before the next request
        self._grpc_at = ""  # current gRPC target: "ipv4:10.0.0.5:50051"
        self._closed = False

    def ask(self, doing: str, question: Callable[[Any], _T], *, over_http: bool = False) -> _T:
        """Send a request within the deadline; a request `over_http` may open a connection.

        Raises:
            StoreUnavailable: no answer in time, or a temporary error.
            StoreError: the server refused.
        """
        if self._closed:
            raise StoreError(f"{self.place}: this store was closed; open it again")
        self._deadline.ends = time.monotonic() + self._timeout_s
        was_ready = False
        while True:
            try:
                self.check_alive()
                with self._seen_by_guard(over_http):
                    answer = question(self._connected())
                    self._settled = True
                    return answer
            except Exception as error:
                if not _is_theirs(error):
                    raise  # a bug here, not an error of the server
                self._settled, self._again = False, True
                status, text = _status_and_text(error)
            words = meaning(status, text)
            if not (words and words.startswith(_GONE)) or was_ready or self._client is None:
                raise self.store_error(doing, status, text) from None
            was_ready = self._wait_until_ready(doing)

    def store_error(self, doing: str, status: str, text: str) -> StoreError:
        """Convert a server error to a `StoreError`, for requests and single rows."""
        words = meaning(status, text)
        advice = (words or "the server cannot do it now; try again later").removeprefix(_GONE)
        if words is None and "deadline exceeded" in text.lower():
            advice = (
                f"no answer within {self._timeout_s:g} s from {self._target}; check that both are reachable"
            )
        elif words is None and "[errno 111]" in text.lower():
            advice = f"nothing listens at {self._target}; check that it runs, or try again later"
        advice = advice.replace("{key}", self._key_name)
        line = self._key.mask(f"{self.place}: {doing}: {advice} ({' '.join(text.split())[:300]})")
        return StoreUnavailable(line) if words is None else StoreError(line)

    def left_s(self) -> float:
        """Return the seconds until the deadline of this thread's request."""
        ends: float = self._deadline.ends
        return max(ends - time.monotonic(), 0.01)

    def report_waiting(self) -> None:
        """Report on stderr that the run waits for its server."""
        sys.stderr.write(f"{self.place}: no answer for {_STILL_S:g} s; waiting {self.left_s():.0f} s more\n")

    def check_alive(self) -> None:
        """Raise if a server started by this process has ended."""
        why = self._ended()
        if why:
            raise StoreUnavailable(f"{self.place}: {why}")

    def close(self) -> None:
        """Close the connection; later requests are refused."""
        if not self._closed:
            self._closed = True
            if self._client is not None:
                with suppress(RuntimeError, OSError):  # the connection is closed in any case
                    self._client.close()

    @contextmanager
    def _seen_by_guard(self, over_http: bool) -> Iterator[None]:
        """Show new connections to the guard. Scanning open files is slow: only for requests that connect."""
        ports = (self._target.http_port, self._target.grpc_port)
        new = (over_http or not self._settled) and not egress.armed()
        with of_the_kit(ports) if new else nullcontext():
            yield

    def _wait_until_ready(self, doing: str) -> bool:
        """Wait for a starting server; return whether it was starting.

        Raises:
            StoreUnavailable: it is not ready by the deadline.
        """
        still = time.monotonic() + _STILL_S
        while not self._is_ready():
            self.check_alive()
            if self.left_s() < 2 * _PAUSE_S:
                raise StoreUnavailable(f"{self.place}: {doing}: the server is starting; try again later")
            if time.monotonic() > still:
                self.report_waiting()
                still = float("inf")
            time.sleep(_PAUSE_S)
        return True

    def _is_ready(self) -> bool:
        """Return the client's `is_ready` without printing errors."""
        try:
            answer = self._client._connection.get("/.well-known/ready", check_is_connected=False)
        except Exception as error:
            if not _is_theirs(error):
                raise
            return False
        return bool(answer.status_code == 200)

    def _connected(self) -> Any:
        with self._connecting:
            if self._client is None or self._again:
                grpc_at = self._look_up()
                if self._client is not None and grpc_at != self._grpc_at:  # its address changed
                    self._client.close()
                    self._client = None
                self._grpc_at, self._again = grpc_at, False
            if self._client is None:
                client = self._made()
                connection = client._connection  # private; a test and the pinned version guard it
                connection._make_client = partial(_resolving, connection._make_client)
                self._client = client
                try:
                    client.connect()
                    self._wait_until_ready("connecting")
                except BaseException:
                    self._client = None
                    client.close()
                    raise
                connection._grpc_stub = _OneTry(connection._grpc_stub, self)
        return self._client

    def _look_up(self) -> str:
        """Resolve the host names once per connection; return a gRPC target of plain addresses.

        Raises:
            StoreError: a name leads to a cloud's metadata service, or HTTP and gRPC share a port.
        """
        at, resolver = self._target, Resolver()
        if self._proxy:  # the proxy resolves names
            return f"{_in_url(at.grpc_host)}:{at.grpc_port}"
        try:
            http = resolver.resolve(at.http_host, at.http_port)
            grpc = resolver.resolve(at.grpc_host, at.grpc_port)
        except EndpointError as error:
            kind = StoreUnavailable if error.retryable else StoreError
            raise kind(f"{self.place}: {error}") from None
        if at.http_port == at.grpc_port and set(http) & set(grpc):
            raise StoreError(
                f"{self.place}: HTTP and gRPC cannot share port {at.http_port}; set the gRPC port with grpc="
            )
        chosen = grpc[0]
        for address in grpc if len(grpc) > 1 else ():  # localhost has two addresses, and a server may use one
            with suppress(OSError), socket.create_connection((address, at.grpc_port), _CONNECT_S):
                chosen = address
                break
        return f"{'ipv6' if ':' in chosen else 'ipv4'}:{_in_url(chosen)}:{at.grpc_port}"

    def _made(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from packages that it imports
            import weaviate
        from weaviate.classes.init import AdditionalConfig, Auth, Timeout
        from weaviate.config import GrpcConfig
        from weaviate.connect import ConnectionParams

        logging.getLogger("weaviate-client").addFilter(
            lambda record: isinstance(record.msg, str)
        )  # would log rows

        # TLS checks the host name, but the connection uses the addresses resolved above.
        pinned: Any = type("Pinned", (ConnectionParams,), {"_grpc_target": property(lambda _: grpc_at)})
        at, waits, grpc_at = self._target, self._timeout_s, self._grpc_at
        token = self._key.headers().get("authorization", "").removeprefix("Bearer ")
        return weaviate.WeaviateClient(
            pinned.from_params(
                http_host=_in_url(at.http_host),
                http_port=at.http_port,
                http_secure=at.secure,
                grpc_host=_in_url(at.grpc_host),
                grpc_port=at.grpc_port,
                grpc_secure=at.secure,
            ),
            auth_client_secret=Auth.api_key(token) if token else None,
            skip_init_checks=True,  # they query the public package index
            additional_config=AdditionalConfig(
                timeout=Timeout(init=waits, query=waits, insert=waits),
                grpc_config=GrpcConfig(
                    channel_options=[*_CHANNEL, ("grpc.enable_http_proxy", int(self._proxy))]
                ),
                trust_env=self._proxy,
            ),
        )


def _resolving(make: Callable[[Any], Any], color: str) -> Any:
    """Build the client's HTTP client so that it connects only to checked addresses."""
    import httpcore

    class Backend(httpcore.SyncBackend):
        def connect_tcp(self, host: str, port: int, *args: Any, **how: Any) -> httpcore.NetworkStream:
            refused: Exception = httpcore.ConnectError(f"{host} has no address")
            try:
                addresses = Resolver().resolve(host, port)
            except EndpointError as error:
                raise httpcore.ConnectError(str(error)) from None
            for address in addresses:
                try:
                    return super().connect_tcp(address, port, *args, **how)
                except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                    refused = error
            raise refused

    client = make(color)
    client._transport._pool._network_backend = Backend()
    return client


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_theirs(error: Exception) -> bool:
    """Return whether the client, its transport or the network raised it."""
    theirs = type(error).__module__.split(".")[0] in ("weaviate", "httpx", "httpcore", "grpc")
    return theirs or isinstance(error, Refused | OSError)


def _status_and_text(error: Exception) -> tuple[str, str]:
    """Return status and text of the innermost error in the chain that has them."""
    import httpcore

    if isinstance(error, Refused):
        return error.status, error.text
    status, text = getattr(error, "status_code", None), str(getattr(error, "message", "") or error)
    if status is None or status < 100:
        each: BaseException | None = error
        while each is not None:
            if str(each) not in text and isinstance(each, OSError | httpcore.ConnectError):
                text = f"{text} {each}"
            each = each.__cause__ or each.__context__
    return str(status or ""), text or type(error).__name__
