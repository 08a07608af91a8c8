"""Puts the page together: template, style, script and the two blocks of data, in one file.

Nothing of a run becomes markup. Data stands in JSON blocks with `& < >` and the line separators escaped,
so that no text can end its block; the script enters it as text nodes. The content security policy allows
exactly this style and this script, by hash, and nothing else: no request, no frame, no form. All marks are
replaced in one pass, so a mark inside the data stays what it is.

The steps of all episodes, which the page unpacks as they are asked for, are chunks of episodes, each JSON,
gzipped without a time (equal runs give equal bytes), in base64: some twelve times smaller than the JSON. A
page over 20 MB is hard to open: above it the steps of successes are left out first, and the page says of how
many.
"""

import base64
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from dreamgym_kit.serialization import JsonValue

SCRIPTS = (
    *("dom", "data", "signs", "verdict", "effects", "figures", "episodes", "step"),
    *("episode", "compare", "training", "routes"),
)
_MARK = re.compile(r"@@(style-hash|script-hash|style|script|report|episodes)@@")
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "&<>\u2028\u2029"}
PER_CHUNK = 50
MAX_BYTES = 20_000_000  # of all chunks, in base64
_BASE64 = 4 / 3
_LONG = 2000  # characters of a fact
SCHEMA = 2  # of the data of every page; its script reads this one only


def document(report: Mapping[str, JsonValue], episodes: Mapping[str, JsonValue] | None = None) -> str:
    """Give the page.

    Args:
        report: what the first screens need; see `overview.overview`.
        episodes: the packed steps of all episodes, as `packed` gives them; none where left out.

    Raises:
        ValueError: a number in the data is not finite.
    """
    style, script = source("report.css"), script_text()
    parts = {
        "style-hash": _hash(style),
        "script-hash": _hash(script),
        "style": style,
        "script": script,
        "report": as_block(report),
        "episodes": as_block(packed([]).block if episodes is None else episodes),
    }
    return _MARK.sub(lambda mark: parts[mark[1]], source("report.html"))


def as_block(value: JsonValue) -> str:
    """Spell data for a `<script type="application/json">`: valid JSON that holds no markup."""
    spelled = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # a lone surrogate has no UTF-8 form, and no place in a link
    return spelled.encode("utf-8", "replace").decode("utf-8").translate(_ESCAPED)


@cache
def script_text() -> str:
    """The script: one file an idea, read in this order, in one scope that nobody else can enter."""
    parts = "\n".join(source(f"script/{name}.js") for name in SCRIPTS)
    return f"(() => {{\n'use strict';\n{parts}}})();\n"


@cache
def source(name: str) -> str:
    """One of the files that the page is made of, from the installed package."""
    return files(__package__).joinpath(name).read_text("utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    """The name of an inline style or script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


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
    """Pack episodes in the order given, within `most_bytes` (`MAX_BYTES`)."""
    left_out = _left_out(episodes, MAX_BYTES if most_bytes is None else most_bytes)
    spelled = [b"null" if place in left_out else episode.spelled for place, episode in enumerate(episodes)]
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
    size = sum(len(episode.squeezed) for episode in episodes) * _BASE64
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


def manifest_rows(manifest: Mapping[str, JsonValue]) -> list[JsonValue]:
    """What the run was, from its manifest with nothing added: `[[name, text], ...]`."""
    rows: list[JsonValue] = []
    created = manifest.get("created_at")
    if isinstance(created, (int, float)):
        rows.append(["begun", datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")])
    for part in ("matters", "about"):
        value = manifest.get(part)
        if isinstance(value, Mapping):
            rows += [[name.replace("_", " "), text[:_LONG]] for name, text in _rows(value)]
    return rows


def _rows(facts: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            if value:
                yield name, ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
        else:
            yield name, _fact(value)


def _fact(value: JsonValue) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
