"""A buffer on a Weaviate server: a tenant of its collection, shared by any number of machines.

Decides what can be promised where there are no transactions. Whatever is put is looked at first, then sent in
parts, each acknowledged by as many replicas as `consistency` says; an id is its row's content, so to put
again is to mend. Where the server refuses a row or goes away in between, the others may be there and the
error says so: nothing is taken back, since another process may have been told by then that it is there. Two
who put the same new row at the same time both count it, and it is there once. The order recorded is that of
the writers' clocks, never behind what is there.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from dreamgym_kit.adapters.embedders.choosing import FileEmbedder
from dreamgym_kit.adapters.stores.weaviate_reading import Tenant, count, eviction_rows, newest, read_rows
from dreamgym_kit.adapters.stores.weaviate_rows import Asked, Row, row_of
from dreamgym_kit.adapters.stores.weaviate_schema import Schema
from dreamgym_kit.adapters.stores.weaviate_search import find
from dreamgym_kit.adapters.stores.weaviate_server import WeaviateServer
from dreamgym_kit.adapters.stores.weaviate_writing import Writer
from dreamgym_kit.errors import NotSerializable, StoreError, StoreUnavailable, UserError
from dreamgym_kit.interfaces import Embedder, Hit, HybridQuery, Room
from dreamgym_kit.replay.eviction import Crowding, to_evict
from dreamgym_kit.settings.buffer_url import COLLECTION, TENANT
from dreamgym_kit.types import Environment, Source, Transition

_TURN_S = 60.0  # how long a thread waits for others of its store


class WeaviateStore:
    """Implements `interfaces.TransitionStore` on a server; threads may share it.

    Args:
        server: where.
        collection: that holds buffers; made where it is absent, with `replicas` copies of each row.
        tenant: the buffer; made where it is absent.
        read_only: writes and makes nothing, so that a misspelt name is found out.
        embedder: makes the vectors of `search`; the hashed one where the collection's vectors are its own or
            there are none yet.
        room: what has no room in it leaves after every 1,000 rows that are put, and on closing; None: all
            stay. Its lifetime is told to the server too, which deletes by itself where it is set up to.
        consistency: "ONE", "QUORUM" or "ALL": how many replicas acknowledge a write and agree on a read.
        replicas: of a collection that is made here.
        on_close: called once it is closed.

    Raises:
        StoreUnavailable: the server does not answer.
        StoreError: it refuses; no such collection or tenant to read; a newer or a foreign collection.
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
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._server = server
        self._at = Tenant(server, collection, tenant, consistency)
        self._read_only = read_only
        self._room = None if read_only else room
        self._on_close = on_close or _nothing
        self._writing = threading.Lock()
        self._closed = False
        self._crowding = Crowding(self.evict, self._room)
        try:
            self._schema = Schema(server, collection, tenant, replicas=replicas, read_only=read_only)
            self._writer = Writer(self._at, self._schema)
            self._embedder = FileEmbedder(server.place, embedder, self._stored_embedder)
            self._embedder.check()
        except BaseException:
            server.close()
            raise

    def put(self, transitions: Sequence[Transition]) -> int:
        """See `TransitionStore.put`; what cannot be promised there is said at the top of this module.

        Raises:
            StoreUnavailable: the server went away; the rows may be there in part, put them again.
        """
        self._refuse_read_only()
        rows = self._prepared(transitions)
        if not rows:
            return 0
        with self._turn():
            embedder = self._embedder.chosen()
            new = self._writer.put(rows, embedder)
            if embedder is not None and new:
                with suppress(UserError):  # these rows are stored, whatever others lack
                    self._writer.embed_missing(embedder)
        self._crowding.put(new)
        return new

    def exact(
        self, tool: str, key: str, environment: Environment, *, tenant: str = "default"
    ) -> list[Transition]:
        """See `TransitionStore.exact`."""
        wanted = Asked(tenant=tenant, environment=environment, tool=tool, key=key)
        return [row.transition for row in read_rows(self._at, wanted)]

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        """See `TransitionStore.scan`; rows that are put after the first one was asked for are left out."""
        last = newest(self._at)
        if last is None:
            return
        for row in read_rows(self._at, Asked(tenant=tenant, environment=environment, tool=tool), upto=last):
            yield row.transition

    def search(self, query: HybridQuery) -> list[Hit]:
        """See `TransitionStore.search`.

        Raises:
            StoreError: also where the vectors are those of an embedder that was not given.
        """
        if not query.words_only:
            self._schema.look_again()
        embedder = self._embedder.to_search(words_only=query.words_only)
        if embedder is None or query.words_only:
            return find(self._at, query, None)
        if not self._read_only:
            with self._turn():
                self._writer.embed_missing(embedder)
        by_vector = self._schema.facts.embedder is not None  # else there is none to compare with
        return find(self._at, query, embedder.embed([query.text])[0] if by_vector else None)

    def evict(self, room: Room, *, now: float | None = None) -> int:
        """See `TransitionStore.evict`."""
        self._refuse_read_only()
        moment = time.time() if now is None else now
        with self._turn():
            if self._all_stay(room):
                return 0
            rows = eviction_rows(self._at)
            leaving = to_evict([candidate for _, candidate in rows], room, now=moment)
            return self._writer.delete([rows[place][0] for place in leaving])

    def remove(self, ids: Sequence[str]) -> int:
        """See `TransitionStore.remove`."""
        self._refuse_read_only()
        with self._turn():
            return self._writer.delete(ids)

    def make_room(self) -> int:
        """Let go what has no room now; gives how many rows did so since this store was opened."""
        return self._crowding.relieve()

    @property
    def foreign_embedder(self) -> str | None:
        """Names the embedder of the collection's vectors where it was not given."""
        return self._embedder.foreign

    def count(self) -> int:
        """See `TransitionStore.count`."""
        return count(self._at)

    def close(self) -> None:
        """See `TransitionStore.close`."""
        if self._closed:
            return
        self._crowding.relieve_if_it_can()
        self._closed = True
        self._server.close()
        self._on_close()

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise StoreError(
                f"{self._server.place}: was opened read-only; open it without read_only to change it"
            )

    def _prepared(self, transitions: Sequence[Transition]) -> list[Row]:
        """Rows as they are sent; of two with one id, the first."""
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
        """Whether two counts tell that all rows have room: no dreamt ones, and no more than may be."""
        from weaviate.classes.query import Filter

        if count(self._at, Filter.by_property("provenance").not_equal(str(Source.REAL))):
            return False
        return room.rows is None or count(self._at) <= room.rows

    def _stored_embedder(self) -> tuple[str, int] | None:
        facts = self._schema.facts
        if facts.embedder is None or facts.dimension is None:
            return None
        return (facts.embedder, facts.dimension)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Write one at a time within this store, so that what is new is counted once."""
        if not self._writing.acquire(timeout=_TURN_S):
            raise StoreUnavailable(f"{self._server.place}: other threads have been writing for {_TURN_S:g} s")
        try:
            yield
        finally:
            self._writing.release()


def _nothing() -> None:
    """Nothing has to be stopped with a server that runs by itself."""
