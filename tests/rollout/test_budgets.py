"""Budgets by their properties; bar R5 has many threads spend from one."""

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import BudgetExceeded
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.types import Call, Effect, ToolSpec

CALL = Call("look_up", {})
TOOL = ToolSpec(CALL.tool, Effect.READ)
cents = st.integers(0, 50).map(lambda count: count / 100)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(cents, max_size=30))
def test_what_is_refunded_can_be_spent_again(amounts: list[float]) -> None:
    budget = RunBudget(calls=2, usd=0.5, strict=True)
    for usd in amounts:
        reservation = budget.reserve(usd=usd)
        budget.refund(reservation)
        budget.refund(reservation)  # gives nothing back a second time
    held = budget.reserve(usd=0.5)
    with pytest.raises(BudgetExceeded, match="USD"):
        budget.reserve(usd=0.01)
    budget.settle(held)
    assert (budget.calls, budget.usd) == (1, 0.5)


def test_no_limit_lets_everything_through() -> None:
    budget = RunBudget()
    for _ in range(100):
        budget.settle(budget.reserve(usd=1e6))
    assert (budget.calls, budget.usd) == (100, 1e8)


def test_the_refusal_names_the_limit_and_counts_nothing() -> None:
    budget = RunBudget(calls=1)
    budget.before_call(CALL, TOOL)
    for _ in range(3):
        with pytest.raises(BudgetExceeded, match=r"^budget spent: calls \(limit 1\)$"):
            budget.before_call(CALL, TOOL)
    assert budget.calls == 1
    spent = RunBudget(usd=0.25)
    spent.settle(spent.reserve(usd=None), usd=0.3)
    with pytest.raises(BudgetExceeded, match=r"^budget spent: spend in USD \(limit 0.25\)$"):
        spent.reserve(usd=0.01)


def test_a_free_call_needs_no_dollars() -> None:
    budget = RunBudget(usd=0.0)
    budget.before_call(CALL, TOOL)
    with pytest.raises(BudgetExceeded):
        budget.reserve(usd=None)


def test_what_earlier_legs_spent_counts() -> None:
    budget = RunBudget(calls=10, usd=1.0)
    budget.count_earlier(calls=9, usd=0.5)
    budget.before_call(CALL, TOOL)
    assert (budget.calls, budget.usd) == (10, 0.5)
    with pytest.raises(BudgetExceeded):
        budget.before_call(CALL, TOOL)


def test_sums_are_exact() -> None:
    budget = RunBudget(usd=1.0, strict=True)
    for _ in range(10):
        budget.settle(budget.reserve(usd=0.1))
    assert budget.usd == 1.0
    with pytest.raises(BudgetExceeded):
        budget.reserve(usd=1e-9)


def test_a_reservation_ends_once() -> None:
    budget = RunBudget(calls=2)
    reservation = budget.reserve()
    budget.settle(reservation)
    with pytest.raises(ValueError, match="settled or refunded before"):
        budget.settle(reservation)
    budget.refund(reservation)
    assert budget.calls == 1


@each_row("amount", [-1.0, float("nan"), float("inf")])
def test_amounts_that_are_none_are_refused(amount: float) -> None:
    for wrong in (lambda: RunBudget(usd=amount), lambda: RunBudget().reserve(usd=amount)):
        with pytest.raises(ValueError, match="finite and not negative"):
            wrong()
    for wrong in (lambda: RunBudget(-1), lambda: RunBudget().reserve(-1)):
        with pytest.raises(ValueError, match="zero or more"):
            wrong()
    with pytest.raises(ValueError, match="needs the maximum cost"):
        RunBudget(usd=1.0, strict=True).reserve(usd=None)
