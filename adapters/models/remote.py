"""A policy behind a vLLM server: exact tokens by its chat route, scores by its completions route.

Implements `ports.PolicyServer` as far as these routes go: the served model's name tells which weights
answer, and they are changed where the server runs, not from here.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.addresses import read_address
from dreamgym_kit.adapters.models.endpoint import OpenAIEndpoint
from dreamgym_kit.adapters.models.keys import read_key
from dreamgym_kit.adapters.models.transport import Response
from dreamgym_kit.adapters.models.wire import read_body
from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.errors import EndpointError, UserError
from dreamgym_kit.settings.model import EndpointSettings, PolicySettings

_AT_ONCE = 16  # scores under way


class RemotePolicy:
    """The model that an endpoint serves, as a policy. Usable from any thread and event loop.

    Args:
        endpoint: where it is asked.
        model: as the server names it; it is the version of the weights, too.
    """

    def __init__(self, endpoint: OpenAIEndpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    @property
    def version(self) -> str:
        """The served model's name."""
        return self._model

    @asynccontextmanager
    async def episode(self, key: str) -> AsyncIterator[None]:  # noqa: ARG002  the server keeps its own cache
        """Nothing to be told to the server."""
        yield

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `ChatEndpoint.chat`."""
        return await self._endpoint.chat(request)

    async def load(self, weights: Path, version: str) -> None:  # noqa: ARG002
        """See `PolicyServer.load`."""
        raise UserError(
            f"{weights}: a remote policy takes no weights yet; train with a model directory in process "
            "([policy] model), or restart the server with these weights."
        )

    async def score(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `PolicyServer.score`."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(row: Sequence[int]) -> list[float]:
            async with turns:
                return await self._score(row)

        return list(await asyncio.gather(*map(one, ids)))

    def close(self) -> None:
        """Close connections; calling it twice does no harm."""
        self._endpoint.close()

    async def _score(self, ids: Sequence[int]) -> list[float]:
        if len(ids) < 2:
            return []
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "prompt_logprobs": 0,  # of the prompt's own tokens, and no others
            "add_special_tokens": False,
        }
        text = json.dumps(body).encode("ascii")
        return await self._endpoint.ask(
            "/completions", text, lambda response, where: _read_scores(response, where, ids)
        )


def open_remote(
    said: PolicySettings,
    *,
    source: str,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    attempts: int = 3,
) -> RemotePolicy:
    """The policy that settings name: URLs of vLLM replicas, the served name, the key's variable.

    Args:
        said: the section [policy].
        source: where it stands ("dreamgym.toml:14"), for errors.
        environ: instead of the process's own.
        timeout_s: of one request, whatever it does in that time.
        attempts: requests for one answer, at most; another is only made where no answer came.

    Raises:
        UserError: a URL, the model or the key's variable is missing or wrong. Nothing is sent yet.
    """
    if not said.urls or said.model is None:
        raise UserError(f"{source}: a remote policy needs the server's urls and the model's served name.")
    addresses = tuple(read_address(url, source=source) for url in said.urls)
    key = read_key(said.key_env, source=source, environ=environ)
    asked = EndpointSettings(urls=said.urls, model=said.model, timeout_s=timeout_s, attempts=attempts)
    return RemotePolicy(OpenAIEndpoint(addresses, asked, key), said.model)


def _read_scores(response: Response, where: str, ids: Sequence[int]) -> list[float]:
    body = read_body(response, where)
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    said = choice.get("prompt_logprobs") if isinstance(choice, dict) else None
    if not isinstance(said, list) or len(said) != len(ids):
        raise EndpointError(
            "malformed", f"{where} sent no prompt_logprobs; scores need a vLLM server", status=200
        )
    return [_score_of(entry, id_, where) for entry, id_ in zip(said[1:], ids[1:], strict=True)]


def _score_of(entry: Any, id_: int, where: str) -> float:
    own = entry.get(str(id_)) if isinstance(entry, dict) else None
    logprob = own.get("logprob") if isinstance(own, dict) else None
    if not isinstance(logprob, int | float) or isinstance(logprob, bool) or not isfinite(logprob):
        raise EndpointError("malformed", f"{where} sent no log-prob of token {id_}", status=200)
    return float(logprob)
