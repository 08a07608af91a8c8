"""A buffer on Weaviate: its schema, what is kept of whom, several writers, and rows that go by themselves."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weaviate_buffers
from weaviate_double import WeaviateDouble

from dreamgym_kit.adapters.stores import weaviate_store, weaviate_tenant
from dreamgym_kit.adapters.stores.weaviate_rows import title
from dreamgym_kit.errors import StoreError, UserError
from dreamgym_kit.interfaces import HybridQuery, Room
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def module_double() -> Iterator[WeaviateDouble]:
    with WeaviateDouble() as double:
        yield double


@pytest.fixture
def double(module_double: WeaviateDouble) -> WeaviateDouble:
    module_double.requests.clear()
    return module_double


@pytest.fixture
def open_buffer(double: WeaviateDouble) -> Iterator[Open]:
    with weaviate_buffers.on_server(weaviate_buffers.server_of(double.address)) as opened:
        yield opened


class TwoNumbersDouble:
    """An embedder of another name, that can be told to fail."""

    name = "two-numbers"
    dimension = 2
    local = False

    def __init__(self) -> None:
        self.works = True

    def embed(self, texts: Any) -> Any:
        if not self.works:
            raise UserError("the endpoint is gone")
        return np.array([[1.0, 0.0] if "lamp" in text else [0.0, 1.0] for text in texts], dtype=np.float32)


def row(
    step: int,
    content: object = "lamp",
    *,
    made: Source = Source.REAL,
    at: float = 0.0,
    split: Split = Split.TRAIN,
) -> Transition:
    call, answer = Call("get_order", {"id": step}), Answer(content, source=made)
    return Transition(
        *(call, answer, Effect.READ, "t.1", step, Environment("shop")), split=split, recorded_at=at
    )


def items(double: WeaviateDouble) -> list[Any]:
    return [item for shard in double.state.items.values() for item in shard.values()]


def the_schema(double: WeaviateDouble) -> dict[str, Any]:
    (schema,) = double.state.schema.values()
    return schema


def test_the_collection_is_one_for_buffers_and_makes_no_tenant_by_itself(
    double: WeaviateDouble, open_buffer: Open
) -> None:
    open_buffer()
    schema = the_schema(double)
    assert schema["multiTenancyConfig"]["enabled"]
    assert not schema["multiTenancyConfig"]["autoTenantCreation"]
    assert schema["invertedIndexConfig"]["stopwords"]["preset"] == "none"
    assert schema["vectorConfig"]["text"]["vectorIndexConfig"]["distance"] == "cosine"
    kinds = {one["name"]: one for one in schema["properties"]}
    assert (kinds["payload"]["indexFilterable"], kinds["payload"]["indexSearchable"]) == (False, False)
    assert {kinds[name]["tokenization"] for name in ("tenant", "world", "tool", "episode")} == {"field"}
    assert kinds["terms"]["tokenization"] == "whitespace"


def test_a_newer_schema_and_a_foreign_collection_are_refused(
    double: WeaviateDouble, open_buffer: Open
) -> None:
    open_buffer("first")
    for text, told in [
        (
            title(None, None).replace('"schema": 1', '"schema": 99'),
            "its schema 99 is newer than 1, the newest known here; update dreamgym-kit",
        ),
        ("products of a shop", "is not dreamgym-kit's; choose another"),
        ("", "is not dreamgym-kit's"),
    ]:
        the_schema(double)["description"] = text
        with pytest.raises(StoreError, match=told):
            open_buffer("second")


def test_vectors_of_two_embedders_never_meet(double: WeaviateDouble, open_buffer: Open) -> None:
    first = open_buffer("first", embedder=TwoNumbersDouble())
    second = open_buffer("second")  # opened while nobody had vectors here
    first.put([row(1)])
    assert '"embedder": "two-numbers", "dimension": 2' in the_schema(double)["description"]
    with pytest.raises(StoreError, match="its vectors are of embedder 'two-numbers'"):
        second.put([row(2)])
    assert second.count() == 0
    late = open_buffer("third")
    assert late.foreign_embedder == "two-numbers"
    with pytest.raises(StoreError, match="which was not given"):
        late.search(HybridQuery("lamp"))
    late.put([row(3)])
    assert [hit.transition.step for hit in late.search(HybridQuery("lamp", words_only=True))] == [3]


def test_rows_put_without_a_vector_get_it_later(double: WeaviateDouble, open_buffer: Open) -> None:
    embedder = TwoNumbersDouble()
    store = open_buffer(embedder=embedder)
    store.put([row(1)])
    embedder.works = False
    store.put([row(2, "a lamp too"), row(3, split=Split.HELD_OUT)])
    embedder.works = True
    found = {hit.transition.step: set(hit.places) for hit in store.search(HybridQuery("lamp"))}
    assert found == {1: {"words", "vectors"}, 2: {"words", "vectors"}}
    held = next(item for item in items(double) if item.properties["split"] == "held_out")
    assert (held.vectors, held.properties["terms"]) == ({}, "")  # not even the server could find it


def test_writers_share_one_order_even_where_a_clock_is_slow(
    double: WeaviateDouble, open_buffer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_buffer(), open_buffer()
    first.put([row(1), row(2)])
    monkeypatch.setattr("time.time_ns", lambda: 5_000)
    second.put([row(3), row(1), row(4)])
    assert [one.step for one in first.scan()] == [1, 2, 3, 4]


def test_rows_of_two_writers_at_one_moment_are_all_read(
    double: WeaviateDouble, open_buffer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_buffer()
    store.put([row(step) for step in range(1, 10)])
    for item in items(double):
        item.properties["order"] = float(int(item.properties["order"]) // 2)
    monkeypatch.setattr(weaviate_store, "_PAGE", 3)
    monkeypatch.setattr(weaviate_tenant, "BARE", 3)
    assert sorted(one.step for one in store.scan()) == list(range(1, 10))
    assert sorted(one.step for one in store.scan(tool="get_order")) == list(range(1, 10))
    assert store.evict(Room(rows=4)) == 5


def test_lifetimes_are_told_to_a_server_that_deletes_and_kept_by_eviction_where_it_does_not(
    double: WeaviateDouble, open_buffer: Open
) -> None:
    room = Room(dreamt_lifetime_s=60.0, dreamt_share=1.0)
    store = open_buffer(room=room)
    assert the_schema(double)["objectTtlConfig"]["deleteOn"] == "expires"
    store.put([row(1, at=100.0), row(2, made=Source.MODEL, at=100.0), row(3, made=Source.MODEL)])
    expires = {item.properties.get("expires") for item in items(double)}
    assert expires == {None, "1970-01-01T00:02:40.000000+00:00"}
    assert store.make_room() == 1
    assert [one.step for one in store.scan()] == [1, 3]


def test_a_server_that_deletes_nothing_by_itself_is_not_told_to() -> None:
    room = Room(dreamt_lifetime_s=60.0, dreamt_share=1.0)
    plain = WeaviateDouble(deletes_expired=False)
    with plain, weaviate_buffers.on_server(weaviate_buffers.server_of(plain.address)) as opened:
        store = opened(room=room)
        store.put([row(1), row(2, made=Source.MODEL, at=100.0)])
        assert "objectTtlConfig" not in the_schema(plain)
        store.close()
        assert [one.step for one in opened().scan()] == [1]


def test_a_server_that_no_longer_deletes_by_itself_takes_rows_all_the_same() -> None:
    """The collection was made with lifetimes; a server that was started again without refuses changes."""
    with (
        WeaviateDouble() as server,
        weaviate_buffers.on_server(weaviate_buffers.server_of(server.address)) as opened,
    ):
        opened().close()
        assert the_schema(server)["objectTtlConfig"]["enabled"]
        server.state.deletes_expired = False
        store = opened(embedder=TwoNumbersDouble())  # its name is written into the collection
        assert store.put([row(1)]) == 1
        assert not the_schema(server)["objectTtlConfig"]["enabled"]
        assert [hit.transition.step for hit in store.search(HybridQuery("lamp"))] == [1]


def test_read_only_changes_nothing(double: WeaviateDouble, open_buffer: Open) -> None:
    open_buffer().put([row(1)])
    reader = open_buffer(read_only=True)
    double.requests.clear()
    assert [hit.transition.step for hit in reader.search(HybridQuery("lamp"))] == [1]
    assert list(reader.scan()) == [row(1)]
    assert {method for method, _ in double.requests} <= {"Search", "Aggregate"}
    for use in (lambda: reader.put([row(2)]), lambda: reader.evict(Room(rows=0))):
        with pytest.raises(StoreError, match="was opened read-only"):
            use()


def test_names_come_back_whole_however_long_or_odd_they_are(open_buffer: Open) -> None:
    store = open_buffer()
    names = ["a", " a", "a ", "", "a" * 300, "a" * 301, "#", "'; drop", "\u2028", "\ud800", '"a"']
    rows = [replace(row(step), tenant=name, episode=name) for step, name in enumerate(names, 1)]
    assert store.put(rows) == len(rows)
    for each in rows:
        assert list(store.scan(tenant=each.tenant)) == [each]
        assert store.search(HybridQuery("lamp", tenant=each.tenant, not_episode=each.episode)) == []
        assert len(store.search(HybridQuery("lamp", tenant=each.tenant, not_episode="other"))) == 1


def test_doctor_does_at_an_address_what_a_run_does_and_leaves_nothing(double: WeaviateDouble) -> None:
    from weaviate_double import grpc

    from dreamgym_kit.adapters.stores.factory import open_store
    from dreamgym_kit.cli.doctor import buffer_server
    from dreamgym_kit.settings.buffer_url import place_of
    from dreamgym_kit.settings.schema import Settings

    address = f"{double.address}&tenant=doctored&timeout=60"
    settings = Settings(buffer=address)
    assert list(buffer_server(settings)) == []  # no collection, which `recordings` says; none is made
    assert double.state.schema == {}
    store = open_store(place_of(address, Path()), settings, read_only=False)
    store.put([row(1)])
    (check,) = buffer_server(settings)
    assert (check.level, [line.step for line in store.scan()]) == ("ok", [1])
    forbidden = "rbac: authorization, forbidden action: user 'viewer' has insufficient permissions"
    limited = grpc.StatusCode.UNKNOWN, "query maximum results exceeded"
    for method, fault, advice in (
        ("BatchObjects", {0: forbidden}, "lacks the permission"),
        ("Search", limited, "QUERY_MAXIMUM_RESULTS"),
    ):
        double.faults[method] = [fault]
        (check,) = buffer_server(settings)
        assert check.level == "fix"
        assert advice in check.text
    double.faults["BatchDelete"] = [(grpc.StatusCode.PERMISSION_DENIED, forbidden)]  # may only record
    (check,) = buffer_server(settings)
    assert (check.level, "no row was written" in check.text) == ("ok", True)
    assert [line.step for line in store.scan()] == [1]
    store.close()
    double.state.schema.clear()
