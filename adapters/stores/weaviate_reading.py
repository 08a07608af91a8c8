"""Reading the rows of one tenant: in the order recorded a page at a time, by their ids, and counting them.

The server pages by a cursor only where nothing is filtered, and gives 10,000 rows at most. So a page is
what comes next in the order recorded: that property has an index which keeps its order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dreamgym_kit.adapters.stores.weaviate_errors import TOO_LARGE
from dreamgym_kit.adapters.stores.weaviate_rows import (
    READ,
    Asked,
    Found,
    filter_of,
    query_filter,
    read_object,
)
from dreamgym_kit.adapters.stores.weaviate_server import WeaviateServer
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.replay.eviction import StoredRow
from dreamgym_kit.types import Source, Split

PAGE = 256  # rows with their payload
_BARE_PAGE = 5_000  # rows without it; the server gives 10,000 at most
_EMBEDDED = 64  # rows that are given their vectors at a time


@dataclass(frozen=True, slots=True)
class Tenant:
    """One buffer on its server."""

    server: WeaviateServer
    collection: str
    name: str
    consistency: str  # "ONE", "QUORUM" or "ALL": how many replicas have to agree

    def of(self, client: Any) -> Any:
        """The client's own handle of it."""
        from weaviate.classes.config import ConsistencyLevel

        rows = client.collections.use(self.collection).with_tenant(self.name)
        return rows.with_consistency_level(ConsistencyLevel(self.consistency))

    def search(self, doing: str, question: Callable[[Any], Any]) -> list[Any]:
        """Ask one of the client's queries; gives the objects."""
        objects: list[Any] = self.server.ask(doing, lambda client: question(self.of(client).query)).objects
        return objects


def read_rows(at: Tenant, wanted: Asked, *, upto: int | None = None) -> Iterator[Found]:
    """The rows that are as asked, in the order recorded.

    Args:
        at: the buffer.
        wanted: what they have to be.
        upto: the last place in that order that is of interest.
    """
    after, size = -1, PAGE
    while True:
        try:
            objects = _page(at, wanted, after, upto, size)
        except StoreError as error:
            if TOO_LARGE not in str(error) or size == 1:
                raise
            size = max(1, size // 4)  # large rows: fewer of them fit into one message
            continue
        rows = sorted((read_object(at.server.place, item, wanted) for item in objects), key=_number)
        whole = len(rows) < size
        if not whole and size > 1:  # of rows with one place, written by two at once, all or none
            last = rows[-1].order
            rows = [row for row in rows if row.order < last] or rows
        yield from rows
        if whole:
            return
        after = rows[-1].order


def newest(at: Tenant) -> int | None:
    """The last place in the order recorded that is taken."""
    from weaviate.classes.query import Sort

    (last,) = at.search(
        "reading its newest row",
        lambda query: query.fetch_objects(
            limit=1,
            filters=filter_of({}),
            sort=Sort.by_property("order", ascending=False),
            return_properties=["order"],
        ),
    ) or (None,)
    return None if last is None else int(last.properties["order"])


def first_rows(at: Tenant, query: HybridQuery, sources: frozenset[Source], depth: int) -> list[Any]:
    """The first rows that a search may find, for a question that is like none more than another."""
    from weaviate.classes.query import Sort

    return at.search(
        "searching",
        lambda objects: objects.fetch_objects(
            limit=depth,
            filters=query_filter(query, sources),
            sort=Sort.by_property("order"),
            return_properties=list(READ),
        ),
    )


def known_ids(at: Tenant, names: Sequence[str]) -> set[str]:
    """Those of the ids that there are."""
    from weaviate.classes.query import Filter

    objects = at.search(
        "looking which rows it has",
        lambda query: query.fetch_objects(
            limit=len(names), filters=Filter.by_id().contains_any(list(names)), return_properties=["order"]
        ),
    )
    return {str(item.uuid) for item in objects}


def without_vectors(at: Tenant) -> list[tuple[Any, Found]]:
    """Some rows that search may find and that have no vector yet, with all their properties."""
    from weaviate.classes.query import Filter

    filters = filter_of({"split": str(Split.TRAIN)}, Filter.by_property("embedded").equal(False))
    objects = at.search(
        "looking for rows without vectors",
        lambda query: query.fetch_objects(limit=_EMBEDDED, filters=filters),
    )
    return [(item, read_object(at.server.place, item, Asked())) for item in objects]


def eviction_rows(at: Tenant) -> list[tuple[str, StoredRow]]:
    """Of every row, its id and what eviction asks, in the order recorded."""
    from weaviate.classes.query import Filter, Sort

    rows: dict[tuple[int, str], tuple[bool, float]] = {}
    after, more = -1, True
    while more:
        options = {
            "limit": _BARE_PAGE,
            "filters": Filter.by_property("order").greater_or_equal(after),
            "sort": Sort.by_property("order"),
            "return_properties": ["order", "provenance", "recorded_at"],
        }
        objects = at.search("reading what may leave", partial(_fetched, **options))
        before = len(rows)
        for item in objects:
            order, made, at_s = (item.properties[name] for name in ("order", "provenance", "recorded_at"))
            rows[int(order), str(item.uuid)] = (made == Source.REAL, float(at_s))
            after = max(after, int(order))
        more = len(objects) == _BARE_PAGE and len(rows) > before
    ordered = sorted(rows.items())
    return [(name, StoredRow(place, real, at_s)) for place, ((_, name), (real, at_s)) in enumerate(ordered)]


def count(at: Tenant, *more: Any) -> int:
    """How many rows meet these filters.

    Counting without any filter asks every replica of the server, and fails where one of them is down.
    """
    filters = filter_of({}, *more)
    answer = at.server.ask(
        "counting",
        lambda client: at.of(client).aggregate.over_all(total_count=True, filters=filters),
    )
    return int(answer.total_count or 0)


def _page(at: Tenant, wanted: Asked, after: int, upto: int | None, size: int) -> list[Any]:
    from weaviate.classes.query import Filter, Sort

    bounds = [Filter.by_property("order").greater_than(after)]
    if upto is not None:
        bounds.append(Filter.by_property("order").less_or_equal(upto))
    return at.search(
        "reading rows",
        lambda query: query.fetch_objects(
            limit=size,
            filters=filter_of(wanted.names(), *bounds),
            sort=Sort.by_property("order"),
            return_properties=list(READ),
        ),
    )


def _fetched(query: Any, **options: Any) -> Any:
    return query.fetch_objects(**options)


def _number(row: Found) -> int:
    return row.number
