"""Search the file: words with its full-text index, vectors and filters in memory.

Layout: nearly every query names a tool, so the rows of one tenant's tool form one block, and all of its
vectors are compared exactly: nothing is approximate and nothing needs rebuilding. Other filters are applied
only to the best few rows.

Freshness: before a search, rows that any process added or evicted since the last search are read
(`data_version` tells whether there are any; added and evicted rows have increasing numbers). Missing vectors
are computed and, if the file is writable, stored.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.stores.sqlite_file import damaged
from dreamgym_kit.adapters.stores.sqlite_rows import spelled
from dreamgym_kit.adapters.stores.sqlite_tables import in_halves, scope
from dreamgym_kit.interfaces import Embedder, HybridQuery
from dreamgym_kit.replay.retrieval import (
    Fused,
    Numbers,
    Vector,
    best,
    rarest,
    rarity,
    retrieve,
    score_words,
    search_text,
    terms_of,
)
from dreamgym_kit.types import Source, Transition

_PAGE = 4096
_MOST = 16.0  # embedders return unit vectors; a flipped bit gives thousands, whose squares overflow
_EMBEDDED = 256  # rows embedded at a time
_FEW = 1_000  # rows: fewer are faster to filter in memory than in SQLite
_STALE = 0.25  # recount words when the number of rows changed by this share
_SMALL = 2_000  # with fewer rows, recount at every change

_PLACES = f"""select p.seq, p.tenant, p.world, p.tool, p.episode, p.provenance, p.same, p.terms, v.vector
    from places p left join vectors v on v.seq = p.seq where p.seq > ? and p.found = 1
    order by p.seq limit {_PAGE}"""  # noqa: S608  # a constant
_KINDS = [int, str, str, str, str, str, int, int]  # types of these columns except the last
_COUNTS = "select term, doc from vocabulary where term in (select value from json_each(?))"

_BITS = {source.on_disk: 1 << number for number, source in enumerate(Source)}
_FACTS = np.dtype(
    [("same", "i8"), ("terms", "i8"), ("world", "i4"), ("episode", "i4"), ("source", "i2"), ("here", "?")],
    align=True,
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The filters of a query that blocks do not cover, encoded as in their columns."""

    sources: int  # bit mask
    environment: int | None
    not_episode: int | None


class _Growing:
    """A numpy array with spare capacity, which doubles when it is used up.

    The first filling allocates exactly its size, so that a buffer that is only read wastes nothing.
    """

    def __init__(self, dtype: Any, *width: int) -> None:
        self._room: NDArray[Any] = np.empty((0, *width), dtype=dtype)
        self._size = 0

    @property
    def used(self) -> NDArray[Any]:
        """Return the used rows as a view that later additions do not change."""
        return self._room[: self._size]

    def extend(self, values: NDArray[Any]) -> None:
        """Append rows."""
        size = self._size + len(values)
        if size > len(self._room):
            room = np.empty((max(size, 2 * self._size), *self._room.shape[1:]), dtype=self._room.dtype)
            room[: self._size] = self.used
            self._room = room
        self._room[self._size : size] = values
        self._size = size


class _Block:
    """One tenant's rows of one tool, in recording order."""

    def __init__(self, dimension: int) -> None:
        self.seqs = _Growing(np.int64)
        self.facts = _Growing(_FACTS)
        self.vectors = _Growing(np.float32, dimension)  # (rows, dimension); zeros where a vector is missing

    def find(self, seqs: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
        """Return a mask of the rows that are in this block, and their positions."""
        mine = self.seqs.used
        at = np.minimum(np.searchsorted(mine, seqs), len(mine) - 1)
        mask: NDArray[np.bool_] = mine[at] == seqs
        return mask, at[mask]

    def fits(self, at: Numbers, wanted: _Wanted) -> NDArray[np.bool_]:
        """Return a mask of the positions whose rows pass the filters."""
        facts = self.facts.used[at]
        fits: NDArray[np.bool_] = facts["here"] & ((facts["source"] & wanted.sources) != 0)
        if wanted.not_episode is not None:
            fits &= facts["episode"] != wanted.not_episode
        if wanted.environment is not None:
            fits &= facts["world"] == wanted.environment
        return fits

    def nearest(self, vector: Vector, wanted: _Wanted, depth: int) -> tuple[Numbers, Vector]:
        """Compare all vectors, then filter the best few, and more while too few pass."""
        scores = self.vectors.used @ vector
        few = 4 * depth
        while True:
            if few >= len(scores):
                near = np.arange(len(scores))
            else:
                # Rows within rounding error of the last one tie with it: recording order decides.
                least = np.partition(scores, len(scores) - few)[len(scores) - few]
                near = np.flatnonzero(scores >= least - 2e-5)
            fitting = near[self.fits(near, wanted)]
            if len(fitting) >= depth or few >= len(scores):
                return self.seqs.used[fitting], scores[fitting]
            few *= 8


class SqliteSearch:
    """The search index of one open store; threads may share it.

    Args:
        path: the file, for error messages.
        embedder: None: search by words only.
        select: queries the file and names it in errors.
        transitions: returns rows by number, without evicted ones.
        keep_vectors: stores computed vectors if the file is writable.
    """

    def __init__(
        self,
        path: Path,
        embedder: Embedder | None,
        *,
        select: Callable[[str, Sequence[object]], list[tuple[Any, ...]]],
        transitions: Callable[[Sequence[int]], dict[int, Transition]],
        keep_vectors: Callable[[Sequence[tuple[int, Vector]]], None],
    ) -> None:
        self._path = path
        self._embedder = embedder
        self._select = select
        self._transitions = transitions
        self._keep_vectors = keep_vectors
        self._dimension = embedder.dimension if embedder else 0
        self._lock = threading.Lock()
        self._blocks: dict[tuple[str, str], _Block] = {}  # by tenant and tool
        self._names: dict[str, int] = {}  # number of each episode and environment name
        self._rows = self._terms = 0  # searchable rows, and the number of their terms
        self._version = -1
        self._last = self._last_gone = 0
        self._without: list[int] = []  # rows without a vector, ascending
        self._rows_with: dict[str, int] = {}
        self._counted = (-1, 0)  # at the last count of words: number of rows, and the last row

    @property
    def has_vectors(self) -> bool:
        """Whether it has an embedder; without one it searches by words only."""
        return self._embedder is not None

    def best(self, query: HybridQuery) -> list[Fused]:
        """Return the best rows for a query; `Fused.row` is the row's number in the file."""
        embedder = None if query.words_only else self._embedder
        vector = None if embedder is None else embedder.embed([query.text])[0]
        terms = terms_of(query.text)
        with self._lock:
            self._refresh()
            if embedder is not None:
                self._embed_missing(embedder)
            blocks = self._blocks_of(query)

            def rank(sources: frozenset[Source], depth: int) -> Mapping[str, Sequence[int]]:
                wanted = self._wanted(query, sources)
                matches = self._matches(terms, query, real=Source.REAL in sources)
                rankings = {"words": self._by_words(matches, blocks, wanted, depth)}
                if vector is not None and blocks:
                    near = [block.nearest(vector, wanted, depth) for block in blocks]
                    rows, scores = map(np.concatenate, zip(*near, strict=True))
                    rankings["vectors"] = best(rows, scores, depth)
                return rankings

            return retrieve(query, rank, lambda rows: self._same(rows, blocks))

    def _by_words(
        self, matches: Mapping[str, float], blocks: Sequence[_Block], wanted: _Wanted, depth: int
    ) -> list[int]:
        """Return the best rows of weighted full-text queries."""
        parts = " union all ".join(
            f"select {number}, rowid from words where words match ?"  # noqa: S608  # a constant
            for number in range(len(matches))
        )
        pairs = self._select(parts, list(matches)) if matches else []
        if not pairs or not blocks:
            return []
        table = np.fromiter(chain.from_iterable(pairs), dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)
        weights = np.array(list(matches.values()))[table[:, 0]]
        fitting = []
        for block in blocks:
            mask, at = block.find(table[:, 1])
            fits = block.fits(at, wanted)
            fitting.append((table[mask, 1][fits], block.facts.used["terms"][at[fits]], weights[mask][fits]))
        rows, lengths, gains = map(np.concatenate, zip(*fitting, strict=True))
        return best(*score_words(rows, lengths, gains, self._terms / max(1, self._rows)), depth)

    def _matches(self, terms: Sequence[str], query: HybridQuery, *, real: bool) -> dict[str, float]:
        """Return the full-text queries and the weight that a matching row gains."""
        unknown = [term for term in terms if term not in self._rows_with]
        if unknown and self._last > self._counted[1]:  # rows added since the last count may have them
            self._rows_with.update(self._select(_COUNTS, (json.dumps(unknown),)))
        rare = {term: self._rows_with[term] for term in rarest(terms, self._rows_with)}
        tenant = spelled(query.tenant)
        scopes = [scope(tenant, real, tool=None if query.tool is None else spelled(query.tool))]
        if query.environment is not None:
            scopes.append(scope(tenant, real, environment=spelled(str(query.environment))))
        narrowed = "".join(f'"{word}" AND ' for word in scopes)
        return {
            f'"{term}"' if rows_with <= _FEW else f'{narrowed}"{term}"': rarity(self._rows, rows_with)
            for term, rows_with in rare.items()
        }

    def _same(self, rows: Sequence[int], blocks: Sequence[_Block]) -> Sequence[int]:
        """Return the `retrieval.sameness` of rows in these blocks."""
        seqs = np.array(rows, dtype=np.int64)
        marks = np.zeros(len(seqs), dtype=np.int64)
        for block in blocks:
            mask, at = block.find(seqs)
            marks[mask] = block.facts.used["same"][at]
        return marks.tolist()

    def _blocks_of(self, query: HybridQuery) -> list[_Block]:
        tenant = spelled(query.tenant)
        if query.tool is None:
            return [block for (its, _), block in self._blocks.items() if its == tenant]
        block = self._blocks.get((tenant, spelled(query.tool)))
        return [] if block is None else [block]

    def _wanted(self, query: HybridQuery, sources: frozenset[Source]) -> _Wanted:
        world, episode = query.environment, query.not_episode
        return _Wanted(
            sources=sum(_BITS[source.on_disk] for source in sources),
            environment=None if world is None else self._names.get(spelled(str(world)), -1),
            not_episode=None if episode is None else self._names.get(spelled(episode), -1),
        )

    def _refresh(self) -> None:
        ((version,),) = self._select("pragma data_version", ())
        if version == self._version:
            return
        while page := self._select(_PLACES, (self._last,)):
            self._add(page)
            if len(page) < _PAGE:
                break
        if self._without:  # vectors that another process computed
            query = "select seq, vector from vectors where seq >= ? order by seq"
            self._embed(self._select(query, (self._without[0],)))
        gone = self._select(
            "select number, seq from gone where number > ? order by number", (self._last_gone,)
        )
        if gone:
            self._drop([seq for _, seq in gone if isinstance(seq, int)])
            self._last_gone = gone[-1][0]
        rows = self._rows
        if rows <= _SMALL or abs(rows - self._counted[0]) > _STALE * self._counted[0]:
            self._rows_with = dict(self._select("select term, doc from vocabulary", ()))
            self._counted = (rows, self._last)
        self._version = version

    def _add(self, page: list[tuple[Any, ...]]) -> None:
        """Append a page of rows."""
        groups: dict[tuple[str, str], list[int]] = {}
        facts, last = [], self._last
        for at, row in enumerate(page):
            seq, tenant, world, tool, episode, source, same, terms, _ = row
            if [*map(type, row[:-1])] != _KINDS or source not in _BITS:
                raise damaged(self._path, f"row {seq}: its index entry is not valid")
            if seq <= last:  # pages of a damaged file can point back and loop forever
                raise damaged(self._path, f"row {seq} after row {last}")
            last = seq
            groups.setdefault((tenant, tool), []).append(at)
            facts.append((same, terms, self._name(world), self._name(episode), _BITS[source], True))
        vectors = np.zeros((len(page), self._dimension), dtype=np.float32)
        if self._embedder is not None:
            there = [at for at, row in enumerate(page) if row[-1] is not None]
            vectors[there] = self._vectors([(page[at][0], page[at][-1]) for at in there])
            self._without += [row[0] for row in page if row[-1] is None]
        seqs, columns = np.array([row[0] for row in page]), np.array(facts, dtype=_FACTS)
        for key, its in groups.items():
            if key not in self._blocks:
                self._blocks[key] = _Block(self._dimension)
            block = self._blocks[key]
            block.seqs.extend(seqs[its])
            block.facts.extend(columns[its])
            block.vectors.extend(vectors[its])
        self._last = last
        self._rows += len(page)
        self._terms += int(columns["terms"].sum())

    def _name(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def _drop(self, seqs: Sequence[int]) -> None:
        """Remove rows from the index; their vectors stay in memory and are never searched."""
        for block in self._blocks.values():
            _, at = block.find(np.array(seqs, dtype=np.int64))
            facts = block.facts.used
            at = at[facts["here"][at]]
            facts["here"][at] = False
            self._rows -= len(at)
            self._terms -= int(facts["terms"][at].sum())
        left = set(seqs)
        self._without = [seq for seq in self._without if seq not in left]

    def _embed(self, blobs: Sequence[tuple[int, Any]]) -> None:
        """Add missing vectors."""
        vectors, seqs = self._vectors(blobs), np.array([seq for seq, _ in blobs], dtype=np.int64)
        for block in self._blocks.values():
            mask, at = block.find(seqs)
            block.vectors.used[at] = vectors[mask]
        made = set(seqs.tolist())
        self._without = [seq for seq in self._without if seq not in made]

    def _vectors(self, blobs: Sequence[tuple[int, Any]]) -> Vector:
        """Decode vectors: (rows, dimension), float32."""
        for seq, blob in blobs:
            if not isinstance(blob, bytes) or len(blob) != 2 * self._dimension:
                raise damaged(self._path, f"row {seq}: its vector has another dimension")
        numbers = np.frombuffer(b"".join([blob for _, blob in blobs]), dtype="<f2").astype(np.float32)
        vectors = numbers.reshape(len(blobs), self._dimension)
        right = np.abs(vectors).max(axis=1, initial=0) <= _MOST  # NaN fails the comparison, too
        if not right.all():
            seq = blobs[int(right.argmin())][0]
            raise damaged(self._path, f"row {seq}: its vector has a value that no embedder returns")
        return vectors

    def _embed_missing(self, embedder: Embedder) -> None:
        while seqs := self._without[:_EMBEDDED]:
            rows = self._transitions(seqs)
            self._drop([seq for seq in seqs if seq not in rows])  # evicted by another process meanwhile
            seqs = [seq for seq in seqs if seq in rows]
            vectors = embedder.embed([search_text(rows[seq]) for seq in seqs])
            self._keep_vectors(list(zip(seqs, vectors, strict=True)))
            self._embed([(seq, in_halves(vector)) for seq, vector in zip(seqs, vectors, strict=True)])
