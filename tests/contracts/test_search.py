"""What every `TransitionStore` promises of search and eviction; the file is held against brute force."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from each_row import each_row
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.interfaces import HybridQuery, Room, TransitionStore
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition

SHOP = Environment("shop", 1)


LIVE = pytest.param("live_weaviate", marks=pytest.mark.weaviate)


@pytest.fixture(params=["memory", "sqlite", "doubled_weaviate", LIVE])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransitionStore]:
    opened: TransitionStore
    if request.param == "memory":
        opened = MemoryStore()
    elif request.param == "sqlite":
        opened = SqliteStore(tmp_path / "b.db")
    else:
        opened = request.getfixturevalue(request.param)(uuid4().hex)
    yield opened
    opened.close()


def row(
    step: int,
    content: JsonValue,
    *,
    tool: str = "get_order",
    environment: Environment = SHOP,
    tenant: str = "default",
    episode: str = "t.1",
    split: Split = Split.TRAIN,
    made: Source = Source.REAL,
    at: float = 0.0,
) -> Transition:
    return Transition(
        Call(tool, {"id": f"ORD-{step}"}),
        Answer(content, source=made),
        Effect.READ,
        episode,
        step,
        environment=environment,
        tenant=tenant,
        split=split,
        recorded_at=at,
    )


def steps(store: TransitionStore, query: HybridQuery) -> list[int]:
    return [hit.transition.step for hit in store.search(query)]


def test_the_row_with_the_asked_number_comes_first_and_says_why(store: TransitionStore) -> None:
    store.put([row(step, "a lamp was sent") for step in range(1, 40)])
    best, *_ = store.search(HybridQuery("where is ord-17?"))
    assert best.transition == row(17, "a lamp was sent")
    assert best.places["words"] == 1
    assert best.score > 1 / 61


def test_likeness_finds_what_shares_no_whole_word(store: TransitionStore) -> None:
    store.put([row(1, "weather sunny"), row(2, "refunded twice"), row(3, "lamp blue")])
    (best,) = store.search(HybridQuery("refunding", k=1))
    assert best.transition.step == 2
    assert set(best.places) == {"vectors"}
    assert store.search(HybridQuery("refunding", words_only=True)) == []


def test_a_search_that_matches_nothing_and_an_empty_store_give_no_hit(store: TransitionStore) -> None:
    assert store.search(HybridQuery("lamp")) == []
    store.put([row(1, "lamp", tenant="other")])
    assert store.search(HybridQuery("lamp")) == []
    assert store.search(HybridQuery("", tenant="other", words_only=True)) == []


@pytest.mark.parametrize(
    ("others", "query"),
    [
        ({"tenant": "b"}, HybridQuery("lamp")),
        ({"tenant": 'default" OR "'}, HybridQuery("lamp")),
        ({"split": Split.HELD_OUT}, HybridQuery("lamp")),
        ({"episode": "mine"}, HybridQuery("lamp", not_episode="mine")),
        ({"tool": "get_orders"}, HybridQuery("lamp", tool="get_order")),
        ({"environment": Environment("shop", 2)}, HybridQuery("lamp", environment=SHOP)),
        ({"made": Source.FAULT}, HybridQuery("lamp")),
        ({"made": Source.UNANSWERED}, HybridQuery("lamp")),
        ({"made": Source.MODEL}, HybridQuery("lamp", sources=frozenset({Source.REAL}))),
    ],
    ids=[
        "tenant",
        "hostile tenant",
        "held out",
        "own episode",
        "tool",
        "world",
        "fault",
        "abstained",
        "made",
    ],
)
def test_what_is_filtered_out_is_never_found_however_much_of_it_there_is(
    store: TransitionStore, others: dict[str, object], query: HybridQuery
) -> None:
    store.put([row(step, f"lamp lamp {step}", **others) for step in range(1, 120)])
    assert store.search(query) == []
    store.put([row(500, "a lamp and much more that is not alike at all, in many words")])
    assert steps(store, query) == [500]


@each_row("text", ['lamp" OR "x', "lamp AND", "NEAR(lamp)", "lamp*", "text:lamp", "\x00lamp\ud800", "-"])
def test_a_query_is_words_and_no_language(store: TransitionStore, text: str) -> None:
    store.put([row(1, "lamp")])
    assert len(store.search(HybridQuery(text))) == 1


def test_real_rows_come_before_dreamt_ones_which_only_fill_up(store: TransitionStore) -> None:
    store.put([row(step, f"red lamp {step}", made=Source.MODEL) for step in range(1, 30)])
    store.put([row(40, "a lamp"), row(41, "nothing alike")])
    found = steps(store, HybridQuery("red lamp", k=5))
    assert found[:2] == [40, 41]
    assert len(found) == 5


def test_rows_that_say_the_same_are_said_once_also_where_there_are_many(store: TransitionStore) -> None:
    same = [
        Transition(Call("get_order", {"id": 1}), Answer("lamp"), Effect.READ, f"t.{n}", 1) for n in range(300)
    ]
    store.put([*same, row(2, "lamp, but another")])
    assert len(store.search(HybridQuery("lamp"))) == 2


def test_rows_are_found_once_they_are_put_and_never_after_they_were_evicted(store: TransitionStore) -> None:
    for step in range(1, 20):
        store.put([row(step, f"lamp {step}")])
        assert steps(store, HybridQuery(f"ord-{step}", k=1)) == [step]
    assert store.evict(Room(rows=3)) == 16
    assert sorted(steps(store, HybridQuery("lamp"))) == [17, 18, 19]
    assert store.evict(Room(rows=3)) == 0
    assert store.put([row(1, "lamp 1")]) == 1
    assert steps(store, HybridQuery("ord-1", k=1)) == [1]


def test_dreamt_rows_have_a_lifetime_and_a_share_and_real_ones_have_neither(store: TransitionStore) -> None:
    store.put([row(1, "real", at=1.0), row(2, "held", split=Split.HELD_OUT, at=1.0)])
    store.put([row(step, f"dreamt {step}", made=Source.MODEL, at=100.0 * step) for step in range(3, 9)])
    assert store.evict(Room(dreamt_share=1.0, dreamt_lifetime_s=400.0), now=900.0) == 2
    assert [one.step for one in store.scan()] == [1, 2, 5, 6, 7, 8]
    assert store.evict(Room(dreamt_share=0.5), now=900.0) == 2
    assert [one.step for one in store.scan()] == [1, 2, 7, 8]


words = st.sampled_from(["lamp", "blue", "refund", "ORD-1", "ORD-2", "é@x.com", "order", "damaged.", "sent"])
rows = st.builds(
    row,
    st.integers(1, 6),
    st.lists(words, max_size=5).map(" ".join),
    tool=st.sampled_from(["get", "set_it"]),
    environment=st.sampled_from([SHOP, Environment("b")]),
    tenant=st.sampled_from(["default", "x"]),
    episode=st.sampled_from(["t.1", "t.2"]),
    split=st.sampled_from([Split.TRAIN, Split.TRAIN, Split.HELD_OUT]),
    made=st.sampled_from([Source.REAL, Source.REAL, Source.MODEL, Source.FAULT]),
    at=st.sampled_from([0.0, 5.0, 50.0]),
)
queries = st.builds(
    HybridQuery,
    st.lists(words, max_size=6).map(" ".join),
    tool=st.sampled_from([None, "get"]),
    environment=st.sampled_from([None, SHOP]),
    tenant=st.sampled_from(["default", "x"]),
    k=st.integers(1, 9),
    not_episode=st.sampled_from([None, "t.1"]),
    words_only=st.booleans(),
)
rooms = st.builds(
    Room,
    rows=st.none() | st.integers(0, 12),
    dreamt_share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    dreamt_lifetime_s=st.none() | st.just(10.0),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(rows, max_size=12) | queries | rooms, min_size=2, max_size=8))
def test_the_file_finds_and_evicts_what_brute_force_does(
    tmp_path_factory: pytest.TempPathFactory, acts: list[object]
) -> None:
    memory, file = MemoryStore(), SqliteStore(tmp_path_factory.mktemp("s") / "b.db")
    for act in [*acts, HybridQuery("lamp ORD-1 refund")]:
        both: list[Callable[[], object]] = [lambda it=it, act=act: do(it, act) for it in (memory, file)]
        assert both[0]() == both[1]()
    assert list(memory.scan()) == list(file.scan())
    file.close()


def do(store: TransitionStore, act: object) -> object:
    if isinstance(act, HybridQuery):
        hits = store.search(act)
        for hit in hits:
            assert hit.transition.split is Split.TRAIN
            assert hit.transition.tenant == act.tenant
            assert act.not_episode is None or hit.transition.episode != act.not_episode
        return hits
    if isinstance(act, Room):
        before = list(store.scan())
        count = store.evict(act, now=60.0)
        left = {one.id for one in store.scan()}
        real_went = any(one.id not in left and one.answer.source is Source.REAL for one in before)
        dreamt_stayed = any(one.id in left and one.answer.source is not Source.REAL for one in before)
        assert not (real_went and dreamt_stayed)
        return count
    return store.put(act)
