"""A shop whose tools refuse for reasons that no answer spells out: a threshold, a link, a hidden effect.

A double of somebody's own system, for what learns from recordings: `recordings_of` works it in many worlds.
"""

import random
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from dreamgym_kit.dream.programs.collections import RecordedCalls
from dreamgym_kit.dream.programs.experience import learn, seen_calls
from dreamgym_kit.dream.programs.model import Model
from dreamgym_kit.dream.recorded_episodes import recordings
from dreamgym_kit.types import Answer, Call, Effect, Environment, Transition, history_digest

READS = {"get_order": "order_id", "get_customer": "customer_id"}
WRITES = ("reship", "pay", "hurry")
EFFECTS = {**dict.fromkeys(READS, Effect.READ), **dict.fromkeys(WRITES, Effect.WRITE)}
PATIENCE = 15  # days before which nothing is sent again; no answer ever says so


class Refused(Exception):
    """The shop's own word on why it did not do it."""


class StrictShopDouble:
    """One world of it."""

    def __init__(self, seed: int) -> None:
        drawn = random.Random(f"shop {seed}")
        self.customers = {
            f"C{number}": {"customer_id": f"C{number}", "tier": drawn.choice(("gold", "basic"))}
            for number in drawn.sample(range(100, 999), 2)
        }
        self.orders: dict[str, dict[str, Any]] = {}
        for number in drawn.sample(range(100, 999), 3):
            self.orders[f"O{number}"] = {
                "order_id": f"O{number}",
                "customer_id": drawn.choice(list(self.customers)),
                "status": drawn.choice(("new", "shipped", "shipped", "done")),
                "days": drawn.randint(2, 40),
                "owed": drawn.choice((20, 35, 40, 55, 60, 75, 80, 95, 110, 125)),
            }

    def call(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        operation: Callable[..., dict[str, Any]] = getattr(self, tool)
        return operation(**args)

    def get_order(self, order_id: str) -> dict[str, Any]:
        if order_id not in self.orders:
            raise Refused(f"there is no order {order_id}")
        return dict(self.orders[order_id])

    def get_customer(self, customer_id: str) -> dict[str, Any]:
        if customer_id not in self.customers:
            raise Refused(f"there is no customer {customer_id}")
        return dict(self.customers[customer_id])

    def reship(self, order_id: str) -> dict[str, Any]:
        order = self.get_order(order_id)
        if order["status"] != "shipped":
            raise Refused(f"{order_id} is not under way")
        if order["days"] < PATIENCE:
            raise Refused(f"{order_id} may still come")
        self.orders[order_id].update(status="new", days=1)
        return {"order_id": order_id, "reshipped": "yes"}

    def pay(self, order_id: str, amount: int) -> dict[str, Any]:
        order = self.get_order(order_id)
        if amount > order["owed"]:
            raise Refused(f"{order_id} owes less than that")
        self.orders[order_id]["owed"] -= amount
        return {"order_id": order_id, "paid": amount}

    def hurry(self, order_id: str) -> dict[str, Any]:
        order = self.get_order(order_id)
        if self.customers[order["customer_id"]]["tier"] != "gold":
            raise Refused(f"the customer of {order_id} has to wait")
        return {"order_id": order_id, "hurried": "yes"}


def probed(seed: int, number: int, writes: int = 4) -> list[Transition]:
    """Somebody reads everything, then writes at random and looks again after each write."""
    shop, drawn = StrictShopDouble(seed), random.Random(f"probe {seed} {number}")
    rows: list[Transition] = []
    done: list[str] = []

    def do(tool: str, **args: Any) -> None:
        call = Call(tool, args)
        try:
            answer = Answer(shop.call(tool, args))
        except Refused as refused:
            answer = Answer(error=str(refused), error_type="ToolException")
        rows.append(
            Transition(
                *(
                    call,
                    answer,
                    EFFECTS[tool],
                    f"probe-{seed}-{number}",
                    len(rows) + 1,
                    Environment("shop", seed),
                ),
                after=history_digest(done),
            )
        )
        if tool in WRITES:
            done.append(call.key)

    for order_id in shop.orders:
        do("get_order", order_id=order_id)
    for customer_id in shop.customers:
        do("get_customer", customer_id=customer_id)
    for _ in range(writes):
        order_id = drawn.choice(list(shop.orders)) if drawn.random() < 0.95 else "O5"
        tool = drawn.choice(("reship", "reship", "pay", "hurry"))
        if tool == "pay":
            do(tool, order_id=order_id, amount=drawn.choice((5, 20, 45, 90)))
        else:
            do(tool, order_id=order_id)
        do("get_order", order_id=order_id)
    return rows


def recordings_of(worlds: Iterable[int], probes: int = 3) -> list[Transition]:
    """What was recorded of these worlds."""
    return [row for world in worlds for number in range(probes) for row in probed(world, number)]


@cache
def mined_shop(worlds: int) -> tuple[Model, tuple[RecordedCalls, ...]]:
    """The programs of recordings of so many worlds, and the recordings as programs see them."""
    episodes = recordings(recordings_of(range(worlds)))
    model = learn(episodes, {}, measured=False).model
    return model, tuple(seen_calls(episode, model.parameters) for episode in episodes)
