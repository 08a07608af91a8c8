"""A store in memory, for tests and for Python callers that need no file.

It implements the whole interface except durability: its rows end with the process.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import Embedder, Hit, HybridQuery, Room
from dreamgym_kit.replay.eviction import StoredRow, to_evict
from dreamgym_kit.replay.records import dump_transition, load_transition, storable
from dreamgym_kit.replay.retrieval import (
    best,
    fits,
    may_be_found,
    rarest,
    rarity,
    retrieve,
    sameness,
    score_words,
    search_text,
    terms_of,
)
from dreamgym_kit.types import Environment, Source, Transition


class MemoryStore:
    """Implements `interfaces.TransitionStore` over a dict; threads may share it.

    Each transition is stored as text, as in a file: changing an answer that was read does not change the
    stored one, and what has no JSON form is refused.
    """

    def __init__(self, *, path: Path | None = None, salted: bool = True) -> None:
        """Create an empty store.

        Args:
            path: the file that it represents, if any; `dreamgym.lock` is next to it.
            salted: whether equal secrets get equal marks (within this process).
        """
        self.path, self.salted = path, salted
        self._lines: dict[str, tuple[tuple[str, Environment, str, str], str]] = {}  # id -> (place, JSON)
        self._lock = threading.Lock()
        self._closed = False

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`."""
        rows: dict[str, tuple[tuple[str, Environment, str, str], str]] = {}
        with storable("memory"):
            for row in transitions:
                rows.setdefault(row.id, (_place(row), dump_transition(row)))
        with self._lock:
            self._refuse_closed()
            new = {name: row for name, row in rows.items() if name not in self._lines}
            self._lines.update(new)
        return len(new)

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """See `TransitionStore.exact`."""
        wanted = (tenant, environment, tool, key)
        return [load_transition(line) for place, line in self._rows() if place == wanted]

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows added during the scan are left out."""
        for (its_tenant, its_world, its_tool, _), line in self._rows():
            if tenant in (None, its_tenant) and environment in (None, its_world) and tool in (None, its_tool):
                yield load_transition(line)

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`; compares every row."""
        from dreamgym_kit.adapters.embedders.models import HashedEmbedder

        embedder = HashedEmbedder()
        rows = [load_transition(line) for _, line in self._rows()]
        texts = {number: search_text(row) for number, row in enumerate(rows) if may_be_found(row)}
        terms = {number: set(terms_of(text)) for number, text in texts.items()}

        def rank(sources: frozenset[Source], depth: int) -> Mapping[str, Sequence[int]]:
            narrowed = replace(query, sources=sources)
            allowed = [number for number in texts if fits(rows[number], narrowed)]
            rankings = {"words": _by_words(query.text, terms, allowed, depth)}
            if not query.words_only:
                rankings["vectors"] = _by_vectors(query.text, texts, allowed, embedder, depth)
            return rankings

        matches = retrieve(query, rank, lambda numbers: [sameness(rows[number]) for number in numbers])
        return [Hit(rows[match.row], match.score, match.places) for match in matches]

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        with self._lock:
            self._refuse_closed()
            rows = [load_transition(line) for _, line in self._lines.values()]
            candidates = [
                StoredRow(number, row.answer.source is Source.REAL, row.recorded_at)
                for number, row in enumerate(rows)
            ]
            leaving = to_evict(candidates, room, now=time.time() if now is None else now)
            for number in leaving:
                del self._lines[rows[number].id]
        return len(leaving)

    def remove(self, ids: Sequence[str]) -> int:
        """See `TransitionStore.remove`."""
        with self._lock:
            self._refuse_closed()
            return sum(self._lines.pop(name, None) is not None for name in ids)

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return len(self._rows())

    def close(self) -> None:
        """See `TransitionStore.close`."""
        with self._lock:
            self._closed = True
            self._lines.clear()

    def _rows(self) -> list[tuple[tuple[str, Environment, str, str], str]]:
        with self._lock:
            self._refuse_closed()
            return list(self._lines.values())

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreError("memory: this store was closed; its rows are gone")


def _place(transition: Transition) -> tuple[str, Environment, str, str]:
    call = transition.call
    return (transition.tenant, transition.environment, call.tool, call.key)


def _by_words(text: str, terms: Mapping[int, set[str]], allowed: Sequence[int], depth: int) -> list[int]:
    rows_with = Counter(term for has in terms.values() for term in has)
    rare = rarest(terms_of(text), rows_with)
    pairs = [
        (number, len(terms[number]), rarity(len(terms), rows_with[term]))
        for term in rare
        for number in allowed
        if term in terms[number]
    ]
    if not pairs:
        return []
    rows, lengths, weights = zip(*pairs, strict=True)
    average = sum(map(len, terms.values())) / len(terms)
    return best(*score_words(np.array(rows), np.array(lengths), np.array(weights), average), depth)


def _by_vectors(
    text: str, texts: Mapping[int, str], allowed: Sequence[int], embedder: Embedder, depth: int
) -> list[int]:
    if not allowed:
        return []
    vector = embedder.embed([text])[0]
    vectors = embedder.embed([texts[number] for number in allowed]).astype(np.float16).astype(np.float32)
    return best(np.array(allowed), vectors @ vector, depth)
