import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from each_row import each_row

from dreamgym_kit.recipes.desk.database import OPERATIONS, Desk, DeskError, create_desk, desk_file

ROWS = {
    "customers": [("C10", "Ana", "Oslo", "gold"), ("C11", "Ben", "Rome", "basic")],
    "orders": [
        ("O10", "C10", "lamp", "new", "02", "21.80"),
        ("O11", "C10", "bike", "shipped", "09", "88.00"),
        ("O12", "C11", "sofa", "delivered", "40", "95.60"),
    ],
    "payments": [
        ("P10", "O10", "21.80", "captured", "fast"),
        ("P11", "O11", "88.00", "captured", "slow"),
        ("P12", "O12", "95.60", "failed", "fast"),
    ],
    "parcels": [("O11", "north", "lost")],
}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    create_desk(tmp_path / "desk.db", ROWS)
    with desk_file(tmp_path / "desk.db") as opened:
        yield opened


@each_row(
    ("tool", "args", "said"),
    [
        ("refund_payment", ["P99", "21.80"], "no payment P99"),
        ("refund_payment", ["P10", "21.81"], "a refund of P10 is 0.01 to 21.80, not 21.81"),
        ("refund_payment", ["P10", "0.00"], "a refund of P10 is 0.01 to 21.80, not 0.00"),
        ("refund_payment", ["P10", "-5.00"], "'-5.00' is not an amount such as 19.90"),
        ("refund_payment", ["P10", "all"], "'all' is not an amount such as 19.90"),
    ],
)
def test_a_refund_that_is_refused_is_named_and_left_undone(
    desk: Desk, tool: str, args: list[str], said: str
) -> None:
    before = desk.books()
    with pytest.raises(DeskError) as refused:
        desk.call(tool, dict(zip(OPERATIONS[tool], args, strict=True)))
    assert str(refused.value) == said
    assert desk.books() == before


def test_an_order_is_cancelled_once(desk: Desk) -> None:
    desk.cancel_order("O11")  # shipped: the desk does as it is told
    with pytest.raises(DeskError, match="O11 is already cancelled"):
        desk.cancel_order("O11")


def test_a_payment_refunded_twice_shows_as_money(desk: Desk) -> None:
    assert desk.refund_payment("P10", "21.80")["refunded"] == "21.80"
    assert desk.refund_payment("P10", "21.80")["refunded"] == "43.60"
    [payment] = desk.list_payments("O10")
    assert payment == {"payment_id": "P10", "amount": "21.80", "status": "refunded", "refunded": "43.60"}
    refund = desk.books().payments["P10"]
    assert (refund.amount_cents, refund.refunded_cents, refund.times) == (2180, 4360, 2)


def test_refunds_at_the_same_moment_are_both_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=120))  # of the wait for a lock
    create_desk(tmp_path / "desk.db", ROWS)
    from concurrent.futures import ThreadPoolExecutor

    def refund(_: int) -> None:
        with desk_file(tmp_path / "desk.db") as desk:
            desk.refund_payment("P10", "21.80")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(refund, range(12)))
    with desk_file(tmp_path / "desk.db") as desk:
        assert desk.books().payments["P10"].refunded_cents == 12 * 2180


def test_an_operation_or_argument_that_is_not_there_is_a_refusal(desk: Desk) -> None:
    with pytest.raises(DeskError, match="the desk has no operation books"):
        desk.call("books", {})
    with pytest.raises(DeskError, match="send_mail needs body"):
        desk.call("send_mail", {"customer_id": "C10"})


def test_a_new_desk_never_starts_from_an_old_file(tmp_path: Path) -> None:
    create_desk(tmp_path / "desk.db", ROWS)
    with pytest.raises(FileExistsError):
        create_desk(tmp_path / "desk.db", ROWS)


def test_opening_a_desk_that_is_not_there_makes_none(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError), desk_file(tmp_path / "none.db"):
        pass
    assert list(tmp_path.iterdir()) == []
