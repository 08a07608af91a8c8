"""The embedder that is always there: hashed words, word pairs and letter groups, no model, no download.

Decides likeness by spelling: two texts that share words, pairs of words or runs of 3 and 4 letters point
the same way. It knows no synonyms; an endpoint or a sentence-transformers model does. Each feature adds
or takes away a fixed weight at one of 256 places, both drawn from its hash. All texts of a batch are
hashed at once over their bytes: a loop over features in Python takes ten times as long.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSION = 256  # 384 and 1024 found no more (measured on paraphrases)
MAX_TEXT = 4_000  # characters of one text
_WEIGHTS = (1.0, 0.5, 0.3, 0.3)  # of words, pairs, 3 and 4 letters
_ONE, _TWO = np.uint64(8), np.uint64(16)  # bits of one letter, and of two
_GAP = 4  # separating bytes between two texts, so that no group of letters reaches over
_BATCH = 5_000  # bytes hashed at once: of more, each array is memory that the system gives and takes back
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
        if batch and size + len(raw) > _BATCH:
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
    group = (wide[:-2] << _TWO) | (wide[1:-1] << _ONE) | wide[2:]
    at = np.flatnonzero(inside[:-1] & inside[1:])
    three = group[at]
    features += [three * _powers[3], ((three << _ONE) | wide[at + 3]) * _powers[4]]
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
