"""What a miss says: the nearest recording, and each thing in which it differs."""

import asyncio
from dataclasses import replace

from each_row import each_row

from dreamgym_kit.adapters.pytest_plugin.answering import explain_unanswered
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.report.episode import changes
from dreamgym_kit.types import Answer, Call, Effect, Environment, ToolSpec, Transition, history_digest

CANCEL = Call("cancel_order", {"order": "o1"})


def recorded(
    step: int, tool: str, *, after: str = "", effect: Effect = Effect.READ, **args: object
) -> Transition:
    return Transition(Call(tool, args), Answer("ok"), effect, "t.1", step, task="t", after=after)


def miss(call: Call, rows: list[Transition], *, history: tuple[Transition, ...] = (), after: str = "") -> str:
    situation = Situation(Environment(), "t", "t", history, after, ToolSpec(call.tool, Effect.READ))
    told = asyncio.run(RecordedExperience(lambda *_: rows).answer(call, situation))
    assert told.unanswered
    return explain_unanswered(call, told, situation, rows)


@each_row(
    ("old", "new", "said"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": True}, {"a": 1}, ["a: recorded True, now 1"]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["a.b[1].c: recorded 2, now 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: recorded [1], now [1, 2]"]),
        ({"a": 1}, {"b": 2}, ["a: recorded 1, now nothing", "b: recorded nothing, now 2"]),
        ({"a": None}, {}, ["a: recorded None, now nothing"]),
    ],
)
def test_values_differ_path_by_path(old: dict, new: dict, said: list[str]) -> None:
    assert changes(old, new) == said


def test_the_nearest_differs_in_fewest_arguments() -> None:
    rows = [
        recorded(1, "refund", payment="p9", amount=1, to="x"),
        recorded(2, "refund", payment="p1", amount=40, to="x"),
    ]
    said = miss(Call("refund", {"payment": "p1", "amount": 45, "to": "x"}), rows)
    assert said.splitlines() == [
        (
            "refund(payment='p1', amount=45, to='x') is not in the cassette: "
            "only `amount` differs from a recording"
        ),
        "  nearest recording (t.1, call 2):",
        "    amount: recorded 40, now 45",
        "    answer: 'ok'",
    ]


def test_the_same_call_after_other_changes_says_which() -> None:
    after = history_digest([CANCEL.key])
    rows = [
        recorded(1, "cancel_order", effect=Effect.WRITE, order="o1"),
        recorded(2, "get_order", after=after, order="o1"),
    ]
    said = miss(Call("get_order", {"order": "o1"}), rows)
    assert said.splitlines() == [
        "get_order(order='o1') is not in the cassette: recorded only after other writes",
        "  nearest recording (t.1, call 2):",
        "    changed before it: recorded cancel_order(order='o1')",
        "                       now      nothing",
        "    answer: 'ok'",
    ]


def test_a_tool_that_was_never_recorded_and_an_empty_cassette_say_so() -> None:
    rows = [recorded(1, "get_order"), recorded(2, "get_user")]
    said = miss(Call("get_orders", {}), rows)
    assert said.endswith(
        "get_orders was never recorded\n  recorded: get_order, get_user; nearest name: get_order"
    )
    assert miss(CANCEL, []).endswith("the cassette is empty")


def test_recordings_that_disagree_say_so() -> None:
    first, other = (recorded(1, "get_order", order="o1") for _ in range(2))
    rows = [replace(first, task="a"), replace(other, task="b", episode="u.1", answer=Answer("other"))]
    assert "recordings of this call disagree" in miss(Call("get_order", {"order": "o1"}), rows)


def test_long_values_are_cut_and_nothing_moves_a_cursor() -> None:
    said = miss(Call("note", {"text": "\x1b[2J" + "x" * 5000}), [recorded(1, "note", text="\x1b]0;y\x07")])
    assert "\x1b" not in said
    assert len(said) < 1500
