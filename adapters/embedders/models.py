"""Embedders that are models: behind an OpenAI-compatible `/v1/embeddings`, or in a folder on this machine.

An endpoint is asked as chat models are. Decides what is believed: one vector for each text, in the order
asked, of the dimension that the person named, finite, brought to length 1. Anything else is an error that
names the endpoint; the key is in none. A busy or failing server is asked again a few times. As with chat
models, redirects are not followed, proxies of the environment not used, and metadata addresses refused.

A folder holds a sentence-transformers model (extra `embeddings`). Nothing is downloaded: a person named it.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.models.addresses import ApiKey, read_address
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import EndpointError, NotSerializable, UserError, require_extra

_BATCH = 64  # texts a request
_RETRIES = 2
_LARGEST = 64 * 2**20  # bytes of an answer


class EndpointEmbedder:
    """Implements `interfaces.Embedder` over HTTP.

    Args:
        url: the endpoint's base ("http://localhost:8000/v1").
        model: the model's name there; it names the vectors in a buffer.
        dimension: how many numbers the model gives.
        api_key: sent as a bearer token.
        timeout_s: for one request.
    """

    local = False

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dimension: int,
        api_key: ApiKey | str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        from dreamgym_kit.adapters.models.http import Transport

        self._address = read_address(url, source="embeddings")
        self.name = f"endpoint:{model}"
        self.dimension = dimension
        self._model = model
        self._key = api_key if isinstance(api_key, ApiKey) else ApiKey(api_key or "")
        self._transport = Transport(timeout_s=timeout_s, max_body=_LARGEST, retries=_RETRIES)

    def close(self) -> None:
        """Close connections; what is asked afterwards fails."""
        self._transport.close()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`; waits for the network.

        Raises:
            UserError: the endpoint cannot be reached or answers something else than vectors.
        """
        parts = [self._vectors(texts[first : first + _BATCH]) for first in range(0, len(texts), _BATCH)]
        return np.concatenate([np.zeros((0, self.dimension), dtype=np.float32), *parts])

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        # Servers refuse an empty text; a blank says as little.
        answer = self._ask({"model": self._model, "input": [text or " " for text in texts]})
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
        except (TypeError, KeyError, ValueError) as error:
            raise self._refused(f"answered no embeddings ({type(error).__name__})") from error
        if vectors.shape != (len(texts), self.dimension):
            raise self._refused(
                f"gave vectors of shape {vectors.shape}, not ({len(texts)}, {self.dimension})"
            )
        if not np.isfinite(vectors).all():
            raise self._refused("gave numbers that are not finite")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        scaled: NDArray[np.float32] = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
        scaled[[not text.strip() for text in texts]] = 0
        return scaled

    def _ask(self, body: dict[str, Any]) -> Any:
        raw = json.dumps(body).encode()  # not as `openai` spells it, which half a surrogate pair ends
        try:
            answer = self._transport.post_now(self._address, "/embeddings", raw, self._key.headers())
        except EndpointError as error:
            raise self._refused(f"cannot be reached ({self._key.mask(str(error))})") from None
        if answer.status != 200:
            raise self._refused(f"answered HTTP {answer.status}")
        try:
            return read_json(answer.body, max_bytes=_LARGEST)
        except NotSerializable as error:
            raise self._refused(f"answered no JSON ({error})") from None

    def _refused(self, problem: str) -> UserError:
        advice = f"check the endpoint, its model '{self._model}' and the dimension"
        return UserError(f"{self._address}/embeddings: {problem}; {advice}")


class SentenceEmbedder:
    """Implements `interfaces.Embedder` over a model folder, which names it; loads it when first asked.

    Args:
        folder: what `SentenceTransformer.save` wrote.
        device: where it computes ("cpu", "cuda").

    Raises:
        UserError: there is no such folder; when first asked: there is no model in it.
        MissingExtra: sentence-transformers is not installed.
    """

    local = False  # 30 ms a text and more: a put must not wait for it

    def __init__(self, folder: Path | str, *, device: str = "cpu") -> None:
        self._folder = Path(folder)
        self._device = device
        if not self._folder.is_dir():
            raise UserError(
                f"{self._folder}: is no folder with a sentence-transformers model; nothing is downloaded"
            )
        require_extra("embeddings", needed_by=f"the embedding model in {self._folder}")
        self.name = f"sentences:{self._folder.resolve().name}"

    @cached_property
    def dimension(self) -> int:
        """See `Embedder.dimension`; loads the model."""
        return int(self._model.get_sentence_embedding_dimension())

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        full = [place for place, text in enumerate(texts) if text.strip()]
        if full:
            vectors[full] = self._model.encode([texts[place] for place in full], normalize_embeddings=True)
        return vectors

    @cached_property
    def _model(self) -> Any:
        """Half a minute to load, and a command that only records never asks it anything."""
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]

        try:
            return SentenceTransformer(str(self._folder), device=self._device, local_files_only=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self._folder}: holds no sentence-transformers model ({type(error).__name__})"
            ) from error
