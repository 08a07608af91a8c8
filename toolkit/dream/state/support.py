"""Support that means what it says: raw support to the share that was right, learned from held-out recordings.

Tool models are mined from part of the worlds, and the rest is replayed free-running: the dream keeps its
own state and its own mistakes. What that shows by tool and by what an answer rests on, and over all by raw
support, is what an answer's support is from then on.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

_PSEUDO = 4.0  # counts that a tool's own record is weighed against


@dataclass(frozen=True, slots=True)
class Trial:
    """One answered call of a replay."""

    tool: str
    basis: str
    support: float  # raw
    exact: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """From raw support to calibrated support; the identity where nothing was tried."""

    tools: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # right, tried
    edges: tuple[float, ...] = ()  # mean adjusted support of each step of the curve, ascending
    shares: tuple[float, ...] = ()  # right, around each edge; never falls

    def support(self, tool: str, basis: str, raw: float) -> float:
        """The calibrated support of an answer, 0..1."""
        adjusted = self._adjusted(tool, basis, raw)
        if not self.edges:
            return adjusted
        return min(1.0, max(0.0, self._between(adjusted)))

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

    def _adjusted(self, tool: str, basis: str, raw: float) -> float:
        right, tried = self.tools.get((tool, basis), (0.0, 0.0))
        if not self.tools:
            return raw
        share = (right + _PSEUDO * 0.8) / (tried + _PSEUDO)
        return raw * (0.25 + 0.75 * share)


def calibrate(trials: Sequence[Trial]) -> Calibration:
    """Learn both corrections from a replay."""
    counts: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for trial in trials:
        count = counts[trial.tool, trial.basis]
        count[0] += trial.exact
        count[1] += 1
    first = Calibration({key: (right, tried) for key, (right, tried) in counts.items()})
    points = sorted((first.support(one.tool, one.basis, one.support), one.exact) for one in trials)
    if len(points) < 50:  # too few to draw a curve through
        return first
    edges, shares = _rising(points)
    return Calibration(first.tools, edges, shares)


def _rising(points: Sequence[tuple[float, bool]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Isotonic regression by pooling neighbours: steps of shares that never fall."""
    blocks: list[list[float]] = []  # sum of supports, right, tried
    least = max(10, len(points) // 25)
    for place in range(0, len(points), least):
        part = points[place : place + least]
        blocks.append([sum(one for one, _ in part), float(sum(exact for _, exact in part)), float(len(part))])
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][2] >= blocks[-1][1] / blocks[-1][2]:
            total, right, tried = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += right
            blocks[-1][2] += tried
    edges = tuple(total / tried for total, _, tried in blocks)
    return edges, tuple((right + 0.5) / (tried + 1) for _, right, tried in blocks)
