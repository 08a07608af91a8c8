"""What search knows of every row, in memory: where it belongs, and its vector beside those of its tool.

Decides the layout. A question nearly always names a tool, so the vectors of one tenant's tool lie in one
block and are all compared, exactly; nothing is approximated and nothing has to be rebuilt. The facts that
filters ask for are columns over all rows, looked at only for the best few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.replay.retrieval import Numbers, best
from dreamgym_kit.types import Source


class Growing:
    """A numpy array with room at its end: the room doubles when it is used up.

    The first filling takes just what it needs, so that a buffer that is only read wastes nothing.
    """

    def __init__(self, dtype: type[np.generic], width: int | None = None) -> None:
        self._room: NDArray[Any] = np.empty((0,) if width is None else (0, width), dtype=dtype)
        self._size = 0

    @property
    def used(self) -> NDArray[Any]:
        """What was put in so far; stays what it is while more is added."""
        return self._room[: self._size]

    def extend(self, values: NDArray[Any]) -> None:
        """Add rows at the end."""
        size = self._size + len(values)
        if size > len(self._room):
            room = np.empty((max(size, 2 * self._size), *self._room.shape[1:]), dtype=self._room.dtype)
            room[: self._size] = self.used
            self._room = room
        self._room[self._size : size] = values
        self._size = size


_SOURCES = list(Source)
_NUMBER = {source.on_disk: number for number, source in enumerate(_SOURCES)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row belongs; names are spelled as the file spells them."""

    seq: int  # rising
    tenant: str
    environment: str
    tool: str
    episode: str
    source: str
    same: int
    terms: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of a query; names are spelled as the file spells them."""

    tenant: str
    tool: str | None
    environment: str | None
    not_episode: str | None
    sources: frozenset[Source]


class _Block:
    """One tenant's rows of one tool."""

    def __init__(self, dimension: int) -> None:
        self.members = Growing(np.int64)  # positions among all rows
        self.vectors = Growing(np.float32, dimension)  # of zeros where there is none yet


class RowIndex:
    """All rows that may be found; grows at the end, and rows can be dropped."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._columns = {name: Growing(np.int64) for name in ("seq", "block", "at", "same", "terms")}
        self._columns |= {name: Growing(np.int64) for name in ("episode", "world")}
        self._provenance = Growing(np.int8)
        self._alive = Growing(np.bool_)
        self._embedded = Growing(np.bool_)
        self._blocks: list[_Block] = []
        self._number: dict[tuple[str, str], int] = {}  # (tenant, tool) -> block
        self._names: dict[str, int] = {}  # of episodes and worlds
        self._terms = 0
        self.rows = 0  # dropped ones left out

    @property
    def average_terms(self) -> float:
        """Mean of terms over all rows."""
        return self._terms / max(1, self.rows)

    def extend(
        self, places: Sequence[Place], embedded: NDArray[np.bool_], vectors: NDArray[np.float32]
    ) -> None:
        """Add rows behind those that are there.

        Args:
            places: where they belong.
            embedded: which of them have a vector.
            vectors: of those that have one.
        """
        if not places:
            return
        first = len(self._alive.used)
        blocks = [self._block(place) for place in places]
        at = np.empty(len(places), dtype=np.int64)
        numbers = np.array(blocks)
        given = np.zeros((len(places), self._dimension), dtype=np.float32)
        given[embedded] = vectors
        for number in np.unique(numbers):
            new = np.flatnonzero(numbers == number)
            block = self._blocks[number]
            at[new] = len(block.members.used) + np.arange(len(new))
            block.members.extend(first + new)
            block.vectors.extend(given[new])
        values = {
            "seq": [place.seq for place in places],
            "same": [place.same for place in places],
            "terms": [place.terms for place in places],
            "episode": [self._name(place.episode) for place in places],
            "world": [self._name(place.environment) for place in places],
        }
        for name, column in values.items():
            self._columns[name].extend(np.array(column, dtype=np.int64))
        self._columns["block"].extend(numbers)
        self._columns["at"].extend(at)
        self._provenance.extend(np.array([_NUMBER[place.source] for place in places], dtype=np.int8))
        self._alive.extend(np.ones(len(places), dtype=np.bool_))
        self._embedded.extend(embedded)
        self._terms += sum(values["terms"])
        self.rows += len(places)

    def embed(self, seq: int, vector: NDArray[np.float32]) -> None:
        """Give a row the vector that it did not have."""
        for position in self._positions(np.array([seq])):
            block = self._blocks[self._columns["block"].used[position]]
            block.vectors.used[self._columns["at"].used[position]] = vector
            self._embedded.used[position] = True

    def drop(self, seqs: Sequence[int]) -> None:
        """Forget rows; their vectors stay where they are and are never found again."""
        positions = self._positions(np.array(seqs, dtype=np.int64))
        self._terms -= int(self._columns["terms"].used[positions].sum())
        self._alive.used[positions] = False
        self.rows -= len(positions)

    def same(self, seqs: Sequence[int]) -> list[int]:
        """See `retrieval.sameness`; of rows that are there."""
        positions = self._positions(np.array(seqs, dtype=np.int64))
        marks: list[int] = self._columns["same"].used[positions].tolist()
        return marks

    def fitting(self, seqs: Numbers, wanted: Wanted) -> tuple[NDArray[np.bool_], Numbers]:
        """Which of these rows a query may find, and how many terms each of those has."""
        place, known = self._places(seqs)
        blocks = self._blocks_of(wanted)
        if not len(place) or not blocks:
            return np.zeros(len(seqs), dtype=np.bool_), np.empty(0, dtype=np.int64)
        its = self._columns["block"].used[place]
        fits = known & (its == blocks[0] if len(blocks) == 1 else np.isin(its, blocks))
        fits[fits] = self._fits(place[fits], wanted)
        return fits, self._columns["terms"].used[place[fits]]

    def nearest(self, vector: NDArray[np.float32], wanted: Wanted, depth: int) -> list[int]:
        """The rows whose vectors are most like `vector`, best first."""
        seqs, scores = [], []
        for number in self._blocks_of(wanted):
            rows, score = self._nearest_of(self._blocks[number], vector, wanted, depth)
            seqs.append(rows)
            scores.append(score)
        if not seqs:
            return []
        return best(np.concatenate(seqs), np.concatenate(scores), depth)

    def _nearest_of(
        self, block: _Block, vector: NDArray[np.float32], wanted: Wanted, depth: int
    ) -> tuple[Numbers, NDArray[np.float32]]:
        """Compare all, look at the filters of the best few, and at more of them while too few fit."""
        scores = block.vectors.used @ vector
        members, few = block.members.used, 4 * depth
        while True:
            if few >= len(scores):
                near = np.arange(len(scores))
            else:
                # Rows within rounding of the last one belong to it: which of them counts is by their order.
                least = np.partition(scores, len(scores) - few)[len(scores) - few]
                near = np.flatnonzero(scores >= least - 2e-5)
            positions = members[near]
            fits = self._fits(positions, wanted) & self._embedded.used[positions]
            if np.count_nonzero(fits) >= depth or few >= len(scores):
                return self._columns["seq"].used[positions[fits]], scores[near[fits]]
            few *= 8

    def _fits(self, positions: Numbers, wanted: Wanted) -> NDArray[np.bool_]:
        """The filters that a block does not answer."""
        allowed = _allowed(wanted.sources)
        fits: NDArray[np.bool_] = self._alive.used[positions] & allowed[self._provenance.used[positions]]
        if wanted.not_episode is not None:
            fits &= self._columns["episode"].used[positions] != self._names.get(wanted.not_episode, -1)
        if wanted.environment is not None:
            fits &= self._columns["world"].used[positions] == self._names.get(wanted.environment, -1)
        return fits

    def _positions(self, seqs: Numbers) -> Numbers:
        """Where these rows are; those that nobody knows are left out."""
        place, known = self._places(seqs)
        return place[known]

    def _places(self, seqs: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """Where these rows are, or some place, and which of them are there; nowhere while there are none."""
        rows = self._columns["seq"].used
        if not len(rows):
            return np.empty(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        if rows[-1] - rows[0] == len(rows) - 1:  # none left, none held out: no need to look for them
            place = seqs - rows[0]
            np.maximum(place, 0, out=place)  # np.clip takes three times as long for a few
            np.minimum(place, len(rows) - 1, out=place)
        else:
            place = np.minimum(np.searchsorted(rows, seqs), len(rows) - 1)
        return place, rows[place] == seqs

    def _blocks_of(self, wanted: Wanted) -> list[int]:
        if wanted.tool is not None:
            number = self._number.get((wanted.tenant, wanted.tool))
            return [] if number is None else [number]
        return [number for (tenant, _), number in self._number.items() if tenant == wanted.tenant]

    def _block(self, place: Place) -> int:
        number = self._number.setdefault((place.tenant, place.tool), len(self._blocks))
        if number == len(self._blocks):
            self._blocks.append(_Block(self._dimension))
        return number

    def _name(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))


@lru_cache(maxsize=64)
def _allowed(sources: frozenset[Source]) -> NDArray[np.bool_]:
    """By the number of a provenance, whether it is among these."""
    return np.array([source in sources for source in _SOURCES])
