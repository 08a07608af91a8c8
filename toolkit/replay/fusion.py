"""One ranking out of several: reciprocal rank fusion.

Decides order by places alone, so that a cosine and a BM25 score never have to be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DAMPING = 60  # Cormack, Clarke and Büttcher 2009: the usual constant


@dataclass(frozen=True, slots=True)
class Fused:
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
            places.setdefault(row, {})[name] = place
    scores = {row: _score(at) for row, at in places.items()}
    return [
        Fused(row, scores[row], places[row]) for row in sorted(scores, key=lambda row: (-scores[row], row))
    ]


def _score(places: Mapping[str, int]) -> float:
    found = list(places.values())
    if len(found) == 1:
        return 1 / (DAMPING + found[0])
    return sum([1 / (DAMPING + place) for place in sorted(found)])
