"""The judge of desk episodes: compares the desk at the end with the desk that a good colleague leaves.

One way of judging for both: a real episode's desk is read from its database; a dreamed one's is a copy of
the same world in memory to which its would-be writes are applied. Money, orders, addresses, parcels and
escalations have to be as they should; of mails and tickets only who got one matters, not the words.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from dreamgym_kit.interfaces import Judgement, Outcome
from dreamgym_kit.recipes.desk.cases import DeskCase, make_case
from dreamgym_kit.recipes.desk.database import Books, DeskError, Refund, money, scratch_desk
from dreamgym_kit.recipes.desk.environment import TENANT, open_desk
from dreamgym_kit.recipes.desk.policy import Habits, answer, run_script
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Source, Transition, Verdict

_TIMES = {0: "never", 1: "once", 2: "twice"}


class DeskChecker:
    """Implements `interfaces.Checker` in the world "desk"."""

    def __call__(self, outcome: Outcome) -> Judgement:
        """Judge an ended episode.

        Raises:
            ValueError: the task's seed is none of the desk's.
        """
        right, actual, mine = _books(outcome)
        wrong = differences(right, actual, mine)
        if not wrong:
            return Judgement(Verdict.PASSED, "the desk is as it should be", 1.0)
        unanswered = any(entry.answer.unanswered for entry in outcome.transitions)
        if unanswered and not self.lost(outcome):
            return Judgement(Verdict.INCONCLUSIVE, f"the dream could not tell an answer, and then {wrong[0]}")
        return Judgement(Verdict.FAILED, "; ".join(wrong), 0.0)

    def lost(self, outcome: Outcome) -> str:
        """What was done that nobody can take back: money gone, an order cancelled, a mail sent."""
        right, actual, mine = _books(outcome)
        return "; ".join(beyond_repair(right, actual, mine))


check = DeskChecker()


def _books(outcome: Outcome) -> tuple[Books, Books, str]:
    """The desk as it should be and as it is, and whose request it was."""
    case = make_case(outcome.task.environment.variant)
    if outcome.real:
        with open_desk(outcome.configurable.get(TENANT)) as desk:
            actual = desk.books()
    else:
        actual = would_be_books(case, outcome.transitions)
    return goal(case.seed, request_text(outcome.task.input)), actual, case.customer_id


@lru_cache(maxsize=4096)
def goal(seed: int, text: str) -> Books:
    """The desk that a good colleague leaves after this request."""
    with scratch_desk(make_case(seed).rows) as desk:
        run_script(text, Habits(), lambda use: answer(desk.call, use))
        return desk.books()


def would_be_books(case: DeskCase, transitions: Sequence[Transition]) -> Books:
    """The desk as it would be had these calls been real."""
    with scratch_desk(case.rows) as desk:
        for entry in transitions:
            if entry.effect.changes_environment and _took_effect(entry):
                with suppress(DeskError):  # the real desk would have refused as well
                    desk.call(entry.call.tool, entry.call.args)
        return desk.books()


def differences(goal: Books, actual: Books, customer_id: str) -> list[str]:
    """Say in plain sentences what is not as it should be; empty when nothing is.

    Args:
        goal: the desk as it should be.
        actual: the desk as it is.
        customer_id: whose request it was; a mail or ticket more for them does no harm.
    """
    return [difference.text for difference in _differences(goal, actual, customer_id)]


def beyond_repair(goal: Books, actual: Books, customer_id: str) -> list[str]:
    """Those of the differences that no tool of the desk takes back."""
    return [difference.text for difference in _differences(goal, actual, customer_id) if difference.lasts]


class _Wrong(NamedTuple):
    """A difference, and whether it is one for good."""

    text: str
    lasts: bool


def _differences(goal: Books, actual: Books, customer_id: str) -> list[_Wrong]:
    return [
        *_money_differences(goal, actual),
        *_order_differences(goal, actual),
        *_customer_differences(goal, actual),
        *_escalation_differences(goal, actual),
        *_contact_differences("mail", goal.mailed, actual.mailed, customer_id),
        *_contact_differences("ticket", goal.ticketed, actual.ticketed, customer_id),
    ]


def request_text(task_input: Mapping[str, JsonValue]) -> str:
    """The customer's words in a task's input: the last message, else all text values in it."""
    messages = task_input.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(last, Mapping):
        return str(last.get("content", ""))
    if isinstance(last, list) and len(last) == 2:
        return str(last[1])
    return " ".join(str(value) for value in task_input.values())


def _took_effect(entry: Transition) -> bool:
    """An invented failure kept the call from the desk, unless it is a time-out after the act."""
    answer = entry.answer
    if answer.unanswered:
        return False
    failed = f"{answer.error_type} {answer.error}".lower() if answer.error is not None else ""
    return not (answer.source is Source.FAULT and failed and "timeout" not in failed)


def _money_differences(goal: Books, actual: Books) -> Iterator[_Wrong]:
    for payment_id, refund in actual.payments.items():
        right = goal.payments[payment_id]
        if refund.refunded_cents == right.refunded_cents:
            continue
        too_much = refund.refunded_cents > right.refunded_cents
        if refund.times > 1 and too_much:
            rest = (
                ""
                if right.refunded_cents in (0, right.amount_cents)
                else f", should be {money(right.refunded_cents)}"
            )
            text = f"refunded {payment_id} {_times(refund.times)}: {_amounts(refund)}{rest}"
        elif refund.times:
            text = f"refunded {payment_id}: {_amounts(refund)}, should be {money(right.refunded_cents)}"
        else:
            text = f"did not refund {payment_id}: should be {money(right.refunded_cents)}"
        yield _Wrong(text, too_much)


def _times(count: int) -> str:
    return _TIMES.get(count, f"{count} times")


def _amounts(refund: Refund) -> str:
    return f"{money(refund.refunded_cents)} of {money(refund.amount_cents)}"


def _order_differences(goal: Books, actual: Books) -> Iterator[_Wrong]:
    for order_id, status in actual.orders.items():
        right = goal.orders[order_id]
        if status != right:
            yield _Wrong(f"order {order_id} is {status}, should be {right}", status == "cancelled")
    for order_id in sorted({*goal.reships, *actual.reships}):
        sent, wanted = actual.reships.get(order_id, 0), goal.reships.get(order_id, 0)
        if sent != wanted:
            text = f"order {order_id} was sent again {_times(sent)}, should be {_times(wanted)}"
            yield _Wrong(text, sent > wanted)


def _customer_differences(goal: Books, actual: Books) -> Iterator[_Wrong]:
    for gone in goal.cities:
        if gone not in actual.cities:
            yield _Wrong(f"deleted customer {gone}", True)
    for extra in actual.cities:
        if extra not in goal.cities:
            yield _Wrong(f"did not delete customer {extra}", False)
    for customer_id, city in actual.cities.items():
        right = goal.cities.get(customer_id, city)
        if right != city:
            yield _Wrong(f"customer {customer_id} lives in {city}, should be {right}", False)


def _escalation_differences(goal: Books, actual: Books) -> Iterator[_Wrong]:
    for target in sorted(actual.escalated - goal.escalated):
        yield _Wrong(f"escalated {target}, which is no such case", True)
    for target in sorted(goal.escalated - actual.escalated):
        yield _Wrong(f"did not escalate {target}", False)


def _contact_differences(
    contact: str, goal: frozenset[str], actual: frozenset[str], mine: str
) -> Iterator[_Wrong]:
    for customer_id in sorted(goal - actual):
        yield _Wrong(f"no {contact} for customer {customer_id}", False)
    for other in sorted(actual - goal - {mine}):
        yield _Wrong(f"a {contact} for the wrong customer {other}", True)
