"""R5: 32 workers and one budget: passed by at most what is in flight, never with strict."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dreamgym_kit.errors import BudgetExceeded
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.types import Call, Effect, ToolSpec

WORKERS = 32
CALL = Call("refund_payment", {"id": "pay_1"})
TOOL = ToolSpec(CALL.tool, Effect.READ)


@dataclass
class Spent:
    calls: int = 0
    usd: float = 0.0


def in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def calls_let_through(budget: RunBudget, *, tries: int) -> int:
    let = [0] * WORKERS

    def work(number: int) -> None:
        for _ in range(tries):
            try:
                budget.before_call(CALL, TOOL)
            except BudgetExceeded:
                return
            let[number] += 1

    in_threads(work)
    return sum(let)


def dollars_spent(budget: RunBudget, *, most: float) -> tuple[float, float]:
    """Workers that spend up to `most` a call: (dollars spent, the most that was in flight)."""
    spent = [0.0] * WORKERS

    def work(number: int) -> None:
        dice = random.Random(number)
        while True:
            try:
                reservation = budget.reserve(usd=most)
            except BudgetExceeded:
                return
            time.sleep(dice.uniform(0, 0.001))
            if dice.random() < 0.2:
                budget.refund(reservation)
            else:
                cost = dice.uniform(0, most)
                spent[number] += cost
                budget.settle(reservation, usd=cost)

    in_threads(work)
    return sum(spent), most * WORKERS


class RacyBudget(RunBudget):
    """Planted bug: looks first, counts later. At its first call each worker counts once all have looked."""

    def __init__(self, *, calls: int) -> None:
        super().__init__(calls=calls)
        self._all_looked = threading.Barrier(WORKERS, timeout=60)
        self._mine = threading.local()

    def before_call(self, call: Call, tool: ToolSpec) -> None:
        made = self._calls
        if made >= 1000:
            raise BudgetExceeded("calls", limit=1000)
        if not hasattr(self._mine, "looked"):
            self._mine.looked = True
            self._all_looked.wait()
        self._calls = made + 1


def test_calls_are_never_passed() -> None:
    let = calls_let_through(RunBudget(calls=1000), tries=1000)
    print(f"R5 workers={WORKERS} limit=1000 calls={let}")
    assert let == 1000


def test_dollars_are_passed_by_at_most_what_is_in_flight() -> None:
    budget = RunBudget(usd=2.0)
    spent, in_flight = dollars_spent(budget, most=0.01)
    print(f"R5 limit=2.00 spent={spent:.4f} in flight at most {in_flight:.2f}")
    assert 2.0 <= spent <= 2.0 + in_flight
    assert budget.usd == round(budget.usd, 9)


def test_dollars_are_never_passed_with_strict() -> None:
    spent, _ = dollars_spent(RunBudget(usd=2.0, strict=True), most=0.01)
    print(f"R5 strict limit=2.00 spent={spent:.4f}")
    assert 2.0 - 0.01 * WORKERS <= spent <= 2.0


def test_a_budget_that_looks_first_and_counts_later_is_caught() -> None:
    assert calls_let_through(RacyBudget(calls=1000), tries=1000) > 1000
