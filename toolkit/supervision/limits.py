"""What a real call needs before it runs: an open gate, room in hard limits, and an approval; why they end.

The gate stands before the first one. It judges figures only: episodes of held-out tasks in the dream, and
canaries, which are episodes in shadow on the real tools (reads real, writes dreamed). Where a bound is
missed, nothing else is done.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from dreamgym_kit.canonical import digest
from dreamgym_kit.errors import EpisodeStop, UserError
from dreamgym_kit.interfaces import Approver, Group
from dreamgym_kit.serialization import JsonValue, is_exact
from dreamgym_kit.settings.schema import S2rSettings
from dreamgym_kit.threads import run_in_thread_async
from dreamgym_kit.trust.outcomes import share_interval, wilson
from dreamgym_kit.types import Approval, Call, HeldCall, Verdict


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
        self._lock = threading.RLock()
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
            stopped = self.forbids(tool)
            if stopped is None:
                self._calls[tool] += 1
            return stopped

    def forbids(self, tool: str) -> RealCallsStopped | None:
        """What would forbid a call now; nothing is counted."""
        with self._lock:
            if self._calls.total() >= self.budget:
                return RealCallsStopped(Why.BUDGET, f"the budget of {self.budget} real calls is spent")
            for pattern, most in self._per_tool.items():
                if not fnmatchcase(tool, pattern):
                    continue
                made = sum(count for name, count in self._calls.items() if fnmatchcase(name, pattern))
                if made >= most:
                    text = f"{tool}: {pattern} may be called {most} times for real, and was"
                    return RealCallsStopped(Why.LIMIT, text)
        return None

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


@dataclass(frozen=True, slots=True)
class GateFigures:
    """How a policy did in the episodes of some tasks: in the dream, or in shadow on the real tools."""

    tasks: int
    episodes: int
    decided: int
    passed: int  # of these
    success: float  # 0..1, mean over tasks with a decided episode
    low: float  # of its 95 % interval
    high: float
    calls: int  # that the dream was asked
    answered: int  # of these
    violations: int  # episodes in which something real was about to run unasked, or was executed

    @property
    def coverage(self) -> float:
        """Share of the calls that the dream could answer, 0..1."""
        return self.answered / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Word:
    """What the gate says, and why not."""

    passed: bool
    reasons: tuple[str, ...] = ()  # bounds that were missed, in sentences

    @property
    def text(self) -> str:
        """One sentence."""
        return "the gate is open" if self.passed else f"the gate is shut: {'; '.join(self.reasons)}"


def gate_figures(groups: Sequence[Group]) -> GateFigures:
    """Count the episodes of a part of the gate."""
    episodes = [rollout.episode for group in groups for rollout in group.rollouts]
    shares, decided, passed = [], 0, 0
    for group in groups:
        verdicts = [rollout.episode.verdict for rollout in group.rollouts]
        good, bad = verdicts.count(Verdict.PASSED), verdicts.count(Verdict.FAILED)
        decided, passed = decided + good + bad, passed + good
        if good + bad:
            shares.append(good / (good + bad))
    each = max(1, len(episodes) // max(1, len(groups)))
    success, low, high = share_interval(shares, episodes=each) if shares else (0.0, 0.0, 1.0)
    steps = [step for episode in episodes for step in episode.transitions if not step.effect.runs_in_dream]
    return GateFigures(
        tasks=len(groups),
        episodes=len(episodes),
        decided=decided,
        passed=passed,
        success=success,
        low=low,
        high=high,
        calls=len(steps),
        answered=sum(not step.answer.unanswered for step in steps),
        violations=sum(bool(episode.violations or episode.executed) for episode in episodes),
    )


def dream_word(dream: GateFigures, bounds: S2rSettings) -> Word:
    """Whether policy and dream are good enough to go on."""
    reasons = []
    if dream.decided == 0:
        reasons.append(f"none of {dream.episodes} held-out episodes in the dream could be judged")
    elif dream.low < bounds.preflight_pass_rate_low:
        reasons.append(
            f"success in the dream is {dream.success:.0%} ({dream.low:.0%} to {dream.high:.0%}), and its "
            f"lower bound must be {bounds.preflight_pass_rate_low:.0%}"
        )
    if dream.coverage < bounds.preflight_coverage:
        reasons.append(
            f"the dream could answer {dream.coverage:.1%} of {dream.calls} calls, and must answer "
            f"{bounds.preflight_coverage:.0%}"
        )
    if dream.violations:
        reasons.append(f"in {dream.violations} episodes something real was about to run in the dream, or ran")
    return Word(not reasons, tuple(reasons))


def canary_word(real: GateFigures, dream: GateFigures, bounds: S2rSettings) -> Word:
    """Whether the first real episodes went as the dream said."""
    reasons = []
    if real.violations:
        reasons.append(f"{real.violations} of {real.episodes} canaries did what no tool call accounts for")
    if real.decided < bounds.canary_low * real.episodes:
        reasons.append(f"only {real.decided} of {real.episodes} canaries could be judged")
    elif real.decided:
        high = wilson(real.passed, real.decided)[1]
        if high < dream.low:
            reasons.append(
                f"{real.passed} of {real.decided} canaries succeeded, in the dream {dream.success:.0%} did"
            )
    return Word(not reasons, tuple(reasons))


def dream_facts(dream: GateFigures) -> dict[str, JsonValue]:
    """The figures for log and report."""
    names = ("tasks", "episodes", "decided", "success", "low", "high", "calls", "coverage")
    return {name: round(getattr(dream, name), 4) for name in names}


def canary_facts(real: GateFigures) -> dict[str, JsonValue]:
    """The figures for log and report."""
    return {"episodes": real.episodes, "decided": real.decided, "success": real.passed}
