"""May B take A's place? Only where the comparison says so, however often it is asked.

B has to be better on the whole, and clearly worse at no family of tasks. There doubt counts against it: one
that is as good as A at every family is held back with a chance of 10 % (`GUARD`). A comparison that is made
again and again ends well by chance, so each further look at the same A has to be twice as sure as the one
before: the first at 95 %, the second at 97.5 %, and so on. Over all looks together a model that is no better
takes A's place with a chance of 5 % at most (2.5 % + 1.25 % + ..., the upper side of each).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from dreamgym_kit.trust.comparison import ALPHA, Conclusion, PairedComparison, beaten
from dreamgym_kit.trust.outcomes import TaskOutcome

GUARD = 0.1  # over all families, one-sided
MAX_LOOKS = 8  # at one baseline; a ninth would need an interval of 99.98 %


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """One kind of task, on the tasks that both tried."""

    name: str
    paired: PairedComparison  # at its share of 5 %
    luck: float  # the chance of as few successes, or fewer, of one that is as good at each of these tasks
    worse: bool  # whether that is below its share of `GUARD`; or below 5 %, where it is never solved now


@dataclass(frozen=True, slots=True)
class Promotion:
    """B held against A, for the question whether it may take its place."""

    whole: PairedComparison  # over all tasks, at 95 %
    strict: PairedComparison  # the same at the level of this look
    families: tuple["FamilyChange", ...]  # none where there is but one
    look: int  # at this A, from 1

    @property
    def allowed(self) -> bool:
        """Whether B may take A's place."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it may not, in plain sentences; none where it may."""
        reasons = []
        if self.look > MAX_LOOKS:
            reasons.append(
                f"This baseline was looked at {self.look - 1} times; a further look would pick what chance "
                "made look good. Evaluate on other tasks."
            )
        if self.whole.word is not Conclusion.BETTER:
            reasons.append(self.whole.phrase("what is deployed", "the candidate"))
        elif self.strict.word is not Conclusion.BETTER:
            reasons.append(
                f"This is look {self.look} at the same baseline, and has to hold at "
                f"{100 * (1 - level_of_look(self.look)):.4g} %: there the interval is "
                f"{100 * self.strict.low:+.1f} to {100 * self.strict.high:+.1f} points."
            )
        reasons += [
            f"At '{family.name}' the candidate is clearly worse: {100 * family.paired.change:+.0f} points on "
            f"{family.paired.tasks} tasks, which is luck with a chance of {100 * family.luck:.2g} %."
            for family in self.worse_families
        ]
        return tuple(reasons)

    @property
    def worse_families(self) -> tuple[FamilyChange, ...]:
        """Families that it is clearly worse at."""
        return tuple(family for family in self.families if family.worse)


def promotion(a: Sequence[TaskOutcome], b: Sequence[TaskOutcome], *, look: int = 1) -> Promotion:
    """Hold B against A, over the tasks that both tried.

    Args:
        a: what is in place, by task.
        b: what is to take its place.
        look: how often this A was looked at, this time included.

    Raises:
        ValueError: `look` is below 1.
    """
    whole = beaten(a, b)
    strict = whole if look == 1 else beaten(a, b, alpha=level_of_look(look))
    names = sorted({outcome.family for outcome in b if outcome.family})
    families = []
    for name in names if len(names) > 1 else ():
        sides = [[outcome for outcome in side if outcome.family == name] for side in (a, b)]
        luck, alpha = exact_test(*sides), ALPHA / len(names)
        paired = beaten(*sides, alpha=alpha)
        lost = luck < ALPHA and not any(outcome.success for outcome in sides[1])
        families.append(FamilyChange(name, paired, luck, lost or luck < GUARD / len(names)))
    return Promotion(whole, strict, tuple(families), look)


def level_of_look(look: int) -> float:
    """The alpha (0..1, two-sided) that a look at one baseline has to hold at; the first is 1."""
    if look < 1:
        raise ValueError(f"no look {look}")
    return float(ALPHA / 2 ** (min(look, MAX_LOOKS) - 1))


def exact_test(a: Sequence[TaskOutcome], b: Sequence[TaskOutcome]) -> float:
    """The chance of as few successes of B, or fewer, were both equally good at each task; 1.0 of no task.

    The exact conditional test for stratified 2x2 tables, one-sided (C. R. Mehta, N. R. Patel and R. Gray,
    JASA 80, 1985, p. 969): given a task's successes, B's share of them is hypergeometric. A bootstrap over
    tasks says little of six of them. Inconclusive episodes are left out.
    """
    of_a = {outcome.task: outcome for outcome in a}
    chances, seen = [1.0], 0  # of so many successes of B over the tasks so far
    for outcome in b:
        other = of_a.get(outcome.task)
        if other is None or not other.decided or not outcome.decided:
            continue
        successes = other.success + outcome.success
        chances = _added(chances, _split(successes, other.decided, outcome.decided))
        seen += outcome.success
    return min(1.0, sum(chances[: seen + 1]))


def _split(successes: int, tries_a: int, tries_b: int) -> list[float]:
    """Chances that B has 0, 1, 2, ... of a task's successes."""
    ways = comb(tries_a + tries_b, successes)
    return [comb(tries_b, of_b) * comb(tries_a, successes - of_b) / ways if of_b <= successes else 0.0
            for of_b in range(tries_b + 1)]  # fmt: skip


def _added(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """The chances of a sum of two independent counts."""
    total = [0.0] * (len(first) + len(second) - 1)
    for at, chance in enumerate(first):
        for more, also in enumerate(second):
            total[at + more] += chance * also
    return total
