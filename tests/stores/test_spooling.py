"""A buffer whose server goes away and comes back: every recording gets there, once, and nobody reads half."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from away_double import AwayServerDouble, AwayStoreDouble, Fault, seen
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.outbox import BufferedStore, Outbox
from dreamgym_kit.errors import StoreError, StoreUnavailable
from dreamgym_kit.interfaces import HybridQuery, Room
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition


@pytest.fixture
def spool(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "spool.jsonl")


def over(server: AwayServerDouble, spool: Outbox, told: list[str] | None = None) -> BufferedStore:
    """Without a wait between two tries, unless a test wants one."""
    tell = told.append if told is not None else lambda _: None
    return BufferedStore(lambda: AwayStoreDouble(server), spool, tell=tell, retry_s=0.0)


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.HALF, Fault.UNHEARD, Fault.REFUSED])
def test_what_a_server_did_not_take_waits_and_follows_in_order(spool: Outbox, fault: Fault) -> None:
    server, told = AwayServerDouble(), list[str]()
    store = over(server, spool, told)
    assert store.put([seen(1), seen(2)]) == 2
    server.faults = iter([fault])
    assert store.put([seen(3), seen(4)]) == 2
    assert store.waiting == 2
    why = "the key is not accepted" if fault is Fault.REFUSED else "no answer within 5 s"
    assert told == [f"warning: weaviate://h: {why}; recordings wait in {spool.path} until it answers"]
    assert store.put([seen(5)]) == 1
    assert [row.step for row in server.rows()] == [1, 2, 3, 4, 5]
    assert (store.waiting, spool.waits()) == (0, False)
    assert told[1:] == [f"2 recordings were delivered from the outbox: {spool.path}"]
    assert store.added == 5


def test_a_try_in_vain_does_not_read_all_that_waits_again(
    spool: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many thousand rows that takes half a minute, in which nobody records and the server is not tried."""
    server = AwayServerDouble()
    store = over(server, spool)
    server.away = True
    store.put([seen(step) for step in range(1, 20)])
    reads: list[int] = []
    ids = Outbox.ids
    monkeypatch.setattr(Outbox, "ids", lambda of: reads.append(1) or ids(of))
    for step in range(20, 25):
        assert store.put([seen(step)]) == 1
    assert (store.waiting, reads) == (24, [])
    other = Outbox(spool.path)  # of another process
    other.add([seen(30)])
    assert store.put([seen(30)]) == 0
    server.away = False
    assert store.put([seen(25)]) == 1
    assert (store.waiting, len(server.rows())) == (0, 26)


def test_a_wrong_key_at_the_start_is_an_error_and_nothing_waits(spool: Outbox) -> None:
    server = AwayServerDouble()
    server.refuses = "weaviate://h: the key is not accepted"
    with pytest.raises(StoreError, match="key is not accepted"):
        over(server, spool)


def test_a_server_that_was_away_is_left_alone_for_a_while(spool: Outbox) -> None:
    server = AwayServerDouble()
    store = BufferedStore(lambda: AwayStoreDouble(server), spool, tell=list[str]().append, retry_s=3600.0)
    server.faults = iter([Fault.AWAY])
    for step in range(1, 20):
        store.put([seen(step)])
    assert (server.puts, store.waiting, server.rows()) == (1, 19, [])
    store.close()
    assert over(server, spool).waiting == 0  # the next opening delivers
    assert len(server.rows()) == 19


def test_a_server_that_is_silent_for_long_is_asked_seldom(
    spool: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Slow(AwayStoreDouble):
        def put(self, transitions: Sequence[Transition]) -> int:
            nonlocal now
            now += 20.0
            return super().put(transitions)

    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("dreamgym_kit.adapters.stores.outbox.time", clock)
    server = AwayServerDouble()
    store = BufferedStore(lambda: Slow(server), spool, tell=list[str]().append)
    server.faults = iter([Fault.AWAY] * 100)
    for step in range(1, 101):
        now += 10.0
        store.put([seen(step)])
    assert (store.waiting, server.puts) == (100, 4)
    assert now == 100 * 10 + 4 * 20


READS: dict[str, Callable[[BufferedStore], object]] = {
    "exact": lambda store: store.exact("get_order", Call("get_order", {"id": 1}).key, Environment()),
    "scan": lambda store: list(store.scan()),
    "search": lambda store: store.search(HybridQuery("order", k=3)),
    "evict": lambda store: store.evict(Room(rows=10)),
    "count": lambda store: store.count(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_question_to_a_server_that_is_away_fails_by_name(
    spool: Outbox, read: Callable[[BufferedStore], object]
) -> None:
    server = AwayServerDouble()
    store = over(server, spool)
    store.put([seen(1)])
    server.away = True
    with pytest.raises(StoreUnavailable, match="no answer within 5 s"):
        read(store)
    store.put([seen(2)])
    with pytest.raises(StoreUnavailable, match="no answer within 5 s"):
        read(store)


def test_a_question_is_answered_only_after_what_waits_is_there(spool: Outbox) -> None:
    server = AwayServerDouble([Fault.NONE, Fault.AWAY])
    store = over(server, spool)
    store.put([seen(1)])
    assert server.rows() == []
    assert list(store.scan()) == [seen(1)]


def test_what_has_no_json_form_is_refused_and_waits_nowhere(spool: Outbox) -> None:
    store = over(AwayServerDouble(), spool)
    bad = Transition(Call("a", {}), Answer(float("nan")), Effect.READ, "t.1", 1)
    with pytest.raises(StoreError, match="cannot be stored"):
        store.put([bad])
    assert not spool.waits()
    assert store.put([seen(1)]) == 1


def test_a_closed_one_takes_nothing(spool: Outbox) -> None:
    store = over(AwayServerDouble(), spool)
    store.close()
    store.close()
    for use in (lambda: store.put([seen(1)]), store.count):
        with pytest.raises(StoreError, match="was closed"):
            use()
    assert not spool.waits()


STEPS = st.lists(st.integers(1, 12), min_size=1, max_size=4)
USES = st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=12)


@settings(max_examples=40)
@given(USES, st.lists(st.sampled_from(Fault), max_size=40))
def test_spooled_and_flushed_is_put(uses: list[tuple[list[int], bool]], faults: list[Fault]) -> None:
    """Whatever fails when, across processes that come and go: in the end all is there as if nothing had."""
    calm, server = MemoryStore(), AwayServerDouble()
    with tempfile.TemporaryDirectory() as folder:
        spool = Outbox(Path(folder) / "spool.jsonl")
        store = over(server, spool)
        server.faults = iter(faults)
        for steps, again in uses:
            if again:  # killed: nothing is closed, and another one opens the same spool
                store = _opened_in_spite(server, spool)
            rows = [seen(step) for step in steps]
            calm.put(rows)
            store.put(rows)
        server.faults = iter(())
        last = over(server, spool)
        assert (last.waiting, spool.waits()) == (0, False)
    assert server.rows() == list(calm.scan())


def _opened_in_spite(server: AwayServerDouble, spool: Outbox) -> BufferedStore:
    while True:
        try:
            return over(server, spool)
        except StoreError:  # a refusal at the start is an error
            continue
