"""Packs the steps of all episodes, which the page unpacks as they are asked for.

Chunks of episodes, each JSON, gzipped without a time (equal runs give equal bytes), in base64: some twelve
times smaller than the JSON. A page over 20 MB is hard to open: above it the steps of successes are left out
first, and the page says of how many.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.plain import JsonValue

PER_CHUNK = 50
MOST_BYTES = 20_000_000  # of all chunks, in base64
_BASE64 = 4 / 3


@dataclass(frozen=True, slots=True)
class Steps:
    """One episode's steps, kept small until they are packed."""

    squeezed: bytes
    dull: bool  # a success without a finding: left out first

    @classmethod
    def of(cls, detail: Mapping[str, JsonValue], *, dull: bool) -> "Steps":
        """Keep the steps of one episode."""
        return cls(zlib.compress(_spelled(detail), 1), dull)

    @property
    def spelled(self) -> bytes:
        """The JSON that was given."""
        return zlib.decompress(self.squeezed)


@dataclass(frozen=True, slots=True)
class Packed:
    """All episodes' steps as one block, and how many episodes it had no room for."""

    block: Mapping[str, JsonValue]
    left_out: int


def packed(episodes: Sequence[Steps], *, most_bytes: int | None = None) -> Packed:
    """Pack episodes in the order given, within `most_bytes` (`MOST_BYTES`)."""
    left_out = _left_out(episodes, MOST_BYTES if most_bytes is None else most_bytes)
    spelled = [b"null" if place in left_out else one.spelled for place, one in enumerate(episodes)]
    chunks: list[JsonValue] = []
    for start in range(0, len(spelled), PER_CHUNK):
        text = b"[" + b",".join(spelled[start : start + PER_CHUNK]) + b"]"
        chunks.append(base64.b64encode(gzip.compress(text, 9, mtime=0)).decode("ascii"))
    block: dict[str, JsonValue] = {
        "encoding": "json+gzip+base64",
        "per_chunk": PER_CHUNK,
        "chunks": chunks,
    }
    return Packed(block, len(left_out))


def _left_out(episodes: Sequence[Steps], most_bytes: int) -> set[int]:
    """Places of the episodes that there is no room for: the last of the dull ones, then of the others."""
    size = sum(len(one.squeezed) for one in episodes) * _BASE64
    gone: set[int] = set()
    for place in _dull_first(episodes):
        if size <= most_bytes:
            break
        size -= len(episodes[place].squeezed) * _BASE64
        gone.add(place)
    return gone


def _dull_first(episodes: Sequence[Steps]) -> Iterable[int]:
    return sorted(range(len(episodes)), key=lambda place: (not episodes[place].dull, -place))


def _spelled(value: Mapping[str, JsonValue]) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
