"""The ledger of a page: what answers told of a record before and now."""

from pages.runs import call, double_refund

from dreamgym_kit.report.page.steps import SeenFacts, steps_of
from dreamgym_kit.types import Effect, Source


def test_a_write_is_told_as_before_and_after() -> None:
    last = [one for one in steps_of(double_refund())["steps"] if one["kind"] == "call"][-1]
    assert last["changes"] == [
        {"entity": "P1", "field": "status", "before": "captured", "after": "refunded"},
        {"entity": "P1", "field": "refunded", "before": "0.00", "after": "176.00"},
    ]


def test_a_read_that_tells_nothing_new_changes_nothing() -> None:
    told = SeenFacts()
    order = {"order_id": "O1", "status": "sent"}
    assert told.changes(call(1, "get_order", {}, order)) == []
    assert told.changes(call(2, "get_order", {}, order)) == []


def test_a_read_that_tells_otherwise_is_seen() -> None:
    told = SeenFacts()
    told.changes(call(1, "get_order", {}, [{"order_id": "O1", "status": "packed"}]))
    later = told.changes(call(2, "get_order", {}, '{"order_id": "O1", "status": "sent"}'))
    assert later == [{"entity": "O1", "field": "status", "before": "packed", "after": "sent"}]


def test_what_a_write_makes_has_no_before() -> None:
    made = call(1, "create_ticket", {}, {"ticket_id": "T1", "state": "open"}, effect=Effect.WRITE)
    assert SeenFacts().changes(made) == [{"entity": "T1", "field": "state", "after": "open"}]


def test_a_failed_call_tells_of_no_change() -> None:
    failed = call(1, "cancel", {}, {"id": "O1", "state": "x"}, effect=Effect.WRITE, error="no")
    assert SeenFacts().changes(failed) == []


def test_a_model_that_says_what_its_write_changed_is_believed_once() -> None:
    said = ({"entity": "O1", "field": "status", "value": "cancelled"},)
    written = call(
        1,
        "cancel",
        {},
        {"order_id": "O1", "status": "cancelled"},
        effect=Effect.WRITE,
        source=Source.MODEL,
        changes=said,
    )
    assert SeenFacts().changes(written) == [{"entity": "O1", "field": "status", "after": "cancelled"}]
