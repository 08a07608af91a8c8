"""Tool names as sentences; a name that is not understood is told as it is."""

import pytest

from dreamgym_kit.report.wording import past, past_times


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("refund_payment", "refunded a payment"),
        ("send_email", "sent an email"),
        ("cancelOrder", "cancelled an order"),
        ("delete-customers", "deleted customers"),
        ("notify", "notified"),
        ("transfer_money", "transferred a money"),
        ("payment_v2", "called payment_v2"),
        ("get_order", "called get_order"),
        ("sendgrid.mail", "called sendgrid.mail"),
        ("löschen", "called löschen"),
        ("", "called "),
    ],
)
def test_what_a_tool_did_is_said_in_words(tool: str, told: str) -> None:
    assert past(tool) == told


def test_times_are_counted() -> None:
    assert past_times("refund_payment", 1) == "refunded a payment"
    assert past_times("refund_payment", 52) == "refunded a payment 52 times"


def test_the_article_goes_by_the_sound() -> None:
    assert past("delete_user") == "deleted a user"
    assert past("delete_url") == "deleted a url"
    assert past("post_update") == "posted an update"
    assert past("delete_unpaid_order") == "deleted an unpaid order"
