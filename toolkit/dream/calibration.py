"""Confidence that means what it says: the share that was right of such answers, on held-out recordings.

`Calibrator` is for what code answers and for a model that learned its tools: their own record counts by tool
and by what an answer rests on, and then over all by raw support. `ReasonedSupport` is for a chat model, of
which few calls are tried: the share that was right per form of decision and step of confidence, weighed with
what the form is worth in general. Both rise with the confidence that they are given.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.serialization import JsonValue

_PSEUDO = 4.0  # trials that a figure of nobody's own counts for
_BEFORE = 0.8  # share of a tool that was not tried
_MIN_POINTS = 50  # a curve is drawn through

CEILING: Mapping[str, float] = {
    "template": 0.8,
    "whole": 0.5,
    "template_failure": 0.8,
    "whole_failure": 0.5,
}
"""Most support of a form that was never tried."""

STEPS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.97)
"""Where the steps of confidence begin."""

_WITHIN = 0.02  # of support that confidence orders inside a step


@dataclass(frozen=True, slots=True)
class Trial:
    """One answered call of a replay."""

    tool: str
    basis: str
    support: float  # raw
    exact: bool


@dataclass(frozen=True, slots=True)
class Calibrator:
    """From raw support to calibrated support; the identity where nothing was tried."""

    tools: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # right, tried
    edges: tuple[float, ...] = ()  # mean adjusted support of each step of the curve, ascending
    shares: tuple[float, ...] = ()  # right, around each edge; never falls

    def support(self, tool: str, basis: str, raw: float) -> float:
        """The calibrated support of an answer, 0..1."""
        adjusted = raw
        if self.tools:
            right, tried = self.tools.get((tool, basis), (0.0, 0.0))
            adjusted = raw * (0.25 + 0.75 * ((right + _PSEUDO * _BEFORE) / (tried + _PSEUDO)))
        return min(1.0, max(0.0, self._between(adjusted))) if self.edges else adjusted

    def _between(self, adjusted: float) -> float:
        """The share at a support: on a line between the steps around it, and from nothing to the first."""
        place = bisect_right(self.edges, adjusted)
        left, low = (self.edges[place - 1], self.shares[place - 1]) if place else (0.0, 0.0)
        right, high = (
            (self.edges[place], self.shares[place])
            if place < len(self.edges)
            else (1.0, max(self.shares[-1], adjusted))
        )
        return low + (high - low) * (adjusted - left) / (right - left) if right > left else low


def calibrate(trials: Sequence[Trial]) -> Calibrator:
    """Learn both corrections from a replay."""
    tried = Counter((trial.tool, trial.basis) for trial in trials)
    right = Counter((trial.tool, trial.basis) for trial in trials if trial.exact)
    first = Calibrator({key: (float(right[key]), float(count)) for key, count in tried.items()})
    points = sorted((first.support(trial.tool, trial.basis, trial.support), trial.exact) for trial in trials)
    if len(points) < _MIN_POINTS:
        return first
    least = max(10, len(points) // 25)
    parts = [points[place : place + least] for place in range(0, len(points), least)]
    blocks = _rising(
        (sum(support for support, _ in part), float(sum(exact for _, exact in part)), float(len(part)))
        for part in parts
    )
    edges = tuple(total / count for total, _, count in blocks)
    return Calibrator(first.tools, edges, tuple((exact + 0.5) / (count + 1) for _, exact, count in blocks))


@dataclass(frozen=True, slots=True)
class ReasonedTrial:
    """One held-out call that the model was asked."""

    form: str
    confidence: float  # 0..1, as the model said
    exact: bool  # the answer was the recorded one, up to made-up ids


@dataclass(frozen=True, slots=True)
class SupportStep:
    """One step of one form."""

    start: float  # the confidence from which on it holds
    right: int
    tried: int
    support: float


@dataclass(frozen=True, slots=True)
class ReasonedSupport:
    """From form and confidence to support."""

    rows: Mapping[str, tuple[SupportStep, ...]] = field(default_factory=dict)

    def support(self, form: str, confidence: float) -> float:
        """0..1: the share of such decisions that are right; rises with confidence."""
        confidence = min(1.0, max(0.0, confidence))
        steps = self.rows.get(form)
        if not steps:
            return CEILING[form] * confidence
        step = steps[bisect_right(STEPS, confidence) - 1]
        return min(1.0, max(0.0, step.support + _WITHIN * (confidence - 0.5)))

    def table(self) -> list[JsonValue]:
        """The steps in which anything was tried, for the report."""
        return [
            {
                "form": form,
                "confidence_from": step.start,
                "right": step.right,
                "tried": step.tried,
                "support": round(step.support, 4),
            }
            for form in sorted(self.rows)
            for step in self.rows[form]
            if step.tried
        ]


def learn_support(trials: Iterable[ReasonedTrial]) -> ReasonedSupport:
    """Make the table; forms that were not tried keep their ceiling."""
    forms: dict[str, list[ReasonedTrial]] = defaultdict(list)
    for trial in trials:
        forms[trial.form].append(trial)
    return ReasonedSupport({form: _steps(CEILING[form], tried) for form, tried in forms.items()})


def _steps(ceiling: float, trials: list[ReasonedTrial]) -> tuple[SupportStep, ...]:
    right, count = [0] * len(STEPS), [0] * len(STEPS)
    for trial in trials:
        step = bisect_right(STEPS, trial.confidence) - 1
        right[step] += trial.exact
        count[step] += 1
    before = sum(ceiling * trial.confidence for trial in trials) / len(trials)
    share = (sum(right) + _PSEUDO * before) / (len(trials) + _PSEUDO)
    blocks = _rising((1.0, right[at] + _PSEUDO * share, count[at] + _PSEUDO) for at in range(len(STEPS)))
    supports = [exact / tried for steps, exact, tried in blocks for _ in range(int(steps))]
    return tuple(map(SupportStep, STEPS, right, count, supports))


def _rising(blocks: Iterable[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Isotonic regression of (any sum, right, tried): neighbors are pooled until their share rises."""
    pooled: list[tuple[float, float, float]] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and pooled[-2][1] / pooled[-2][2] >= pooled[-1][1] / pooled[-1][2]:
            last, first = pooled.pop(), pooled.pop()
            pooled.append((first[0] + last[0], first[1] + last[1], first[2] + last[2]))
    return pooled
