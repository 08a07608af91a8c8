"""The ledger of a page: what answers told of a record before and now."""

from each_row import each_row
from pages.runs import call, double_refund

from dreamgym_kit.report.page.gathering import SeenFacts, steps_of
from dreamgym_kit.types import Effect, Source, Transition


def test_a_write_is_told_as_before_and_after() -> None:
    last = [one for one in steps_of(double_refund())["steps"] if one["kind"] == "call"][-1]
    assert last["changes"] == [
        {"entity": "P1", "field": "status", "before": "captured", "after": "refunded"},
        {"entity": "P1", "field": "refunded", "before": "0.00", "after": "176.00"},
    ]


ORDER = {"order_id": "O1", "status": "sent"}
PACKED = call(1, "get_order", {}, [{"order_id": "O1", "status": "packed"}])
SAID = ({"entity": "O1", "field": "status", "value": "cancelled"},)
WRITES = {"effect": Effect.WRITE}


@each_row(
    ("calls", "told"),
    [
        ([call(1, "get_order", {}, ORDER)], []),
        ([call(1, "get_order", {}, ORDER), call(2, "get_order", {}, ORDER)], []),
        (
            [PACKED, call(2, "get_order", {}, '{"order_id": "O1", "status": "sent"}')],
            [{"entity": "O1", "field": "status", "before": "packed", "after": "sent"}],
        ),
        (
            [call(1, "create_ticket", {}, {"ticket_id": "T1", "state": "open"}, **WRITES)],
            [{"entity": "T1", "field": "state", "after": "open"}],  # what a write makes has no before
        ),
        ([call(1, "cancel", {}, {"id": "O1", "state": "x"}, **WRITES, error="no")], []),
        (
            [
                call(
                    1,
                    "cancel",
                    {},
                    ORDER | {"status": "cancelled"},
                    **WRITES,
                    source=Source.MODEL,
                    changes=SAID,
                )
            ],
            [{"entity": "O1", "field": "status", "after": "cancelled"}],  # the model is believed once
        ),
    ],
)
def test_the_last_call_tells_only_what_it_changed(calls: list[Transition], told: list[object]) -> None:
    facts = SeenFacts()
    assert [facts.changes(one) for one in calls][-1] == told
