"""A buffer on a Weaviate server: a tenant of its collection, shared by any number of machines.

The server has no transactions, so these are the guarantees. A put checks which rows exist and sends the rest
in parts, each acknowledged by as many replicas as `consistency` requires. If the server refuses a row, or
fails midway, others may be stored and the error says so. Nothing is rolled back: another process may have
seen the rows. Rows of an interrupted put, and rows from the outbox, are resent even if their IDs are known:
the indexes may miss them. If two processes put a new row at once, both count it, but it is stored once.
Recording order follows the writers' clocks and never precedes stored rows. A row's vector may be added later:
a recording is worth more than its vector.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.embedders.choosing import FileEmbedder
from dreamgym_kit.adapters.stores.weaviate_rows import (
    READ,
    VECTOR,
    Conditions,
    Row,
    damaged,
    filter_of,
    named,
    number_of_object,
    object_of,
    read_object,
    row_of,
    uuid_of,
)
from dreamgym_kit.adapters.stores.weaviate_server import TOO_LARGE, WeaviateServer
from dreamgym_kit.adapters.stores.weaviate_tenant import BARE, Tenant, again
from dreamgym_kit.errors import NotSerializable, StoreError, StoreUnavailable, UserError
from dreamgym_kit.interfaces import Embedder, Hit, HybridQuery, Room
from dreamgym_kit.replay.eviction import Crowding, StoredRow, to_evict
from dreamgym_kit.replay.retrieval import fits, rarest, retrieve, sameness, search_text, terms_of
from dreamgym_kit.settings.buffer_url import COLLECTION, TENANT
from dreamgym_kit.types import Environment, Source, Split, Transition

_PAGE = 256  # rows read at a time
_PART = 200  # rows sent at a time
_EMBEDDED = 64  # rows embedded at a time
_TURN_S = 60.0  # maximum wait for other threads of the store
_RECHECK_S = 60.0  # between looks for rows of other processes
_RECENT, _SMALL = 2_000, 16_000  # maximum cached objects, and characters of each
_UNKNOWN = 64  # maximum query words without counted rows: uncounted rows may have them


class WeaviateStore:
    """Implements `interfaces.TransitionStore` on a server; threads may share it.

    Missing collections and tenants are created, unless the store is `read_only`: then a misspelled name is an
    error. Rows beyond `room` are evicted after every 1,000 rows put, and on closing. `replicas` and `flat`
    (vectors are compared one by one) apply to a collection created here.

    Raises:
        StoreUnavailable: the server does not answer.
        StoreError: it refuses; the collection or tenant does not exist, is newer, or is not dreamgym-kit's.
    """

    far = True  # see `factory.is_far`

    def __init__(
        self,
        server: WeaviateServer,
        *,
        collection: str = COLLECTION,
        tenant: str = TENANT,
        read_only: bool = False,
        embedder: Embedder | None = None,
        room: Room | None = None,
        consistency: str = "QUORUM",
        replicas: int = 1,
        flat: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._server, self._read_only, self._on_close = server, read_only, on_close
        self._room = None if read_only else room
        self._writing = threading.Lock()
        self._closed = False
        self._clock: int | None = None  # the last recording-order number assigned
        self._look_at = 0.0  # monotonic seconds: when to look for rows without vectors again
        self._doubted: set[str] = set()  # IDs of rows of interrupted puts
        self._crowding = Crowding(self.evict, self._room)
        self.tenant = Tenant(server, collection, tenant, consistency)
        self._words = _Words(self.tenant)
        self._recent: dict[int, Any] = {}  # objects that search has read, by their numbers
        self._reading = threading.Lock()
        self._embedder = FileEmbedder(
            server.place,
            embedder,
            lambda: self.tenant.stored_embedder,
            instead="name another collection in the address: /Collection after the host",
        )
        try:
            self.tenant.open(read_only=read_only, replicas=replicas, flat=flat, check=self._embedder.check)
        except BaseException:
            server.close()
            raise

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`; the module docstring gives the weaker guarantees of a server.

        Raises:
            StoreUnavailable: the connection failed; some rows may be stored, so repeat the put.
        """
        return self._put(transitions, set())

    def put_again(self, transitions: Sequence[Transition]) -> int:
        """Like `put`, for rows that an earlier put may have stored partly: every row is sent."""
        return self._put(transitions, {row.id for row in transitions})

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """See `TransitionStore.exact`."""
        wanted = Conditions(tenant=tenant, environment=environment, tool=tool, key=key)
        try:
            objects = self.tenant.fetch(
                "reading rows",
                limit=BARE,
                filters=filter_of(Conditions(key=key).names()),
                return_properties=list(READ),
            )
        except StoreError as error:
            if TOO_LARGE not in str(error):
                raise
            objects = []
        if objects and len(objects) < BARE:
            rows = [self._read(item, Conditions(key=key)) for item in sorted(objects, key=number_of_object)]
            return [row for row in rows if wanted.fits(row)]
        return list(self._scan(wanted))

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows added during the scan are left out."""
        return self._scan(Conditions(tenant=tenant, environment=environment, tool=tool))

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`.

        Raises:
            StoreError: also if the vectors' embedder was not given.
        """
        if not query.words_only and self.tenant.stored_embedder is None:
            self.tenant.look_again()
        embedder, vector = self._embedder.to_search(words_only=query.words_only), None
        if embedder is not None and not query.words_only:
            if not self._read_only:
                with self._turn():
                    self._embed_missing(embedder)
            if self.tenant.stored_embedder is not None:  # otherwise there are no vectors to compare
                vector = embedder.embed([query.text])[0]
        return _Search(self.tenant, query, self._words.to_ask(query.text), vector, self._cached_rows).hits()

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        self._refuse_read_only()
        moment = time.time() if now is None else now
        with self._turn():
            if self._all_stay(room):
                return 0
            rows = [
                (
                    number_of_object(item),
                    item.properties["provenance"] == Source.REAL,
                    item.properties["recorded_at"],
                )
                for item in self.tenant.every("order", "provenance", "recorded_at")
            ]
            leaving = to_evict([StoredRow(*row) for row in sorted(rows)], room, now=moment)
            return self.tenant.delete([uuid_of(number) for number in leaving])

    def remove(self, ids: Sequence[str]) -> int:
        """See `TransitionStore.remove`."""
        self._refuse_read_only()
        with self._turn():
            return self.tenant.delete([UUID(name) for name in dict.fromkeys(ids)])

    def make_room(self) -> int:
        """Evict rows beyond the limits; return the number evicted since the store was opened."""
        return self._crowding.relieve()

    @property
    def foreign_embedder(self) -> str | None:
        """The missing embedder that made the collection's vectors, or None."""
        return self._embedder.foreign

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return self.tenant.count()

    def close(self) -> None:
        """See `TransitionStore.close`."""
        if self._closed:
            return
        self._crowding.relieve_if_it_can()
        self._closed = True
        self._server.close()
        if self._on_close is not None:
            self._on_close()

    def _scan(self, wanted: Conditions) -> Iterator[Transition]:
        narrow = wanted.names()
        tenant = narrow.get("tenant")
        if len(narrow) - (tenant is not None):
            numbers = [number_of_object(item) for item in self.tenant.indexed(filter_of(narrow))]
        else:  # nearly all rows of the buffer: no index is needed
            every = self.tenant.every("order", "tenant")
            numbers = [
                number_of_object(item) for item in every if tenant in (None, item.properties.get("tenant"))
            ]
        numbers.sort()
        for first in range(0, len(numbers), _PAGE):
            yield from self._rows(numbers[first : first + _PAGE], wanted).values()

    def _rows(self, numbers: Sequence[int], wanted: Conditions) -> dict[int, Transition]:
        """Return rows by number, ascending; skips rows evicted meanwhile."""
        items = self.tenant.by_ids_fully([uuid_of(number) for number in numbers], READ)
        return {
            number_of_object(item): self._read(item, wanted) for item in sorted(items, key=number_of_object)
        }

    def _cached_rows(self, numbers: Sequence[int]) -> dict[int, Transition]:
        """Return rows of a search. The latest objects are cached, because queries repeat."""
        with self._reading:
            here = {number: self._recent[number] for number in numbers if number in self._recent}
        missing = [uuid_of(number) for number in numbers if number not in here]
        read = (
            {number_of_object(item): item for item in self.tenant.by_ids_fully(missing, READ)}
            if missing
            else {}
        )
        small = {
            number: item for number, item in read.items() if len(item.properties["payload"] or "") < _SMALL
        }
        with self._reading:
            self._recent |= small
            for number in list(self._recent)[: max(0, len(self._recent) - _RECENT)]:
                del self._recent[number]
        items = sorted({**here, **read}.items())
        return {number: self._read(item, Conditions()) for number, item in items}

    def _read(self, item: Any, wanted: Conditions) -> Transition:
        row = read_object(self._server.place, item)
        if not wanted.fits(row):
            raise damaged(self._server.place, item, "its indexed properties differ from its content")
        return row

    def _put(self, transitions: Sequence[Transition], doubted: set[str]) -> int:
        self._refuse_read_only()
        rows, new = self._prepared(transitions), list[str]()
        last = None
        with self._turn():
            try:
                for first in range(0, len(rows), _PART):
                    part = rows[first : first + _PART]
                    stored_ids = {
                        str(item.uuid)
                        for item in self.tenant.by_ids([UUID(row.id) for row in part], ["order"])
                    }
                    unsure = {row.id for row in part} & (self._doubted | doubted)
                    fresh = [row for row in part if row.id not in stored_ids]
                    last = self._insert(fresh, unsure, stored_ids) or last
                    new += [row.id for row in fresh]
                if last is not None:
                    self.tenant.send([last])  # flushes the earlier rows to the vector log
            except StoreUnavailable:
                raise
            except StoreError as error:
                raise StoreError(f"{error}; other rows of this put may be stored; repeat the put") from error
            embedder = self._embedder.chosen()
            if embedder is not None and new:
                with suppress(UserError):  # these rows are stored, even if others lack vectors
                    self._embed_missing(embedder)
        self._crowding.put(len(new))
        return len(new)

    def _insert(self, fresh: Sequence[Row], unsure: set[str], stored_ids: set[str]) -> Any:
        """Send new rows, and resend unsure ones; return the last object sent."""
        vectors = self._vectors(fresh)
        objects, doubtful = list[Any](), list[Any]()
        for row, place in zip(fresh, self._places(len(fresh)), strict=True):
            whole = row.id in vectors or not row.text
            properties = {**row.properties, "order": place, "embedded": whole}
            item = object_of(row.id, properties, vectors.get(row.id))
            (doubtful if row.id in unsure else objects).append(item)
        stored = self.tenant.by_ids([UUID(name) for name in sorted(unsure & stored_ids)], None, vectors=True)
        doubtful += [again(item, None) for item in stored]
        sent = objects + doubtful
        names = {str(item.uuid) for item in sent}
        self._doubted |= names
        self.tenant.send(objects) if objects else None
        self.tenant.resend(doubtful) if doubtful else None
        self._doubted -= names
        return sent[-1] if sent else None

    def _vectors(self, rows: Sequence[Row]) -> dict[str, NDArray[np.float32]]:
        """Return vectors by ID; empty if they cannot be computed now."""
        worded, embedder = [row for row in rows if row.text], self._embedder.chosen()
        if embedder is None or not worded:
            return {}
        try:
            vectors = embedder.embed([row.text for row in worded])
            dimension = embedder.dimension
        except UserError:
            self._look_at = 0.0
            return {}
        self._claim(embedder.name, dimension)
        return {row.id: vector for row, vector in zip(worded, vectors, strict=True)}

    def _claim(self, embedder: str, dimension: int) -> None:
        self.tenant.claim(embedder, dimension)
        self._embedder.to_search(words_only=False)  # raises if another embedder was first

    def _embed_missing(self, embedder: Embedder) -> None:
        """Add vectors to rows stored without one."""
        from weaviate.classes.query import Filter

        lacking = filter_of({"split": str(Split.TRAIN)}, Filter.by_property("embedded").equal(False))
        while time.monotonic() >= self._look_at:
            items = self.tenant.fetch("looking for rows without vectors", limit=_EMBEDDED, filters=lacking)
            if not items:
                self._look_at = time.monotonic() + _RECHECK_S
                return
            vectors = embedder.embed([search_text(self._read(item, Conditions())) for item in items])
            self._claim(embedder.name, embedder.dimension)
            objects = [again(item, vector) for item, vector in zip(items, vectors, strict=True)]
            self.tenant.send(objects)
            self.tenant.send(objects[-1:])

    def _places(self, rows: int) -> range:
        """Return the next order numbers: microseconds, after all earlier rows."""
        if self._clock is None:
            from weaviate.classes.query import Sort

            newest = Sort.by_property("order", ascending=False)
            how = {"filters": filter_of({}), "sort": newest, "limit": 1, "return_properties": ["order"]}
            items = self.tenant.fetch("reading its newest row", **how)
            self._clock = max((int(item.properties["order"]) for item in items), default=0)
        first = max(self._clock + 1, time.time_ns() // 1_000)
        self._clock = first + rows - 1
        return range(first, first + rows)

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise StoreError(
                f"{self._server.place}: was opened read-only; open it without read_only to change it"
            )

    def _prepared(self, transitions: Sequence[Transition]) -> list[Row]:
        """Return the rows to send; the first of each ID."""
        rows: dict[str, Row] = {}
        lifetime_s = None if self._room is None else self._room.dreamt_lifetime_s
        try:
            for transition in transitions:
                row = row_of(transition, lifetime_s=lifetime_s)
                rows.setdefault(row.id, row)
        except NotSerializable as error:
            raise StoreError(
                f"{self._server.place}: a transition cannot be stored, so none was: {error}"
            ) from error
        return list(rows.values())

    def _all_stay(self, room: Room) -> bool:
        """Return whether two counts show that no row must be evicted."""
        from weaviate.classes.query import Filter

        if self.tenant.count(Filter.by_property("provenance").not_equal(str(Source.REAL))):
            return False
        return room.rows is None or self.tenant.count() <= room.rows

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one thread write at a time, so that new rows are counted once."""
        if not self._writing.acquire(timeout=_TURN_S):
            raise StoreUnavailable(f"{self._server.place}: other threads wrote for {_TURN_S:g} s; retry")
        try:
            yield
        finally:
            self._writing.release()


class _Words:
    """Counts of rows per word: a query uses its rarest words, as in a file.

    Counted in the newest rows at the first query, and again after a while.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._rows_with: Counter[str] = Counter()
        self._again_at = 0.0  # monotonic seconds

    def to_ask(self, text: str) -> str:
        """Return a query's rarest words; words in no counted row may be in other rows."""
        if time.monotonic() >= self._again_at:
            self._count()
            self._again_at = time.monotonic() + _RECHECK_S
        terms = terms_of(text)
        unknown = [term for term in terms if term not in self._rows_with][:_UNKNOWN]
        return " ".join(rarest(terms, self._rows_with) + unknown)

    def _count(self) -> None:
        from weaviate.classes.query import Sort

        items = self._tenant.fetch(
            "counting words",
            limit=BARE,
            filters=filter_of({"split": str(Split.TRAIN)}),
            sort=Sort.by_property("order", ascending=False),
            return_properties=["terms"],
        )
        self._rows_with = Counter(word for item in items for word in (item.properties["terms"] or "").split())


class _Search:
    """One query. The server ranks by words (BM25) and by vectors; the kit fuses both rankings.

    The kit fuses, not the server's hybrid query, so that hits state their rank in each ranking, rows with
    equal content appear once, and every kind of buffer gives the same results. Rankings are read without
    payloads, and rows a few at a time, until enough of them differ.

    `read` returns rows by number; without a `vector` only words are used.
    """

    def __init__(
        self,
        tenant: Tenant,
        query: HybridQuery,
        terms: str,
        vector: NDArray[np.float32] | None,
        read: Callable[[Sequence[int]], Mapping[int, Transition]],
    ) -> None:
        self._tenant, self._query, self._terms, self._vector, self._read = tenant, query, terms, vector, read
        self._seen: dict[int, Transition] = {}
        self._named: dict[int, tuple[str, str]] = {}  # key and source of ranked rows
        self._ranking: dict[str, list[int]] = {}  # rankings over all sources, to `_depth`
        self._depth = 0

    def hits(self) -> list[Hit]:
        """Return the best rows."""
        matches = retrieve(self._query, self._rank, self._same)
        there = [match for match in matches if match.row in self._seen]  # others were evicted meanwhile
        return [Hit(self._seen[match.row], match.score, match.places) for match in there]

    def _rank(self, sources: frozenset[Source], depth: int) -> Mapping[str, Sequence[int]]:
        """Rank rows of all sources in one request: nearly all are real, which saves a second one."""
        depth = min(depth, BARE)
        if self._depth < depth:
            self._ranking, self._depth = self._request(self._query.sources, depth), depth
        wanted = {source.on_disk for source in sources}
        wanted_rows = {
            name: [row for row in rows if self._named[row][1] in wanted]
            for name, rows in self._ranking.items()
        }
        for name, rows in self._ranking.items():
            if len(rows) == self._depth and len(wanted_rows[name]) < min(depth, len(rows)):  # more may exist
                return self._request(sources, depth)
        return {name: rows[:depth] for name, rows in wanted_rows.items()}

    def _request(self, sources: frozenset[Source], depth: int) -> dict[str, list[int]]:
        from weaviate.classes.query import MetadataQuery, Sort

        how: dict[str, Any] = {"filters": self._filters(sources), "limit": depth}
        how["return_properties"] = ["order", "key", "provenance"]
        scored = {**how, "return_metadata": MetadataQuery(score=True, distance=True)}
        rankings = {"words": list[int]()}
        if self._terms:
            rankings["words"] = self._ranked(
                "searching by words",
                lambda rows: rows.bm25(self._terms, query_properties=["terms"], **scored),
            )
        if self._vector is not None and self._vector.any():
            near = self._vector.tolist()
            rankings["vectors"] = self._ranked(
                "searching by vectors", lambda rows: rows.near_vector(near, target_vector=VECTOR, **scored)
            )
        elif self._vector is not None:  # a zero vector: no row is nearer than another
            rankings["vectors"] = self._ranked(
                "searching", lambda rows: rows.fetch_objects(sort=Sort.by_property("order"), **how)
            )
        return rankings

    def _ranked(self, doing: str, question: Callable[[Any], Any]) -> list[int]:
        """Return row numbers, best first; ties (to five digits) go to the row recorded first."""
        objects = self._tenant.ask(doing, lambda at: question(at.query)).objects
        for item in objects:
            named = str(item.properties.get("key")), str(item.properties.get("provenance"))
            self._named[number_of_object(item)] = named
        ranked = [
            (round((item.metadata.distance or 0.0) - (item.metadata.score or 0.0), 5), number_of_object(item))
            for item in objects
        ]
        return [number for _, number in sorted(ranked)]

    def _filters(self, sources: frozenset[Source]) -> Any:
        from weaviate.classes.query import Filter

        query = self._query
        names = Conditions(tenant=query.tenant, environment=query.environment, tool=query.tool).names()
        more = [Filter.by_property("provenance").contains_any(sorted(source.on_disk for source in sources))]
        if query.not_episode is not None:
            more.append(Filter.by_property("episode").not_equal(named(query.not_episode)))
        return filter_of({**names, "split": str(Split.TRAIN)}, *more)

    def _same(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield `retrieval.sameness` of rows; reads only the rows that it needs.

        Most rows of a key are equal, so each read takes enough rows for the wanted number of keys.
        """
        last = 0
        while last < len(rows):
            first, keys = last, set[str]()
            while last < len(rows) and len(keys) < self._query.k:
                keys.add(self._named[rows[last]][0])
                last += 1
            part = rows[first:last]
            missing = [row for row in part if row not in self._seen]
            read = self._read(missing) if missing else {}
            for number, row in read.items():
                if not fits(
                    row, self._query
                ):  # never return a row that the filters exclude, even if the server does
                    raise StoreError(
                        f"{self._tenant.server.place}: row {row.id} is damaged: its properties differ from "
                        "its content"
                    )
                self._seen[number] = row
            yield from (sameness(self._seen[row]) if row in self._seen else row for row in part)
