"""A policy behind vLLM servers: exact tokens by the chat route, scores by the completions route.

Implements `interfaces.PolicyServer`. What the servers can do is found by asking them (`check`, or the first
`load`); new weights come to every replica as `vllm.weights` says, from a directory that they can read, too.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.addresses import read_address, read_key
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.adapters.models.vllm.replica import (
    COMPLETIONS,
    PROCESSED,
    RAW,
    Features,
    Replica,
    by_adapter,
    read_scores,
    scores_body,
)
from dreamgym_kit.adapters.models.vllm.weights import ServedWeights, Serving
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.guard.connections import of_the_kit
from dreamgym_kit.settings.schema import AlarmSettings, ExperienceSettings, PolicySettings


class RemotePolicy:
    """The model that servers serve, as a policy. Usable from any thread and event loop.

    `source`: where settings name it, for errors.
    """

    def __init__(self, endpoint: OpenAIEndpoint, weights: ServedWeights, *, source: str) -> None:
        self._endpoint, self._weights, self._source = endpoint, weights, source
        endpoint.replicas.verify_by(weights)

    @property
    def version(self) -> str:
        """Names the weights that answer from now on: the served model's name until others were loaded."""
        return self._weights.version

    @property
    def features(self) -> tuple[Features, ...]:
        """What its servers can do; empty before `check`."""
        return self._weights.features

    def check(self, *, temperature: float = 1.0, adapters: bool | None = None) -> None:
        """Ask every server what it can do, and whether all serve the same; blocks this thread.

        `temperature`: at which it will be asked. `adapters`: whether new weights will come as adapters, too;
        None: none will come.

        Raises:
            UserError: one is not there, lacks what a policy needs, or serves other weights than the others.
        """

        async def check_all() -> None:
            features = await self._weights.look()
            require_tokens(features, self._weights.model, temperature=temperature, source=self._source)
            if adapters is not None:
                by_adapter(features, brought=adapters, source=self._source)
            await self._weights.agree()

        try:
            with of_the_kit(self._weights.ports):
                self._endpoint.transport.run_now(check_all())
        except EndpointError as error:
            raise UserError(
                f"{self._source}: the policy cannot be asked: {error}. Nothing was run."
            ) from None

    @asynccontextmanager
    async def episode(self, key: str) -> AsyncIterator[None]:  # noqa: ARG002  the server keeps its own cache
        """Nothing to be told to the server."""
        yield

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `ChatEndpoint.chat`."""
        return await self._endpoint.transport.run(self._chat(request))

    async def load(self, weights: Path, version: str) -> None:
        """See `PolicyServer.load`.

        Raises:
            EndpointError: it did not arrive at every replica. Where the old weights were replaced meanwhile,
                nothing is answered until a load succeeds.
        """
        await self._endpoint.transport.run(self._weights.load(weights, version))

    def spec(self) -> dict[str, Any]:
        """What another process has to know to be answered by the same weights (`follow`), as JSON."""
        return self._weights.spec()

    async def follow(self, spec: Mapping[str, Any]) -> None:
        """Be answered by the weights that another process brought; see `ServedWeights.follow`."""
        await self._endpoint.transport.run(self._weights.follow(spec))

    async def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `PolicyServer.score`. Each row is asked of the next replica, so that each is looked at."""
        return await self._endpoint.transport.run(self._scores(ids))

    def close(self) -> None:
        """Close connections; calling it twice does no harm."""
        self._endpoint.close()

    async def _chat(self, request: ChatRequest) -> ChatReply:
        async with self._weights.in_use() as serving:
            return _proven(await self._endpoint.chat(request, model=serving.name), serving)

    async def _scores(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        turns = asyncio.Semaphore(self._weights.scores_at_once)

        async def score(number: int, row: Sequence[int]) -> list[float]:
            if len(row) < 2:
                return []
            async with turns:
                return await self._endpoint.ask(
                    COMPLETIONS,
                    scores_body(serving.name, row),
                    lambda response, where: read_scores(response, where, row),
                    affinity=number,
                )

        async with self._weights.in_use(scoring=True) as serving:
            return list(await asyncio.gather(*[score(number, row) for number, row in enumerate(ids)]))


def require_tokens(features: Sequence[Features], model: str, *, temperature: float, source: str) -> None:
    """Refuse servers that do not return exact tokens and log-probs in a form to learn from.

    Raises:
        UserError: names the server, what is missing, and the flag to start it with.
    """
    for server in features:
        if model not in server.models:
            served = ", ".join(sorted(server.models)) or "no model"
            raise UserError(
                f"{source}: {server.where} does not serve '{model}', but {served}; set the model's name, or "
                f"start it with --served-model-name {model}."
            )
        if not server.token_ids:
            raise UserError(
                f"{source}: {server.where} sends no token ids; exact answers need a vLLM server that knows "
                "return_token_ids (0.11 or later)."
            )
        if server.logprobs not in (PROCESSED, RAW) or (server.logprobs == RAW and temperature != 1.0):
            form = server.logprobs or "no log-probs"
            raise UserError(
                f"{source}: {server.where} sends {form}, and answers at temperature {temperature:g} are "
                f"learned from by their own log-probs; start it with --logprobs-mode {PROCESSED}."
            )


def open_remote(
    policy: PolicySettings,
    *,
    source: str,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    attempts: int = 3,
    most: float = AlarmSettings().stale_weights,
) -> RemotePolicy:
    """The policy that settings name: URLs of vLLM replicas, the served name, the key's variable.

    `source`: where settings name it ("dreamgym.toml:14"), for errors. `timeout_s`: of one request, whatever
    it does in that time. `most`: nats that a canary's log-prob may be off after new weights were loaded.

    Raises:
        UserError: a URL, the model or the key's variable is missing or wrong. Nothing is sent yet.
    """
    if not policy.urls or policy.model is None:
        raise UserError(f"{source}: a remote policy needs the server's urls and the model's served name.")
    addresses = tuple(read_address(url, source=source) for url in policy.urls)
    own = tuple(read_address(url, source=source) for url in policy.replicas or policy.urls)
    key = read_key(policy.key_env, file=policy.key_file, source=source, environ=environ)
    served = ExperienceSettings(
        urls=policy.urls, model=policy.model, timeout_s=timeout_s, max_attempts=attempts
    )
    endpoint = OpenAIEndpoint(addresses, served, key)
    weights = ServedWeights(
        [Replica(address, key, endpoint.transport) for address in own],
        policy.model,
        most=most,
        doubt=endpoint.replicas.doubt if set(own) == set(addresses) else None,
    )
    return RemotePolicy(endpoint, weights, source=source)


def _proven(reply: ChatReply, serving: Serving) -> ChatReply:
    """The answer under the version of its weights; an adapter's name in it proves which answered."""
    if serving.adapter is not None and reply.model != serving.name:
        raise EndpointError(
            "stale_weights", f"'{reply.model}' answered where '{serving.name}' was asked; it is no answer"
        )
    if reply.tokens is None:
        return reply
    return replace(reply, tokens=replace(reply.tokens, version=serving.version))
