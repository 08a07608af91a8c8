"""Does support order right before wrong, and is it the share that is right? On held-out desk worlds.

`exact_at_50` is the exactness among the best-supported half of all calls, and so on; `ece` the expected
calibration error over ten bins of support, on the answered calls without any threshold.
"""

from collections.abc import Sequence

from desk_recordings import crawl, held_out_half, recorded_half, rows
from truth import DREAMED, WORLDS, with_worlds

from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import replay
from dreamgym_kit.dream.state.history import recordings
from dreamgym_kit.dream.state.mining import renamed
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.worlds import start

Point = tuple[float, float, bool]  # support, raw support, exact


def measure(seed: int) -> list[tuple[str, float, str]]:
    """Replay without a threshold and look at support against exactness."""
    points = replayed(seed)
    ordered = sorted(points, key=lambda one: (-one[0], -one[1]))
    figures = [
        (f"exact_at_{share}", _exact(ordered[: len(ordered) * share // 100]), "share")
        for share in (50, 70, 90, 100)
    ]
    return [*figures, ("ece", expected_error(points), "share")]


def replayed(seed: int) -> list[Point]:
    """Every call of the dreamed worlds; one that nobody answers counts as wrong, at no support."""
    learned = learn(recordings(rows(recorded_half(seed, WORLDS))))
    dreamed = held_out_half(seed, DREAMED)
    known = with_worlds(learned, [crawl(one) for one in sorted({worked.seed for worked in dreamed})])
    points: list[Point] = []
    for episode in (renamed(one, learned.models) for one in recordings(rows(dreamed))):
        told = replay(known, start(known.pool, known.models, episode.world), episode)
        for step, one in zip(episode.steps, told, strict=True):
            exact = one is not None and spell(one.seen) == spell(step.seen)
            points.append((one.support, one.raw, exact) if one is not None else (0.0, 0.0, False))
    return points


def expected_error(points: Sequence[Point], bins: int = 10) -> float:
    """Mean distance of support and exactness, bin by bin, weighed by calls."""
    total = 0.0
    for number in range(bins):
        inside = [one for one in points if number == min(int(one[0] * bins), bins - 1)]
        if inside:
            total += abs(sum(one[0] for one in inside) - sum(one[2] for one in inside))
    return total / len(points)


def _exact(points: Sequence[Point]) -> float:
    return sum(exact for _, _, exact in points) / max(1, len(points))
