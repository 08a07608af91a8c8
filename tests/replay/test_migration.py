"""A migration between two stores: all comes over as it was, and what does not is found."""

from collections.abc import Iterator, Sequence

import pytest
from away_double import AwayServerDouble, AwayStoreDouble, Fault, seen
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.errors import StoreUnavailable
from dreamgym_kit.replay import transfer
from dreamgym_kit.replay.transfer import migrate
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Split, Transition


class LossyDouble(MemoryStore):
    """A store that gives back something else than was put, as a careless adapter would."""

    loss = ""

    def scan(
        self, *, tenant: str | None = None, tool: str | None = None, environment: Environment | None = None
    ) -> Iterator[Transition]:
        rows = list(super().scan(tenant=tenant, tool=tool, environment=environment))
        if self.loss == "row":
            rows = rows[:-1]
        if self.loss == "twice":
            rows = [*rows, rows[0]]
        if self.loss == "clock":
            rows[0] = Transition(
                rows[0].call, rows[0].answer, rows[0].effect, rows[0].episode, 1, recorded_at=9.0
            )
        if self.loss == "order":
            rows.reverse()
        return iter(rows)


def filled(rows: Sequence[Transition]) -> MemoryStore:
    store = MemoryStore()
    store.put(rows)
    return store


def test_rows_keep_all_they_say_and_their_order() -> None:
    rows = [
        seen(
            3,
            tenant="a",
            split=Split.HELD_OUT,
            environment=Environment("shop", 2),
            recorded_at=5.25,
            elapsed_s=0.1,
        ),
        seen(1, tenant="b", task="t"),
        Transition(
            Call("pay", {"x": 1.0}, call_id="c1", node="tools"),
            Answer({"é\x00": [1.0, None]}, source=Source.MODEL, confidence=0.5),
            Effect.WRITE,
            "t.2",
            7,
        ),
    ]
    target = MemoryStore()
    report = migrate(filled(rows), target)
    assert list(target.scan()) == rows
    assert (report.rows, report.new, report.there, report.others, report.in_order) == (3, 3, 3, 0, True)
    assert report.whole
    assert report.checksum == report.checksum_there != f"{0:064x}"


def test_it_is_repeated_and_goes_on_where_it_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_BATCH_ROWS", 2)
    source, server = filled([seen(step) for step in range(1, 8)]), AwayServerDouble()
    server.faults = iter([Fault.NONE, Fault.NONE, Fault.NONE, Fault.HALF])
    with pytest.raises(StoreUnavailable, match=r"\(4 transitions came over; migrate again, it goes on"):
        migrate(source, AwayStoreDouble(server))
    assert len(server.rows()) == 5
    report = migrate(source, AwayStoreDouble(server))
    assert (report.new, report.whole, report.in_order) == (2, True, True)
    again = migrate(source, AwayStoreDouble(server))
    assert (again.new, again.whole, again.checksum) == (0, True, report.checksum)


def test_rows_of_the_target_s_own_are_no_difference() -> None:
    target = filled([seen(9), seen(2)])
    report = migrate(filled([seen(1), seen(2)]), target)
    assert (report.new, report.others, report.whole) == (1, 1, True)
    assert not report.in_order


@pytest.mark.parametrize("loss", ["row", "twice", "clock"])
def test_what_did_not_come_over_as_it_was_is_found(loss: str) -> None:
    target = LossyDouble()
    target.loss = loss
    report = migrate(filled([seen(1), seen(2)]), target)
    assert not report.whole
    assert report.checksum != report.checksum_there
    assert report.missing == ((seen(2).id,) if loss == "row" else ())
    assert report.differing == ((seen(1).id,) if loss == "clock" else ())


@settings(max_examples=25)
@given(st.lists(st.integers(1, 99), unique=True, max_size=12), st.randoms())
def test_the_checksum_is_that_of_the_rows_in_any_order(steps: list[int], chance: object) -> None:
    rows = [seen(step) for step in steps]
    mixed = list(rows)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = migrate(filled(rows), MemoryStore()), migrate(filled(mixed), MemoryStore())
    assert one.checksum == other.checksum
    if rows:
        assert migrate(filled(rows[:-1]), MemoryStore()).checksum != one.checksum
