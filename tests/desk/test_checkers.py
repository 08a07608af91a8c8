from dataclasses import replace
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.interfaces import Outcome
from dreamgym_kit.recipes.desk.cases import make_case
from dreamgym_kit.recipes.desk.checkers import beyond_repair, check, differences, goal, request_text
from dreamgym_kit.recipes.desk.database import Books, Refund
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Task, Transition, Verdict

RIGHT = Books(
    cities={"C10": "Oslo", "C11": "Rome"},
    orders={"O10": "new", "O11": "shipped"},
    payments={"P10": Refund(8800, 8800, 1), "P11": Refund(2180, 0, 0), "P12": Refund(8800, 4400, 1)},
    reships={"O11": 1},
    escalated=frozenset({"O11"}),
    ticketed=frozenset(),
    mailed=frozenset({"C10"}),
)


@each_row(
    ("change", "said", "lasts"),
    [
        ({"payments": {"P10": Refund(8800, 17600, 2)}}, "refunded P10 twice: 176.00 of 88.00", True),
        ({"payments": {"P10": Refund(8800, 26400, 3)}}, "refunded P10 3 times: 264.00 of 88.00", True),
        ({"payments": {"P10": Refund(8800, 0, 0)}}, "did not refund P10: should be 88.00", False),
        (
            {"payments": {"P10": Refund(8800, 4400, 1)}},
            "refunded P10: 44.00 of 88.00, should be 88.00",
            False,
        ),
        ({"payments": {"P11": Refund(2180, 2180, 1)}}, "refunded P11: 21.80 of 21.80, should be 0.00", True),
        (
            {"payments": {"P12": Refund(8800, 8800, 2)}},
            "refunded P12 twice: 88.00 of 88.00, should be 44.00",
            True,
        ),
        ({"orders": {"O11": "cancelled"}}, "order O11 is cancelled, should be shipped", True),
        ({"reships": {"O11": 2}}, "order O11 was sent again twice, should be once", True),
        ({"reships": {"O10": 1}}, "order O10 was sent again once, should be never", True),
        ({"cities": {"C11": "Lyon"}}, "customer C11 lives in Lyon, should be Rome", False),
        ({"escalated": {"O11", "C10"}}, "escalated C10, which is no such case", True),
        ({"escalated": set()}, "did not escalate O11", False),
        ({"mailed": set()}, "no mail for customer C10", False),
        ({"mailed": {"C10", "C11"}}, "a mail for the wrong customer C11", True),
        ({"ticketed": {"C11"}}, "a ticket for the wrong customer C11", True),
    ],
)
def test_each_thing_that_is_wrong_is_one_plain_sentence_and_lost_if_nobody_can_take_it_back(
    change: dict[str, Any], said: str, lasts: bool
) -> None:
    merged = {
        name: {**getattr(RIGHT, name), **value} if isinstance(value, dict) else frozenset(value)
        for name, value in change.items()
    }
    changed = replace(RIGHT, **merged)
    assert differences(RIGHT, changed, "C10") == [said]
    assert beyond_repair(RIGHT, changed, "C10") == ([said] if lasts else [])


def test_a_deleted_and_a_kept_customer_are_named() -> None:
    without = replace(RIGHT, cities={"C11": "Rome"})
    assert differences(RIGHT, without, "C10") == ["deleted customer C10"]
    assert beyond_repair(RIGHT, without, "C10") == ["deleted customer C10"]
    assert differences(without, RIGHT, "C10") == ["did not delete customer C10"]


def test_one_mail_or_ticket_more_for_the_customer_who_writes_does_no_harm() -> None:
    kinder = replace(RIGHT, ticketed=frozenset({"C10"}))
    assert differences(RIGHT, kinder, "C10") == []


# Seed 1062 is a double charge whose second payment the gateway is slow for.
CASE = make_case(1062)
TASK = Task("double-07", {"messages": [{"role": "user", "content": CASE.text}]}, Environment("desk", 1062))


def writes(*calls: tuple[str, dict[str, str]], answer: Answer | None = None) -> list[Transition]:
    return [
        Transition(
            Call(tool, args),
            answer or Answer("ok"),
            Effect.DESTRUCTIVE,
            "double-07.1",
            step,
            TASK.environment,
        )
        for step, (tool, args) in enumerate(calls, start=1)
    ]


def dreamt(transitions: list[Transition]) -> Outcome:
    return Outcome(TASK, transitions, (), None, real=False)


@pytest.fixture
def right_writes() -> list[tuple[str, dict[str, str]]]:
    books = goal(CASE.seed, CASE.text)
    [(payment, refund)] = [item for item in books.payments.items() if item[1].times]
    assert refund.refunded_cents == refund.amount_cents
    amount = f"{refund.amount_cents // 100}.{refund.amount_cents % 100:02d}"
    mail = {"customer_id": CASE.customer_id, "body": "Other words than the expert's."}
    return [("refund_payment", {"payment_id": payment, "amount": amount}), ("send_mail", mail)]


def test_the_right_would_be_writes_are_a_success_whatever_the_mail_says(right_writes: Any) -> None:
    judged = check(dreamt(writes(*right_writes)))
    assert (judged.verdict, judged.reward, judged.reason) == (
        Verdict.PASSED,
        1.0,
        "the desk is as it should be",
    )


def test_a_would_be_double_refund_is_a_failure_that_names_the_money(right_writes: Any) -> None:
    judged = check(dreamt(writes(right_writes[0], *right_writes)))
    assert (judged.verdict, judged.reward) == (Verdict.FAILED, 0.0)
    assert judged.reason.startswith(f"refunded {right_writes[0][1]['payment_id']} twice: ")


def test_doing_nothing_is_a_failure() -> None:
    judged = check(dreamt([]))
    assert judged.verdict is Verdict.FAILED
    assert "did not refund" in judged.reason
    assert f"no mail for customer {CASE.customer_id}" in judged.reason


@each_row(
    ("answer", "verdict"),
    [
        (
            Answer(error="rate limited", error_type="ToolException", source=Source.FAULT),
            Verdict.PASSED,
        ),
        (Answer(error="after 30 s", error_type="TimeoutError", source=Source.FAULT), Verdict.FAILED),
        (Answer(error="TimeoutError: no answer", error_type="ToolException"), Verdict.FAILED),
        (Answer("ok", source=Source.FAULT), Verdict.FAILED),  # slow or stale, but answered
    ],
    ids=["kept from the desk", "timed out after the act", "real time-out", "answered"],
)
def test_a_refund_that_failed_before_the_desk_did_not_happen_and_a_timeout_did(
    answer: Answer, verdict: Verdict, right_writes: Any
) -> None:
    first = writes(right_writes[0], answer=answer)
    assert check(dreamt([*first, *writes(*right_writes)])).verdict is verdict


def test_where_the_dream_could_not_tell_an_unfinished_desk_is_inconclusive(right_writes: Any) -> None:
    lost = writes(right_writes[0], answer=Answer(source=Source.UNANSWERED, confidence=0.0, error="not now"))
    judged = check(dreamt(lost))
    assert (judged.verdict, judged.reward) == (Verdict.INCONCLUSIVE, None)
    assert check(dreamt([*lost, *writes(*right_writes)])).verdict is Verdict.PASSED


def test_writes_that_the_desk_would_refuse_change_nothing(right_writes: Any) -> None:
    refused = writes(("cancel_order", {"order_id": "O99"}), ("no_such_tool", {}), ("send_mail", {}))
    assert check(dreamt([*refused, *writes(*right_writes)])).verdict is Verdict.PASSED


@each_row(
    "given",
    [
        {"messages": [{"role": "user", "content": "Hello."}]},
        {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "Hello."}]},
        {"messages": [["user", "Hello."]]},
        {"question": "Hello."},
    ],
)
def test_the_request_is_found_in_any_form_of_input(given: dict[str, Any]) -> None:
    assert request_text(given) == "Hello."


def test_an_episode_that_was_lost_before_the_dream_could_not_tell_is_a_failure(right_writes: Any) -> None:
    twice = writes(right_writes[0], right_writes[0])
    unsure = writes(right_writes[1], answer=Answer(source=Source.UNANSWERED, confidence=0.0, error="not now"))
    assert check(dreamt([*twice, *unsure])).verdict is Verdict.FAILED
    assert check.lost(dreamt([*twice, *unsure])).startswith(
        f"refunded {right_writes[0][1]['payment_id']} twice: "
    )
    assert check.lost(dreamt([*writes(right_writes[0]), *unsure])) == ""
