"""The gate before the first real call: is the policy good enough in the dream, and the dream good enough?

Judged are figures only: episodes of held-out tasks in the dream, and canaries, which are episodes in shadow
on the real tools (reads real, writes dreamed). Where a bound is missed, nothing else is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.interfaces import Group
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import S2rSettings
from dreamgym_kit.trust.outcomes import share_interval, wilson
from dreamgym_kit.types import Verdict


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
