"""Measures an experience model of the desk in worlds that nothing was learned from, beside mined rules.

Each recorded call is asked in the state that the true answers before it led to: once with a read crawl of
its world known beforehand, once without any recording of it. `Arms` says who answers when, at one threshold.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.dream.learned.deciding import Decided
from dreamgym_kit.dream.learned.experience import LearnedExperience
from dreamgym_kit.dream.learned.layered import SURE
from dreamgym_kit.dream.learned.trying import Tried, tried
from dreamgym_kit.dream.state.dreaming import Knowledge, Told
from dreamgym_kit.dream.state.history import Recording, step_of
from dreamgym_kit.dream.state.mining import pooled, renamed
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.recipes.nano.experience.recordings import crawl, worked
from dreamgym_kit.vocabulary import Provenance, Transition

THRESHOLD = 0.5

Support = Callable[[str, Decided], float]


class Count(NamedTuple):
    """Calls, those that were answered, and those whose answer was the true one."""

    calls: int = 0
    answered: int = 0
    exact: int = 0

    def more(self, *, answered: bool, exact: bool) -> "Count":
        """With one call more."""
        return Count(self.calls + 1, self.answered + answered, self.exact + (answered and exact))

    @property
    def share(self) -> float:
        """0..1 of all calls: exactly answered."""
        return self.exact / self.calls if self.calls else 0.0

    @property
    def right(self) -> float:
        """0..1 of the answered calls: exactly answered; 1 where none was."""
        return self.exact / self.answered if self.answered else 1.0


@dataclass(frozen=True, slots=True)
class Arms:
    """Who answers, by name; each gives whether it answers, and whether that is exact."""

    support: Support
    threshold: float = THRESHOLD

    def of(self, one: Tried) -> Mapping[str, tuple[bool, bool]]:
        """All arms on one call."""
        rules = (_support(one.mined), one.mined_exact)
        model = (self.support(one.step.tool, one.made) if one.made is not None else 0.0, one.made_exact)
        known = one.mined is not None and one.mined.basis.startswith(("view", "line"))
        repeats = one.mined is not None and one.mined.provenance is Provenance.RECORDED
        asked = rules[0] < self.threshold or (one.step.writes and rules[0] < SURE and not known)
        said = {
            "recorded": rules if repeats else (0.0, False),
            "composed": rules,
            "nano": rules if known and not one.step.writes else model,
            "layered": max(rules, model, key=lambda pair: pair[0]) if asked else rules,
        }
        return {arm: (support >= self.threshold, exact) for arm, (support, exact) in said.items()}


def _support(told: Told | None) -> float:
    return told.support if told is not None else 0.0


def ask_held_out(
    model: LearnedExperience, knowledge: Knowledge, worlds: Sequence[int], *, unseen: bool
) -> list[Tried]:
    """Ask every call that colleagues and probes make in these worlds; `knowledge` is of other worlds."""
    episodes = [recording(rows) for world in worlds for rows in worked(world)]
    in_symbols = [renamed(one, knowledge.models) for one in episodes]
    crawled = [] if unseen else [recording(crawl(world)) for world in worlds]
    pool = pooled([renamed(one, knowledge.models) for one in crawled], knowledge.models)
    known = Knowledge(knowledge.models, pool, knowledge.calibration)
    return asyncio.run(tried(model, known, in_symbols, unseen=unseen))


def recording(rows: Sequence[Transition]) -> Recording:
    """An episode as rules see it, of whatever split: to be measured, never to be learned from."""
    return Recording(rows[0].episode, f"{rows[0].tenant}/{rows[0].world}", tuple(map(step_of, rows)))


def counted(tries: Iterable[Tried], arms: Arms) -> dict[str, dict[str, Count]]:
    """By arm, by tool, and for "reads", "writes", "refused" and "all"."""
    found: dict[str, dict[str, Count]] = defaultdict(lambda: defaultdict(Count))
    for one in tries:
        kinds = ["all", one.step.tool, "writes" if one.step.writes else "reads"]
        kinds += ["refused"] if one.step.failed and one.step.writes else []
        for arm, (answered, exact) in arms.of(one).items():
            for kind in kinds:
                found[arm][kind] = found[arm][kind].more(answered=answered, exact=exact)
    return {arm: dict(counts) for arm, counts in found.items()}


def figures_of(tries: Sequence[Tried], arms: Arms) -> dict[str, JsonValue]:
    """What is kept beside the weights: shares by arm and kind."""
    return {
        arm: {kind: [one.calls, round(one.share, 4), round(one.right, 4)] for kind, one in counts.items()}
        for arm, counts in counted(tries, arms).items()
    }


def expected_error(tries: Iterable[Tried], support: Support, bins: int = 10) -> float:
    """Expected calibration error of what the model decided: mean distance of support and exactness."""
    points = [(support(one.step.tool, one.made), one.made_exact) for one in tries if one.made is not None]
    total = 0.0
    for number in range(bins):
        inside = [one for one in points if number == min(int(one[0] * bins), bins - 1)]
        total += abs(sum(one[0] for one in inside) - sum(one[1] for one in inside))
    return total / len(points) if points else 0.0
