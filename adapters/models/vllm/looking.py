"""Short probes of a server: whether it is up, which routes need no key, and its counters.

No proxies, no redirects, a timeout of seconds: the servers are nearby, and a probe that hangs is no use. A
server's counters since its start are on its `/metrics` page (Prometheus text). Unknown lines are skipped,
since they differ between versions of vLLM. Counters of several engines behind one page are added up.

The servers of a run are read at its start, every few seconds, and at its end. A server without that page
(most routers) is asked once and left out of the table; one that is down for a while is read again later.
Counters that start over mean that the server restarted.
"""

import asyncio
import http.client
import json
import re
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dreamgym_kit.adapters.models.addresses import read_address, read_key
from dreamgym_kit.adapters.models.vllm.replica import Replica
from dreamgym_kit.adapters.models.wire import Response
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.guard.egress import exempt
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import Settings

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.http import Transport

_EVERY_S = 2.0
_LOOK_S = 3.0

_MAX_BYTES = 4 * 2**20
_LINE = re.compile(r"^(?P<name>vllm:\w+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)
_REFUSED = (401, 403)
_COUNTED = {  # the counters of `ServerMetrics`, in its order: their names on the page
    "prompt_tokens": "prompt_tokens_total",
    "generated_tokens": "generation_tokens_total",
    "looked_up_tokens": "prefix_cache_queries_total",
    "cached_tokens": "prefix_cache_hits_total",
}


def listens(url: str) -> bool:
    """Say whether a process accepts connections at `url`, even if it is too busy to answer."""
    parts = urlsplit(url)
    with exempt():  # as in `look`
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2.0) as peer:
                itself = bool(
                    peer.getsockname() == peer.getpeername()
                )  # happens on a port without a listener
                return not itself
        except OSError:
            return False


def look(
    url: str,
    path: str,
    *,
    key: str = "",
    method: str = "GET",
    body: bytes | None = None,
    timeout_s: float = 5.0,
) -> Response:
    """Ask `url` (http://host:port) for `path`; status 0: no answer."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    with exempt():  # a person named this server, or this process started it
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Response(answer.status, body=answer.read(_MAX_BYTES))
        except (OSError, http.client.HTTPException):
            return Response(0)
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """One reading."""

    prompt_tokens: int
    generated_tokens: int
    looked_up_tokens: int  # of prompts, in the prefix cache
    cached_tokens: int  # found there
    running: int  # requests
    waiting: int  # requests in the queue

    @property
    def cached_share(self) -> float | None:
        """Share of prompt tokens that came from the cache, 0..1; None before the first prompt."""
        return self.cached_tokens / self.looked_up_tokens if self.looked_up_tokens else None

    def since(self, earlier: "ServerMetrics") -> "ServerMetrics":
        """Give the counts since an earlier reading; running and waiting are the current ones."""
        return replace(self, **{name: getattr(self, name) - getattr(earlier, name) for name in _COUNTED})

    def plus(self, later: "ServerMetrics") -> "ServerMetrics":
        """Add two periods; of running and waiting, take the larger."""
        counted = {name: getattr(self, name) + getattr(later, name) for name in _COUNTED}
        running, waiting = max(self.running, later.running), max(self.waiting, later.waiting)
        return ServerMetrics(running=running, waiting=waiting, **counted)


def read_metrics(page: str) -> ServerMetrics | None:
    """Read a `/metrics` page; None if it is not vLLM's."""
    sums: dict[str, float] = defaultdict(float)
    for line in _LINE.finditer(page):
        try:
            sums[line["name"].removeprefix("vllm:")] += float(line["value"])
        except ValueError:
            continue
    if "num_requests_running" not in sums:
        return None
    return ServerMetrics(
        **{name: int(sums[on_page]) for name, on_page in _COUNTED.items()},
        running=int(sums["num_requests_running"]),
        waiting=int(sums["num_requests_waiting"]),
    )


def read_under_way(page: str) -> int | None:
    """Read the number of open requests (`{"under_way": 3}`); None if the page is not of that form."""
    try:
        counted = json.loads(page)["under_way"]
    except (ValueError, KeyError, TypeError):
        return None
    return counted if type(counted) is int else None


class Kind(StrEnum):
    """What a client without a key can do on a route."""

    LIVES = "lives"  # see that the server is up
    TELLS = "tells"  # read its state
    WORKS = "works"  # run requests
    CHANGES = "changes"  # change weights, caches or what it serves


ROUTES: dict[Kind, tuple[str, ...]] = {
    Kind.LIVES: ("/health", "/ping", "/version"),
    Kind.TELLS: (
        *("/metrics", "/load", "/server_info", "/v1/models", "/is_paused", "/is_sleeping", "/weight_info"),
        *("/openapi.json", "/docs", "/redoc", "/tokenizer_info"),
    ),
    Kind.WORKS: (
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
        *("/v1/chat/completions/render", "/v1/completions/render", "/inference/v1/generate"),
        *("/tokenize", "/detokenize", "/invocations", "/pooling", "/classify", "/score", "/rerank"),
    ),
    Kind.CHANGES: (
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/collective_rpc", "/reset_prefix_cache"),
        *("/reset_mm_cache", "/pause", "/resume", "/sleep", "/wake_up", "/abort_requests", "/update_weights"),
        *("/start_weight_update", "/finish_weight_update", "/update_weight_version", "/weight_checker"),
        *("/init_weight_transfer_engine", "/scale_elastic_ep", "/start_profile", "/stop_profile"),
    ),
}


@dataclass(frozen=True, slots=True)
class OpenRoute:
    """A route that answered without a key."""

    path: str
    kind: Kind
    status: int


def open_routes(url: str, *, timeout_s: float = 5.0) -> Iterator[OpenRoute]:
    """Walk the table at `url` (http://host:port), without a key, with GET alone.

    A route that only takes POST says 405 before anything is done, which is an answer; 404 is none.

    Raises:
        ConnectionError: nobody answers there.
    """
    for kind, paths in ROUTES.items():
        for path in paths:
            status = look(url, path, timeout_s=timeout_s).status
            if status == 0:
                raise ConnectionError(f"nothing answers at {url}")
            if status not in _REFUSED and status != 404:
                yield OpenRoute(path, kind, status)


_NOTHING = ServerMetrics(0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Seen:
    """One server's readings, put together."""

    last: ServerMetrics | None = None
    total: ServerMetrics = _NOTHING  # of requests: the most that ran and waited at one time
    silent: bool = False  # no vLLM, or no metrics

    def add(self, now: ServerMetrics) -> None:
        """What came since the last reading; the first one only tells where the counters stand."""
        before = self.last or now
        more = now.since(before if now.prompt_tokens >= before.prompt_tokens else _NOTHING)
        self.last, self.total = now, self.total.plus(more)


class ServerWatch:
    """Looks at servers; made by `watched`."""

    def __init__(self, replicas: Sequence[Replica], transport: "Transport | None") -> None:
        self._transport = transport
        self._seen = {replica: _Seen() for replica in replicas}

    async def table(self) -> list[JsonValue]:
        """Look once more; a row for each server that told something.

        Its tokens, the share of its cache, and the most requests that ran and waited when it was looked at.
        """
        await self.look()
        return [_row(str(replica), seen) for replica, seen in self._seen.items() if seen.last is not None]

    async def look(self) -> None:
        """Read each page once."""
        replicas = [replica for replica, seen in self._seen.items() if not seen.silent]

        async def read_all() -> None:
            await asyncio.gather(*map(self._read, replicas))

        if replicas and self._transport is not None:
            await self._transport.run(read_all())

    async def keep_looking(self) -> None:
        """Call `look` repeatedly until cancelled."""
        while not all(seen.silent for seen in self._seen.values()):
            await asyncio.sleep(_EVERY_S)
            await self.look()

    async def _read(self, replica: Replica) -> None:
        seen = self._seen[replica]
        # down, slow, restarting, or a value is not a number: the next reading may succeed
        with suppress(EndpointError, ValueError, OverflowError):
            response = await replica.get("/metrics")
            page = read_metrics(response.text) if response.status == 200 else None
            if page is not None:
                seen.add(page)
            elif response.status < 500 and seen.last is None:
                seen.silent = True


@asynccontextmanager
async def watched(settings: Settings, sections: Collection[str]) -> AsyncIterator[ServerWatch]:
    """Read the counters of the servers in the settings during the block; `table` then has the results.

    `sections`: the settings sections whose servers are read, of "policy" and "experience".
    """
    if not sections:
        yield ServerWatch((), None)
        return
    from dreamgym_kit.adapters.models.http import Transport

    transport = Transport(timeout_s=_LOOK_S)
    with closing(transport):
        watch = ServerWatch(_replicas(settings, sections, transport), transport)
        await watch.look()
        looking = asyncio.create_task(watch.keep_looking())
        try:
            yield watch
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking


def _replicas(settings: Settings, sections: Collection[str], transport: "Transport") -> list[Replica]:
    """Give each server once; replicas by their own addresses if the settings list them."""
    policy, experience = settings.policy, settings.experience
    entries = [
        ("policy", policy.replicas or policy.urls, policy.key_env, policy.key_file),
        ("experience", experience.urls, experience.key_env, experience.key_file),
    ]
    replicas: dict[str, Replica] = {}
    for section, urls, variable, file in entries:
        source = settings.where(section, "urls")
        for url in urls if section in sections else ():
            address = read_address(url, source=source)
            key = read_key(variable, file=file, source=source)
            replicas.setdefault(str(address), Replica(address, key, transport))
    return list(replicas.values())


def _row(where: str, seen: _Seen) -> dict[str, JsonValue]:
    total, share = seen.total, seen.total.cached_share
    return {
        "server": where,
        "prompt_tokens": total.prompt_tokens,
        "generated_tokens": total.generated_tokens,
        "cached_share": None if share is None else round(share, 4),
        "most_running": total.running,
        "most_waiting": total.waiting,
    }
