"""One tenant of a collection on a server: create or open it; read, write and delete its rows.

The collection's description stores version and embedder, readable for every user who may read the schema.
Tenants are created by name when a buffer is opened for writing, never automatically by the server.

A killed server keeps every object that it acknowledged, but can silently lose index entries. So listing all
rows walks the objects without an index and continues until an empty page, since a dead entry makes a page
short. A row of an interrupted put is sent again with a slightly changed vector (`resend`), because the server
indexes only changes. The server keeps a batch's vector log in memory until the next batch, so one row of each
put is sent once more.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.adapters.stores.weaviate_rows import (
    VECTOR,
    VERSION,
    collection_of,
    filter_of,
    number_of_object,
    object_of,
    read_title,
    title,
)
from dreamgym_kit.adapters.stores.weaviate_server import TOO_LARGE, WeaviateServer, meaning
from dreamgym_kit.errors import StoreError

BARE = 10_000  # rows without payload per page, the server's maximum
_DELETED = 500  # rows per delete request
_NAMES = {  # Weaviate's naming rules
    "collection": ("[A-Z][_0-9A-Za-z]{0,199}", "a capital letter, then letters, digits and _"),
    "tenant": ("[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, _ and -"),
}


@dataclass(frozen=True, slots=True)
class Stored:
    """An object read over REST, with the attributes of the client's own objects."""

    uuid: UUID
    properties: Mapping[str, Any]
    vector: Mapping[str, list[float]]


class Tenant:
    """One buffer on its server; `stored_embedder`: the embedder and dimension of its vectors, as read."""

    def __init__(self, server: WeaviateServer, collection: str, name: str, consistency: str) -> None:
        self.server = server
        self._collection, self._name, self._consistency = collection, name, consistency
        self._handle: tuple[Any, Any] = (None, None)  # a client and its handle of the tenant
        self._replicas = 1
        self.stored_embedder: tuple[str, int] | None = None
        self.lifetimes = False  # whether the server deletes rows by their age

    def open(self, *, read_only: bool, replicas: int, flat: bool, check: Callable[[], None]) -> None:
        """Find the collection and the tenant; create missing ones unless `read_only`.

        `check` is called before a tenant is created, and raises if the embedder does not match.

        Raises:
            StoreError: it does not exist, is newer, or is not dreamgym-kit's.
        """
        place, name = self.server.place, self._collection
        for kind, text in (("collection", name), ("tenant", self._name)):
            form, words = _NAMES[kind]
            if not re.fullmatch(form, text):
                raise StoreError(f"{place}: '{text}' cannot be the name of a {kind}: {words}")
        if not self._http("checking for its collection", lambda client: client.collections.exists(name)):
            if read_only:
                raise StoreError(f"{place}: the collection {name} does not exist; record or import first")
            self._make(replicas, flat)
        self.look_again()
        check()
        self._open_tenant(read_only=read_only)

    def look_again(self) -> None:
        """Read the embedder of the stored vectors."""
        config = self._http("reading its schema", lambda client: self._all_tenants(client).config.get())
        try:
            version, self.stored_embedder = read_title(config.description or "")
        except ValueError:
            raise StoreError(
                f"{self.server.place}: its collection {self._collection} is not dreamgym-kit's; choose "
                "another in the URL: /Collection after the host"
            ) from None
        if version > VERSION:
            raise StoreError(
                f"{self.server.place}: its schema {version} is newer than {VERSION}, the newest known here; "
                "update dreamgym-kit"
            )
        self._replicas = config.replication_config.factor
        self.lifetimes = bool(config.object_ttl_config and config.object_ttl_config.enabled)

    def claim(self, embedder: str, dimension: int) -> None:
        """Claim the collection's vectors for this embedder; check `stored_embedder` afterwards."""
        if self.stored_embedder == (embedder, dimension):
            return
        self.look_again()  # another process may have claimed them meanwhile
        if self.stored_embedder is None:
            self._with_lifetimes(partial(self._describe, title(embedder, dimension)))
            self.look_again()

    def ask(self, doing: str, question: Callable[[Any], Any]) -> Any:
        """Send a request with the client's cached handle of this tenant."""

        def send(client: Any) -> Any:
            if self._handle[0] is not client:
                from weaviate.classes.config import ConsistencyLevel

                rows = self._all_tenants(client).with_tenant(self._name)
                self._handle = client, rows.with_consistency_level(ConsistencyLevel(self._consistency))
            return question(self._handle[1])

        return self.server.ask(doing, send)

    def fetch(self, doing: str, **how: Any) -> list[Any]:
        """Call the client's `fetch_objects`; returns the objects."""
        objects: list[Any] = self.ask(doing, lambda at: at.query.fetch_objects(**how)).objects
        return objects

    def every(self, *properties: str) -> Iterator[Any]:
        """Yield all rows with these properties, by ID; uses no index, so none can miss a row."""
        after: UUID | None = None
        while page := self.fetch("reading rows", limit=BARE, after=after, return_properties=list(properties)):
            yield from page
            after = page[-1].uuid

    def indexed(self, filters: Any, *properties: str) -> Iterator[Any]:
        """Yield the rows that an index finds, in recording order, with `order` and these properties."""
        from weaviate.classes.query import Filter, Sort

        after, seen = -1, set[int]()  # `seen`: rows with the last order number, repeated on the next page
        while True:
            place = Filter.by_property("order").greater_or_equal(after)
            page = self.fetch(
                "reading rows",
                limit=BARE,
                filters=Filter.all_of([filters, place]) if after >= 0 else filters,
                sort=Sort.by_property("order"),
                return_properties=["order", *properties],
            )
            fresh = [item for item in page if number_of_object(item) not in seen]
            if not fresh:
                return
            yield from fresh
            after = int(fresh[-1].properties["order"])
            seen = {number_of_object(item) for item in page if item.properties["order"] == after}

    def by_ids(
        self, ids: Sequence[UUID], properties: Sequence[str] | None, *, vectors: bool = False
    ) -> list[Any]:
        """Return rows by ID, at most 10,000, in any order; skips rows that the ID index misses.

        `properties` and `vectors` select what is read; None reads all properties.
        """
        how: dict[str, Any] = {"include_vector": vectors}
        if properties is not None:
            how["return_properties"] = list(properties)

        def fetch_part(ids: Sequence[UUID]) -> list[Any]:
            from weaviate.classes.query import Filter

            return self.fetch(
                "reading rows", limit=len(ids), filters=Filter.by_id().contains_any(list(ids)), **how
            )

        return _halved(ids, fetch_part)

    def by_ids_fully(self, ids: Sequence[UUID], properties: Sequence[str]) -> list[Any]:
        """Return rows by ID, one by one if the index misses them; skips only rows that do not exist."""
        items = self.by_ids(ids, properties)
        if len(items) < len(ids):
            listed = {item.uuid for item in items}
            items += [
                item for id_ in ids if id_ not in listed and (item := self.read_over_http(id_)) is not None
            ]
        return items

    def read_over_http(self, id_: UUID) -> Stored | None:
        """Return a row as stored, with its vector; None if it does not exist."""
        path = f"/objects/{self._collection}/{id_}"
        how = {"tenant": self._name, "include": "vector"}
        answer = self._http("reading a row", lambda client: client._connection.get(path, params=how))
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise self.server.store_error("reading a row", str(answer.status_code), answer.text)
        stored = answer.json()
        properties = {**stored["properties"], "order": int(stored["properties"]["order"])}
        return Stored(id_, properties, stored.get("vectors") or {})

    def count(self, *filters: Any) -> int:
        """Count the rows that meet these filters.

        Without filters the server counts its objects, which is cheap but asks every replica.
        """
        how = {"filters": filter_of({}, *filters)} if filters or self._replicas > 1 else {}
        return int(
            self.ask("counting", lambda at: at.aggregate.over_all(total_count=True, **how)).total_count or 0
        )

    def send(self, objects: Sequence[Any]) -> None:
        """Insert rows; retry temporarily refused rows once.

        Raises:
            StoreUnavailable: the server failed; some rows may be stored.
            StoreError: it refused a row; others stay.
        """
        left, refused = list(objects), list[tuple[Any, str]]()
        for _ in range(2):
            refused = _halved(left, lambda part: self.ask("putting rows", partial(_sent, objects=part)))
            left = [item for item, _ in refused]
            if not refused or any(meaning("", text) for _, text in refused):
                break
        if refused:
            text = f"{len(refused)} of {len(objects)} rows were refused: {refused[0][1]}"
            raise self.server.store_error("putting rows", "", text)

    def resend(self, objects: Sequence[Any]) -> None:
        """Insert rows that may have incomplete index entries, so that all entries are created anew."""
        step = time.time_ns() // 1_000 % 997 + 1  # differs from the last time
        for item in objects:
            if item.vector:
                item.vector[VECTOR] = stepped(item.vector[VECTOR], step)
            else:
                self._delete_row(item.uuid)
        self.send(objects)

    def delete(self, ids: Sequence[UUID]) -> int:
        """Delete rows; return the number deleted."""
        from weaviate.classes.query import Filter

        gone = 0
        for first in range(0, len(ids), _DELETED):
            part = list(ids[first : first + _DELETED])
            these = partial(_deleted, these=Filter.by_id().contains_any(part))
            answer = self.ask("deleting rows", these)
            if answer.failed:
                why = next((item.error for item in answer.objects if item.error), "")
                raise self.server.store_error(
                    "deleting rows", "", f"{answer.failed} rows were not deleted: {why}"
                )
            gone += int(answer.successful)
            if answer.matches < len(part):  # an index with lost entries misses them
                matched_ids = {str(item.uuid) for item in answer.objects}
                gone += sum(self._delete_row(id_) for id_ in part if str(id_) not in matched_ids)
        return gone

    def _delete_row(self, id_: UUID) -> bool:
        def deleted(client: Any) -> bool:
            return bool(self._all_tenants(client).with_tenant(self._name).data.delete_by_id(id_))

        return bool(self._http("deleting a row", deleted))

    def _http(self, doing: str, question: Callable[[Any], Any]) -> Any:
        return self.server.ask(doing, question, over_http=True)

    def _all_tenants(self, client: Any) -> Any:
        return client.collections.use(self._collection)

    def _make(self, replicas: int, flat: bool) -> None:
        name = self._collection
        names = self._http(
            "reading the names of collections", lambda client: list(client.collections.list_all())
        )
        other = next((each for each in names if each.lower() == name.lower() and each != name), None)
        if other is not None:  # the server confuses the two: deleting one deletes the other
            raise StoreError(
                f"{self.server.place}: the collection {other} differs from {name} only in capital letters; "
                "use that name or a different one"
            )

        def make(lifetimes: bool, client: Any) -> None:
            client.collections.create_from_dict(
                collection_of(name, replicas=replicas, flat=flat, lifetimes=lifetimes)
            )

        try:
            self._with_lifetimes(make)
        except StoreError as error:
            if "already exists" not in str(error):  # another process was first
                raise

    def _describe(self, text: str, lifetimes: bool, client: Any) -> None:
        from weaviate.classes.config import Reconfigure

        none = None if lifetimes else Reconfigure.ObjectTTL.disable()
        self._all_tenants(client).config.update(description=text, object_ttl_config=none)

    def _with_lifetimes(self, change: Callable[[bool, Any], None]) -> None:
        """Change the schema with lifetimes, or without them if the server cannot delete rows by age."""
        for lifetimes in (True, False):
            try:
                self._http("writing its schema", partial(change, lifetimes))
            except StoreError as error:
                if not lifetimes or "TTL" not in str(error):
                    raise
            else:
                return

    def _open_tenant(self, *, read_only: bool) -> None:
        name = self._name
        if self._http(
            "checking for its tenant", lambda client: self._all_tenants(client).tenants.exists(name)
        ):
            return
        if read_only:
            tenants = sorted(
                self.server.ask("reading its tenants", lambda c: self._all_tenants(c).tenants.get())
            )
            near = get_close_matches(name, tenants, n=1)
            shown = ", ".join(tenants[:5]) + (", ..." if len(tenants) > 5 else "")
            hint = f"did you mean '{near[0]}'?" if near else f"known: {shown or 'none'}."
            raise StoreError(f"{self.server.place}: the tenant '{name}' does not exist; {hint}")
        self._http("creating its tenant", lambda client: self._all_tenants(client).tenants.create(name))


def stepped(vector: Sequence[float], steps: int) -> list[float]:
    """Change a vector's largest number by millionths: new to the server, equivalent for search."""
    changed: NDArray[np.float32] = np.array(vector, dtype=np.float32)
    changed[int(np.argmax(np.abs(changed)))] *= np.float32(1 + steps * 1e-6)
    numbers: list[float] = changed.tolist()
    return numbers


def again(item: Any, vector: NDArray[np.float32] | None) -> Any:
    """Build the object to resend a stored row with its original times; adds `vector` if it has none."""
    stored_vector = (item.vector or {}).get(VECTOR)
    vector = vector if not stored_vector else np.array(stored_vector, dtype=np.float32)
    embedded = bool(item.properties.get("embedded")) or vector is not None
    return object_of(str(item.uuid), {**item.properties, "embedded": embedded}, vector)


def _halved(items: Sequence[Any], ask: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    """Send a request with all items; split them in half if one message cannot hold them."""
    try:
        return ask(items) if items else []
    except StoreError as error:
        if TOO_LARGE not in str(error) or len(items) == 1:
            raise
    half = len(items) // 2
    return _halved(items[:half], ask) + _halved(items[half:], ask)


def _deleted(at: Any, these: Any) -> Any:
    return at.data.delete_many(these, verbose=True)


def _sent(at: Any, objects: Sequence[Any]) -> list[tuple[Any, str]]:
    """Insert objects; returns those that the server refused, each with its message."""
    from weaviate.exceptions import WeaviateInsertManyAllFailedError

    try:
        answer = at.data.insert_many(list(objects))
    except WeaviateInsertManyAllFailedError as error:
        return [(item, error.message) for item in objects]
    refused = {place: error.message for place, error in answer.errors.items()}
    silent = {
        place: "the server sent no result" for place in range(len(objects)) if place not in answer.uuids
    }
    return [(objects[place], text) for place, text in sorted({**silent, **refused}.items())]
