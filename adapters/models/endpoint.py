"""Client of any OpenAI-compatible `/chat/completions`: tries again where that helps, and counts it all.

Implements `interfaces.ChatEndpoint`. Every request carries its sampling parameters and its own time limit.
Another try is made after 429 (as long as the server asks for), 5xx, a lost connection, a late or torn
answer, each time at the next replica; never after 400, 401, 403, 404. Nothing is tried again in secret:
`ChatReply.attempts` and `EndpointCounts` say how often. Siblings of a group go to the same replica, and a
header names their group to a router (`X-Session-ID`). Keys come from the environment and are masked in
whatever is raised.
"""

import asyncio
import hashlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from dreamgym_kit.adapters.models.addresses import ApiKey, EndpointAddress
from dreamgym_kit.adapters.models.wire import MAX_BODY, Dialect, Response, read_reply, request_body
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.settings.schema import ExperienceSettings

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.weights import ServedWeights

Answered = TypeVar("Answered")

_LONGEST_WAIT_S = 30.0  # a server that asks for more is left alone, and the episode is inconclusive
_FIRST_WAIT_S = 0.5
_REST_S = 10.0  # how long a replica that failed is asked last
_LOST = frozenset({"connection", "server"})  # after these, what answers there may have been started anew


@dataclass(slots=True)
class EndpointCounts:
    """What was asked of an endpoint so far."""

    requests: int = 0  # with those that failed
    failures: Counter[str] = field(default_factory=Counter)  # EndpointError.kind -> requests
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What was known of a replica when it was asked."""

    connections: int  # of those up to this one, which server is at the other end
    brought: int


@dataclass(slots=True)
class _Replica:
    """What is believed of one replica."""

    doubted: bool = False
    times_lost: int = 0
    connections: int = 0  # that were open when it last said what it serves
    failures: int = 0  # of proofs
    last_failure: EndpointError | None = None
    proving: asyncio.Lock = field(default_factory=asyncio.Lock)
    recognizing: asyncio.Lock = field(default_factory=asyncio.Lock)


class ReplicaVerifier:
    """Has a replica that was lost, or may have been started anew, say what it serves before it is believed.

    A server that is started anew answers from the weights that it was started with, and nothing in its
    answers tells. Its connections end with it: what comes over one that was open when it last said what it
    serves comes from the same server; an answer over a later one counts when it has said so again. (Behind a
    proxy that keeps connections to itself this tells nothing; docs/train.md says so.)

    To be awaited on one event loop; `doubt` is for any thread.

    Args:
        opened: how many connections were opened so far, to whatever address.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        self._opened = opened
        self._weights: ServedWeights | None = None
        self._lock = threading.Lock()
        self._replicas: defaultdict[EndpointAddress, _Replica] = defaultdict(_Replica)

    def verify_by(self, weights: "ServedWeights") -> None:
        """Ask replicas what they serve; without this, all are believed."""
        self._weights = weights

    def doubt(self, address: EndpointAddress) -> None:
        """A replica was lost: whatever answers there next may be another server with other weights."""
        replica = self._replica(address)
        with self._lock:
            replica.doubted = True
            replica.times_lost += 1

    def _replica(self, address: EndpointAddress) -> _Replica:
        with self._lock:
            return self._replicas[address]

    def forgot(self, address: EndpointAddress, error: EndpointError) -> bool:
        """Whether an error says that a server was started anew and can be mended."""
        return error.status == 404 and self._weights is not None and self._weights.brings(address)

    async def before(self, address: EndpointAddress) -> ReplicaState:
        """Have a replica that was lost prove itself; what is known of it then, for `after`.

        Raises:
            EndpointError: it is in doubt still.
        """
        if self._weights is None:
            return ReplicaState(0, 0)
        replica = self._replica(address)
        if replica.doubted:
            failures = replica.failures
            async with replica.proving:
                await self._prove(address, replica, self._weights, failures)
        return ReplicaState(replica.connections, self._weights.brought(address))

    async def after(self, address: EndpointAddress, connection: int, seen: ReplicaState) -> None:
        """Have a replica say what it serves, where its answer may be one of a server started anew.

        Raises:
            EndpointError: it serves something else, or does not say; it is in doubt from now on.
        """
        if self._weights is None or connection <= seen.connections:
            return
        replica = self._replica(address)
        async with replica.recognizing:
            if connection > replica.connections:  # else it was asked for another answer meanwhile
                opened = self._opened()  # before it is asked: that may open another
                try:
                    await self._weights.recognise(address)
                except EndpointError:
                    self.doubt(address)
                    raise
                replica.connections = opened
        if self._weights.brought(address) != seen.brought:  # the server that answered may not have had them
            why = f"{address} was given its weights while it was asked; its answer does not count"
            raise EndpointError("stale_weights", why, retryable=True)

    async def _prove(
        self, address: EndpointAddress, replica: _Replica, weights: "ServedWeights", failures: int
    ) -> None:
        if not replica.doubted:  # another request had it prove itself meanwhile
            return
        if replica.last_failure is not None and replica.failures != failures:  # in vain
            raise replica.last_failure
        lost = replica.times_lost
        try:
            await weights.prove(address)
        except EndpointError as error:
            replica.failures, replica.last_failure = replica.failures + 1, error
            raise
        with self._lock:
            if replica.times_lost == lost:
                replica.doubted = False


class OpenAIEndpoint:
    """One model behind one or several replicas. Usable from any event loop and thread.

    `wait_unit_s`: length of the first pause; tests shorten it.
    """

    def __init__(
        self,
        addresses: tuple[EndpointAddress, ...],
        settings: ExperienceSettings,
        key: ApiKey,
        *,
        wait_unit_s: float = _FIRST_WAIT_S,
        max_body: int = MAX_BODY,
    ) -> None:
        from dreamgym_kit.adapters.models.http import Transport

        self._addresses = addresses
        self._settings = settings
        self._key = key
        self._wait_unit_s = wait_unit_s
        # what it sends with; whoever asks the same servers for something else shares it
        self.transport = Transport(timeout_s=settings.timeout_s, max_body=max_body)
        self._dialect = Dialect()
        self._resting: dict[EndpointAddress, float] = {}
        self.replicas = ReplicaVerifier(self.transport.opened)
        self._lock = threading.Lock()
        self.counts = EndpointCounts()  # everything asked so far

    @property
    def is_vllm(self) -> bool:
        """Whether an answer has told that vLLM gave it."""
        return self._dialect.explicit

    async def chat(self, request: ChatRequest, *, model: str | None = None) -> ChatReply:
        """See `ChatEndpoint.chat`. `model`: another name than that of the settings."""
        return await self.transport.run(self._chat(request, model or self._settings.model or ""))

    def close(self) -> None:
        """Close connections; what is asked afterwards fails."""
        self.transport.close()

    async def ask(
        self, path: str, body: bytes, read: Callable[[Response, str], Answered], *, affinity: str | int = ""
    ) -> Answered:
        """Ask something else of the same servers, with the same limits and tries; not counted as an answer.

        `affinity`: equal texts go to the same replica; equal numbers, too, and the next number to the next.

        Raises:
            EndpointError: no answer came that `read` takes.
        """

        async def once(address: EndpointAddress) -> tuple[Answered, int]:
            response = await self._post(address, path, body, self._key.headers())
            return read(response, str(address)), response.connection

        return (await self.transport.run(self._tried(affinity, once)))[0]

    async def _chat(self, request: ChatRequest, model: str) -> ChatReply:
        started = time.perf_counter()
        reply, sent = await self._tried(
            request.group or request.affinity, lambda address: self._ask(address, request, model)
        )
        return self._answered(reply, sent, time.perf_counter() - started)

    async def _tried(
        self, affinity: str | int, ask: Callable[[EndpointAddress], Awaitable[tuple[Answered, int]]]
    ) -> tuple[Answered, int]:
        """Ask one replica after the other; the answer, and how many requests it took.

        `ask` gives what was answered, and by which connection.
        """
        attempts, replicas, verifier = self._settings.max_attempts, self._ordered(affinity), self.replicas
        for sent in range(1, attempts + 1):
            address = replicas[(sent - 1) % len(replicas)]
            try:
                seen = await verifier.before(address)
                answer, connection = await ask(address)
                await verifier.after(address, connection, seen)
            except EndpointError as error:
                forgot = verifier.forgot(address, error)
                self._failed(address, error, lost=forgot or error.kind in _LOST)
                too_long = (error.retry_after_s or 0.0) > _LONGEST_WAIT_S
                if not (error.retryable or forgot) or sent == attempts or too_long:
                    raise self._masked(error, sent) from None
                await asyncio.sleep(self._pause(error, sent, others=sent < len(replicas)))
            else:
                with self._lock:
                    self._resting.pop(address, None)
                return answer, sent
        raise AssertionError("at least one attempt is made")

    async def _ask(self, address: EndpointAddress, request: ChatRequest, model: str) -> tuple[ChatReply, int]:
        """Send one request, and again as it is found to want it; with the connection of the answer."""
        headers = self._key.headers() | _session(request.group or request.affinity)
        for _ in range(8):  # more than there are things to learn
            dialect = self._dialect
            body = request_body(request, model, dialect)
            response = await self._post(address, "/chat/completions", body, headers)
            try:
                reply = read_reply(response, str(address), request)
                learned = None if request.exact else dialect.knowing(response.body)
                if learned is None:
                    return reply, response.connection
            except EndpointError as refusal:
                learned = dialect.after(refusal, request)
                if learned is None:
                    raise
            if self._dialect is dialect:  # else another request has learned something meanwhile
                self._dialect = learned
        raise EndpointError("rejected", f"{address} refuses every form of request")

    async def _post(
        self, address: EndpointAddress, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Response:
        with self._lock:
            self.counts.requests += 1
        return await self.transport.post(address, path, body, headers)

    def _ordered(self, affinity: str | int) -> list[EndpointAddress]:
        """Replicas in the order to be asked: the group's own first, those that just failed last."""
        number = affinity if isinstance(affinity, int) else int(_hashed(affinity)[:8], 16)
        start = number % len(self._addresses)
        turned = [*self._addresses[start:], *self._addresses[:start]]
        now = time.monotonic()
        return sorted(turned, key=lambda address: self._resting.get(address, 0.0) > now)

    def _pause(self, error: EndpointError, sent: int, *, others: bool) -> float:
        """Seconds before the next request: none while another replica is left, else growing."""
        if others:
            return 0.0
        grown: float = self._wait_unit_s * 2 ** (sent - 1) * random.uniform(0.5, 1.0)  # noqa: S311  no secret
        return max(error.retry_after_s or 0.0, min(grown, _LONGEST_WAIT_S))

    def _failed(self, address: EndpointAddress, error: EndpointError, *, lost: bool) -> None:
        if lost:
            self.replicas.doubt(address)
        with self._lock:
            if error.retryable:
                self._resting[address] = time.monotonic() + _REST_S
            self.counts.failures[error.kind] += 1

    def _answered(self, reply: ChatReply, sent: int, elapsed_s: float) -> ChatReply:
        prices = self._settings
        cost = (
            reply.prompt_tokens * prices.usd_per_million_input
            + reply.completion_tokens * prices.usd_per_million_output
        ) / 1_000_000
        with self._lock:
            self.counts.prompt_tokens += reply.prompt_tokens
            self.counts.completion_tokens += reply.completion_tokens
            self.counts.cached_tokens += reply.cached_tokens
            self.counts.cost_usd += cost
        return replace(reply, attempts=sent, elapsed_s=elapsed_s, cost_usd=cost)

    def _masked(self, error: EndpointError, sent: int) -> EndpointError:
        tried = f" ({sent} tries)" if sent > 1 else ""
        return EndpointError(
            error.kind,
            self._key.mask(f"{error}{tried}"),
            status=error.status,
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
        )


def _session(affinity: str) -> dict[str, str]:
    """What a router sends siblings to the same replica by; it tells no names."""
    return {"x-session-id": _hashed(affinity)[:32]} if affinity else {}


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
