"""What code makes of a read after the episode's writes."""

import pytest
from each_row import each_row

from dreamgym_kit.dream.imagined.changes import EntityChange, UnclearChange, after_changes, names_changed
from dreamgym_kit.types import Answer, Call

ROWS = [{"ticket_id": "T1", "owner": "Ida", "open": True}, {"ticket_id": "T2", "owner": "Ida", "open": True}]
MADE = EntityChange("T3", "create", {"ticket_id": "T3", "owner": "Ida", "open": True})
OF_IDA = Call("list_tickets", {"owner": "Ida"})
T3 = {"ticket_id": "T3", "owner": "Ida", "open": True}


@each_row(
    ("base", "call", "changes", "after"),
    [
        (ROWS, OF_IDA, [MADE], [*ROWS, T3]),
        (ROWS, Call("list_tickets", {"owner": "Bo"}), [MADE], ROWS),
        ({"tickets": ROWS, "count": 2}, OF_IDA, [MADE], {"tickets": [*ROWS, T3], "count": 3}),
        (ROWS, OF_IDA, [EntityChange("T1", "delete")], ROWS[1:]),
        (
            {"tickets": ROWS, "count": 2},
            OF_IDA,
            [EntityChange("T1", "delete")],
            {"tickets": ROWS[1:], "count": 1},
        ),
        (["T1", "T2"], OF_IDA, [EntityChange("T1", "delete")], ["T2"]),
        (
            ROWS,
            OF_IDA,
            [EntityChange("T2", "update", {"open": False})],
            [ROWS[0], {**ROWS[1], "open": False}],
        ),
        (ROWS, OF_IDA, [MADE, EntityChange("T3", "update", {"open": False})], [*ROWS, {**T3, "open": False}]),
        (ROWS, OF_IDA, [MADE, EntityChange("T3", "delete")], ROWS),
        (ROWS, OF_IDA, [EntityChange("U9", "update", {"name": "x"})], ROWS),
        (
            {"name": "Ida", "tickets": ROWS},
            OF_IDA,
            [EntityChange("T2", "delete")],
            {"name": "Ida", "tickets": ROWS[:1]},
        ),
        ([], OF_IDA, [MADE], UnclearChange),
        (ROWS, Call("list_tickets", {"since": "May"}), [MADE], UnclearChange),
        (ROWS, OF_IDA, [EntityChange("T3", "create", {"ticket_id": "T3", "owner": "Ida"})], UnclearChange),
        (
            "open",
            Call("status", {"ticket_id": "T2"}),
            [EntityChange("T2", "update", {"open": False})],
            UnclearChange,
        ),
    ],
)
def test_base_answer_after_writes(base, call, changes, after) -> None:
    answer = Answer(content=base)
    if after is UnclearChange:
        with pytest.raises(UnclearChange):
            after_changes(answer, call, changes)
    else:
        assert after_changes(answer, call, changes).content == after


def test_only_created_or_removed_things_are_asked_about_again() -> None:
    changes = [MADE, EntityChange("T2", "update", {"open": False}), EntityChange("T1", "delete")]
    asked = [
        names_changed(Call("get_ticket", {"ticket_id": name}), changes) for name in ("T1", "T2", "T3", "T4")
    ]
    assert asked == [True, False, True, False]
