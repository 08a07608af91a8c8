"""Hard limits of a whole run: how many calls it may make and what it may spend.

Decides who may go ahead: an amount is reserved before a call, settled with its real cost after it, or
refunded when it did not happen. Counted in whole calls and whole billionths of a dollar, so that sums
are exact. Thread-safe: tools run in threads.

A limit of calls is never passed. What a call will cost is known only afterwards: by default a call may go
while the limit of dollars is not reached, so that a run passes it by at most what was in flight; `strict`
also holds back what is reserved, so that a run never passes it as long as no call costs more than was
reserved for it.
"""

import threading
from dataclasses import dataclass
from math import ceil, isfinite

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.errors import BudgetExceeded
from dreamgym_kit.interfaces import ChatEndpoint, RunHook
from dreamgym_kit.types import Call, Spend, ToolSpec

_NANO = 10**9


@dataclass(eq=False, slots=True)
class Reservation:
    """What is set aside for one call until it is settled or refunded."""

    calls: int
    nano_usd: int
    open: bool = True
    number: int = 0  # by which a budget in another process knows it; 0: counted in this one

    def end(self) -> None:
        """It is settled or refunded, once.

        Raises:
            ValueError: it was before.
        """
        if not self.open:
            raise ValueError("this reservation was settled or refunded before")
        self.open = False


class RunBudget(RunHook):
    """Calls and dollars that a run may spend; None is no limit. As a hook it counts an episode's calls."""

    def __init__(self, calls: int | None = None, usd: float | None = None, *, strict: bool = False) -> None:
        if calls is not None and calls < 0:
            raise ValueError("a budget of calls is zero or more")
        self._call_limit = calls
        self._usd_limit = None if usd is None else _nano(usd)
        self._strict = strict
        self._lock = threading.Lock()
        self._calls = self._nano_usd = 0  # settled
        self._calls_held = self._nano_usd_held = 0  # reserved

    @property
    def limits(self) -> tuple[int | None, float | None]:
        """The most calls and dollars; None is no limit."""
        return self._call_limit, None if self._usd_limit is None else self._usd_limit / _NANO

    @property
    def calls(self) -> int:
        """Calls made, without those in flight."""
        return self._calls

    @property
    def usd(self) -> float:
        """Dollars spent, without those in flight."""
        return self._nano_usd / _NANO

    def before_call(self, call: Call, tool: ToolSpec) -> None:  # noqa: ARG002  each counts one
        """Count one call that is about to be answered.

        Raises:
            BudgetExceeded: there is none left; nothing was counted.
        """
        with self._lock:
            self._check_calls(1)
            self._calls += 1

    def reserve(self, calls: int = 1, usd: float | None = 0.0) -> Reservation:
        """Set aside what is about to be spent.

        Args:
            calls: how many.
            usd: the most that they can cost; 0.0 for what is free, None where nobody knows.

        Raises:
            BudgetExceeded: it does not fit; nothing was set aside.
            ValueError: a strict budget of dollars is asked for an unknown amount.
        """
        if calls < 0:
            raise ValueError("a reservation of calls is zero or more")
        if usd is None and self._strict and self._usd_limit is not None:
            raise ValueError("a strict budget must be told the most that a call can cost")
        nano = 0 if usd is None else _nano(usd)
        with self._lock:
            self._check_calls(calls)
            if usd != 0 and not self._affords(nano):
                raise BudgetExceeded("spend in USD", limit=(self._usd_limit or 0) / _NANO)
            self._calls_held += calls
            self._nano_usd_held += nano
        return Reservation(calls, nano)

    def settle(self, reservation: Reservation, *, usd: float | None = None) -> None:
        """Count what was reserved as spent, with its real cost where that is known. Once per reservation."""
        nano = reservation.nano_usd if usd is None else _nano(usd)
        with self._lock:
            self._end(reservation)
            self._calls += reservation.calls
            self._nano_usd += nano

    def refund(self, reservation: Reservation) -> None:
        """Give back what was reserved: the call did not happen. A second time gives nothing back."""
        with self._lock:
            if reservation.open:
                self._end(reservation)

    def count_earlier(self, *, calls: int, usd: float) -> None:
        """Count what earlier legs of a resumed run have spent, limit or not."""
        nano = _nano(usd)
        if calls < 0:
            raise ValueError("calls are zero or more")
        with self._lock:
            self._calls += calls
            self._nano_usd += nano

    def _check_calls(self, more: int) -> None:
        if self._call_limit is not None and self._calls + self._calls_held + more > self._call_limit:
            raise BudgetExceeded("calls", limit=self._call_limit)

    def _affords(self, nano_usd: int) -> bool:
        if self._usd_limit is None:
            return True
        if self._strict:
            return self._nano_usd + self._nano_usd_held + nano_usd <= self._usd_limit
        return self._nano_usd < self._usd_limit

    def _end(self, reservation: Reservation) -> None:
        reservation.end()
        self._calls_held -= reservation.calls
        self._nano_usd_held -= reservation.nano_usd


def _nano(usd: float) -> int:
    """Dollars in billionths, rounded up: a budget errs on the side of spending less."""
    if not isfinite(usd) or usd < 0:
        raise ValueError(f"an amount of dollars is finite and not negative, got {usd}")
    return ceil(usd * _NANO)


class BudgetedEndpoint:
    """Implements `interfaces.ChatEndpoint` over another one: nothing is asked once the budget is spent.

    Whatever a model of the dream costs (answers, judgements, a simulated user's words, the question before
    the run) is counted where the agent's own models are.

    Args:
        endpoint: where the model answers.
        budget: what may be spent.
        calls: how many of the budget's calls a question is; in a run those are the agent's alone.
    """

    def __init__(self, endpoint: ChatEndpoint, budget: RunBudget, *, calls: int = 0) -> None:
        self._endpoint, self._budget, self._calls = endpoint, budget, calls

    @property
    def endpoint(self) -> ChatEndpoint:
        """What the budget is around."""
        return self._endpoint

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `interfaces.ChatEndpoint.chat`.

        Raises:
            BudgetExceeded: the run has no dollars or no calls left; nothing was asked.
        """
        reserved = self._budget.reserve(self._calls, usd=None)
        try:
            reply = await self._endpoint.chat(request)
        except BaseException:
            self._budget.refund(reserved)
            raise
        self._budget.settle(reserved, usd=reply.cost_usd)
        return reply


class RunAccount:
    """Implements `interfaces.Account` for what belongs to a run and to no episode of it."""

    def __init__(self) -> None:
        self.spend = Spend()
        self._lock = threading.Lock()

    def spent(self, part: str, reply: ChatReply) -> None:  # noqa: ARG002  all of it is one part
        """See `Account.spent`."""
        with self._lock:
            tokens = reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens
            self.spend += Spend(1, *tokens, reply.cost_usd, int(reply.cache_told))

    def count(self, name: str, by: int = 1) -> None:
        """See `Account.count`; an account of a run tells its spend only."""
