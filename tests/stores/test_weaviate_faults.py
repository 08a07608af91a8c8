"""What a buffer on Weaviate says when its server refuses, forgets, is silent, or is away for a while."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import weaviate_buffers
from waiting import wait_until
from weaviate_double import DoubleOnItsOwnPorts, WeaviateDouble, grpc

from dreamgym_kit.errors import StoreError, StoreUnavailable
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import HybridQuery, Room
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition

Open = Callable[..., Any]
DOWN = (grpc.StatusCode.UNAVAILABLE, "connection refused")


@pytest.fixture(scope="module")
def module_double() -> Iterator[WeaviateDouble]:
    with DoubleOnItsOwnPorts(key="right-key-8142") as double:
        yield double


@pytest.fixture
def double(module_double: WeaviateDouble) -> WeaviateDouble:
    module_double.faults.clear()
    module_double.requests.clear()
    module_double.state.a_replica_is_down = False
    return module_double


@pytest.fixture
def open_buffer(double: WeaviateDouble) -> Iterator[Open]:
    make = weaviate_buffers.server_of(double.address, key="right-key-8142", timeout_s=60.0)
    with weaviate_buffers.on_server(make) as opened:
        yield opened
        double.faults.clear()


@contextmanager
def soon_too_late(store: Any) -> Iterator[None]:
    """Only what is asked in the block may not take long: what is to be answered has a minute."""
    server = store._server
    before, server._timeout_s = server._timeout_s, 1.0
    try:
        yield
    finally:
        server._timeout_s = before


def row(step: int, content: object = "lamp", *, made: Source = Source.REAL, at: float = 0.0) -> Any:
    answer = Answer(content, source=made)
    return Transition(
        Call("get_order", {"id": step}), answer, Effect.READ, "t.1", step, Environment("shop"), recorded_at=at
    )


def test_a_wrong_key_is_told_by_its_variable_and_never_shown(double: WeaviateDouble) -> None:
    from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore

    for key in ("wrong-key-77", ""):
        with pytest.raises(StoreError, match="refused the key; check WEAVIATE_API_KEY") as told:
            WeaviateStore(weaviate_buffers.server_of(double.address, key=key)("here"))
        assert not isinstance(told.value, StoreUnavailable)
        assert "wrong-key-77" not in str(told.value)


def test_a_key_that_is_taken_back_is_told_when_it_is_used(double: WeaviateDouble, open_buffer: Open) -> None:
    store = open_buffer()
    double.state.key = "another"
    try:
        with pytest.raises(StoreError, match="refused the key") as told:
            store.put([row(1)])
        assert not isinstance(told.value, StoreUnavailable)
    finally:
        double.state.key = "right-key-8142"
    double.faults["Search"] = [(grpc.StatusCode.PERMISSION_DENIED, "forbidden: read_data")]
    with pytest.raises(StoreError, match="lacks the permission"):
        list(store.scan())


def test_reading_makes_neither_a_collection_nor_a_tenant(double: WeaviateDouble, open_buffer: Open) -> None:
    with pytest.raises(StoreError, match="the collection Nowhere does not exist"):
        open_buffer(collection="Nowhere", read_only=True)
    open_buffer("shop", tenant="shop")
    with pytest.raises(StoreError, match="the tenant 'shpo' does not exist; did you mean 'shop'"):
        open_buffer("shpo", tenant="shpo", read_only=True)
    assert "Nowhere" not in double.state.schema
    assert all("shpo" not in tenants for tenants in double.state.tenants.values())
    with pytest.raises(StoreError, match="'a b' cannot be the name of a tenant"):
        open_buffer("bad", tenant="a b")


def test_a_tenant_that_is_deleted_under_a_buffer_is_told_and_not_made_again(
    double: WeaviateDouble, open_buffer: Open
) -> None:
    store = open_buffer()
    for tenants in double.state.tenants.values():
        tenants.clear()
    uses: list[Callable[[], object]] = [
        store.count,
        lambda: list(store.scan()),
        lambda: store.put([row(1)]),
        lambda: store.search(HybridQuery("lamp")),
    ]
    for use in uses:
        with pytest.raises(StoreError, match="its tenant was deleted") as told:
            use()
        assert not isinstance(told.value, StoreUnavailable)


def test_rows_that_are_refused_once_are_sent_again_alone(double: WeaviateDouble, open_buffer: Open) -> None:
    store = open_buffer()
    double.faults["BatchObjects"] = [{1: "shard not ready"}]
    assert store.put([row(1), row(2), row(3)]) == 3
    sent = [len(request.objects) for method, request in double.requests if method == "BatchObjects"]
    assert sent == [3, 1, 1]  # the last: what came before is in the log
    assert [one.step for one in store.scan()] == [1, 2, 3]


@pytest.mark.parametrize("refused", [{1: "invalid vector"}, dict.fromkeys(range(3), "invalid vector")])
def test_a_refused_row_is_told_and_the_others_stay(
    double: WeaviateDouble, open_buffer: Open, refused: dict[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    store = open_buffer()
    double.faults["BatchObjects"] = [refused]
    with caplog.at_level(logging.INFO), pytest.raises(StoreError, match=r"were refused: .*invalid") as told:
        store.put([row(1, "a secret of a row"), row(2), row(3)])
    assert not isinstance(told.value, StoreUnavailable)
    kept = 3 - len(refused)
    assert store.count() == kept
    assert store.put([row(1, "a secret of a row"), row(2), row(3)]) == 3 - kept
    assert "a secret of a row" not in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        'cannot achieve consistency level "QUORUM"',
        "cannot reach enough replicas: required 2 replicas, got 1: broadcast failed",
        'connect: Post "http://10.0.0.7:7001/replicas": EOF',
        "status code: 404, error: request not found",
        'resolve node name "weaviate-2" to host',
        "grpc: the client connection is closing",
    ],
)
def test_too_few_replicas_are_no_reason_to_give_up_a_row(
    double: WeaviateDouble, open_buffer: Open, said: str
) -> None:
    store = open_buffer()
    double.faults["BatchObjects"] = [{0: said}] * 2
    with pytest.raises(StoreUnavailable):
        store.put([row(1), row(2)])
    assert store.put([row(1), row(2)]) == 1  # the second was taken: to put again is to mend
    assert store.count() == 2


def test_counting_does_not_need_every_replica(double: WeaviateDouble, open_buffer: Open) -> None:
    double.state.nodes = 3
    store = open_buffer(replicas=3)
    store.put([row(1)])
    double.state.a_replica_is_down = True
    assert store.count() == 1
    assert store.evict(Room(rows=5)) == 0


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("Search", DOWN),
        ("BatchObjects", 9.0),
        pytest.param("Search", 9.0, marks=pytest.mark.slow),
        pytest.param("BatchObjects", DOWN, marks=pytest.mark.slow),
        pytest.param("BatchDelete", 9.0, marks=pytest.mark.slow),
    ],
)
def test_what_is_not_answered_is_given_up_at_its_deadline(
    double: WeaviateDouble, open_buffer: Open, method: str, fault: object
) -> None:
    """The client alone would go on for a minute, and say so in other words."""
    store = open_buffer()
    store.put([row(1, made=Source.MODEL)])
    double.faults[method] = [fault] * 9
    told = "no answer within 1 s|cannot do it now"
    with pytest.raises(StoreUnavailable, match=told), soon_too_late(store):
        store.evict(Room(dreamt_share=0.0)) if method == "BatchDelete" else store.put([row(2)])
    double.faults.clear()


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "ABORTED"])
def test_what_may_go_well_later_says_so(double: WeaviateDouble, open_buffer: Open, code: str) -> None:
    store = open_buffer()
    double.faults["Search"] = [(grpc.StatusCode[code], "too busy")]
    with pytest.raises(StoreUnavailable, match="cannot do it now; try again later"):
        list(store.scan())
    double.faults["Search"] = [(grpc.StatusCode.UNKNOWN, "no such prop with name 'x'")]
    with pytest.raises(StoreError, match="the server refused it") as told:
        list(store.scan())
    assert not isinstance(told.value, StoreUnavailable)


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back_is_used_again(double: WeaviateDouble, open_buffer: Open) -> None:
    from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore

    store = open_buffer()
    store.put([row(1)])
    double.stop()
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable), soon_too_late(store):
                store.put([row(2)])
        new = weaviate_buffers.server_of(double.address, key="right-key-8142", timeout_s=1)  # expires: away
        with pytest.raises(StoreUnavailable):
            WeaviateStore(new("another"))
    finally:
        double.start()

    def there() -> int | None:
        with suppress(StoreUnavailable):
            return store.count()  # changes nothing, however often it is asked
        return None

    assert wait_until(there, "the server's return") == 1
    assert store.put([row(1), row(2)]) == 1
    assert [one.step for one in store.scan()] == [1, 2]


def test_a_damaged_row_is_named_and_never_answers(double: WeaviateDouble, open_buffer: Open) -> None:
    store = open_buffer()
    store.put([row(1)])
    (item,) = [item for shard in double.state.items.values() for item in shard.values()]
    item.properties["payload"] = item.properties["payload"].replace("lamp", "LAMP")
    for use in (lambda: list(store.scan()), lambda: store.search(HybridQuery("lamp"))):
        with pytest.raises(StoreError, match=f"row {item.id} is damaged"):
            use()


@pytest.mark.parametrize("name", ["tenant", "split"])
def test_a_row_under_anothers_name_is_not_given(double: WeaviateDouble, open_buffer: Open, name: str) -> None:
    """Somebody changed what rows are found by: the server finds it, and it is no answer."""
    store = open_buffer()
    theirs = Transition(
        *(Call("get_order", {"id": 1}), Answer("lamp"), Effect.READ, "t.1", 1, Environment("shop")),
        tenant="theirs",
        split=Split.HELD_OUT,
    )
    store.put([theirs, row(2)])
    item = next(i for shard in double.state.items.values() for i in shard.values() if i.id == theirs.id)
    item.properties.update(tenant='"default"', split="train", terms="lamp")
    with pytest.raises(StoreError, match="damaged"):
        store.search(HybridQuery("lamp", words_only=True))
    if name == "tenant":
        with pytest.raises(StoreError, match="damaged"):
            list(store.scan(tenant="default"))


def test_a_dream_lets_its_own_buffer_be_asked_and_notes_whoever_else_asks(double: WeaviateDouble) -> None:
    from dreamgym_kit.adapters.stores.weaviate_store import WeaviateStore

    make = weaviate_buffers.server_of(double.address, key="right-key-8142")
    with egress.watching(egress.Allowance()) as trips:
        with egress.exempt():
            store = WeaviateStore(make("dreamt from"))
            assert list(store.search(HybridQuery("lamp"))) == []
            store.close()
        assert [trip.target for trip in trips] == []
        with pytest.raises(StoreError):
            WeaviateStore(weaviate_buffers.server_of(double.address, key="wrong")("another"))
        assert trips


@contextmanager
def small_messages() -> Iterator[Any]:
    with WeaviateDouble(most_bytes=3_000_000) as double:
        make = weaviate_buffers.server_of(double.address)
        with weaviate_buffers.on_server(make) as opened:
            yield opened()


@pytest.mark.slow
def test_large_rows_are_read_fewer_at_a_time() -> None:
    with small_messages() as store:
        rows = [row(step, "x" * 400_000) for step in range(1, 21)]
        assert store.put(rows) == 20
        assert [one.step for one in store.scan()] == list(range(1, 21))
        with pytest.raises(StoreError, match="GRPC_MAX_MESSAGE_SIZE") as told:
            store.put([row(30, "x" * 4_000_000)])
        assert not isinstance(told.value, StoreUnavailable)
        assert store.count() == 20
