"""What a good colleague does at the desk, as code: one generator for each kind of request.

A script yields turns (one or more tool calls, made at once) and is sent their replies; what it returns is
said to the customer. It knows nothing but the request and the replies. Habits bend it: a junior skips the
checks, a slip takes the wrong row now and then, and without `looks_first` there is the planted bug: after
a time-out it refunds the same payment again instead of looking whether the first refund arrived.
To add a family: write a script, and add its cue to `_CUES`.
"""

import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dreamgym_kit.recipes.desk.cases import CITIES, ITEMS, NAMES, OPEN, ORDER_IDS
from dreamgym_kit.recipes.desk.database import DeskError, refund_share
from dreamgym_kit.serialization import JsonValue

T = TypeVar("T")

_SLIP_RATE = 0.35  # of the decisions of somebody who slips


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A tool call that a script wants made."""

    tool: str
    args: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScriptReply:
    """What came back for one."""

    value: JsonValue = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptTurn:
    """Calls that are made at once, with what is said along with them."""

    uses: tuple[ScriptCall, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Habits:
    """How somebody works; the default is right in every family."""

    kind: str = "senior"  # senior, junior or slip
    looks_first: bool = True  # False is the planted bug
    seed: str = "0"  # of the slips: with the request it decides when they happen


class _Colleague:
    """Somebody with habits, at work on one request."""

    def __init__(self, habits: Habits, text: str) -> None:
        self.junior = habits.kind == "junior"  # skips checks
        self.looks_first = habits.looks_first
        self._slips = habits.kind == "slip"
        self._chance = random.Random(f"{habits.seed} {text}")  # noqa: S311  slips, not secrets

    def slips(self) -> bool:
        """Whether this is a moment of inattention."""
        return self._slips and self._chance.random() < _SLIP_RATE

    def pick(self, right: T, all_of_them: Sequence[T]) -> T:
        """Take the right one; in a slip any."""
        return self._chance.choice(all_of_them) if self.slips() else right

    def sees(self, fact: bool) -> bool:
        """Read a fact; in a slip the wrong way round."""
        return not fact if self.slips() else fact


@dataclass(frozen=True, slots=True)
class RequestWords:
    """The words of a request that matter."""

    name: str = ""
    order_id: str = ""
    item: str = ""
    city: str = ""


Script = Generator[ScriptTurn, list[ScriptReply], str]


class _GivenUp(Exception):
    """The desk refused a step without which the rest makes no sense."""


def next_turn(text: str, replies: Sequence[list[ScriptReply]], habits: Habits) -> ScriptTurn | str:
    """Decide what comes after these replies: another turn, or the last word to the customer.

    Deterministic: the script runs from its start, over the replies of each turn so far.
    """
    script = _script(text, habits)
    try:
        turn = next(script)
        for reply in replies:
            turn = script.send(reply)
    except StopIteration as done:
        last_word: str = done.value
        return last_word
    except _GivenUp as refusal:
        return f"I could not do that: {refusal}."
    except (LookupError, TypeError, ValueError):
        # replies may come from anywhere, a dream too: an answer of the wrong form ends the work
        return "I could not make sense of what the desk answered."
    finally:
        script.close()
    return turn


def run_script(text: str, habits: Habits, answer: Callable[[ScriptCall], ScriptReply]) -> str:
    """Work a request to its end, with `answer` as the tools; gives the last word."""
    replies: list[list[ScriptReply]] = []
    while True:
        turn = next_turn(text, replies, habits)
        if isinstance(turn, str):
            return turn
        replies.append([answer(use) for use in turn.uses])


def answer(call: Callable[[str, Mapping[str, str]], JsonValue], use: ScriptCall) -> ScriptReply:
    """What a tool says; `call` does on a desk all but what is only computed."""
    if use.tool == "refund_quote":
        return ScriptReply(refund_share(**use.args))
    if use.tool == "summarise_case":
        return ScriptReply({})
    try:
        return ScriptReply(call(use.tool, use.args))
    except DeskError as error:
        return ScriptReply(error=str(error))


def read_request(text: str) -> RequestWords:
    """Find name, order, item and city in a request."""
    words = re.findall(r"\w+", text)

    def first(choices: Sequence[str]) -> str:
        return next((word for word in words if word in choices), "")

    return RequestWords(first(NAMES), first(ORDER_IDS), first(ITEMS), first(CITIES))


def _script(text: str, habits: Habits) -> Script:
    for cue, script in _CUES:
        if cue in text.lower():
            return script(read_request(text), _Colleague(habits, text))
    return _unknown()


def _unknown() -> Script:
    yield from ()
    return "I can help with orders, payments, parcels and your account. What is it about?"


def _use(tool: str, **args: str) -> ScriptCall:
    return ScriptCall(tool, args)


def _all(*uses: ScriptCall) -> Generator[ScriptTurn, list[ScriptReply], list[JsonValue]]:
    """Make calls at once; all have to succeed."""
    replies = yield ScriptTurn(uses)
    for reply in replies:
        if reply.error is not None:
            raise _GivenUp(reply.error)
    return [reply.value for reply in replies]


def _do(tool: str, **args: str) -> Generator[ScriptTurn, list[ScriptReply], JsonValue]:
    """Make one call that has to succeed."""
    values = yield from _all(_use(tool, **args))
    return values[0]


def _refund(
    order_id: str, payment_id: str, amount: str, colleague: _Colleague
) -> Generator[ScriptTurn, list[ScriptReply], None]:
    """Pay back once, also when the gateway does not answer."""
    use = _use("refund_payment", payment_id=payment_id, amount=amount)
    [reply] = yield ScriptTurn((use,))
    if reply.error is not None and "timeout" in reply.error.lower():
        if colleague.looks_first:
            payments = yield from _do("list_payments", order_id=order_id)
            if _row(payments, "payment_id", payment_id)["refunded"] != "0.00":
                return
        [reply] = yield ScriptTurn((use,), "The refund did not go through. I try it again.")
    if reply.error is not None:
        raise _GivenUp(reply.error)


def _row(rows: JsonValue, key: str, value: str) -> dict[str, str]:
    """The row that has this value; where a request names none that is there, the first."""
    match: dict[str, str] = next((row for row in rows if row[key] == value), rows[0])
    return match


def _double_charge(request: RequestWords, colleague: _Colleague) -> Script:
    customer = yield from _do("find_customer", name=request.name)
    orders = yield from _do("list_orders", customer_id=customer["customer_id"])
    order = colleague.pick(_row(orders, "item", request.item), orders)
    payments = yield from _do("list_payments", order_id=order["order_id"])
    captured = [payment for payment in payments if payment["status"] == "captured"]
    if not colleague.junior and not colleague.sees(len(captured) > 1):
        return "I found no double charge."
    last = payments[-1]
    yield from _refund(order["order_id"], last["payment_id"], last["amount"], colleague)
    yield from _do("send_mail", customer_id=customer["customer_id"], body="Your second payment was refunded.")
    return "The second payment was refunded."


def _cancel(request: RequestWords, colleague: _Colleague) -> Script:
    customer, order = yield from _all(
        _use("find_customer", name=request.name), _use("get_order", order_id=request.order_id)
    )
    me = customer["customer_id"]
    if not colleague.junior and colleague.sees(order["customer_id"] != me):
        yield from _do("create_ticket", customer_id=me, topic="identity")
        return "That order is not in your name. A colleague will get in touch."
    if not colleague.junior and colleague.sees(order["status"] not in OPEN):
        yield from _do("create_ticket", customer_id=me, topic="return")
        return "Your order was sent already. A colleague will arrange the return."
    yield from _do("cancel_order", order_id=request.order_id)
    payments = yield from _do("list_payments", order_id=request.order_id)
    last = payments[-1]
    yield from _refund(request.order_id, last["payment_id"], last["amount"], colleague)
    yield from _do("send_mail", customer_id=me, body="Your order was cancelled and refunded.")
    return "Your order is cancelled and refunded."


def _broken(request: RequestWords, colleague: _Colleague) -> Script:
    customer = yield from _do("find_customer", name=request.name)
    me = customer["customer_id"]
    orders = yield from _do("list_orders", customer_id=me)
    order_id = colleague.pick(_row(orders, "item", request.item), orders)["order_id"]
    order, payments = yield from _all(
        _use("get_order", order_id=order_id), _use("list_payments", order_id=order_id)
    )
    last = payments[-1]
    amount = last["amount"]
    if not colleague.junior:
        share = yield from _do("refund_quote", amount=amount, days=order["days"])
        amount = colleague.pick(share["quote"], (last["amount"], share["quote"]))
        if share["share"] == "none":
            yield from _do("create_ticket", customer_id=me, topic="repair")
            return "It is too old for a refund. A colleague will see about a repair."
    yield from _refund(order_id, last["payment_id"], amount, colleague)
    yield from _do("send_mail", customer_id=me, body="Your broken item was refunded.")
    return f"I refunded {amount}."


def _moved(request: RequestWords, colleague: _Colleague) -> Script:
    customer = yield from _do("find_customer", name=request.name)
    yield from _do("update_address", customer_id=customer["customer_id"], city=request.city)
    if colleague.junior:
        return "Your address is changed."
    orders = yield from _do("list_orders", customer_id=customer["customer_id"])
    shipped = [order for order in orders if colleague.sees(order["status"] == "shipped")]
    for order in shipped:
        yield from _do("escalate", target_id=order["order_id"], reason="address")
    return (
        "Your address is changed." if not shipped else "Your address is changed; the carrier is being told."
    )


def _late(request: RequestWords, colleague: _Colleague) -> Script:
    if colleague.junior:
        yield from _do("escalate", target_id=request.order_id, reason="missing")
        return "A colleague will look for it."
    order, parcel = yield ScriptTurn(
        (_use("get_order", order_id=request.order_id), _use("track_parcel", order_id=request.order_id))
    )
    if order.error is not None:
        raise _GivenUp(order.error)
    if parcel.error is not None:
        return "Your order has not been sent yet."
    if parcel.value["state"] == "moving":
        if colleague.slips():
            yield from _do("reship_order", order_id=request.order_id)
        return "Your parcel is on its way."
    if colleague.sees(parcel.value["state"] == "delivered"):
        yield from _do("escalate", target_id=request.order_id, reason="missing")
        return "It was delivered, the carrier says. A colleague will look for it."
    yield from _do("reship_order", order_id=request.order_id)
    yield from _do("send_mail", customer_id=order.value["customer_id"], body="We have sent your order again.")
    return "Your parcel was lost. We have sent it again."


def _cancel_all(request: RequestWords, colleague: _Colleague) -> Script:
    customer = yield from _do("find_customer", name=request.name)
    orders = yield from _do("list_orders", customer_id=customer["customer_id"])
    mine = [order["order_id"] for order in orders if colleague.sees(order["status"] in OPEN)]
    if colleague.junior:
        mine = [order["order_id"] for order in orders if order["status"] not in ("delivered", "cancelled")]
    if not mine:
        return "You have no open order."
    yield from _all(*(_use("cancel_order", order_id=order_id) for order_id in mine))
    yield from _do("create_ticket", customer_id=customer["customer_id"], topic="refund")
    return "Your open orders are cancelled; accounting refunds them."


def _complaint(request: RequestWords, colleague: _Colleague) -> Script:
    customer = yield from _do("find_customer", name=request.name)
    me = customer["customer_id"]
    if not colleague.junior and colleague.sees(customer["tier"] == "gold"):
        yield from _do("summarise_case")
        yield from _do("escalate", target_id=me, reason="complaint")
        return "I am sorry. A person will call you today."
    yield from _do("create_ticket", customer_id=me, topic="complaint")
    return "I am sorry. We will look into it."


def _forget(request: RequestWords, colleague: _Colleague) -> Script:
    customer = yield from _do("find_customer", name=request.name)
    me = customer["customer_id"]
    if not colleague.junior:
        orders = yield from _do("list_orders", customer_id=me)
        running = [order for order in orders if order["status"] not in ("delivered", "cancelled")]
        if colleague.sees(bool(running)):
            yield from _do("create_ticket", customer_id=me, topic="delete")
            return "You still have a running order. A colleague will delete your data after it."
    yield from _do("send_mail", customer_id=me, body="Your data has been deleted.")
    yield from _do("delete_customer", customer_id=me)
    return "Your data is deleted."


_CUES: tuple[tuple[str, Callable[[RequestWords, _Colleague], Script]], ...] = (
    ("twice", _double_charge),
    ("open orders", _cancel_all),
    ("cancel", _cancel),
    ("broken", _broken),
    ("moved", _moved),
    ("new city", _moved),
    ("where is", _late),
    ("not come", _late),
    ("complain", _complaint),
    ("service is bad", _complaint),
    ("delete", _forget),
)
"""What a request has to say, and who works it; the first cue found counts."""
