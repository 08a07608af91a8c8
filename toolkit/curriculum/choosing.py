"""Which tasks a draw takes: hard but solvable ones most often, every one now and then.

A share of each draw goes in turn, to those not met for longest, so that no task is forgotten. The rest is
drawn without replacement, with a weight that follows the score (Efraimidis and Spirakis 2006). Each task's
dice are its own, so another task more or less changes no other's luck. Made tasks get no more than their
share of a draw. Tasks that rest are drawn only where the others do not fill it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log1p

from dreamgym_kit.canonical import digest
from dreamgym_kit.curriculum.estimates import Estimate
from dreamgym_kit.curriculum.records import SCORE, TURN
from dreamgym_kit.settings.schema import CurriculumSettings
from dreamgym_kit.vocabulary import Task

_LEAST = 1e-6  # score: a task of none is still drawn before nothing


@dataclass(frozen=True, slots=True)
class Standing:
    """A task as a draw looks at it."""

    task: Task
    estimate: Estimate
    score: float
    rests: str = ""  # why it is not to be drawn: "mastered", "hopeless"; "": it may be
    made: bool = False  # and not one of those that were given
    met: int = 0  # the step that it was drawn in last; 0: never


@dataclass(frozen=True, slots=True)
class Pick:
    """A task that was drawn, and why."""

    task: Task
    why: str
    score: float


def score_of(estimate: Estimate, explore: float, decided: float = 1.0) -> float:
    """What a group of the task promises to teach: expected p (1 - p), and more where little is known.

    `decided`: share of its episodes that could be judged; from the others nothing is learned.
    """
    return decided * (estimate.value + explore * estimate.spread)


def rests(estimate: Estimate, settings: CurriculumSettings) -> str:
    """Whether a task has nothing to teach for now; it comes back as what was seen of it fades."""
    if estimate.impossible > settings.max_infeasible:
        return "hopeless"
    return "mastered" if estimate.mean > settings.mastered else ""


def drawn(
    standings: Sequence[Standing],
    count: int,
    *,
    settings: CurriculumSettings,
    key: Sequence[str | int],
    without: Iterable[str] = (),
) -> list[Pick]:
    """Draw tasks for a step, each at most once.

    Args:
        standings: all tasks.
        count: how many, 1 or more; fewer come where there are fewer.
        settings: shares and weights.
        key: names the draw: equal keys give equal draws.
        without: ids drawn already in this step; they come again only where nothing else is left.
    """
    again = frozenset(without)
    fresh = [one for one in standings if not one.rests and one.task.id not in again]
    given = [one for one in fresh if not one.made]
    waiting = sorted(given, key=lambda one: (one.met, _dice(one, key)))[
        : round(settings.round_robin_share * count)
    ]
    picks = [Pick(one.task, TURN, one.score) for one in waiting]
    took = {pick.task.id for pick in picks}
    by_luck = sorted(
        (one for one in fresh if one.task.id not in took), key=lambda one: _luck(one, key, settings.focus)
    )
    spare = sorted(
        (one for one in standings if one.rests or one.task.id in again),
        key=lambda one: (one.task.id in again, one.made, one.met, _dice(one, key)),
    )
    room = int(settings.synthetic * count)  # for made ones
    for one in [*by_luck, *spare]:
        if len(picks) >= count:
            break
        if one.made:
            if room <= 0:
                continue
            room -= 1
        picks.append(Pick(one.task, SCORE, one.score))
    return picks[:count]


def _luck(one: Standing, key: Sequence[str | int], focus: float) -> float:
    """The smallest are taken: an exponential waiting time whose rate is the weight."""
    return _dice(one, key) / float(max(one.score, _LEAST) ** focus)


def _dice(one: Standing, key: Sequence[str | int]) -> float:
    """An exponential draw of mean 1 that follows from the key and the task alone."""
    share = int(digest([*key, one.task.id])[:13], 16) / 16**13
    return -log1p(-share)
