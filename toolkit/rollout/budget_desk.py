"""One budget for workers in other processes: they ask, the driver counts.

Every call and every dollar is counted where the limit is, before it is spent, so the limits hold over all
workers as they hold in one process: calls are never passed, dollars by at most what was in flight. Where a
run has no limit nobody is asked. What a worker that was lost had reserved and not spent is given back.

Where the tools are real every call is asked for, limit or not: a worker that was given up while it still
lives (a frozen machine, a broken line) gets no answer, or a no, and calls nothing any more.

A worker says on the same way that a real call was executed: it waits until that is in the driver's journal.

The driver's side is `BudgetDesk`, one for each worker; the worker's is `DistantBudget`. Between them go
bytes.
"""

import threading
from collections.abc import Callable
from typing import Any

from dreamgym_kit.errors import BudgetSpent, CutOff
from dreamgym_kit.rollout.budgets import Budget, Reservation, RunBudget
from dreamgym_kit.rollout.records import episode_from_record, episode_to_record
from dreamgym_kit.rollout.wire import read, spelled
from dreamgym_kit.vocabulary import Call, Episode

Ask = Callable[[bytes], bytes]
"""Puts a question to the driver and waits for the answer; from any thread."""


class BudgetDesk:
    """The driver's side for one worker. Thread-safe; knows nothing but numbers, so it may live anywhere."""

    def __init__(self, budget: Budget, on_executed: Callable[[Episode], None] = lambda _: None) -> None:
        self._budget, self._on_executed = budget, on_executed
        self._lock = threading.Lock()
        self._open: dict[int, Reservation] = {}
        self._last = 0
        self._closed = False

    def answer(self, question: bytes) -> bytes:
        """Answer one question of a `DistantBudget`."""
        asked = read(question)
        if asked["do"] == "executed":  # also of a worker that was given up: it happened
            self._on_executed(episode_from_record(asked["episode"]))
            return spelled({})
        if self._closed and asked["do"] == "reserve":
            return spelled({"closed": True})
        try:
            return spelled(self._answered(asked["do"], asked))
        except BudgetSpent as spent:
            return spelled({"spent": spent.what, "limit": spent.limit})

    def close(self) -> None:
        """The worker is no more, or is not to be heard any more: what it had reserved is free again."""
        self._closed = True
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for reservation in left:
            self._budget.refund(reservation)

    def _answered(self, do: str, asked: dict[str, Any]) -> dict[str, Any]:
        if do == "reserve":
            reservation = self._budget.reserve(asked["calls"], asked["usd"])
            if asked["at_once"]:
                self._budget.settle(reservation)
                return {}
            with self._lock:
                self._last += 1
                self._open[self._last] = reservation
                return {"number": self._last}
        with self._lock:
            held = self._open.pop(asked["number"], None)
        if held is not None and do == "settle":
            self._budget.settle(held, usd=asked["usd"])
        elif held is not None:
            self._budget.refund(held)
        return {}


def executed_question(episode: Episode) -> bytes:
    """Tell the driver's `BudgetDesk` of an episode in which a real call was executed."""
    return spelled({"do": "executed", "episode": episode_to_record(episode)})


class DistantBudget:
    """Implements `budgets.Budget` in a worker. Thread-safe.

    Args:
        ask: reaches the driver's `BudgetDesk`.
        calls: the run's limit; None is no limit, and then nobody is asked about calls.
        usd: the same for dollars.
        every_call: ask before each call though there is no limit: it is a real one.
    """

    def __init__(self, ask: Ask, *, calls: int | None, usd: float | None, every_call: bool = False) -> None:
        self._ask, self._every_call = ask, every_call
        self._calls_limited, self._usd_limited = calls is not None, usd is not None
        self._here = RunBudget()  # counts what has no limit

    def charge(self, call: Call) -> None:
        """See `RunBudget.charge`.

        Raises:
            CutOff: the driver has given this worker up.
        """
        if self._calls_limited or self._every_call:
            self._said({"do": "reserve", "calls": 1, "usd": 0.0, "at_once": True})
        else:
            self._here.charge(call)

    def reserve(self, calls: int = 1, usd: float | None = 0.0) -> Reservation:
        """See `RunBudget.reserve`."""
        if not (calls and self._calls_limited) and not (usd != 0 and self._usd_limited):
            return self._here.reserve(calls, usd)
        told = self._said({"do": "reserve", "calls": calls, "usd": usd, "at_once": False})
        return Reservation(calls, 0, number=told["number"])

    def settle(self, reservation: Reservation, *, usd: float | None = None) -> None:
        """See `RunBudget.settle`."""
        if not reservation.number:
            self._here.settle(reservation, usd=usd)
            return
        self._end(reservation)
        self._said({"do": "settle", "number": reservation.number, "usd": usd})

    def refund(self, reservation: Reservation) -> None:
        """See `RunBudget.refund`."""
        if not reservation.number:
            self._here.refund(reservation)
        elif reservation.open:
            self._end(reservation)
            self._said({"do": "refund", "number": reservation.number})

    def count_earlier(self, *, calls: int, usd: float) -> None:
        """See `RunBudget.count_earlier`: that is the driver's, and a worker has none of it."""

    def _end(self, reservation: Reservation) -> None:
        if not reservation.open:
            raise ValueError("this reservation was settled or refunded before")
        reservation.open = False

    def _said(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            told = read(self._ask(spelled(question)))
        except ConnectionError:  # no failure of the tool that is asked for: nobody can say whether it may run
            raise CutOff from None
        if "closed" in told:
            raise CutOff
        if "spent" in told:
            raise BudgetSpent(told["spent"], limit=told["limit"])
        return told
