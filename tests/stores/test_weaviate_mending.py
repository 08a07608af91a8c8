"""Rows that a killed server acknowledged and cannot find, and servers that start: played by the double."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weaviate_buffers
from weaviate_double import WeaviateDouble, grpc

from dreamgym_kit.adapters.stores.outbox import Outbox
from dreamgym_kit.adapters.stores.weaviate_check import check_buffer
from dreamgym_kit.adapters.stores.weaviate_tenant import stepped
from dreamgym_kit.errors import StoreError, StoreUnavailable
from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.types import Answer, Call, Effect, Environment, Split, Transition

Open = Callable[..., Any]
SHOP = Environment("shop")


@pytest.fixture
def double() -> Iterator[WeaviateDouble]:
    with WeaviateDouble() as double:
        yield double


@pytest.fixture
def open_buffer(double: WeaviateDouble) -> Iterator[Open]:
    with weaviate_buffers.on_server(weaviate_buffers.server_of(double.address)) as opened:
        yield opened


def rows(first: int, count: int, *, at: float = 0.0) -> list[Transition]:
    return [
        Transition(
            *(Call("get_order", {"id": step}), Answer(f"lamp {step}"), Effect.READ, "t.1", step, SHOP),
            split=Split.HELD_OUT if step % 5 == 0 else Split.TRAIN,
            recorded_at=at,
        )
        for step in range(first, first + count)
    ]


def items(double: WeaviateDouble) -> list[Any]:
    return [item for shard in double.state.items.values() for item in shard.values()]


def unfindable(store: Any, double: WeaviateDouble, put: list[Transition]) -> int:
    """Rows that one of the ways to ask does not give."""
    scanned = {row.id for row in store.scan(tool="get_order")}
    missed = {row.id for row in put if row.id not in scanned}
    missed |= {row.id for row in put if not store.exact("get_order", row.call.key, SHOP)}
    return len(missed | {item.id for item in items(double) if item.vectors and not item.near})


def test_interrupted_put_is_repaired_by_the_next_put(double: WeaviateDouble, open_buffer: Open) -> None:
    store = open_buffer()
    store.put(rows(1, 3))
    double.faults["BatchObjects"] = ["torn"]
    put = rows(2, 30)
    with pytest.raises(StoreUnavailable):
        store.put(put)
    assert unfindable(store, double, put) == 28
    assert len(list(store.scan())) == store.count() == 31  # objects are walked, not an index
    store.put(put)
    assert unfindable(store, double, put) == 0
    assert {row.id for row in store.scan()} == {row.id for row in rows(1, 31)}


def test_outbox_rows_are_sent_in_full_with_their_original_times(
    double: WeaviateDouble, open_buffer: Open, tmp_path: Path
) -> None:
    """The process whose put broke off is gone; another one delivers what waits."""
    open_buffer().put(rows(1, 3, at=7.0))
    double.faults["BatchObjects"] = ["torn"]
    with pytest.raises(StoreUnavailable):
        open_buffer().put(rows(4, 20, at=7.0))
    spool = Outbox(tmp_path / "waits.jsonl")
    spool.add(rows(1, 23, at=9.0))
    store = open_buffer()
    assert spool.deliver(store).sent == 23
    assert unfindable(store, double, rows(1, 23)) == 0
    assert {row.recorded_at for row in store.scan() if row.step <= 3} == {7.0}


def test_the_last_batch_is_in_the_servers_log_when_its_put_returns(
    double: WeaviateDouble, open_buffer: Open
) -> None:
    store = open_buffer()
    store.put(rows(1, 40))
    double.state.killed()
    assert unfindable(store, double, rows(1, 40)) == 0


@pytest.mark.parametrize("every_vector", [False, True])
def test_a_check_counts_what_cannot_be_found_and_repair_mends_it(
    double: WeaviateDouble, open_buffer: Open, every_vector: bool
) -> None:
    store = open_buffer()
    store.put(rows(1, 40))
    for number, item in enumerate(items(double)):
        item.entered, item.near = number % 4 != 0, number % 3 != 0
    found = check_buffer(store, repair=False, every_vector=every_vector)
    assert (found.rows, found.not_listed, found.unknown_ids, found.sound) == (40, 10, 10, False)
    assert found.vectors_checked == 32
    assert found.not_near > 0
    assert unfindable(store, double, rows(1, 40)) > 10
    mended = check_buffer(store, repair=True, every_vector=every_vector)
    assert mended.repaired >= 10
    assert unfindable(store, double, rows(1, 40)) == 0
    assert check_buffer(store, repair=False, every_vector=True).sound
    assert {row.id for row in store.scan()} == {row.id for row in rows(1, 40)}
    assert store.search(HybridQuery("lamp 7", k=1))[0].transition.step == 7


def test_rows_missing_from_indexes_are_evicted(double: WeaviateDouble, open_buffer: Open) -> None:
    from dreamgym_kit.interfaces import Room

    store = open_buffer()
    store.put(rows(1, 10))
    for item in items(double)[:4]:
        item.entered = False
    assert store.evict(Room(rows=3)) == 7
    assert store.count() == 3


def test_error_says_why_a_row_was_not_deleted(double: WeaviateDouble, open_buffer: Open) -> None:
    from dreamgym_kit.interfaces import Room

    store = open_buffer()
    store.put(rows(1, 4))
    double.faults["BatchDelete"] = ["store is read-only due to: manually set by user"]
    with pytest.raises(StoreUnavailable, match="3 rows were not deleted: store is read-only"):
        store.evict(Room(rows=1))


def test_a_server_that_starts_is_waited_for_and_nothing_is_said_to_be_gone(
    double: WeaviateDouble, open_buffer: Open
) -> None:
    store = open_buffer()
    store.put(rows(1, 3))
    for use in (store.count, lambda: list(store.scan()), lambda: store.search(HybridQuery("lamp"))):
        double.state.starting = 2
        use()
    double.state.starting = 2
    assert open_buffer(read_only=True).count() == 3
    double.state.starting = 10**6
    store._server._timeout_s = 1.0
    with pytest.raises(StoreUnavailable, match="the server is starting"):
        store.count()
    double.state.starting = 0


def test_collections_that_differ_only_in_case_are_refused(double: WeaviateDouble, open_buffer: Open) -> None:
    open_buffer(collection="KitCase")
    with pytest.raises(StoreError, match="the collection KitCase differs"):
        open_buffer(collection="Kitcase")
    assert [name for name in double.state.schema if name.lower() == "kitcase"] == ["KitCase"]
    double.state.schema.pop("KitCase")


def test_a_refused_embedder_leaves_no_tenant_behind(double: WeaviateDouble, open_buffer: Open) -> None:
    class OtherDouble:
        name, dimension, local = "other", 2, True

        def embed(self, texts: Any) -> Any:
            return np.ones((len(texts), 2), dtype=np.float32)

    open_buffer("first").put(rows(1, 1))
    with pytest.raises(StoreError, match="name another collection in the address"):
        open_buffer("second", embedder=OtherDouble())
    assert [len(tenants) for tenants in double.state.tenants.values()] == [1]


def test_a_forbidden_row_is_not_sent_twice(double: WeaviateDouble, open_buffer: Open) -> None:
    store = open_buffer()
    words = "rbac: authorization, forbidden action: user 'viewer' has insufficient permissions to update_data"
    double.faults["BatchObjects"] = [{0: words}]
    double.requests.clear()
    with pytest.raises(StoreError, match="lacks the permission"):
        store.put(rows(1, 1))
    assert [method for method, _ in double.requests].count("BatchObjects") == 1


def test_vector_step_changes_the_vector_but_not_its_neighbors() -> None:
    vector = np.random.default_rng(3).normal(size=256).astype(np.float32)
    for steps in (1, 997):
        changed = np.array(stepped(vector.tolist(), steps), dtype=np.float32)
        assert (changed != vector).sum() == 1
        cosine = float(vector @ changed) / float(np.linalg.norm(vector) * np.linalg.norm(changed))
        assert cosine == pytest.approx(1, abs=1e-6)


def test_client_still_has_the_private_attributes_used() -> None:
    """`_connection` is private: with another client this is to be looked at."""
    import inspect

    from weaviate.connect.v4 import ConnectionSync

    asked = inspect.getsource(ConnectionSync)
    assert "self.grpc_stub.Search" in asked
    assert "_grpc_stub" in inspect.getsource(ConnectionSync.grpc_stub.fget)
    assert {"path", "params", "check_is_connected"} <= set(inspect.signature(ConnectionSync.get).parameters)
    assert grpc.StatusCode.UNAVAILABLE.name == "UNAVAILABLE"
