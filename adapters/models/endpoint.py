"""Client of any OpenAI-compatible `/chat/completions`: tries again where that helps, and counts it all.

Implements `ports.ChatEndpoint`. Every request carries its sampling parameters and its own time limit.
Another try is made after 429 (as long as the server asks for), 5xx, a lost connection, a late or torn
answer, each time at the next replica; never after 400, 401, 403, 404. Nothing is tried again in secret:
`ChatReply.attempts` and `EndpointCounts` say how often. Keys come from the environment and are masked in
whatever is raised.
"""

import asyncio
import hashlib
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dreamgym_kit.adapters.models.addresses import Address, read_address
from dreamgym_kit.adapters.models.keys import Key, read_key
from dreamgym_kit.adapters.models.transport import MAX_BODY, Response, Transport
from dreamgym_kit.adapters.models.wire import Dialect, read_reply, request_body
from dreamgym_kit.chat import ChatMessage, ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.ports import ChatEndpoint
from dreamgym_kit.settings.model import EndpointSettings, Settings

Answered = TypeVar("Answered")

_LONGEST_WAIT_S = 30.0  # a server that asks for more is left alone, and the episode is undetermined
_FIRST_WAIT_S = 0.5
_REST_S = 10.0  # how long a replica that failed is asked last


@dataclass(frozen=True, slots=True)
class EndpointCounts:
    """What was asked of an endpoint so far."""

    answers: int = 0
    requests: int = 0  # with those that failed
    failures: Mapping[str, int] = field(default_factory=dict)  # EndpointError.kind -> requests
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    unpriced: int = 0  # answers whose server told no usage
    cost_usd: float = 0.0


class OpenAIEndpoint:
    """One model behind one or several replicas. Usable from any event loop and thread.

    Args:
        addresses: the replicas, from settings only.
        settings: limits, prices and the model's name.
        key: sent with each request, masked in each error.
        wait_unit_s: length of the first pause; tests shorten it.
    """

    def __init__(
        self,
        addresses: tuple[Address, ...],
        settings: EndpointSettings,
        key: Key,
        *,
        wait_unit_s: float = _FIRST_WAIT_S,
        max_body: int = MAX_BODY,
    ) -> None:
        self._addresses = addresses
        self._settings = settings
        self._key = key
        self._wait_unit_s = wait_unit_s
        self._transport = Transport(timeout_s=settings.timeout_s, max_body=max_body)
        self._dialect = Dialect()
        self._resting: dict[Address, float] = {}
        self._lock = threading.Lock()
        self._counts = EndpointCounts()

    @property
    def counts(self) -> EndpointCounts:
        """Everything asked so far."""
        return self._counts

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `ChatEndpoint.chat`."""
        return await self._transport.run(self._chat(request))

    def close(self) -> None:
        """Close connections; what is asked afterwards fails."""
        self._transport.close()

    async def ask(
        self, path: str, body: bytes, read: Callable[[Response, str], Answered], *, affinity: str = ""
    ) -> Answered:
        """Ask something else of the same servers, with the same limits and tries; not counted as an answer.

        Raises:
            EndpointError: no answer came that `read` takes.
        """

        async def once(address: Address) -> Answered:
            self._asked()
            return read(await self._transport.post(address, path, body, self._key.headers()), str(address))

        async def tried() -> Answered:
            return (await self._tried(affinity, once))[0]

        return await self._transport.run(tried())

    async def _chat(self, request: ChatRequest) -> ChatReply:
        started = time.perf_counter()
        reply, sent = await self._tried(request.affinity, lambda address: self._ask(address, request))
        return self._answered(reply, sent, time.perf_counter() - started)

    async def _tried(
        self, affinity: str, ask: Callable[[Address], Awaitable[Answered]]
    ) -> tuple[Answered, int]:
        """Ask one replica after the other; the answer, and how many requests it took."""
        attempts, replicas = self._settings.attempts, self._ordered(affinity)
        for sent in range(1, attempts + 1):
            address = replicas[(sent - 1) % len(replicas)]
            try:
                answer = await ask(address)
            except EndpointError as error:
                self._failed(address, error)
                too_long = (error.retry_after_s or 0.0) > _LONGEST_WAIT_S
                if not error.retryable or sent == attempts or too_long:
                    raise self._masked(error, sent) from None
                await asyncio.sleep(self._pause(error, sent, others=sent < len(replicas)))
            else:
                with self._lock:
                    self._resting.pop(address, None)
                return answer, sent
        raise AssertionError("at least one attempt is made")

    async def _ask(self, address: Address, request: ChatRequest) -> ChatReply:
        """Send one request, and again without what the server refuses to know."""
        for _ in range(8):  # more than there are things to learn
            dialect = self._dialect
            body = request_body(request, self._settings.model or "", dialect)
            self._asked()
            response = await self._transport.post(address, "/chat/completions", body, self._key.headers())
            try:
                return read_reply(response, str(address), request)
            except EndpointError as refusal:
                learned = dialect.after(refusal, request)
                if learned is None:
                    raise
                if self._dialect is dialect:  # else another request has learned something meanwhile
                    self._dialect = learned
        raise EndpointError("rejected", f"{address} refuses every form of request")

    def _asked(self) -> None:
        with self._lock:
            self._counts = replace(self._counts, requests=self._counts.requests + 1)

    def _ordered(self, affinity: str) -> list[Address]:
        """Replicas in the order to be asked: the group's own first, those that just failed last."""
        count = len(self._addresses)
        start = (
            int.from_bytes(hashlib.sha256(affinity.encode("utf-8", "replace")).digest()[:4], "big") % count
        )
        turned = [*self._addresses[start:], *self._addresses[:start]]
        now = time.monotonic()
        return sorted(turned, key=lambda one: self._resting.get(one, 0.0) > now)

    def _pause(self, error: EndpointError, sent: int, *, others: bool) -> float:
        """Seconds before the next request: none while another replica is left, else growing."""
        if others:
            return 0.0
        grown: float = self._wait_unit_s * 2 ** (sent - 1) * random.uniform(0.5, 1.0)  # noqa: S311  no secret
        return max(error.retry_after_s or 0.0, min(grown, _LONGEST_WAIT_S))

    def _failed(self, address: Address, error: EndpointError) -> None:
        with self._lock:
            if error.retryable:
                self._resting[address] = time.monotonic() + _REST_S
            failures = {**self._counts.failures}
            failures[error.kind] = failures.get(error.kind, 0) + 1
            self._counts = replace(self._counts, failures=failures)

    def _answered(self, reply: ChatReply, sent: int, elapsed_s: float) -> ChatReply:
        prices = self._settings
        cost = (
            reply.prompt_tokens * prices.usd_per_million_input
            + reply.completion_tokens * prices.usd_per_million_output
        ) / 1_000_000
        with self._lock:
            counts = self._counts
            self._counts = replace(
                counts,
                answers=counts.answers + 1,
                prompt_tokens=counts.prompt_tokens + reply.prompt_tokens,
                completion_tokens=counts.completion_tokens + reply.completion_tokens,
                cached_tokens=counts.cached_tokens + reply.cached_tokens,
                unpriced=counts.unpriced + (reply.prompt_tokens == 0),
                cost_usd=counts.cost_usd + cost,
            )
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


def open_endpoint(
    settings: Settings,
    *,
    environ: Mapping[str, str] | None = None,
) -> OpenAIEndpoint | None:
    """The endpoint that settings name; None where they name none. Nothing is sent yet.

    Raises:
        UserError: a URL, the model or the key's variable is missing or wrong.
    """
    said = settings.endpoint
    if not said.urls:
        return None
    if said.model is None:
        raise UserError(f"{settings.where('endpoint')}: endpoint.urls is set, but no endpoint.model.")
    source = settings.where("endpoint", "urls")
    addresses = tuple(read_address(url, source=source) for url in said.urls)
    key = read_key(said.key_env, source=settings.where("endpoint", "key_env"), environ=environ)
    return OpenAIEndpoint(addresses, said, key)


async def check_endpoint(endpoint: ChatEndpoint) -> None:
    """Ask once, before a run begins.

    Raises:
        UserError: it gave no usable answer; nothing was run.
    """
    try:
        await endpoint.chat(ChatRequest([ChatMessage("user", "Say: ready")], max_tokens=16))
    except EndpointError as error:
        raise UserError(f"the dream's model cannot be asked: {error}. Nothing was run.") from None
