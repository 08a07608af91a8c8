"""What every `TransitionStore` promises, whatever it keeps its rows in."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from each_row import each_row

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import StoreError
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.replay.transfer import export_jsonl, import_jsonl
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition

OpenStore = Callable[[str], TransitionStore]
SHOP = Environment("shop", 1)


LIVE = pytest.param("live_weaviate", marks=pytest.mark.weaviate)


@pytest.fixture(params=["memory", "sqlite", "doubled_weaviate", LIVE])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens a store by name; all are closed at the end of the test."""
    opened: list[TransitionStore] = []
    test = uuid4().hex
    opens: dict[str, OpenStore] = {
        "memory": lambda _: MemoryStore(),
        "sqlite": lambda name: SqliteStore(tmp_path / f"{name}.db"),
    }
    if request.param not in opens:
        buffers = request.getfixturevalue(request.param)
        opens[request.param] = lambda name: buffers(f"{name}-{test}")

    def open_named(name: str) -> TransitionStore:
        opened.append(opens[request.param](name))
        return opened[-1]

    yield open_named
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> TransitionStore:
    return open_store("buffer")


def seen(
    step: int,
    content: JsonValue = "ok",
    *,
    tool: str = "get_order",
    environment: Environment = SHOP,
    tenant: str = "default",
    episode: str = "t1.1",
    **args: JsonValue,
) -> Transition:
    call = Call(tool, args or {"id": 7})
    return Transition(
        call, Answer(content), Effect.READ, episode, step, environment=environment, tenant=tenant
    )


def test_putting_twice_is_putting_once(store: TransitionStore) -> None:
    rows = [seen(1), seen(2)]
    assert store.put(rows) == 2
    assert store.put(rows) == 0
    assert store.put([seen(2), seen(3), seen(3)]) == 1
    assert store.count() == 3
    assert list(store.scan()) == [seen(1), seen(2), seen(3)]


def test_a_second_recording_of_the_same_content_keeps_the_first_times(store: TransitionStore) -> None:
    first = Transition(Call("a", {}), Answer(1), Effect.READ, "t.1", 1, recorded_at=1.0)
    again = Transition(Call("a", {}, call_id="x"), Answer(1), Effect.READ, "t.1", 1, recorded_at=2.0)
    store.put([first])
    assert store.put([again]) == 0
    assert next(store.scan()).recorded_at == 1.0


def test_rows_come_back_whole_and_in_the_order_recorded(store: TransitionStore) -> None:
    rows = [
        seen(step, {"at": step, "total": 1.0, "none": None, "é\ud800": [True, "\x00"]}) for step in (3, 1, 2)
    ]
    store.put(rows[:1])
    store.put(rows[1:])
    assert list(store.scan()) == rows
    assert [type(row.answer.content["total"]) for row in store.scan()] == [float] * 3


def test_exact_finds_every_recording_of_the_very_call_in_order(store: TransitionStore) -> None:
    first, other, second = seen(1, "queued", id=7), seen(2, id=8), seen(3, "done", id=7)
    store.put([first, other, second])
    assert store.exact("get_order", Call("get_order", {"id": 7}).key, SHOP) == [first, second]
    assert store.exact("get_order", Call("get_order", {"id": 9}).key, SHOP) == []


@each_row(
    ("mine", "theirs"),
    [
        ({"tenant": "a"}, {"tenant": "b"}),
        ({"tenant": "a"}, {"tenant": "A"}),
        ({"tenant": "a"}, {"tenant": "a\x00"}),
        ({"tenant": 'a"'}, {"tenant": 'a\\"'}),
        ({"tenant": "' or '1'='1"}, {"tenant": "a"}),
        ({"tenant": "é"}, {"tenant": "e\u0301"}),
        ({"tenant": "\ud800"}, {"tenant": "\ud801"}),
        ({"environment": Environment("shop", 1)}, {"environment": Environment("shop", 2)}),
        ({"environment": Environment("shop", 1)}, {"environment": Environment("shop", -1)}),
        ({"environment": Environment("shop", 11)}, {"environment": Environment("shop:1", 1)}),
        ({"environment": Environment("shop", 2**80)}, {"environment": Environment("shop", 2**80 + 1)}),
        ({"tool": "get_order"}, {"tool": "get_orders"}),
        ({"tool": "get_order"}, {"tool": "get%"}),
    ],
)
def test_nothing_crosses_between_tenants_worlds_or_tools(
    open_store: OpenStore, mine: dict[str, object], theirs: dict[str, object]
) -> None:
    store = open_store(uuid4().hex)
    own, other = seen(1, "mine", **mine), seen(1, "theirs", **theirs)
    store.put([other, own])
    for row in (own, other):
        assert store.exact(row.call.tool, row.call.key, row.environment, tenant=row.tenant) == [row]
        assert list(store.scan(tenant=row.tenant, tool=row.call.tool, environment=row.environment)) == [row]


def test_scan_filters_by_each_part_alone(store: TransitionStore) -> None:
    rows = [seen(1, tenant="a"), seen(2, tool="list_orders"), seen(3, environment=Environment("office"))]
    store.put(rows)
    assert list(store.scan(tenant="a")) == rows[:1]
    assert list(store.scan(tool="list_orders")) == rows[1:2]
    assert list(store.scan(environment=Environment("office"))) == rows[2:]
    assert list(store.scan()) == rows


def test_a_scan_of_many_rows_is_whole_and_leaves_out_what_is_put_meanwhile(store: TransitionStore) -> None:
    rows = [seen(step) for step in range(1, 701)]
    store.put(rows)
    scanned = []
    for row in store.scan():
        scanned.append(row)
        if len(scanned) == 1:
            store.put([seen(1000)])
    assert scanned == rows
    assert store.count() == 701


@each_row(
    "bad",
    [
        seen(1, float("nan")),
        seen(1, object()),
        seen(1, {1: "a key that is no text"}),
        seen(0),
        seen(1, x="y" * (33 * 2**20)),
    ],
    ids=["nan", "object", "key", "step", "33 MB"],
)
def test_put_is_all_or_nothing(open_store: OpenStore, bad: Transition) -> None:
    store = open_store(uuid4().hex)
    with pytest.raises(StoreError, match="a transition cannot be stored, so none was: "):
        store.put([seen(5), bad, seen(6)])
    assert store.count() == 0
    assert store.put([seen(5)]) == 1


def test_putting_nothing_is_no_error(store: TransitionStore) -> None:
    assert store.put([]) == 0


def test_who_changes_what_was_read_or_put_changes_nothing_in_the_store(store: TransitionStore) -> None:
    answer = {"items": [1]}
    store.put([seen(1, answer)])
    answer["items"].append(2)
    next(store.scan()).answer.content["items"].append(3)
    assert next(store.scan()).answer.content == {"items": [1]}


def test_export_then_import_gives_the_same_ids_in_the_same_order(
    open_store: OpenStore, tmp_path: Path
) -> None:
    source, target = open_store("source"), open_store("target")
    source.put([seen(3, "é\ud800"), seen(1, 1.0), seen(2, tenant="a", environment=Environment("other", 2))])
    assert export_jsonl(source, tmp_path / "rows.jsonl") == 3
    report = import_jsonl(tmp_path / "rows.jsonl", target)
    assert (report.read, report.new, report.duplicates, report.problems) == (3, 3, 0, ())
    assert list(target.scan()) == list(source.scan())
    again = import_jsonl(tmp_path / "rows.jsonl", target)
    assert (again.read, again.new, again.duplicates) == (3, 0, 3)


def test_closing_twice_does_no_harm_and_a_closed_store_says_so(store: TransitionStore) -> None:
    store.put([seen(1)])
    store.close()
    store.close()
    for use in (store.count, lambda: store.put([seen(2)]), lambda: list(store.scan())):
        with pytest.raises(StoreError, match="this store was closed"):
            use()
