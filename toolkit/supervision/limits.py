"""What a real call needs before it runs: room in hard limits, and an approval; and why real calls end.

Limits are how many in all, how many of one tool, how fast. A call is counted before it runs and never given
back, whatever comes of it. What is counted is what the audit log announced, so a run that was killed and
resumed has the same budget as an unbroken one. Thread-safe.

An approval names the digest of one held call: its tool, its arguments, its session and a number drawn for
this very call. So it fits no other call, no other session or process, and not the same call a second time.
"""

import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import EpisodeStop, UserError
from dreamgym_kit.interfaces import Approver
from dreamgym_kit.serialization import is_exact
from dreamgym_kit.threads import run_in_thread_async
from dreamgym_kit.types import Approval, Call, HeldCall


class Why(StrEnum):
    """What ended a session's real calls."""

    BUDGET = "budget"  # the hard budget of real calls is spent
    LIMIT = "limit"  # one tool's own limit is
    REFUSED = "refused"  # somebody or some rule said no, or nobody said yes in time
    DIVERGED = "diverged"  # dream and reality have parted
    CANARY = "canary"  # what had to be as it was, was not: first episodes, or the weights that are served
    ALARM = "alarm"  # what was learned cannot be trusted
    AUDIT = "audit"  # what is done can no longer be written down

    @property
    def final(self) -> bool:
        """Whether the dream that all this rests on was wrong: going on with it is no option."""
        return self in (Why.DIVERGED, Why.CANARY)


@dataclass(frozen=True, slots=True)
class RealCallsStopped:
    """The end of all real calls of a run."""

    why: Why
    text: str  # a plain sentence


class RealCallRefused(EpisodeStop):
    """A real call was not let through; it did not run, and the episode is inconclusive."""


class RunStopped(RealCallRefused):
    """So was every call after it: the run's real calls have ended."""

    def __init__(self, stopped: RealCallsStopped) -> None:
        self.stopped = stopped
        super().__init__(stopped.text)


ALL = "*"


class RealLimits:
    """Counts real calls against what a person allowed.

    Args:
        budget: real calls in all.
        per_tool: by tool pattern: real calls of all tools that fit.
        rates: by tool pattern: calls a second; 0: no limit.
    """

    def __init__(self, budget: int, per_tool: Mapping[str, int], rates: Mapping[str, float]) -> None:
        if min(budget, *per_tool.values(), 0) < 0:
            raise UserError("a limit of real calls is below zero; 0 allows none. Nothing was run.")
        self.budget, self._per_tool, self._rates = budget, per_tool, rates
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()  # by tool
        self._free: dict[str, float] = {}  # by pattern: when its next call may be

    @property
    def calls(self) -> int:
        """Real calls so far, those of earlier legs included."""
        return self._calls.total()

    @property
    def by_tool(self) -> Mapping[str, int]:
        """The same, tool by tool."""
        return dict(self._calls)

    @property
    def left(self) -> int:
        """How many more there may be."""
        return max(0, self.budget - self.calls)

    def count_earlier(self, tool: str) -> None:
        """Count a call of an earlier leg, limit or not."""
        with self._lock:
            self._calls[tool] += 1

    def take(self, tool: str) -> RealCallsStopped | None:
        """Count one call that is about to run; or say what forbids it, and count none."""
        with self._lock:
            stopped = self._forbids(tool)
            if stopped is None:
                self._calls[tool] += 1
            return stopped

    def forbids(self, tool: str) -> RealCallsStopped | None:
        """What would forbid a call now; nothing is counted."""
        with self._lock:
            return self._forbids(tool)

    def pause_s(self, tool: str) -> float:
        """How long a call has to wait for its turn, which is then its own."""
        with self._lock:
            now = time.monotonic()
            fitting = ((name, rate) for name, rate in self._rates.items() if fnmatchcase(tool, name))
            paces = [(name, rate) for name, rate in fitting if rate > 0]
            turn = max([now, *(self._free.get(name, now) for name, _ in paces)])
            for name, rate in paces:
                self._free[name] = turn + 1 / rate
            return turn - now

    def _forbids(self, tool: str) -> RealCallsStopped | None:
        if self._calls.total() >= self.budget:
            return RealCallsStopped(Why.BUDGET, f"the budget of {self.budget} real calls is spent")
        for pattern, most in self._per_tool.items():
            if not fnmatchcase(tool, pattern):
                continue
            made = sum(count for name, count in self._calls.items() if fnmatchcase(name, pattern))
            if made >= most:
                return RealCallsStopped(
                    Why.LIMIT, f"{tool}: {pattern} may be called {most} times for real, and was"
                )
        return None


Rule = Callable[[HeldCall], object]
"""A person's own function: True, and nothing else, is a yes."""


def digest_of(call: Call, session: str, number: str) -> str | None:
    """What an approval of this call has to name; None where its arguments do not tell it apart."""
    if not all(is_exact(value) for value in call.args.values()):
        return None
    return digest([session, number, call.tool, dict(call.args)])


class RuleApprover:
    """Implements `interfaces.Approver` by a function of the user's own; `async def` is fine too.

    One that is not runs in a thread: it may hang, and neither the loop nor the time for an answer may.
    """

    def __init__(self, rule: Rule, name: str) -> None:
        self._rule, self._name = rule, name

    async def approve(self, held: HeldCall) -> Approval | None:
        """See `Approver.approve`."""
        if inspect.iscoroutinefunction(self._rule):
            reply: object = self._rule(held)
        else:
            reply = await run_in_thread_async(lambda: self._rule(held), name="dreamgym-approval")
        if inspect.isawaitable(reply):
            reply = await reply
        return Approval(held.digest, self._name) if reply is True else None


def approver_from(approver: Approver | Rule) -> Approver:
    """An approver as it is, or one made of a function.

    Raises:
        UserError: it is neither.
    """
    if isinstance(approver, Approver):
        return approver
    if not callable(approver):
        raise UserError(f"approve: expected an approver or a function, got {type(approver).__name__}.")
    return RuleApprover(approver, getattr(approver, "__qualname__", type(approver).__name__))
