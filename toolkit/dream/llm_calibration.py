"""What a model's confidence is worth, by the form of its decision: a small table learned from held-out calls.

A decision has a form (an example's form filled, a whole answer, and either of them as a failure) and a
confidence. Of recorded calls that were held out, the share that came out exactly as recorded is counted
per form and step of confidence, weighed with what the form is worth in general, and made to rise with
confidence. Before anything was tried, support is confidence under the form's ceiling.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.serialization import JsonValue

CEILING: Mapping[str, float] = {
    "template": 0.8,
    "whole": 0.5,
    "template_failure": 0.8,
    "whole_failure": 0.5,
}
"""Most support of a form that was never tried."""

STEPS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.97)
"""Where the steps of confidence begin."""

_PSEUDO = 4.0  # tries that the untried figure counts for
_WITHIN = 0.02  # of support that confidence orders inside a step


@dataclass(frozen=True, slots=True)
class ReasonedTrial:
    """One held-out call that the model was asked."""

    form: str
    confidence: float  # 0..1, as the model said
    exact: bool  # the answer was the recorded one, up to made-up ids


@dataclass(frozen=True, slots=True)
class Row:
    """One step of one form."""

    form: str
    start: float  # the confidence from which on it holds
    right: int
    tried: int
    support: float


@dataclass(frozen=True, slots=True)
class ReasonedSupport:
    """From form and confidence to support."""

    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)

    def support(self, form: str, confidence: float) -> float:
        """0..1: the share of such decisions that are right; rises with confidence."""
        confidence = min(1.0, max(0.0, confidence))
        rows = self.rows.get(form)
        if not rows:
            return CEILING[form] * confidence
        row = rows[bisect_right(STEPS, confidence) - 1]
        return min(1.0, max(0.0, row.support + _WITHIN * (confidence - 0.5)))

    def table(self) -> list[JsonValue]:
        """The steps in which anything was tried, for the report."""
        return [
            {
                "form": row.form,
                "confidence_from": row.start,
                "right": row.right,
                "tried": row.tried,
                "support": round(row.support, 4),
            }
            for form in sorted(self.rows)
            for row in self.rows[form]
            if row.tried
        ]


def learn_support(trials: Iterable[ReasonedTrial]) -> ReasonedSupport:
    """Make the table; forms that were not tried keep their ceiling."""
    tried: dict[str, list[ReasonedTrial]] = defaultdict(list)
    for trial in trials:
        tried[trial.form].append(trial)
    return ReasonedSupport({form: _rows(form, ones) for form, ones in tried.items()})


def _rows(form: str, trials: list[ReasonedTrial]) -> tuple[Row, ...]:
    right, count = [0] * len(STEPS), [0] * len(STEPS)
    for trial in trials:
        step = bisect_right(STEPS, trial.confidence) - 1
        right[step] += trial.exact
        count[step] += 1
    before = sum(CEILING[form] * trial.confidence for trial in trials) / len(trials)
    share = (sum(right) + _PSEUDO * before) / (sum(count) + _PSEUDO)
    supports = _rising(
        [(right[step] + _PSEUDO * share) / (count[step] + _PSEUDO) for step in range(len(STEPS))],
        [count[step] + _PSEUDO for step in range(len(STEPS))],
    )
    return tuple(
        Row(form, start, right[step], count[step], supports[step]) for step, start in enumerate(STEPS)
    )


def _rising(values: list[float], weights: list[float]) -> list[float]:
    """The nearest figures that never fall: neighbours that do are pooled."""
    blocks: list[tuple[float, float, int]] = []  # value, weight, steps
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            last, first = blocks.pop(), blocks.pop()
            total = first[1] + last[1]
            mean = (first[0] * first[1] + last[0] * last[1]) / total
            blocks.append((mean, total, first[2] + last[2]))
    return [value for value, _, steps in blocks for _ in range(steps)]
