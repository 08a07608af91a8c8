"""The embedder that is always there: hashed words, word pairs and letter groups, no model, no download.

Decides likeness by spelling: two texts that share words, pairs of words or runs of 3 and 4 letters point
the same way. It knows no synonyms; an endpoint or a sentence-transformers model does. Each feature adds
or takes away a fixed weight at one of 256 places, both drawn from its hash. All texts of a batch are
hashed at once over their bytes: a loop over features in Python takes ten times as long.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSION = 256  # 384 and 1024 found no more (measured on paraphrases)
MAX_TEXT = 4_000  # characters of one text
_WORD, _PAIR, _LETTERS = 1.0, 0.5, 0.3
_GAP = 4  # separating bytes between two texts, so that no group of letters reaches over
_BATCH = 16  # texts hashed at once: the arrays stay in the cache
_MAX_WORD = 64

_ODD = np.uint64(0x9E3779B97F4A7C15)
_powers = np.cumprod(np.full(_MAX_WORD, 0x100000001B3, dtype=np.uint64))  # wraps around, on purpose
_kind = np.zeros(256, dtype=np.uint8)  # 0: separates words; else the byte itself, lower case
_kind[0x80:] = np.arange(0x80, 0x100)
for _sign in b"abcdefghijklmnopqrstuvwxyz0123456789":
    _kind[_sign] = _sign
    _kind[ord(chr(_sign).upper())] = _sign


class HashedEmbedder:
    """Implements `ports.Embedder`; equal on every machine and every run."""

    name = "hashed-256-v1"
    dimension = DIMENSION
    local = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for first in range(0, len(texts), _BATCH):
            batch = [_bytes(text) for text in texts[first : first + _BATCH]]
            vectors[first : first + _BATCH] = _hashed(batch)
        return vectors


def _bytes(text: str) -> bytes:
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", text).casefold()
        text = "".join(sign for sign in folded if not unicodedata.combining(sign))
    return text[:MAX_TEXT].encode("utf-8", "replace")


def _hashed(texts: list[bytes]) -> NDArray[np.float32]:
    """Sum the features of each text and bring the sums to length 1."""
    signs = _kind[np.frombuffer((b"\0" * _GAP).join([*texts, b"", b""]), dtype=np.uint8)]
    lengths = np.array([len(text) + _GAP for text in texts])
    of_text = np.repeat(np.arange(len(texts)), lengths)
    signs = signs[: len(of_text) + _GAP]
    words, text_of_word = _words(signs[: len(of_text)], of_text)
    pairs = text_of_word[1:] == text_of_word[:-1]
    features = [words, (words[:-1] * _ODD + words[1:])[pairs]]
    owners = [text_of_word, text_of_word[1:][pairs]]
    wide = signs.astype(np.uint64)
    group = (wide[:-2] << np.uint64(16)) | (wide[1:-1] << np.uint64(8)) | wide[2:]
    at = np.flatnonzero((signs[: len(of_text)] != 0) & (signs[1 : len(of_text) + 1] != 0))
    for size in (3, 4):
        if size == 4:
            group = (group[:-1] << np.uint64(8)) | wide[3:]
        features.append(group[at] * _powers[size])
        owners.append(of_text[at])
    weights = np.repeat([_WORD, _PAIR, _LETTERS, _LETTERS], [len(some) for some in features])
    sums = _sums(np.concatenate(features), np.concatenate(owners), weights, len(texts))
    vectors = sums.reshape(len(texts), DIMENSION)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


def _words(signs: NDArray[np.uint8], of_text: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """A hash for each run of letters and digits, in order, and the text that it stands in."""
    inside = signs != 0
    before = np.concatenate(([False], inside[:-1]))
    starts = np.flatnonzero(inside & ~before)
    if not len(starts):
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    place = _places(starts, len(signs))
    weighted = np.where(inside, (signs.astype(np.uint64) + _ODD) * _powers[place % _MAX_WORD], np.uint64(0))
    return np.add.reduceat(weighted, starts), of_text[starts]


def _places(starts: NDArray[Any], size: int) -> NDArray[Any]:
    """How far each byte is from the start of its word."""
    started = np.zeros(size, dtype=np.int64)
    started[starts] = starts
    return np.arange(size) - np.maximum.accumulate(started)


def _sums(
    features: NDArray[np.uint64], owners: NDArray[Any], weights: NDArray[np.float64], texts: int
) -> NDArray[np.float64]:
    """Add each feature's weight, or take it away, at the place of its text that its hash names."""
    mixed = features * _ODD
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    at = owners * DIMENSION + (mixed >> np.uint64(56)).astype(np.int64)
    taken = (mixed >> np.uint64(40)) & np.uint64(1) == 0
    signed = np.where(taken, -weights, weights)
    return np.bincount(at, weights=signed, minlength=texts * DIMENSION).astype(np.float64)
