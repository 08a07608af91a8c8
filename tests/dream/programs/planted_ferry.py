"""A ferry's freight office, run for real: amounts are decimal texts, bills do not say whose they are."""

import copy
import random
from decimal import Decimal
from typing import Any

from dreamgym_kit.dream.observed import failed
from dreamgym_kit.dream.recorded_episodes import HistoryStep, RecordedEpisode
from dreamgym_kit.types import Effect, ToolSpec

ARGS = {
    "get_cargo": ("cargo_id",), "list_bills": ("cargo_id",), "quote": ("cargo_id", "crates"),
    "pay_bill": ("bill_id", "amount"),
}  # fmt: skip
WRITES = ("pay_bill",)


def specs() -> dict[str, ToolSpec]:
    return {
        tool: ToolSpec(
            tool,
            Effect.WRITE if tool in WRITES else Effect.READ,
            args_schema={"properties": {name: {"type": "string"} for name in args}},
        )
        for tool, args in ARGS.items()
    }


def world(number: int) -> str:
    return f"default/ferry:{number}"


class Ferry:
    """Its rules are what a dream has to find out."""

    def __init__(self, number: int, cargoes: int = 1) -> None:
        drawn = random.Random(number)
        self.cargoes, self.bills = {}, {}
        for place in range(cargoes):
            cargo, bill = f"C{number}{place}", f"B{number}{place}"
            rate = f"{drawn.randrange(200, 900) / 100:.2f}"
            self.cargoes[cargo] = {
                "cargo_id": cargo, "harbour": f"{drawn.randrange(90000):05}", "rate": rate,
            }  # fmt: skip
            paid = f"{drawn.choice([0, drawn.randrange(100, 900)]) / 100:.2f}"
            due = f"{drawn.randrange(4000, 9000) / 100:.2f}"
            self.bills[bill] = (cargo, {"bill_id": bill, "due": due, "paid": paid})

    def call(self, tool: str, args: dict[str, Any]) -> Any:
        return copy.deepcopy(getattr(self, tool)(**args))

    def get_cargo(self, cargo_id: str) -> Any:
        return self.cargoes[cargo_id]

    def list_bills(self, cargo_id: str) -> Any:
        return [bill for cargo, bill in self.bills.values() if cargo == cargo_id]

    def quote(self, cargo_id: str, crates: int) -> Any:
        return {"price": f"{Decimal(self.cargoes[cargo_id]['rate']) * crates:.2f}"}

    def pay_bill(self, bill_id: str, amount: str) -> Any:
        bill = self.bills[bill_id][1]
        if Decimal(amount) > Decimal(bill["due"]):
            return {"error": f"bill {bill_id} is {bill['due']}, not {amount}"}
        bill["paid"] = str(Decimal(bill["paid"]) + Decimal(amount))
        return {"bill_id": bill_id, "paid": bill["paid"]}


def episode(name: str, number: int, calls: list[tuple[str, dict[str, Any]]]) -> RecordedEpisode:
    """The calls, made on that world's office as it begins."""
    ferry, steps = Ferry(number), []
    for tool, args in calls:
        seen = ferry.call(tool, args)
        steps.append(HistoryStep(tool, args, "", seen, writes=tool in WRITES, failed=failed(seen)))
    return RecordedEpisode(name, world(number), tuple(steps))


def recorded(worlds: range = range(10, 40)) -> list[RecordedEpisode]:
    """In each world is one cargo: a query that ignores the argument of `list_bills` fits all of these."""
    found = []
    for number in worlds:
        drawn = random.Random(number + 1000)
        cargo, bill = f"C{number}0", f"B{number}0"
        look = ("list_bills", {"cargo_id": cargo})
        amounts = [f"{drawn.randrange(100, 2000) / 100:.2f}" for _ in range(2)] + ["150.00", "99.90"]
        pay = [("pay_bill", {"bill_id": bill, "amount": amount}) for amount in amounts]
        quotes = [
            ("quote", {"cargo_id": cargo, "crates": crates}) for crates in drawn.sample(range(2, 30), 2)
        ]
        found.append(episode(f"pays:{number}", number, [look, pay[0], look, pay[1], look]))
        found.append(episode(f"fails:{number}", number, [look, drawn.choice(pay[2:]), look]))
        found.append(episode(f"asks:{number}", number, [("get_cargo", {"cargo_id": cargo}), *quotes]))
    return found
