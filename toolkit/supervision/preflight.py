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
from dreamgym_kit.types import Episode, Verdict


@dataclass(frozen=True, slots=True)
class DreamFigures:
    """How the policy and its dream did on held-out tasks."""

    tasks: int
    episodes: int
    decided: int
    success: float  # 0..1, mean over tasks with a decided episode
    low: float  # of its 95 % interval
    high: float
    calls: int  # that the dream was asked
    answered: int  # of these
    violations: int  # episodes in which something real was about to run, or was executed

    @property
    def coverage(self) -> float:
        """Share of the calls that the dream could answer, 0..1."""
        return self.answered / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class CanaryFigures:
    """How the first real episodes went, in shadow."""

    episodes: int
    decided: int
    success: int
    violations: int


@dataclass(frozen=True, slots=True)
class Word:
    """What the gate says, and why not."""

    passed: bool
    reasons: tuple[str, ...] = ()  # bounds that were missed, in sentences

    @property
    def text(self) -> str:
        """One sentence."""
        return "the gate is open" if self.passed else f"the gate is shut: {'; '.join(self.reasons)}"


def dream_figures(groups: Sequence[Group]) -> DreamFigures:
    """Count the episodes of a dream."""
    shares, decided = [], 0
    for group in groups:
        verdicts = [rollout.episode.verdict for rollout in group.rollouts]
        good, bad = verdicts.count(Verdict.PASSED), verdicts.count(Verdict.FAILED)
        decided += good + bad
        if good + bad:
            shares.append(good / (good + bad))
    episodes = _episodes(groups)
    each = max(1, len(episodes) // max(1, len(groups)))
    success, low, high = share_interval(shares, episodes=each) if shares else (0.0, 0.0, 1.0)
    steps = [step for episode in episodes for step in episode.transitions if not step.effect.runs_in_dream]
    return DreamFigures(
        tasks=len(groups),
        episodes=len(episodes),
        decided=decided,
        success=success,
        low=low,
        high=high,
        calls=len(steps),
        answered=sum(not step.answer.unanswered for step in steps),
        violations=sum(bool(episode.violations or episode.executed) for episode in episodes),
    )


def canary_figures(groups: Sequence[Group]) -> CanaryFigures:
    """Count the canaries."""
    verdicts = [episode.verdict for episode in _episodes(groups)]
    return CanaryFigures(
        episodes=len(verdicts),
        decided=sum(verdict.conclusive for verdict in verdicts),
        success=verdicts.count(Verdict.PASSED),
        violations=sum(bool(episode.violations or episode.executed) for episode in _episodes(groups)),
    )


def dream_word(dream: DreamFigures, bounds: S2rSettings) -> Word:
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


def canary_word(real: CanaryFigures, dream: DreamFigures, bounds: S2rSettings) -> Word:
    """Whether the first real episodes went as the dream said."""
    reasons = []
    if real.violations:
        reasons.append(f"{real.violations} of {real.episodes} canaries did what no tool call accounts for")
    if real.decided < bounds.canary_low * real.episodes:
        reasons.append(f"only {real.decided} of {real.episodes} canaries could be judged")
    elif real.decided:
        high = wilson(real.success, real.decided)[1]
        if high < dream.low:
            reasons.append(
                f"{real.success} of {real.decided} canaries succeeded, in the dream {dream.success:.0%} did"
            )
    return Word(not reasons, tuple(reasons))


def dream_facts(dream: DreamFigures) -> dict[str, JsonValue]:
    """The figures for log and report."""
    names = ("tasks", "episodes", "decided", "success", "low", "high", "calls", "coverage")
    return {name: round(getattr(dream, name), 4) for name in names}


def canary_facts(real: CanaryFigures) -> dict[str, JsonValue]:
    """The figures for log and report."""
    return {"episodes": real.episodes, "decided": real.decided, "success": real.success}


def _episodes(groups: Sequence[Group]) -> list[Episode]:
    return [rollout.episode for group in groups for rollout in group.rollouts]
