"""The judge of desk episodes: compares the desk at the end with the desk that a good colleague leaves.

One way of judging for both: a real episode's desk is read from its database; a dreamed one's is a copy of
the same world in memory to which its would-be writes are applied. Money, orders, addresses, parcels and
escalations have to be as they should; of mails and tickets only who got one matters, not the words.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Judgement, Outcome
from dreamgym_kit.recipes.desk.cases import Case, make_case
from dreamgym_kit.recipes.desk.database import Books, Desk, DeskError, Refund, scratch_desk
from dreamgym_kit.recipes.desk.money import money, refund_share
from dreamgym_kit.recipes.desk.policy import Habits, Reply, ToolUse, run_script
from dreamgym_kit.recipes.desk.world import TENANT, open_desk
from dreamgym_kit.vocabulary import Provenance, Transition, Verdict

_TIMES = {0: "never", 1: "once", 2: "twice"}


class DeskChecker:
    """Implements `ports.Checker` in the world "desk"."""

    def __call__(self, outcome: Outcome) -> Judgement:
        """Judge an ended episode.

        Raises:
            ValueError: the task's seed is none of the desk's.
        """
        right, found, mine = _books(outcome)
        wrong = differences(right, found, mine)
        if not wrong:
            return Judgement(Verdict.SUCCESS, "the desk is as it should be", 1.0)
        abstained = any(entry.answer.abstained for entry in outcome.transitions)
        if abstained and not self.lost(outcome):
            return Judgement(Verdict.UNDETERMINED, f"the dream could not tell an answer, and then {wrong[0]}")
        return Judgement(Verdict.FAILURE, "; ".join(wrong), 0.0)

    def lost(self, outcome: Outcome) -> str:
        """What was done that nobody can take back: money gone, an order cancelled, a mail sent."""
        right, found, mine = _books(outcome)
        return "; ".join(beyond_repair(right, found, mine))


check = DeskChecker()


def _books(outcome: Outcome) -> tuple[Books, Books, str]:
    """The desk as it should be and as it is, and whose request it was."""
    case = make_case(outcome.task.world.seed)
    found = _real_books(outcome) if outcome.real else would_be_books(case, outcome.transitions)
    return goal(case.seed, request_text(outcome.task.input)), found, case.customer_id


@lru_cache(maxsize=4096)
def goal(seed: int, text: str) -> Books:
    """The desk that a good colleague leaves after this request."""
    with scratch_desk(make_case(seed).rows) as desk:
        run_script(text, Habits(), lambda use: _answer(desk, use))
        return desk.books()


def would_be_books(case: Case, transitions: Sequence[Transition]) -> Books:
    """The desk as it would be had these calls been real."""
    with scratch_desk(case.rows) as desk:
        for entry in transitions:
            if entry.effect.changes_world and _took_effect(entry):
                with suppress(DeskError):  # the real desk would have refused as well
                    desk.call(entry.call.tool, entry.call.args)
        return desk.books()


def differences(goal: Books, found: Books, customer_id: str) -> list[str]:
    """Say in plain sentences what is not as it should be; empty when nothing is.

    Args:
        goal: the desk as it should be.
        found: the desk as it is.
        customer_id: whose request it was; a mail or ticket more for them does no harm.
    """
    return [
        *_money_differences(goal, found),
        *_order_differences(goal, found),
        *_customer_differences(goal, found),
        *_escalation_differences(goal, found),
        *_contact_differences("mail", goal.mailed, found.mailed, customer_id),
        *_contact_differences("ticket", goal.ticketed, found.ticketed, customer_id),
    ]


def beyond_repair(goal: Books, found: Books, customer_id: str) -> list[str]:
    """The differences that no tool of the desk takes back; arguments as of `differences`."""
    gone = [
        f"refunded {payment_id}: {_of(refund)}, should be {money(goal.payments[payment_id].refunded_cents)}"
        for payment_id, refund in found.payments.items()
        if refund.refunded_cents > goal.payments[payment_id].refunded_cents
    ]
    gone += [
        f"order {order_id} is {status}, should be {goal.orders[order_id]}"
        for order_id, status in found.orders.items()
        if status == "cancelled" != goal.orders[order_id]
    ]
    gone += [
        f"order {order_id} was sent again {_times(sent)}, should be {_times(goal.reships.get(order_id, 0))}"
        for order_id, sent in found.reships.items()
        if sent > goal.reships.get(order_id, 0)
    ]
    gone += [f"deleted customer {deleted}" for deleted in goal.cities if deleted not in found.cities]
    gone += [
        f"escalated {target}, which is no such case" for target in sorted(found.escalated - goal.escalated)
    ]
    for what, right, sent_to in (
        ("mail", goal.mailed, found.mailed),
        ("ticket", goal.ticketed, found.ticketed),
    ):
        gone += [
            f"a {what} for the wrong customer {other}" for other in sorted(sent_to - right - {customer_id})
        ]
    return gone


def request_text(task_input: Mapping[str, JsonValue]) -> str:
    """The customer's words in a task's input: the last message, else all text values in it."""
    messages = task_input.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(last, Mapping):
        return str(last.get("content", ""))
    if isinstance(last, list) and len(last) == 2:
        return str(last[1])
    return " ".join(str(value) for value in task_input.values())


def _real_books(outcome: Outcome) -> Books:
    with open_desk(outcome.configurable.get(TENANT)) as desk:
        return desk.books()


def _took_effect(entry: Transition) -> bool:
    """An invented failure kept the call from the desk, unless it is a time-out after the act."""
    answer = entry.answer
    if answer.abstained:
        return False
    failed = f"{answer.error_type} {answer.error}".lower() if answer.error is not None else ""
    return not (answer.provenance is Provenance.FAULT and failed and "timeout" not in failed)


def _answer(desk: Desk, use: ToolUse) -> Reply:
    if use.tool == "refund_quote":
        return Reply(refund_share(**use.args))
    if use.tool == "summarise_case":
        return Reply({})
    try:
        return Reply(desk.call(use.tool, use.args))
    except DeskError as error:
        return Reply(error=str(error))


def _money_differences(goal: Books, found: Books) -> list[str]:
    wrong = []
    for payment_id, refund in found.payments.items():
        right = goal.payments[payment_id]
        if refund.refunded_cents == right.refunded_cents:
            continue
        if refund.times > 1 and refund.refunded_cents > right.refunded_cents:
            rest = (
                ""
                if right.refunded_cents in (0, right.amount_cents)
                else f", should be {money(right.refunded_cents)}"
            )
            wrong.append(f"refunded {payment_id} {_times(refund.times)}: {_of(refund)}{rest}")
        elif refund.times:
            wrong.append(f"refunded {payment_id}: {_of(refund)}, should be {money(right.refunded_cents)}")
        else:
            wrong.append(f"did not refund {payment_id}: should be {money(right.refunded_cents)}")
    return wrong


def _times(count: int) -> str:
    return _TIMES.get(count, f"{count} times")


def _of(refund: Refund) -> str:
    return f"{money(refund.refunded_cents)} of {money(refund.amount_cents)}"


def _order_differences(goal: Books, found: Books) -> list[str]:
    wrong = [
        f"order {order_id} is {status}, should be {goal.orders[order_id]}"
        for order_id, status in found.orders.items()
        if status != goal.orders[order_id]
    ]
    for order_id in sorted({*goal.reships, *found.reships}):
        sent, right = found.reships.get(order_id, 0), goal.reships.get(order_id, 0)
        if sent != right:
            wrong.append(f"order {order_id} was sent again {_times(sent)}, should be {_times(right)}")
    return wrong


def _customer_differences(goal: Books, found: Books) -> list[str]:
    wrong = [f"deleted customer {gone}" for gone in goal.cities if gone not in found.cities]
    wrong += [f"did not delete customer {kept}" for kept in found.cities if kept not in goal.cities]
    wrong += [
        f"customer {customer_id} lives in {city}, should be {goal.cities[customer_id]}"
        for customer_id, city in found.cities.items()
        if goal.cities.get(customer_id, city) != city
    ]
    return wrong


def _escalation_differences(goal: Books, found: Books) -> list[str]:
    wrong = [
        f"escalated {target}, which is no such case" for target in sorted(found.escalated - goal.escalated)
    ]
    wrong += [f"did not escalate {target}" for target in sorted(goal.escalated - found.escalated)]
    return wrong


def _contact_differences(what: str, goal: frozenset[str], found: frozenset[str], mine: str) -> list[str]:
    wrong = [f"no {what} for customer {customer_id}" for customer_id in sorted(goal - found)]
    wrong += [f"a {what} for the wrong customer {other}" for other in sorted(found - goal - {mine})]
    return wrong
