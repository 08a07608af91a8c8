import pytest
from each_row import each_row

from dreamgym_kit.recipes.desk.cases import AMOUNTS, DAYS
from dreamgym_kit.recipes.desk.database import cents, money, refund_share


def test_money_reads_as_it_was_written() -> None:
    assert [cents(text) for text in ("0.01", "19.90", "1234567.00")] == [1, 1990, 123456700]
    assert all(money(cents(amount)) == amount for amount in AMOUNTS)


@each_row(
    "text", ["19.9", "19", "-1.00", "1,00", " 1.00", "1e3.00", "", "\u0661.\u0660\u0660", "12345678.00"]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount such as 19\.90"):
        cents(text)


@each_row(
    ("days", "share", "quote"),
    [
        ("02", "full", "88.00"),
        ("14", "full", "88.00"),
        ("15", "half", "44.00"),
        ("30", "half", "44.00"),
        ("31", "none", "0.00"),
    ],
)
def test_an_older_item_gets_less_back(days: str, share: str, quote: str) -> None:
    assert refund_share("88.00", days) == {"share": share, "quote": quote}


def test_days_have_to_be_a_number() -> None:
    with pytest.raises(ValueError, match="'soon' is not a number of days"):
        refund_share("88.00", "soon")


def test_quotes_of_the_desk_stay_in_a_small_set_of_one_width() -> None:
    quotes = {refund_share(amount, days)["quote"] for amount in AMOUNTS for days in DAYS} - {"0.00"}
    assert len(quotes) <= 2 * len(AMOUNTS)
    assert {len(quote) for quote in quotes} == {5}
