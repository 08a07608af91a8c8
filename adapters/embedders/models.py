"""The embedders: hashed words, a model behind an OpenAI-compatible `/v1/embeddings`, a model in a folder.

The hashed one is always there: words, word pairs and letter groups, no model, no download. It decides
likeness by spelling: two texts that share words, pairs of words or runs of 3 and 4 letters point the same
way. It knows no synonyms; the others do. Each feature adds or takes away a fixed weight at one of 256 places,
both drawn from its hash. All texts of a batch are hashed at once over their bytes: a loop over features in
Python takes ten times as long.

An endpoint is asked as chat models are. Decides what is believed: one vector for each text, in the order
asked, of the dimension that the person named, finite, brought to length 1. Anything else is an error that
names the endpoint; the key is in none. A busy or failing server is asked again a few times. As with chat
models, redirects are not followed, proxies of the environment not used, and metadata addresses refused.

A folder holds a sentence-transformers model (extra `embeddings`). Nothing is downloaded: a person named it.
"""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.models.addresses import ApiKey, read_address
from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import EndpointError, NotSerializable, UserError, require_extra

DIMENSION = 256  # 384 and 1024 found no more (measured on paraphrases)
MAX_TEXT = 4_000  # characters of one text
_WEIGHTS = (1.0, 0.5, 0.3, 0.3)  # of words, pairs, 3 and 4 letters
_BYTE_BITS, _TWO_BYTE_BITS = np.uint64(8), np.uint64(16)  # shifts by one letter, and by two
_GAP = 4  # separating bytes between two texts, so that no group of letters reaches over
_BATCH_BYTES = 5_000  # hashed at once: of more, each array is memory that the system gives and takes back
_MAX_WORD = 64

_ODD = np.uint64(0x9E3779B97F4A7C15)
_powers = np.cumprod(np.full(_MAX_WORD, 0x100000001B3, dtype=np.uint64))  # wraps around, on purpose
_KIND = bytes(  # 0: separates words; else the byte itself, lower case
    code if code >= 0x80 else ord(chr(code).lower()) * chr(code).isalnum() for code in range(256)
)


class HashedEmbedder:
    """Implements `interfaces.Embedder`; equal on every machine and every run."""

    name = "hashed-256-v1"
    dimension = DIMENSION
    local = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for first, batch in _batches(texts):
            vectors[first : first + len(batch)] = _hashed(batch)
        return vectors


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, list[bytes]]]:
    """Texts as bytes, some at a time, each time with the place of the first."""
    batch: list[bytes] = []
    size = 0
    for place, text in enumerate(texts):
        raw = _bytes(text)
        if batch and size + len(raw) > _BATCH_BYTES:
            yield place - len(batch), batch
            batch, size = [], 0
        batch.append(raw)
        size += len(raw)
    if batch:
        yield len(texts) - len(batch), batch


def _bytes(text: str) -> bytes:
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", text).casefold()
        text = "".join(sign for sign in folded if not unicodedata.combining(sign))
    return text[:MAX_TEXT].encode("utf-8", "replace")


def _hashed(texts: list[bytes]) -> NDArray[np.float32]:
    """Sum the features of each text and bring the sums to length 1."""
    raw = (b"\0" * _GAP).join([*texts, b"", b""])
    signs = np.frombuffer(raw.translate(_KIND), dtype=np.uint8)
    size = sum(map(len, texts)) + _GAP * len(texts)
    signs = signs[: size + _GAP]
    inside = signs[: size + 1] != 0
    words, starts = _words(signs[:size], inside[:size])
    features = [words, words[:-1] * _ODD + words[1:]]
    wide = signs.astype(np.uint64)
    group = (wide[:-2] << _TWO_BYTE_BITS) | (wide[1:-1] << _BYTE_BITS) | wide[2:]
    at = np.flatnonzero(inside[:-1] & inside[1:])
    three = group[at]
    features += [three * _powers[3], ((three << _BYTE_BITS) | wide[at + 3]) * _powers[4]]
    weights = np.repeat(_WEIGHTS, [len(some) for some in features])
    owners = None
    if len(texts) > 1:  # of one text all is its own: a question is asked oftener than rows are put
        lengths = [len(text) + _GAP for text in texts]
        of_text = np.repeat(np.arange(len(texts)), lengths)
        of_word, of_group = of_text[starts], of_text[at]
        owners = np.concatenate((of_word, of_word[1:], of_group, of_group))
        weights[len(words) : len(words) + len(features[1])][of_word[1:] != of_word[:-1]] = 0
    sums = _sums(np.concatenate(features), owners, weights, len(texts))
    vectors = sums.reshape(len(texts), DIMENSION)
    norms = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


def _words(
    signs: NDArray[np.uint8], inside: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """A hash for each run of letters and digits, in order, and where it starts."""
    first = inside.copy()
    first[1:] &= ~inside[:-1]
    starts = np.flatnonzero(first)
    if not len(starts):
        return np.zeros(0, dtype=np.uint64), starts
    place = _places(starts, len(signs))
    place %= _MAX_WORD
    weighted = _powers[place]
    weighted *= signs.astype(np.uint64) + _ODD
    weighted *= inside
    return np.add.reduceat(weighted, starts), starts


def _places(starts: NDArray[Any], size: int) -> NDArray[Any]:
    """How far each byte is from the start of its word."""
    started = np.zeros(size, dtype=np.int64)
    started[starts] = starts
    return np.arange(size) - np.maximum.accumulate(started)


def _sums(
    features: NDArray[np.uint64], owners: NDArray[Any] | None, weights: NDArray[np.float64], texts: int
) -> NDArray[np.float64]:
    """Add each feature's weight, or take it away, at the place of its text that its hash names."""
    mixed = features * _ODD
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    at = (mixed >> np.uint64(56)).astype(np.int64)
    if owners is not None:
        at += owners * DIMENSION
    taken = (mixed >> np.uint64(40)) & np.uint64(1) == 0
    signed = np.where(taken, -weights, weights)
    return np.bincount(at, weights=signed, minlength=texts * DIMENSION).astype(np.float64)


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

    Raises:
        UserError: there is no such folder; when first asked: there is no model in it.
        MissingExtra: sentence-transformers is not installed.
    """

    local = False  # 30 ms a text and more: a put must not wait for it

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
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
            return SentenceTransformer(str(self._folder), device="cpu", local_files_only=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self._folder}: holds no sentence-transformers model ({type(error).__name__})"
            ) from error
