"""Search over the file: words from its full-text index, vectors and filters from memory.

Decides freshness: before a search the rows that any process added or evicted since the last one are read
(`data_version` says whether there are any; rows have rising numbers, and so have those that left). Vectors
that are missing are made and, where the file can be written, kept.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.stores.row_index import Place, RowIndex, Wanted
from dreamgym_kit.adapters.stores.sqlite_errors import damaged
from dreamgym_kit.adapters.stores.sqlite_places import scope
from dreamgym_kit.adapters.stores.sqlite_rows import spelled
from dreamgym_kit.interfaces import Embedder, HybridQuery
from dreamgym_kit.replay.retrieval import Fused, best, retrieve, score_words
from dreamgym_kit.replay.terms import ASKED, rarest, rarity, search_text, terms_of
from dreamgym_kit.types import Source, Transition

_PAGE = 4096
_MOST = 16.0  # embedders give unit vectors; a flipped bit gives thousands, whose squares overflow
_EMBEDDED = 256  # rows embedded at a time
_FEW = 1_000  # rows: so few are filtered in memory sooner than SQLite walks the rows of a tool
_STALE = 0.25  # words are counted again when the rows have grown or shrunk by this share
_KINDS = (int, str, str, str, str, str, int, int)  # of the fields of `Place`, in their order
_SOURCES = frozenset(source.on_disk for source in Source)
_SMALL = 2_000  # up to so many rows they are counted at every change
_FRESH = 32  # so few new rows are read for their words at once

_PLACES = f"""select p.seq, p.tenant, p.world, p.tool, p.episode, p.provenance, p.same, p.terms, v.vector
    from places p left join vectors v on v.seq = p.seq where p.seq > ? and p.found = 1
    order by p.seq limit {_PAGE}"""  # noqa: S608  # our own number


@dataclass(frozen=True, slots=True)
class SearchSource:
    """What the search needs of the store that it belongs to."""

    path: Path
    select: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]  # errors are named
    transitions: Callable[[Sequence[int]], dict[int, Transition]]  # those that are not gone
    keep_vectors: Callable[[Sequence[tuple[int, NDArray[np.float32]]]], None]  # where that can be


class SqliteSearch:
    """The index of one open store; threads may share it."""

    def __init__(self, source: SearchSource, embedder: Embedder | None) -> None:
        self._path = source.path
        self._source = source
        self._embedder = embedder
        self._index = RowIndex(embedder.dimension if embedder else 0)
        self._lock = threading.Lock()
        self._version = -1
        self._last = self._last_gone = 0
        self._without: list[int] = []  # rows without a vector, rising
        self._rows_with: dict[str, int] = {}
        self._counted_at = -1  # how many rows there were when words were counted
        self._uncounted = False  # whether rows came since whose words nobody read

    @property
    def has_vectors(self) -> bool:
        """Whether an embedder is at hand; without one it can be asked by words only."""
        return self._embedder is not None

    def best(self, query: HybridQuery) -> list[Fused]:
        """The best rows for a query; `Fused.row` is their number in the file."""
        by_vector = self._embedder is not None and not query.words_only
        vector = self._embedder.embed([query.text])[0] if self._embedder and by_vector else None
        terms = terms_of(query.text)
        with self._lock:
            self._refresh()
            if by_vector:
                self._embed_missing()

            def rank(sources: frozenset[Source], depth: int) -> Mapping[str, Sequence[int]]:
                wanted = _wanted(query, sources)
                rankings = {"words": self._by_words(terms, wanted, depth)}
                if vector is not None:
                    rankings["vectors"] = self._index.nearest(vector, wanted, depth)
                return rankings

            return retrieve(query, rank, self._index.same)

    def _by_words(self, terms: Sequence[str], wanted: Wanted, depth: int) -> list[int]:
        rare = [*rarest(terms, self._rows_with), *self._new_terms(terms)]
        if not rare:
            return []
        scopes = _scopes(wanted)
        matches = [
            f'"{term}"' if self._rows_with.get(term, 1) <= _FEW else f'{scopes} AND "{term}"' for term in rare
        ]
        parts = " union all ".join(
            f"select {number}, rowid from words where words match ?"  # noqa: S608  # a number of ours
            for number in range(len(rare))
        )
        pairs = self._source.select(parts, matches)
        if not pairs:
            return []
        table = np.fromiter(chain.from_iterable(pairs), dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)
        fits, lengths = self._index.fitting(table[:, 1], wanted)
        weights = np.array([rarity(self._index.rows, self._rows_with.get(term, 1)) for term in rare])
        rows, numbers = table[fits, 1], table[fits, 0]
        return best(*score_words(rows, lengths, weights[numbers], self._index.average_terms), depth)

    def _new_terms(self, terms: Sequence[str]) -> list[str]:
        """Terms that only rows can have that came after words were counted; to look for them costs time."""
        if not self._uncounted:
            return []
        return [term for term in terms if term not in self._rows_with][:ASKED]

    def _refresh(self) -> None:
        ((version,),) = self._source.select("pragma data_version", ())
        if version == self._version:
            return
        whole = _PAGE
        fresh: list[int] = []
        while whole == _PAGE:
            page = self._source.select(_PLACES, (self._last,))
            whole, fresh = len(page), [*fresh[: _FRESH + 1], *(row[0] for row in page)]
            if page:
                self._add(page)
        self._read_vectors()
        self._read_gone()
        self._count_words(fresh)
        self._version = version

    def _read_vectors(self) -> None:
        """Vectors that another process made of rows that are known here."""
        if self._without:
            query = "select seq, vector from vectors where seq >= ? order by seq"
            made = dict(self._source.select(query, (self._without[0],)))
            for seq, blob in made.items():
                vector = self._vector(seq, blob)
                if vector is not None:
                    self._index.embed(seq, vector)
            self._without = [seq for seq in self._without if seq not in made]

    def _read_gone(self) -> None:
        gone = self._source.select("select number, seq from gone where number > ?", (self._last_gone,))
        if gone:
            left = {seq for _, seq in gone if isinstance(seq, int)}
            self._last_gone = max(number for number, _ in gone)
            self._index.drop(sorted(left))
            self._without = [seq for seq in self._without if seq not in left]

    def _add(self, page: list[tuple[Any, ...]]) -> None:
        self._check_places(page)
        for seq, *_ in page:
            if seq <= self._last:  # pages of a damaged file can point back: without this, for ever
                raise damaged(self._path, f"row {seq} after row {self._last}")
            self._last = seq
        blobs = [(row[0], row[-1]) for row in page if row[-1] is not None]
        self._without += [row[0] for row in page if row[-1] is None]
        embedded = np.array([self._embedder is not None and row[-1] is not None for row in page])
        self._index.extend([Place(*row[:-1]) for row in page], embedded, self._vectors(blobs))

    def _check_places(self, page: list[tuple[Any, ...]]) -> None:
        """Look at whole columns, and at rows only to say which one is wrong."""
        *columns, _ = zip(*page, strict=True)
        right = all(set(map(type, column)) == {kind} for column, kind in zip(columns, _KINDS, strict=True))
        if right and _SOURCES.issuperset(columns[5]):
            return
        for seq, *row in page:
            types = tuple(map(type, (seq, *row[:-1])))
            if types != _KINDS or row[4] not in _SOURCES:
                raise damaged(self._path, f"row {seq}: no place where it belongs")

    def _vectors(self, blobs: Sequence[tuple[int, Any]]) -> NDArray[np.float32]:
        """The vectors of rows, all at once, one after the other where that does not go well."""
        if self._embedder is None or not blobs:
            return np.zeros((0, self._embedder.dimension if self._embedder else 0), dtype=np.float32)
        size = 2 * self._embedder.dimension
        if all(type(blob) is bytes and len(blob) == size for _, blob in blobs):
            raw = b"".join([blob for _, blob in blobs])
            vectors = np.frombuffer(raw, dtype="<f2").astype(np.float32).reshape(len(blobs), -1)
            if np.abs(vectors).max() <= _MOST:  # no number that is none passes this either
                return vectors
        return np.array([self._vector(seq, blob) for seq, blob in blobs])

    def _vector(self, seq: int, blob: object) -> NDArray[np.float32] | None:
        if self._embedder is None:
            return None
        if not isinstance(blob, bytes) or len(blob) != 2 * self._embedder.dimension:
            raise damaged(self._path, f"row {seq}: a vector of another size")
        vector = np.frombuffer(blob, dtype="<f2").astype(np.float32)
        if not np.isfinite(vector).all() or np.abs(vector).max() > _MOST:
            raise damaged(self._path, f"row {seq}: a vector with a number that no embedder writes")
        return vector

    def _embed_missing(self) -> None:
        if self._embedder is None:
            return
        while self._without:
            seqs = self._without[:_EMBEDDED]
            rows = self._source.transitions(seqs)
            if len(rows) < len(seqs):  # evicted by another process just now: the next refresh says which
                self._version = -1
                return
            vectors = self._embedder.embed([search_text(rows[seq]) for seq in seqs])
            pairs = list(zip(seqs, vectors, strict=True))
            self._source.keep_vectors(pairs)
            for seq, vector in pairs:
                self._index.embed(seq, vector.astype(np.float16).astype(np.float32))
            self._without = self._without[len(seqs) :]

    def _count_words(self, fresh: Sequence[int]) -> None:
        """Count all words now and then, those of a few new rows at once."""
        rows = self._index.rows
        changed = abs(rows - self._counted_at)
        known = not self._uncounted
        self._uncounted = self._uncounted or bool(fresh)  # until it is done: reading may fail
        if self._counted_at < 0 or rows <= _SMALL or changed > _STALE * self._counted_at:
            self._rows_with = dict(self._source.select("select term, doc from vocabulary", ()))
            self._counted_at, self._uncounted = rows, False
        elif fresh and len(fresh) <= _FRESH:
            for row in self._source.transitions(fresh).values():
                for term in terms_of(search_text(row)):
                    self._rows_with[term] = self._rows_with.get(term, 0) + 1
            self._uncounted = not known


def _wanted(query: HybridQuery, sources: frozenset[Source]) -> Wanted:
    return Wanted(
        tenant=spelled(query.tenant),
        tool=None if query.tool is None else spelled(query.tool),
        environment=None if query.environment is None else spelled(str(query.environment)),
        not_episode=None if query.not_episode is None else spelled(query.not_episode),
        sources=sources,
    )


def _scopes(wanted: Wanted) -> str:
    real = Source.REAL in wanted.sources
    words = [scope(wanted.tenant, real, tool=wanted.tool)]
    if wanted.environment is not None:
        words.append(scope(wanted.tenant, real, environment=wanted.environment))
    return " AND ".join(f'"{word}"' for word in words)
