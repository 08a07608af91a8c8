"""One vLLM server by its own address: the routes beside chat that tell what it can and change its weights.

Weights are brought to each server by its own address, never through a router: that would reach one of them
and say 200 for all. A 200 of these routes proves nothing; `canary` does.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.adapters.models.addresses import ApiKey, EndpointAddress
from dreamgym_kit.adapters.models.wire import Response, first_choice, read_body
from dreamgym_kit.errors import EndpointError

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.http import Transport

COMPLETIONS = "/completions"  # tells the log-probs of given tokens, computed anew
_ASIS = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "add_special_tokens": False}
_WEIGHTS_S = 600.0  # for requests under way to end, or a large model to be read
_RESET_S = 60.0
_BETWEEN_S = 0.2


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server names."""

    name: str
    root: str  # the directory or the hub's name that its weights came from
    parent: str  # of a LoRA adapter: the model that it is put on
    context: int | None


class Replica:
    """To be asked inside of the transport's `run`."""

    def __init__(self, address: EndpointAddress, key: ApiKey, transport: "Transport") -> None:
        self.address = address
        self._key = key
        self._transport = transport
        self._root = address.path.removesuffix("/v1")

    def __str__(self) -> str:
        return str(self.address)

    async def get(self, path: str) -> Response:
        """Ask for a path below the server's root."""
        return await self._send("GET", path, b"")

    async def post(
        self, path: str, body: Mapping[str, Any] | bytes = b"", *, timeout_s: float | None = None
    ) -> Response:
        """Send JSON to a path below the server's root."""
        sent = body if isinstance(body, bytes) else json.dumps(dict(body)).encode("ascii")
        return await self._send("POST", path, sent, timeout_s)

    async def models(self) -> tuple[ServedModel, ...]:
        """What it serves.

        Raises:
            EndpointError: it does not say.
        """
        body = read_body(await self.get("/v1/models"), str(self))
        listed = body.get("data") if isinstance(body, dict) else None
        if not isinstance(listed, list):
            raise EndpointError("malformed", f"{self} sent no list of models", status=200)
        return tuple(_served(entry) for entry in listed if isinstance(entry, dict) and entry.get("id"))

    async def score(self, model: str, ids: Sequence[int]) -> list[float]:
        """Log-prob of each id after the first, computed anew."""
        response = await self.post(f"/v1{COMPLETIONS}", scores_body(model, ids))
        return read_scores(response, str(self), ids)

    async def next_token(self, model: str, ids: Sequence[int], seed: int) -> tuple[int, float]:
        """A token drawn after `ids`, from the prefix cache where that has them, and its log-prob."""
        body = {"model": model, "prompt": list(ids), "seed": seed, "logprobs": 0, "return_token_ids": True}
        response = await self.post(f"/v1{COMPLETIONS}", body | _ASIS)
        return _read_next(response, str(self))

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Serve a LoRA adapter under a name of its own."""
        await self._done("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload_adapter(self, name: str) -> None:
        """Serve it no more; one that is not there is gone already."""
        response = await self.post("/v1/unload_lora_adapter", {"lora_name": name})
        if response.status != 404:
            _check(response, str(self))

    async def pause(self) -> None:
        """Let requests under way end; new ones wait."""
        await self._done("/pause?mode=wait")

    async def resume(self) -> None:
        """Answer again."""
        await self._done("/resume")

    async def reload(self, folder: Path) -> None:
        """Read the weights of a directory. One that is not there kills the engine: look before."""
        kwargs = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self._done("/collective_rpc", kwargs)

    async def reset_cache(self) -> None:
        """Forget the prompts of the old weights; refused while requests run, so asked for until it is done.

        Raises:
            EndpointError: it was not done in time.
        """
        for _ in range(int(_RESET_S / _BETWEEN_S)):
            body = read_body(await self.post("/reset_prefix_cache"), str(self))
            if isinstance(body, dict) and body.get("success") is True:
                return
            await asyncio.sleep(_BETWEEN_S)
        raise EndpointError(
            "server", f"{self} would not forget the prompts of the old weights in {_RESET_S:g} s"
        )

    async def name_weights(self, version: str) -> None:
        """Tell it what its weights are called."""
        await self._done("/update_weight_version", {"new_version": version})

    async def weights_name(self) -> str | None:
        """What it was told that its weights are called; None where it does not say."""
        response = await self.get("/weight_info")
        if response.status != 200:
            return None
        body = read_body(response, str(self))
        name = body.get("weight_version") if isinstance(body, dict) else None
        return _line(name) if isinstance(name, str) else None

    async def _done(self, path: str, body: Mapping[str, Any] | bytes = b"") -> None:
        _check(await self.post(path, body, timeout_s=_WEIGHTS_S), str(self))

    async def _send(self, method: str, path: str, body: bytes, timeout_s: float | None = None) -> Response:
        """Ask; what comes back has lost the key, should the server repeat it."""
        headers = self._key.headers()
        came = await self._transport.send(
            method, self.address, self._root + path, body, headers, timeout_s=timeout_s
        )
        return replace(came, body=self._key.mask(came.body.decode("latin-1")).encode("latin-1"))


def is_there(response: Response) -> bool:
    """Whether a route is there at all: a server's own 404 has another form than that of a missing route."""
    if response.status in (403, 405):
        return False
    return response.status != 404 or b'"error"' in response.body


def _check(response: Response, where: str) -> None:
    if response.status != 200:
        read_body(response, where)


def _served(entry: Mapping[str, Any]) -> ServedModel:
    context = entry.get("max_model_len")
    return ServedModel(
        name=_line(entry["id"]),
        root=_line(entry.get("root") or ""),
        parent=_line(entry.get("parent") or ""),
        context=context if isinstance(context, int) and context > 0 else None,
    )


def _line(value: object) -> str:
    """A server's own words, one printable line."""
    return "".join(char if char.isprintable() else " " for char in str(value))[:1000]


def scores_body(model: str, ids: Sequence[int]) -> bytes:
    """Asks for the log-prob of each id after the first."""
    # 0: those of the prompt's own tokens, and no others
    body = {"model": model, "prompt": list(ids), "prompt_logprobs": 0, **_ASIS}
    return json.dumps(body).encode("ascii")


def read_scores(response: Response, where: str, ids: Sequence[int]) -> list[float]:
    """Natural log-prob of each id after the first, at temperature 1.

    Raises:
        EndpointError: a status that is no success, or other log-probs than those of `ids`.
    """
    logprobs = first_choice(read_body(response, where)).get("prompt_logprobs")
    if not isinstance(logprobs, list) or len(logprobs) != len(ids):
        raise EndpointError(
            "malformed", f"{where} sent no prompt_logprobs; scores need a vLLM server", status=200
        )
    return [_token_score(entry, id_, where) for entry, id_ in zip(logprobs[1:], ids[1:], strict=True)]


def _read_next(response: Response, where: str) -> tuple[int, float]:
    """The token that was drawn, and its log-prob.

    Raises:
        EndpointError: a status that is no success, or not one token with its log-prob.
    """
    choice = first_choice(read_body(response, where))
    info = choice.get("logprobs")
    ids, logprobs = choice.get("token_ids"), info.get("token_logprobs") if isinstance(info, dict) else None
    if isinstance(ids, list) and isinstance(logprobs, list) and len(ids) == len(logprobs) == 1:
        id_, logprob = ids[0], logprobs[0]
        if isinstance(id_, int) and id_ >= 0 and _is_number(logprob):
            return id_, float(logprob)
    raise EndpointError("malformed", f"{where} sent no token with its log-prob", status=200)


def _token_score(entry: Any, id_: int, where: str) -> float:
    own = entry.get(str(id_)) if isinstance(entry, dict) else None
    logprob = own.get("logprob") if isinstance(own, dict) else None
    if not _is_number(logprob):
        raise EndpointError("malformed", f"{where} sent no log-prob of token {id_}", status=200)
    return float(logprob)  # type: ignore[arg-type]  # what is no number was refused


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


class Turnstile:
    """Counts who is under way. All of it is used on one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._under_way = 0
        self._shut = False

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """In the block, one of many requests is under way; it waits while somebody is alone."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._under_way += 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep new requests out, wait for those under way, and have the block to itself."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._shut = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._under_way)
            yield
        finally:
            async with self._changed:
                self._shut = False
                self._changed.notify_all()
