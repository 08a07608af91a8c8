"""What a threshold buys: the share of calls answered at a support, and the share of those that were exact.

Measured on held-out worlds that the rules were not mined from, with a calibration that was learned from other
episodes than it is measured on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.calibration import Trial, calibrate

THRESHOLDS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
_LEAST = 50  # trials on either side


@dataclass(frozen=True, slots=True)
class Trials:
    """A replayed episode: its answered calls that may be believed at all, and how many calls it has."""

    answered: Sequence[Trial]
    calls: int


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One threshold on held-out recordings.

    Attributes:
        threshold: 0..1.
        answered: 0..1, share of calls with that much support.
        exact: 0..1, share of those that were exact; None where none was answered.
    """

    threshold: float
    answered: float
    exact: float | None


def curve(episodes: Sequence[Trials], thresholds: Sequence[float] = THRESHOLDS) -> tuple[CurvePoint, ...]:
    """The curve over held-out episodes; empty where they are too few to say anything."""
    halves = episodes[::2], episodes[1::2]
    if any(sum(len(one.answered) for one in half) < _LEAST for half in halves):
        return ()
    points: list[tuple[float, bool]] = []
    for half, other in (halves, halves[::-1]):
        calibration = calibrate([trial for one in other for trial in one.answered])
        points += [
            (calibration.support(trial.tool, trial.basis, trial.support), trial.exact)
            for one in half
            for trial in one.answered
        ]
    calls = sum(episode.calls for episode in episodes)
    found = []
    for threshold in thresholds:
        exact = [was for support, was in points if support >= threshold]
        share = sum(exact) / len(exact) if exact else None
        found.append(CurvePoint(threshold, len(exact) / calls, share))
    return tuple(found)
