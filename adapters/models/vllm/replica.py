"""One vLLM server by its own address: the routes beside chat that tell what it can and change its weights.

Weights are brought to each server by its own address, never through a router: that would reach one of them
and say 200 for all. A 200 of these routes proves nothing; `canary` does.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.models.addresses import Address
from dreamgym_kit.adapters.models.keys import Key
from dreamgym_kit.adapters.models.transport import Response, Transport
from dreamgym_kit.adapters.models.vllm import scores
from dreamgym_kit.adapters.models.wire import read_body
from dreamgym_kit.errors import EndpointError

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

    def __init__(self, address: Address, key: Key, transport: Transport) -> None:
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
        return tuple(_served(one) for one in listed if isinstance(one, dict) and one.get("id"))

    async def score(self, model: str, ids: Sequence[int]) -> list[float]:
        """Log-prob of each id after the first, computed anew."""
        response = await self.post(f"/v1{scores.ROUTE}", scores.scores_body(model, ids))
        return scores.read_scores(response, str(self), ids)

    async def next_token(self, model: str, ids: Sequence[int], seed: int) -> tuple[int, float]:
        """A token drawn after `ids`, from the prefix cache where that has them, and its log-prob."""
        response = await self.post(f"/v1{scores.ROUTE}", scores.next_body(model, ids, seed))
        return scores.read_next(response, str(self))

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
        said = body.get("weight_version") if isinstance(body, dict) else None
        return _line(said) if isinstance(said, str) else None

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


def _served(said: Mapping[str, Any]) -> ServedModel:
    context = said.get("max_model_len")
    return ServedModel(
        name=_line(said["id"]),
        root=_line(said.get("root") or ""),
        parent=_line(said.get("parent") or ""),
        context=context if isinstance(context, int) and context > 0 else None,
    )


def _line(said: object) -> str:
    """A server's own words, one printable line."""
    return "".join(one if one.isprintable() else " " for one in str(said))[:1000]
