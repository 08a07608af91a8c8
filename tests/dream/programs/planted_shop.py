"""A small shop with a tool of each kind, run for real: a dream of it should say what its tools say."""

import copy
import random
from typing import Any

from dreamgym_kit.dream.observed import failed
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode
from dreamgym_kit.types import Effect, ToolSpec

WORLD = "default/shop:0"
ITEMS = ("chair", "desk", "lamp", "shelf")
PRICE = 12.5
WRITES = ("create_order", "cancel_order", "update_order", "add_item")


def specs() -> dict[str, ToolSpec]:
    def args(*names: str, **defaults: Any) -> dict[str, Any]:
        given = {name: {"type": "string"} for name in names}
        return {"properties": given | {name: {"default": value} for name, value in defaults.items()}}

    schemas = {
        "get_order": args("order_id"),
        "list_orders": args(status=None, limit=50),
        "get_user": args("user_id"),
        "create_order": args("user_id", "item", "qty"),
        "cancel_order": args("order_id", "reason"),
        "update_order": args("order_id", "field", "new_value"),
        "add_item": args("order_id", "item"),
    }
    return {
        name: ToolSpec(name, Effect.WRITE if name in WRITES else Effect.READ, args_schema=schema)
        for name, schema in schemas.items()
    }


class Shop:
    """Its rules are what a dream has to find out."""

    def __init__(self) -> None:
        drawn = random.Random(5)
        self.users = {
            f"u-{n:03}": {"user_id": f"u-{n:03}", "name": f"Name{n}", "tier": drawn.choice(["gold", "plain"])}
            for n in range(20)
        }
        self.orders = {}
        for n in range(40):
            item = drawn.choice(ITEMS)
            status = drawn.choice(["open", "open", "shipped"])
            self._put(f"o-{n:04}", drawn.choice(sorted(self.users)), item, drawn.randint(1, 3), status)
        self.next = 40

    def _put(self, key: str, user: str, item: str, qty: int, status: str) -> dict[str, Any]:
        self.orders[key] = {
            "order_id": key, "user_id": user, "items": [item], "qty": qty,
            "total": PRICE * qty, "status": status, "note": "",
        }  # fmt: skip
        return self.orders[key]

    def call(self, tool: str, args: dict[str, Any]) -> Any:
        return copy.deepcopy(getattr(self, tool)(**args))

    def get_order(self, order_id: str) -> Any:
        return self.orders.get(order_id) or {"error": f"no order {order_id}"}

    def get_user(self, user_id: str) -> Any:
        return self.users.get(user_id) or {"error": f"no user {user_id}"}

    def list_orders(self, status: str | None = None, limit: int = 50) -> Any:
        hits = [one for one in self.orders.values() if status is None or one["status"] == status]
        return [{"order_id": one["order_id"], "status": one["status"]} for one in hits][:limit]

    def create_order(self, user_id: str, item: str, qty: int) -> Any:
        key, self.next = f"o-{self.next:04}", self.next + 1
        return self._put(key, user_id, item, qty, "open")

    def cancel_order(self, order_id: str, reason: str) -> Any:
        order = self.orders.get(order_id)
        if order is None:
            return {"error": f"no order {order_id}"}
        if order["status"] != "open":
            return {"error": f"order {order_id} is {order['status']}"}
        order["status"] = "cancelled"
        return f"Order {order_id} cancelled: {reason}"

    def update_order(self, order_id: str, field: str, new_value: str) -> Any:
        self.orders[order_id][field] = new_value
        return "updated"

    def add_item(self, order_id: str, item: str) -> Any:
        self.orders[order_id]["items"].append(item)
        return {"order_id": order_id, "items": self.orders[order_id]["items"]}


def episode(name: str, calls: list[tuple[str, dict[str, Any]]]) -> RecordedEpisode:
    """The calls, made on a fresh shop."""
    shop, steps = Shop(), []
    for tool, args in calls:
        seen = shop.call(tool, args)
        steps.append(HistoryStep(tool, args, "", seen, writes=tool in WRITES, failed=failed(seen)))
    return RecordedEpisode(name, WORLD, tuple(steps))


def recorded(orders: range = range(24)) -> list[RecordedEpisode]:
    """Episodes on some of the orders."""
    drawn, shop = random.Random(7), Shop()
    found = []
    for n in orders:
        key, other = f"o-{n:04}", f"o-{drawn.choice(orders):04}"
        user, item = shop.orders[key]["user_id"], drawn.choice(ITEMS)
        reason, qty = drawn.choice(["late", "mistake"]), drawn.randint(1, 4)
        this = {"order_id": key}
        look = ("get_order", this)
        kinds = [
            [look, ("cancel_order", {**this, "reason": reason}), look],
            [
                ("get_user", {"user_id": user}),
                ("create_order", {"user_id": user, "item": item, "qty": qty}),
                ("list_orders", {}),
                ("list_orders", {"status": "open"}),
            ],
            [
                look,
                ("update_order", {**this, "field": "note", "new_value": f"note {n}"}),
                look,
                ("get_order", {"order_id": other}),
            ],
            [look, ("add_item", {**this, "item": item}), look],
        ]
        found += [episode(f"e{n}.{place}", calls) for place, calls in enumerate(kinds)]
    return found


def crawl() -> RecordedEpisode:
    """Every order and user is read once."""
    shop = Shop()
    reads = [("list_orders", {})]
    reads += [("get_order", {"order_id": key}) for key in shop.orders]
    return episode("crawl:1", reads + [("get_user", {"user_id": key}) for key in shop.users])
