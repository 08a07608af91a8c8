"""Serialize transitions as Weaviate objects, filter for them, and parse them back.

The payload is authoritative: JSON text with a checksum. Names to filter by are stored as JSON strings with
their quotes: the server trims filter values and takes only UTF-8, and this way different names never match.
Words are split here (`terms_of`) and joined with spaces: the server only splits at spaces. Rows that search
must not return have neither words nor a vector.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dreamgym_kit.bounded_json import read_json
from dreamgym_kit.errors import NotSerializable, StoreError
from dreamgym_kit.replay.records import dump_record, transition_from_record, transition_to_record
from dreamgym_kit.replay.retrieval import may_be_found, search_text, terms_of
from dreamgym_kit.types import Environment, Source, Split, Transition

VECTOR = "text"  # the name of the vector, after its source
VERSION = 1
READ = ("payload", "checksum", "order")  # properties needed to build a transition
_TITLE = "Transitions of dreamgym-kit; it reads this: "
_LONG = 200  # maximum characters of a name to filter by; longer names are hashed
_FILTERED = ("tenant", "world", "tool", "key", "episode", "split", "provenance")
_spell = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class Row:
    """A transition, ready to be sent."""

    id: str
    text: str  # source of its vector; "" if search must not return the row
    properties: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions on rows; None means any value."""

    tenant: str | None = None
    environment: Environment | None = None
    tool: str | None = None
    key: str | None = None

    def names(self) -> dict[str, str]:
        """Return the encoded properties to filter by."""
        environment = None if self.environment is None else str(self.environment)
        values = {"tenant": self.tenant, "world": environment, "tool": self.tool, "key": self.key}
        return {name: named(value) for name, value in values.items() if value is not None}

    def fits(self, row: Transition) -> bool:
        """Whether a row meets the conditions; checked here, too, because an index may be wrong."""
        return (
            self.tenant in (None, row.tenant)
            and self.environment in (None, row.environment)
            and self.tool in (None, row.call.tool)
            and self.key in (None, row.call.key)
        )


def row_of(transition: Transition, *, lifetime_s: float | None) -> Row:
    """Serialize a transition.

    The server may delete a simulated answer after `lifetime_s` seconds.

    Raises:
        NotSerializable: it has no JSON form.
    """
    payload = dump_record(transition_to_record(transition))
    text = search_text(transition) if may_be_found(transition) else ""
    properties: dict[str, object] = {
        "payload": payload,
        "checksum": _checksum(payload),
        "tenant": named(transition.tenant),
        "world": named(str(transition.environment)),
        "tool": named(transition.call.tool),
        "key": named(transition.call.key),
        "episode": named(transition.episode),
        "split": str(transition.split),
        "provenance": transition.answer.source.on_disk,
        "recorded_at": transition.recorded_at,
        "terms": " ".join(terms_of(text)),
    }
    expires = _expires(transition, lifetime_s)
    return Row(transition.id, text, properties if expires is None else {**properties, "expires": expires})


def named(name: str) -> str:
    """Encode any text so that a filter matches exactly this text; plain names stay readable."""
    spelled = _spell(name)
    if len(spelled) <= _LONG:
        return spelled
    return "#" + hashlib.blake2b(spelled.encode(), digest_size=32).hexdigest()


def read_object(place: str, item: Any) -> Transition:
    """Parse an object with the properties `READ` into its transition.

    Raises:
        StoreError: its content differs from what was written.
    """
    payload, stored = (item.properties.get(name) for name in READ[:2])
    if not isinstance(payload, str) or _checksum(payload) != stored:
        raise damaged(place, item, "its content does not match its checksum")
    try:
        record = read_json(payload, checked=True)
        transition = transition_from_record(record, checked=True)
    except NotSerializable as error:
        raise damaged(place, item, str(error)) from error
    if record.get("id") != str(item.uuid):
        raise damaged(place, item, "its content belongs to another row")
    return transition


def number_of_object(item: Any) -> int:
    """Return a row's unique number, ascending in recording order; it needs less memory than the object."""
    order: int = item.properties["order"]
    number: int = item.uuid.int
    return (order << 128) | number


def uuid_of(number: int) -> UUID:
    """Return the ID of the row with this number."""
    return UUID(int=number & (2**128 - 1))


def damaged(place: str, item: Any, problem: str) -> StoreError:
    """Return the error for a damaged row."""
    return StoreError(
        f"{place}: row {item.uuid} is damaged: {problem}; delete it on the server and import it again"
    )


def object_of(name: str, properties: Mapping[str, object], vector: NDArray[np.float32] | None) -> Any:
    """Build the client's object for a row."""
    from weaviate.classes.data import DataObject

    return DataObject(
        properties={key: value for key, value in properties.items() if value is not None},
        uuid=UUID(name),
        vector=None if vector is None else {VECTOR: vector.astype(np.float32).tolist()},
    )


def filter_of(names: Mapping[str, str], *more: Any) -> Any:
    """Build the filter for rows with these properties that also meet `more`; both empty: every row."""
    from weaviate.classes.query import Filter

    each = [Filter.by_property(name).equal(value) for name, value in names.items()]
    every = Filter.by_property("split").contains_any([str(split) for split in Split])
    return Filter.all_of([*each, *more] or [every])


def title(embedder: str | None, dimension: int | None) -> str:
    """Return the collection's description: its schema version, and the embedder of its vectors."""
    return _TITLE + json.dumps({"schema": VERSION, "embedder": embedder, "dimension": dimension})


def read_title(text: str) -> tuple[int, tuple[str, int] | None]:
    """Parse a description into version, and embedder with dimension; None if there are no vectors yet.

    Raises:
        ValueError: not a description of dreamgym-kit.
    """
    try:
        fields = json.loads(text.removeprefix(_TITLE)) if text.startswith(_TITLE) else {}
        version, embedder, dimension = int(fields["schema"]), fields["embedder"], fields["dimension"]
    except (KeyError, TypeError):
        raise ValueError(text) from None
    return version, None if embedder is None else (embedder, dimension)


def collection_of(name: str, *, replicas: int, flat: bool, lifetimes: bool) -> dict[str, Any]:
    """Return the server's JSON form of a new collection; omitted keys keep the server's defaults."""

    def text(name: str, *, filtered: bool = False, searched: bool = False) -> dict[str, Any]:
        how = {"tokenization": "whitespace" if searched else "field", "indexSearchable": searched}
        return {"name": name, "dataType": ["text"], "indexFilterable": filtered, **how}

    def ranged(name: str, kind: str) -> dict[str, Any]:
        return {"name": name, "dataType": [kind], "indexFilterable": True, "indexRangeFilters": True}

    hnsw = {"distance": "cosine", "filterStrategy": "acorn", "skipDefaultQuantization": True}
    made: dict[str, Any] = {
        "class": name,
        "description": title(None, None),
        "properties": [
            text("payload"),
            text("checksum"),
            *(text(each, filtered=True) for each in _FILTERED),
            ranged("order", "int"),
            ranged("recorded_at", "number"),
            ranged("expires", "date"),
            {"name": "embedded", "dataType": ["boolean"], "indexFilterable": True},
            text("terms", searched=True),
        ],
        "vectorConfig": {
            VECTOR: {
                "vectorizer": {"none": {}},
                "vectorIndexType": "flat" if flat else "hnsw",
                "vectorIndexConfig": {"distance": "cosine"} if flat else hnsw,
            }
        },
        "invertedIndexConfig": {"stopwords": {"preset": "none"}},
        "multiTenancyConfig": {"enabled": True, "autoTenantCreation": False, "autoTenantActivation": True},
        "replicationConfig": {"factor": replicas, "deletionStrategy": "TimeBasedResolution"},
    }
    if replicas > 1:
        made["replicationConfig"]["asyncEnabled"] = True
    if lifetimes:
        made["objectTtlConfig"] = {"enabled": True, "deleteOn": "expires", "defaultTtl": 0}
    return made


def _expires(transition: Transition, lifetime_s: float | None) -> datetime | None:
    made, at = transition.answer.source, transition.recorded_at
    if lifetime_s is None or made is Source.REAL or at <= 0:
        return None
    try:
        return datetime.fromtimestamp(at + lifetime_s, tz=UTC)
    except (OverflowError, OSError, ValueError):  # a year outside the calendar: the row does not expire
        return None


def _checksum(payload: str) -> str:
    return hashlib.blake2b(payload.encode(), digest_size=16).hexdigest()
