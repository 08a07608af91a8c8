"""BM25 over lists of rows, in numpy: the same arithmetic for a file and for memory.

A term counts once for a row, however often it stands there (the index of the file keeps no more).
SQLite's own `bm25()` is of no use for that: with `detail=none` and no content it is 0 for every row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.replay.terms import K1, B

Numbers = NDArray[np.int64]


def score_words(
    rows: Numbers, lengths: Numbers, weights: NDArray[np.float64], average: float
) -> tuple[Numbers, NDArray[np.float64]]:
    """Sum BM25 over the terms of a question.

    Args:
        rows: a row for each pair of a term and a row that has it, in any order.
        lengths: how many terms that row has.
        weights: the rarity of the term (`terms.rarity`).
        average: mean of terms over all rows.
    """
    parts = weights * (K1 + 1) / (1 + K1 * (1 - B + B * lengths / max(average, 1.0)))
    found, at = np.unique(rows, return_inverse=True)
    return found, np.bincount(at, weights=parts, minlength=len(found)).astype(np.float64)


def best(rows: Numbers, scores: NDArray[Any], depth: int) -> list[int]:
    """The rows with the highest scores, best first; equal to five digits: the one recorded first."""
    rounded = np.round(scores, 5)
    if len(rows) > depth:
        least = np.partition(rounded, len(rows) - depth)[len(rows) - depth]
        kept = rounded >= least
        rows, rounded = rows[kept], rounded[kept]
    order = np.lexsort((rows, -rounded))[:depth]
    found: list[int] = rows[order].tolist()
    return found
