"""One ranking out of several: reciprocal rank fusion.

Decides order by places alone, so that a cosine and a BM25 score never have to be compared.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

DAMPING = 60  # Cormack, Clarke and Büttcher 2009: the usual constant


class Fused(NamedTuple):
    """A row, its fused score and its 1-based place in each ranking that had it."""

    row: int
    score: float
    places: Mapping[str, int]


def fuse(rankings: Mapping[str, Sequence[int]]) -> list[Fused]:
    """Rank rows by the sum of 1 / (60 + place); equal sums by row number.

    Args:
        rankings: rows best first, by the name of the ranking; a row is at most once in each.
    """
    places: dict[int, dict[str, int]] = {}
    for name, rows in rankings.items():
        for place, row in enumerate(rows, 1):
            if row in places:
                places[row][name] = place
            else:
                places[row] = {name: place}
    ranked = sorted([(-_score(list(at.values())), row) for row, at in places.items()])
    return [Fused(row, -score, places[row]) for score, row in ranked]


def _score(places: list[int]) -> float:
    if len(places) == 1:
        return 1 / (DAMPING + places[0])
    return sum([1 / (DAMPING + place) for place in sorted(places)])
