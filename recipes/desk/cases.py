"""What a seed means: the rows of a desk and the request of one of its customers.

Decides the words that ids, names, cities, items and amounts are taken from: all short, of one width
where they are numbered, and from bounded sets, so that a very small model can learn to copy them. A
family is a kind of request; each seed belongs to one, and its desk holds what that family turns on.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dreamgym_kit.recipes.desk.database import COLUMNS, Rows
from dreamgym_kit.types import Split

CUSTOMER_IDS = tuple(f"C{number}" for number in range(10, 60))
ORDER_IDS = tuple(f"O{number}" for number in range(10, 90))
PAYMENT_IDS = tuple(f"P{number}" for number in range(10, 90))
_NAMES = (
    "Ana Ben Cleo Dan Eva Finn Gina Hugo Iris Jack Kira Liam Mona Nils Olga Paul Rosa Sven Tara Uwe Vera "
    "Will Yara Zoe"
)
_ITEMS = "lamp chair desk phone tent bike radio kettle mixer clock sofa drone"
NAMES = tuple(_NAMES.split())
CITIES = ("Oslo", "Rome", "Paris", "Lyon", "Graz", "Bonn", "Cork", "Bern", "Turin", "Porto")
ITEMS = tuple(_ITEMS.split())
TIERS = ("gold", "basic")
STATUSES = ("new", "packed", "shipped", "delivered", "cancelled")
OPEN = frozenset({"new", "packed"})
AMOUNTS = ("21.80", "24.60", "29.40", "38.20", "43.80", "52.60", "67.40", "74.20", "88.00", "95.60")
DAYS = ("02", "05", "09", "12", "16", "21", "25", "28", "33", "40", "47", "58")
CARRIERS = ("north", "swift")

WORDINGS = {
    "double": (
        "My name is {name}. I was charged twice for the {item}.",
        "{name} here. You charged me twice for the {item}.",
    ),
    "cancel": (
        "{name} here. Please cancel order {order}.",
        "I am {name}. I want to cancel my order {order}.",
    ),
    "broken": ("{name} here. My {item} arrived broken.", "My name is {name}. The {item} is broken."),
    "address": ("This is {name}. I moved to {city}.", "{name} here. My new city is {city}."),
    "late": ("Where is my order {order}?", "My order {order} has not come yet."),
    "cancel_all": (
        "I am {name}. Cancel all my open orders.",
        "{name} here. Please cancel all my open orders.",
    ),
    "complaint": ("{name} here. Your service is bad.", "I am {name}. I want to complain."),
    "forget": ("I am {name}. Delete my account.", "{name} here. Please delete all my data."),
}
"""How each kind of request is worded; strangers ask as those who cancel."""
TRAIN_SEEDS = range(1_000, 500_000)
HELD_OUT_SEEDS = range(500_000, 1_000_000)

_CUSTOMERS = 4
_SLOW_SHARE = 0.3  # of all payments
_DECISIVE_SHARE = 0.75  # of the requests that can end in a refund, how many do


@dataclass(frozen=True, slots=True)
class DeskCase:
    """One seed, spelt out."""

    seed: int
    family: str
    text: str  # what the customer writes
    customer_id: str  # who writes
    rows: Rows


def split_of(seed: int) -> Split:
    """Which side of the train/test line a seed is on.

    Raises:
        ValueError: the desk has no such seed.
    """
    if seed in TRAIN_SEEDS:
        return Split.TRAIN
    if seed in HELD_OUT_SEEDS:
        return Split.HELD_OUT
    raise ValueError(
        f"desk seed {seed} is outside {TRAIN_SEEDS.start} to {HELD_OUT_SEEDS.stop - 1}: "
        f"train environments are below {HELD_OUT_SEEDS.start}, held-out environments from there"
    )


def family_of(seed: int) -> str:
    """The kind of request that a seed is about."""
    return FAMILIES[seed % len(FAMILIES)]


def make_case(seed: int) -> DeskCase:
    """Make desk and request of a seed.

    Raises:
        ValueError: the desk has no such seed.
    """
    split_of(seed)
    draft = _Draft(random.Random(seed))  # noqa: S311  reproducible, not secret
    family = family_of(seed)
    text = _SHAPES[family](draft)
    return DeskCase(seed, family, text, draft.me["id"], draft.rows())


@dataclass(slots=True)
class _Draft:
    """A desk in the making: random to begin with, then bent to what its family needs."""

    random: random.Random
    customers: list[dict[str, str]] = field(default_factory=list)
    orders: list[dict[str, str]] = field(default_factory=list)
    payments: list[dict[str, str]] = field(default_factory=list)
    spare_payments: list[str] = field(default_factory=list)
    me: dict[str, str] = field(default_factory=dict)
    order: dict[str, str] = field(default_factory=dict)  # the one that the request is about

    def __post_init__(self) -> None:
        pick = self.random
        ids, names = pick.sample(CUSTOMER_IDS, _CUSTOMERS), pick.sample(NAMES, _CUSTOMERS)
        order_ids = pick.sample(ORDER_IDS, 3 * _CUSTOMERS)
        self.spare_payments = pick.sample(PAYMENT_IDS, 3 * _CUSTOMERS + 1)
        for customer_id, name in zip(ids, names, strict=True):
            self.customers.append(
                {"id": customer_id, "name": name, "city": pick.choice(CITIES), "tier": pick.choice(TIERS)}
            )
            for item in pick.sample(ITEMS, pick.randint(1, 3)):
                self._add_order(order_ids.pop(), customer_id, item)
        self.me = pick.choice(self.customers)
        self.order = pick.choice(self.mine())

    def _add_order(self, order_id: str, customer_id: str, item: str) -> None:
        pick = self.random
        order = {
            "id": order_id,
            "customer_id": customer_id,
            "item": item,
            "status": pick.choice(STATUSES[:4]),
        }
        self.orders.append({**order, "days": pick.choice(DAYS), "total": pick.choice(AMOUNTS)})
        self.pay(self.orders[-1])

    def pay(self, order: dict[str, str]) -> dict[str, str]:
        """Let an order be paid (once more)."""
        gateway = "slow" if self.random.random() < _SLOW_SHARE else "fast"
        payment = {"id": self.spare_payments.pop(), "order_id": order["id"], "amount": order["total"]}
        self.payments.append({**payment, "status": "captured", "gateway": gateway})
        return self.payments[-1]

    def mine(self) -> list[dict[str, str]]:
        """The orders of the customer who writes."""
        return [order for order in self.orders if order["customer_id"] == self.me["id"]]

    def decisive(self) -> bool:
        """Whether this request is to end in the consequence that its family is about."""
        return self.random.random() < _DECISIVE_SHARE

    def say(self, family: str, **words: str) -> str:
        """Word the request."""
        return self.random.choice(WORDINGS[family]).format(name=self.me["name"], **words)

    def rows(self) -> Rows:
        parcels = [
            {"order_id": order["id"], "carrier": self.random.choice(CARRIERS), "state": self._parcel(order)}
            for order in self.orders
            if order["status"] in ("shipped", "delivered")
        ]
        tables = {
            "customers": self.customers,
            "orders": self.orders,
            "payments": self.payments,
            "parcels": parcels,
        }
        return {
            table: tuple(tuple(row[column] for column in columns) for row in tables[table])
            for table, columns in COLUMNS.items()
        }

    def _parcel(self, order: dict[str, str]) -> str:
        return "delivered" if order["status"] == "delivered" else self.random.choice(("moving", "lost"))


def _double(draft: _Draft) -> str:
    first = next(payment for payment in draft.payments if payment["order_id"] == draft.order["id"])
    second = draft.pay(draft.order)
    if not draft.decisive():
        draft.random.choice((first, second))["status"] = "failed"
    return draft.say("double", item=draft.order["item"])


def _cancel(draft: _Draft) -> str:
    statuses = ("new", "packed") if draft.decisive() else ("shipped", "delivered")
    draft.order["status"] = draft.random.choice(statuses)
    return _please_cancel(draft)


def _please_cancel(draft: _Draft) -> str:
    return draft.say("cancel", order=draft.order["id"])


def _broken(draft: _Draft) -> str:
    draft.order["status"] = "delivered"
    draft.order["days"] = draft.random.choice(DAYS[:8] if draft.decisive() else DAYS[8:])
    return draft.say("broken", item=draft.order["item"])


def _address(draft: _Draft) -> str:
    for order in draft.mine():
        if order["status"] == "shipped":
            order["status"] = draft.random.choice(("new", "packed", "delivered"))
    if draft.random.random() < 0.5:
        draft.order["status"] = "shipped"
    elsewhere = [city for city in CITIES if city != draft.me["city"]]
    return draft.say("address", city=draft.random.choice(elsewhere))


def _late(draft: _Draft) -> str:
    draft.order["status"] = draft.random.choice(("shipped", "shipped", "delivered", "new"))
    return draft.say("late", order=draft.order["id"])


def _forget(draft: _Draft) -> str:
    settled = ("delivered", "cancelled")
    for order in draft.mine():
        order["status"] = draft.random.choice(settled)
    if draft.random.random() < 0.5:
        draft.order["status"] = draft.random.choice(("new", "packed", "shipped"))
    return draft.say("forget")


def _stranger(draft: _Draft) -> str:
    others = [order for order in draft.orders if order["customer_id"] != draft.me["id"]]
    draft.order = draft.random.choice(others)
    draft.order["status"] = draft.random.choice(("new", "packed", "shipped"))
    return _please_cancel(draft)


_SHAPES: dict[str, Callable[[_Draft], str]] = {
    "double": _double,
    "cancel": _cancel,
    "broken": _broken,
    "address": _address,
    "late": _late,
    "cancel_all": lambda draft: draft.say("cancel_all"),
    "complaint": lambda draft: draft.say("complaint"),
    "forget": _forget,
    "stranger": _stranger,
}
FAMILIES = tuple(_SHAPES)
