"""The collection that holds buffers: its properties, its version, whose vectors it keeps, and its tenants.

One collection holds any number of buffers, each a tenant of it: a shard of its own, with rights of its own.
Version and embedder stand in the collection's description, which whoever may read the schema can see. A
collection is made whole or not at all; an older one is given the properties that it lacks. Tenants are made
by name, when a buffer is opened to write, and never by the server on its own.
"""

import json
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from dreamgym_kit.adapters.stores.weaviate_rows import VECTOR
from dreamgym_kit.adapters.stores.weaviate_server import WeaviateServer
from dreamgym_kit.errors import StoreError

VERSION = 1
_TITLE = "Transitions of dreamgym-kit; it reads this: "
_COLLECTION_NAME = re.compile(r"[A-Z][_0-9A-Za-z]{0,199}")
_TENANT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # Weaviate's own rule


@dataclass(frozen=True, slots=True)
class Column:
    """A property of the collection."""

    name: str
    kind: str  # Weaviate's data type
    use: str = "kept"  # or "filtered" by equality, "ranged", "searched" by its words
    since: int = 1  # version of the schema


COLUMNS = (
    Column("payload", "text"),
    Column("checksum", "text"),
    Column("tenant", "text", "filtered"),
    Column("world", "text", "filtered"),
    Column("tool", "text", "filtered"),
    Column("key", "text", "filtered"),
    Column("episode", "text", "filtered"),
    Column("split", "text", "filtered"),
    Column("provenance", "text", "filtered"),
    Column("order", "int", "ranged"),
    Column("recorded_at", "number", "ranged"),
    Column("expires", "date", "ranged"),
    Column("embedded", "boolean", "filtered"),
    Column("terms", "text", "searched"),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the collection's description says."""

    version: int = VERSION
    embedder: str | None = None  # whose vectors there are; None: nobody's yet
    dimension: int | None = None

    def text(self) -> str:
        """The description."""
        facts = {"schema": self.version, "embedder": self.embedder, "dimension": self.dimension}
        return _TITLE + json.dumps(facts)


class Schema:
    """One collection, seen from one of its tenants.

    Raises:
        StoreError: there is none to read, it is newer, or another's.
    """

    def __init__(
        self, server: WeaviateServer, collection: str, tenant: str, *, replicas: int, read_only: bool
    ) -> None:
        self._server = server
        self._collection = collection
        self._tenant = tenant
        self._facts = Facts()
        self._check_names()
        self._open(replicas, read_only=read_only)

    @property
    def facts(self) -> Facts:
        """What is said of the collection, as this process last read it."""
        return self._facts

    def look_again(self) -> None:
        """Read whose vectors there are, where nobody had any when it was last read."""
        if self._facts.embedder is None:
            self._facts = self._read()

    def claim(self, embedder: str, dimension: int) -> None:
        """Say that vectors of this embedder are kept here from now on.

        Raises:
            StoreError: another process was quicker, with another one.
        """
        wanted = (embedder, dimension)
        if (self._facts.embedder, self._facts.dimension) == wanted:
            return
        self._facts = self._read()  # another process may have said so meanwhile
        if self._facts.embedder is None:
            self._write(replace(self._facts, embedder=embedder, dimension=dimension))
        if (self._facts.embedder, self._facts.dimension) != wanted:
            raise StoreError(
                f"{self._server.place}: its vectors are of embedder '{self._facts.embedder}' "
                f"({self._facts.dimension} numbers), not '{embedder}' ({dimension}); open it with that one "
                "(setting replay.embedder), or name another collection"
            )

    def _check_names(self) -> None:
        if not _COLLECTION_NAME.fullmatch(self._collection):
            raise StoreError(
                f"{self._server.place}: '{self._collection}' cannot be a collection's name: a capital "
                "letter, then letters, digits and _"
            )
        if not _TENANT_NAME.fullmatch(self._tenant):
            raise StoreError(
                f"{self._server.place}: '{self._tenant}' cannot be a tenant's name: 1 to 64 letters, digits, "
                "_ and -"
            )

    def _open(self, replicas: int, *, read_only: bool) -> None:
        name = self._collection
        if not self._server.ask("looking for its collection", lambda client: client.collections.exists(name)):
            if read_only:
                raise StoreError(
                    f"{self._server.place}: there is no collection {name} to read; record or import first"
                )
            self._create(replicas)
        self._facts = self._read()
        if self._facts.version < VERSION and not read_only:
            self._migrate()
        self._open_tenant(read_only=read_only)

    def _create(self, replicas: int) -> None:
        for lifetimes in (True, False):
            make = partial(_made, name=self._collection, replicas=replicas, lifetimes=lifetimes)
            try:
                self._server.ask("making its collection", make)
            except StoreError as error:
                if "already exists" in str(error):  # another process was quicker
                    return
                if not lifetimes or "TTL" not in str(error):  # a server that deletes nothing by itself
                    raise
            else:
                return

    def _read(self) -> Facts:
        config = self._server.ask(
            "reading its schema",
            lambda client: client.collections.use(self._collection).config.get(simple=True),
        )
        text = config.description or ""
        try:
            parsed = json.loads(text.removeprefix(_TITLE)) if text.startswith(_TITLE) else None
            facts = Facts(parsed["schema"], parsed["embedder"], parsed["dimension"]) if parsed else None
        except (ValueError, KeyError, TypeError):
            facts = None
        if facts is None or not isinstance(facts.version, int):
            raise StoreError(
                f"{self._server.place}: its collection {self._collection} is none of dreamgym-kit's; name "
                "another in the address: /Collection after the host"
            )
        if facts.version > VERSION:
            raise StoreError(
                f"{self._server.place}: its schema {facts.version} is newer than {VERSION}, the newest here; "
                "update dreamgym-kit"
            )
        return facts

    def _write(self, facts: Facts) -> None:
        for lifetimes in (True, False):
            change = partial(_changed, name=self._collection, text=facts.text(), lifetimes=lifetimes)
            try:
                self._server.ask("writing its schema", change)
            except StoreError as error:
                if not lifetimes or "TTL" not in str(error):  # a server that no longer deletes by itself
                    raise
            else:
                break
        self._facts = self._read()

    def _migrate(self) -> None:
        """Add what older versions lack; the version is written last, so that a broken one is made again."""
        for column in COLUMNS:
            if column.since > self._facts.version:
                try:
                    self._server.ask("adding to its schema", partial(self._added, column=column))
                except StoreError as error:
                    if "already exists" not in str(error):
                        raise
        self._write(replace(self._facts, version=VERSION))

    def _added(self, client: Any, column: Column) -> Any:
        return client.collections.use(self._collection).config.add_property(_property(column))

    def _open_tenant(self, *, read_only: bool) -> None:
        name = self._tenant
        if self._server.ask("looking for its tenant", lambda client: self._tenants(client).exists(name)):
            return
        if read_only:
            known = sorted(
                self._server.ask("reading its tenants", lambda client: self._tenants(client).get())
            )
            near = get_close_matches(name, known, n=1)
            shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
            hint = f"did you mean '{near[0]}'?" if near else f"known: {shown or 'none'}."
            raise StoreError(f"{self._server.place}: there is no tenant '{name}' to read; {hint}")
        self._server.ask("making its tenant", lambda client: self._tenants(client).create(name))

    def _tenants(self, client: Any) -> Any:
        return client.collections.use(self._collection).tenants


def _made(client: Any, name: str, replicas: int, lifetimes: bool) -> Any:
    from weaviate.classes.config import (
        Configure,
        ReplicationDeletionStrategy,
        StopwordsPreset,
        VectorDistances,
        VectorFilterStrategy,
    )

    index = Configure.VectorIndex.hnsw(
        distance_metric=VectorDistances.COSINE,
        filter_strategy=VectorFilterStrategy.ACORN,
        quantizer=Configure.VectorIndex.Quantizer.none(),
    )
    return client.collections.create(
        name,
        description=Facts().text(),
        properties=[_property(column) for column in COLUMNS],
        vector_config=[Configure.Vectors.self_provided(name=VECTOR, vector_index_config=index)],
        inverted_index_config=Configure.inverted_index(stopwords_preset=StopwordsPreset.NONE),
        multi_tenancy_config=Configure.multi_tenancy(
            enabled=True, auto_tenant_creation=False, auto_tenant_activation=True
        ),
        replication_config=Configure.replication(
            factor=replicas,
            # Servers from 1.38 on decide it themselves, and newer clients warn of the argument.
            async_enabled=True if replicas > 1 else None,
            deletion_strategy=ReplicationDeletionStrategy.TIME_BASED_RESOLUTION,
        ),
        object_ttl_config=Configure.ObjectTTL.delete_by_date_property("expires") if lifetimes else None,
    )


def _changed(client: Any, name: str, text: str, lifetimes: bool) -> Any:
    from weaviate.classes.config import Reconfigure

    none = None if lifetimes else Reconfigure.ObjectTTL.disable()
    return client.collections.use(name).config.update(description=text, object_ttl_config=none)


def _property(column: Column) -> Any:
    from weaviate.classes.config import DataType, Property, Tokenization

    text = column.kind == "text"
    split = Tokenization.WHITESPACE if column.use == "searched" else Tokenization.FIELD
    return Property(
        name=column.name,
        data_type=DataType(column.kind),
        tokenization=split if text else None,
        index_filterable=column.use in ("filtered", "ranged"),
        index_searchable=column.use == "searched" if text else None,
        index_range_filters=column.use == "ranged",
    )
