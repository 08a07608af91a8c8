"""Find and restore rows of a Weaviate buffer that the server's indexes miss.

A killed server keeps every object that it acknowledged, but can lose index entries without an error. So the
check compares stored objects with index results. To restore a row, it is sent again with a slightly changed
vector, which indexes it anew. Each node of a cluster has its own indexes, and any node may answer: check each
node by its own address.
"""

from dataclasses import dataclass
from typing import Any

from dreamgym_kit.adapters.stores.weaviate_rows import VECTOR, filter_of, number_of_object, uuid_of
from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore
from dreamgym_kit.adapters.stores.weaviate_tenant import BARE, Tenant, again
from dreamgym_kit.errors import StoreError, StoreUnavailable
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.types import Answer, Call, Effect, Environment, Split, Transition

SAMPLE = 500  # vectors checked, unless all are
_PART = 100  # rows restored per request


@dataclass(frozen=True, slots=True)
class BufferCheck:
    """Result of a check: numbers of rows."""

    rows: int  # stored objects
    not_listed: int  # of these, missing from the property indexes
    unknown_ids: int  # of these, missing from the ID index
    vectors_checked: int
    not_near: int  # of these, not found by vector search
    repaired: int

    @property
    def sound(self) -> bool:
        """Whether all checked rows were found, or rows were repaired."""
        return self.repaired > 0 or not (self.not_listed or self.unknown_ids or self.not_near)


def check_buffer(store: TransitionStore, *, repair: bool, every_vector: bool) -> BufferCheck:
    """Find stored rows that the indexes miss.

    With `repair`, such rows are sent again, and all vectors are checked if the sample misses any.
    `every_vector` checks every vector, with two requests per row.

    Raises:
        StoreError: the buffer is not on Weaviate, or the server refuses or is unreachable; repairs stay.
    """
    if not isinstance(store, WeaviateStore):
        raise StoreError("this check is for Weaviate buffers; a file is checked when it is opened")
    tenant = store.tenant
    splits = {number_of_object(item): item.properties["split"] for item in tenant.every("order", "split")}
    unlisted = splits.keys() - {number_of_object(item) for item in tenant.indexed(filter_of({}))}
    numbers = sorted(splits)
    parts = [numbers[first : first + BARE] for first in range(0, len(numbers), BARE)]
    by_id = [item for part in parts for item in tenant.by_ids(list(map(uuid_of, part)), ["order"])]
    unknown = splits.keys() - {number_of_object(item) for item in by_id}
    searched = [number for number in numbers if splits[number] == Split.TRAIN]
    looked_at = searched[:: 1 if every_vector else max(1, len(searched) // SAMPLE)]
    far = {number for number in looked_at if not _is_near(tenant, number)}
    torn = unlisted | unknown | far
    if repair and far:
        torn |= {number for number in set(searched).difference(looked_at) if not _is_near(tenant, number)}
    repaired = _repair(tenant, sorted(torn)) if repair else 0
    return BufferCheck(len(numbers), len(unlisted), len(unknown), len(looked_at), len(far), repaired)


def check_server(store: TransitionStore) -> str:
    """Try the requests of a run on a server; return a summary, with features that the server lacks.

    Writes, reads and removes a row that search cannot return. Creates nothing: the collection and the tenant
    must exist.

    Raises:
        StoreError: the buffer is not on Weaviate, or the server refuses a request or is unreachable.
    """
    if not isinstance(store, WeaviateStore):
        raise StoreError("this check is for Weaviate buffers")
    store.tenant.fetch("reading a page", limit=BARE, return_properties=["order"])
    probe = Transition(
        Call("dreamgym_doctor", {}),
        Answer("written by doctor; it removes this row"),
        Effect.READ,
        episode="doctor",
        step=1,
        environment=Environment("doctor"),
        split=Split.HELD_OUT,
    )
    try:
        store.remove([probe.id])
    except StoreUnavailable:
        raise
    except StoreError as error:  # recording alone does not need permission to delete
        return f"pages of 10,000 rows; no row was written, because rows cannot be removed ({error})"
    store.put([probe])
    try:
        read = store.exact("dreamgym_doctor", probe.call.key, probe.environment)
    finally:
        removed = store.remove([probe.id])
    if [row.id for row in read] != [probe.id] or removed != 1:
        raise StoreError(f"{store.tenant.server.place}: a written row could not be read back or removed")
    text = "pages of 10,000 rows; one row written, read and removed"
    return text if store.tenant.lifetimes else f"{text}; the server does not delete rows by age"


def _is_near(tenant: Tenant, number: int) -> bool:
    """Whether a search by a row's own vector finds the row; True if it has no vector yet."""
    from weaviate.classes.query import Filter

    row_id = uuid_of(number)
    stored = tenant.read_over_http(row_id)
    vector = stored and stored.vector.get(VECTOR)
    if not vector:
        return True

    def near(at: Any) -> Any:
        only = Filter.by_id().equal(row_id)
        return at.query.near_vector(vector, target_vector=VECTOR, limit=1, filters=only, return_properties=[])

    return bool(tenant.ask("searching by a vector", near).objects)


def _repair(tenant: Tenant, numbers: list[int]) -> int:
    repaired = 0
    for first in range(0, len(numbers), _PART):
        stored = [tenant.read_over_http(uuid_of(number)) for number in numbers[first : first + _PART]]
        objects = [again(item, None) for item in stored if item is not None]
        if objects:
            tenant.resend(objects)
            tenant.send(objects[-1:])
            repaired += len(objects)
    return repaired
