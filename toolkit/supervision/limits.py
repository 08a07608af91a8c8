"""Hard limits of real calls (how many in all, how many of one tool, how fast), and why real calls end.

A call is counted before it runs and never given back, whatever comes of it. What is counted is what the audit
log announced, so a run that was killed and resumed has the same budget as an unbroken one. Thread-safe.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from dreamgym_kit.errors import EpisodeStop


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
class Stopped:
    """The end of all real calls of a run."""

    why: Why
    text: str  # a plain sentence


class RealCallRefused(EpisodeStop):
    """A real call was not let through; it did not run, and the episode is inconclusive."""


class RunStopped(RealCallRefused):
    """So was every call after it: the run's real calls have ended."""

    def __init__(self, stopped: Stopped) -> None:
        self.stopped = stopped
        super().__init__(stopped.text)


ALL = "*"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a person allowed."""

    calls: int  # real calls in all
    most: Mapping[str, int] = field(default_factory=dict)  # by tool pattern: real calls of all tools that fit
    rates: Mapping[str, float] = field(default_factory=dict)  # by tool pattern: calls a second; 0: no limit


class RealLimits:
    """Counts real calls against their bounds."""

    def __init__(self, bounds: Bounds, *, clock: Callable[[], float] = time.monotonic) -> None:
        if bounds.calls < 0 or any(most < 0 for most in bounds.most.values()):
            raise ValueError("a limit of calls is zero or more")
        self.bounds = bounds
        self._clock = clock
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
        return max(0, self.bounds.calls - self.calls)

    def count_earlier(self, tool: str) -> None:
        """Count a call of an earlier leg, limit or not."""
        with self._lock:
            self._calls[tool] += 1

    def take(self, tool: str) -> Stopped | None:
        """Count one call that is about to run; or say what forbids it, and count none."""
        with self._lock:
            stopped = self._forbids(tool)
            if stopped is None:
                self._calls[tool] += 1
            return stopped

    def forbids(self, tool: str) -> Stopped | None:
        """What would forbid a call now; nothing is counted."""
        with self._lock:
            return self._forbids(tool)

    def pause_s(self, tool: str) -> float:
        """How long a call has to wait for its turn, which is then its own."""
        with self._lock:
            now = self._clock()
            paces = [(name, rate) for name, rate in self._rates(tool) if rate > 0]
            turn = max([now, *(self._free.get(name, now) for name, _ in paces)])
            for name, rate in paces:
                self._free[name] = turn + 1 / rate
            return turn - now

    def _rates(self, tool: str) -> list[tuple[str, float]]:
        return [(name, rate) for name, rate in self.bounds.rates.items() if fnmatchcase(tool, name)]

    def _forbids(self, tool: str) -> Stopped | None:
        if self._calls.total() >= self.bounds.calls:
            return Stopped(Why.BUDGET, f"the budget of {self.bounds.calls} real calls is spent")
        for pattern, most in self.bounds.most.items():
            if not fnmatchcase(tool, pattern):
                continue
            made = sum(count for name, count in self._calls.items() if fnmatchcase(name, pattern))
            if made >= most:
                return Stopped(Why.LIMIT, f"{tool}: {pattern} may be called {most} times for real, and was")
        return None
