"""Search on a Weaviate server: it ranks by words (BM25) and by vectors, the kit makes one list of both.

Fused here and not by the server's own hybrid query, so that hits say where they stood in each ranking, rows
that say the same are said once, and a buffer answers by the same rules wherever it lies.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.stores.weaviate_reading import Tenant, first_rows
from dreamgym_kit.adapters.stores.weaviate_rows import (
    READ,
    VECTOR,
    Asked,
    Found,
    check_match,
    query_filter,
    read_object,
)
from dreamgym_kit.interfaces import Hit, HybridQuery
from dreamgym_kit.replay.retrieval import retrieve, sameness, terms_of
from dreamgym_kit.types import Source, Transition

_MAX_TERMS = 64  # of a question, the most telling parts come first; the server skips what cannot win


def find(at: Tenant, query: HybridQuery, vector: NDArray[np.float32] | None) -> list[Hit]:
    """The best rows for a query.

    Args:
        at: the buffer.
        query: what is looked for.
        vector: the vector of its text; None: by words only.

    Raises:
        StoreError: the server gave a row that does not fit.
    """
    terms = " ".join(terms_of(query.text)[:_MAX_TERMS])
    seen: dict[int, Transition] = {}

    def numbers(ranked: Sequence[tuple[float, Any]]) -> list[int]:
        rows = [(score, read_object(at.server.place, item, Asked())) for score, item in ranked]
        for _, row in rows:
            check_match(at.server.place, row, query)
            seen[row.number] = row.transition
        return [row.number for _, row in sorted(rows, key=_best_first)]

    def rank(sources: frozenset[Source], depth: int) -> Mapping[str, Sequence[int]]:
        depth = min(depth, 10_000)  # the server gives no more
        rankings = {"words": numbers(_by_words(at, query, terms, sources, depth))}
        if vector is not None:
            rankings["vectors"] = numbers(_by_vectors(at, query, vector, sources, depth))
        return rankings

    matches = retrieve(query, rank, lambda rows: [sameness(seen[row]) for row in rows])
    return [Hit(seen[match.row], match.score, match.places) for match in matches]


def _by_words(
    at: Tenant, query: HybridQuery, terms: str, sources: frozenset[Source], depth: int
) -> list[tuple[float, Any]]:
    from weaviate.classes.query import MetadataQuery

    if not terms:
        return []
    objects = at.search(
        "searching by words",
        lambda objects: objects.bm25(
            terms,
            query_properties=["terms"],
            filters=query_filter(query, sources),
            limit=depth,
            return_metadata=MetadataQuery(score=True),
            return_properties=list(READ),
        ),
    )
    return [(-float(item.metadata.score or 0.0), item) for item in objects]


def _by_vectors(
    at: Tenant,
    query: HybridQuery,
    vector: NDArray[np.float32],
    sources: frozenset[Source],
    depth: int,
) -> list[tuple[float, Any]]:
    from weaviate.classes.query import MetadataQuery

    if not vector.any():  # it says nothing: no row is nearer than another
        return [(0.0, item) for item in first_rows(at, query, sources, depth)]
    objects = at.search(
        "searching by vectors",
        lambda rows: rows.near_vector(
            vector.tolist(),
            target_vector=VECTOR,
            filters=query_filter(query, sources),
            limit=depth,
            return_metadata=MetadataQuery(distance=True),
            return_properties=list(READ),
        ),
    )
    return [(float(item.metadata.distance or 0.0), item) for item in objects]


def _best_first(ranked: tuple[float, Found]) -> tuple[float, int]:
    """Equal to five digits: the one recorded first."""
    score, row = ranked
    return (round(score, 5), row.number)
