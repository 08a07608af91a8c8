"""Vectors from any OpenAI-compatible `/v1/embeddings` endpoint, by the standard library alone.

Decides what is believed: one vector for each text, in the order asked, of the dimension that the person
named, finite, brought to length 1. Anything else is an error that names the endpoint; the key is in none.
A busy or failing server is asked again a few times; redirects are not followed.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.errors import NotJson, UserError
from dreamgym_kit.jsonread import read_json

_BATCH = 64  # texts a request
_TRIES = 3
_LARGEST = 64 * 2**20  # bytes of an answer
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead the key and the texts to somebody else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer is then the redirect itself, an error."""
        return


class EndpointEmbedder:
    """Implements `ports.Embedder` over HTTP.

    Args:
        url: the endpoint's base ("http://localhost:8000/v1").
        model: the model's name there; it names the vectors in a buffer.
        dimension: how many numbers the model gives.
        api_key: sent as a bearer token.
        timeout_s: for one request.
        wait_s: before the second try; doubles.
    """

    local = False

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dimension: int,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        wait_s: float = 0.5,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise UserError("embeddings: the endpoint must be http(s)://host/..., without a user name in it")
        self.name = f"endpoint:{model}"
        self.dimension = dimension
        self._model = model
        self._url = f"{url.rstrip('/')}/embeddings"
        self._key = api_key
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler(), _NoRedirect).open

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
        for tried in range(1, _TRIES + 1):
            try:
                return self._send(body)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _AGAIN or tried == _TRIES:
                    raise self._refused(f"answered HTTP {error.code}") from None
            except OSError as error:  # refused, reset, timed out
                if tried == _TRIES:
                    reason = getattr(error, "reason", None) or error
                    raise self._refused(f"cannot be reached ({reason})") from None
            except NotJson as error:
                raise self._refused(f"answered no JSON ({error})") from None
            time.sleep(self._wait_s * 2 ** (tried - 1))
        raise AssertionError("the last try returns or raises")

    def _send(self, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310  # http(s) only
        with self._open(request, timeout=self._timeout_s) as response:
            data = response.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise NotJson(f"more than {_LARGEST >> 20} MB")
        return read_json(data)

    def _refused(self, what: str) -> UserError:
        return UserError(
            f"{self._url}: {what}; check the endpoint, its model '{self._model}' and the dimension"
        )
