"""Hard limits of a whole run: number of calls and dollars.

An amount is reserved before a call, settled with its real cost after it, or refunded if it did not happen.
Amounts are whole calls and whole billionths of a dollar, so that sums are exact. Thread-safe, because tools
run in threads.

The limit of calls is never exceeded. A call's cost is known only afterwards: by default a call may start
while spending is below the dollar limit, so that a run exceeds it at most by the calls in flight. `strict`
also counts reservations: a run then never exceeds the limit if no call costs more than its reservation.
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
    """The amount reserved for one call until it is settled or refunded."""

    calls: int
    nano_usd: int
    open: bool = True
    number: int = 0  # its number in another process's budget; 0: counted in this process

    def end(self) -> None:
        """Mark it as settled or refunded.

        Raises:
            ValueError: it already was.
        """
        if not self.open:
            raise ValueError("this reservation was settled or refunded before")
        self.open = False


class RunBudget(RunHook):
    """Calls and dollars that a run may spend; None: no limit. As a hook it counts an episode's calls."""

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
        """Maximum calls and dollars; None: no limit."""
        return self._call_limit, None if self._usd_limit is None else self._usd_limit / _NANO

    @property
    def calls(self) -> int:
        """Calls made, without those in flight."""
        return self._calls

    @property
    def usd(self) -> float:
        """Dollars spent, without those in flight."""
        return self._nano_usd / _NANO

    def before_call(self, call: Call, tool: ToolSpec) -> None:  # noqa: ARG002  every call counts as one
        """Count one call before it is answered.

        Raises:
            BudgetExceeded: no call is left; nothing was counted.
        """
        with self._lock:
            self._check_calls(1)
            self._calls += 1

    def reserve(self, calls: int = 1, usd: float | None = 0.0) -> Reservation:
        """Reserve an amount before spending it.

        Args:
            calls: number of calls.
            usd: their maximum cost; 0.0: free, None: unknown.

        Raises:
            BudgetExceeded: a limit would be exceeded; nothing was reserved.
            ValueError: the amount is unknown and the budget is strict.
        """
        if calls < 0:
            raise ValueError("a reservation of calls is zero or more")
        if usd is None and self._strict and self._usd_limit is not None:
            raise ValueError("a strict budget needs the maximum cost of a call")
        nano = 0 if usd is None else _nano(usd)
        with self._lock:
            self._check_calls(calls)
            if usd != 0 and not self._affords(nano):
                raise BudgetExceeded("spend in USD", limit=(self._usd_limit or 0) / _NANO)
            self._calls_held += calls
            self._nano_usd_held += nano
        return Reservation(calls, nano)

    def settle(self, reservation: Reservation, *, usd: float | None = None) -> None:
        """Count a reservation as spent, with its real cost if known. Once per reservation."""
        nano = reservation.nano_usd if usd is None else _nano(usd)
        with self._lock:
            self._end(reservation)
            self._calls += reservation.calls
            self._nano_usd += nano

    def refund(self, reservation: Reservation) -> None:
        """Release a reservation: the call did not happen. A second refund has no effect."""
        with self._lock:
            if reservation.open:
                self._end(reservation)

    def count_earlier(self, *, calls: int, usd: float) -> None:
        """Count the spending of earlier parts of a resumed run, even beyond a limit."""
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
    """Dollars in billionths, rounded up: never understates a cost."""
    if not isfinite(usd) or usd < 0:
        raise ValueError(f"an amount of dollars is finite and not negative, got {usd}")
    return ceil(usd * _NANO)


class BudgetedEndpoint:
    """Implements `interfaces.ChatEndpoint` over another endpoint; refuses requests beyond the budget.

    All costs of the dream's models (answers, judgments, simulated users, the question before the run) are
    counted with those of the agent's models.

    Args:
        endpoint: the model's endpoint.
        budget: limits the spending.
        calls: calls that a request uses; 0 in a run, whose calls are the agent's only.
    """

    def __init__(self, endpoint: ChatEndpoint, budget: RunBudget, *, calls: int = 0) -> None:
        self._endpoint, self._budget, self._calls = endpoint, budget, calls

    @property
    def endpoint(self) -> ChatEndpoint:
        """The wrapped endpoint."""
        return self._endpoint

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `interfaces.ChatEndpoint.chat`.

        Raises:
            BudgetExceeded: no dollars or calls are left; no request was sent.
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
    """Implements `interfaces.Account` for spending outside of episodes."""

    def __init__(self) -> None:
        self.spend = Spend()
        self._lock = threading.Lock()

    def spent(self, part: str, reply: ChatReply) -> None:  # noqa: ARG002  all spending is one part
        """See `Account.spent`."""
        with self._lock:
            tokens = reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens
            self.spend += Spend(1, *tokens, reply.cost_usd, int(reply.cache_told))

    def count(self, name: str, by: int = 1) -> None:
        """See `Account.count`; does nothing: a run's account has only spending."""
