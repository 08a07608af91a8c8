"""Compare B with A on their common tasks: a conclusion, a sentence, and the figures behind it.

A difference is claimed only if its interval excludes zero and no outcome of the inconclusive episodes would
reverse it. The task is the unit: each gives a pair of shares (or means), one per run.

May B replace A? B must be better overall, and not clearly worse in any family of tasks. Doubt counts against
B there: a B equal to A in every family is held back with a chance of 10 % (`GUARD`). Repeated comparisons
succeed by chance, so each further look at the same A must be twice as certain as the last: the first at 95 %,
the second at 97.5 %, and so on. Over all looks a model that is not better replaces A with a chance of 5 % at
most (2.5 % + 1.25 % + ..., the upper side of each).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, comb
from typing import TYPE_CHECKING

from dreamgym_kit.trust.outcomes import TaskOutcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05  # of a 95 % interval
RESAMPLES = 2_000
_SEED = 0
_AT_ONCE = 100  # resamples in memory at once
_BEYOND = 40  # minimum resamples beyond the bounds of an interval


class Conclusion(StrEnum):
    """The conclusion about B compared with A."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no_difference"  # none is visible, which does not prove that there is none
    INCONCLUSIVE = "inconclusive"  # inconclusive episodes could reverse it, or leave no task to compare
    NO_COMMON_TASKS = "no_common_tasks"

    @property
    def label(self) -> str:
        """The text in reports: "NO DIFFERENCE"."""
        return self.value.replace("_", " ").upper()


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """B against A; shares are means over the tasks conclusive on both sides, 0..1."""

    tasks: int  # conclusive on both sides
    a: float
    b: float
    change: float  # b - a
    low: float  # of its 95 % interval
    high: float
    better: int  # tasks that B solves more often
    worse: int
    inconclusive_a: int  # episodes, over all common tasks
    inconclusive_b: int
    episodes_a: int
    episodes_b: int
    least: float  # the change if every inconclusive episode favored A, over all common tasks
    most: float  # or favored B
    left_out: int  # common tasks that are not conclusive on both sides

    @property
    def word(self) -> Conclusion:
        """The conclusion."""
        if not self.tasks:
            return Conclusion.INCONCLUSIVE if self.left_out else Conclusion.NO_COMMON_TASKS
        if self.low <= 0 <= self.high:
            return Conclusion.NO_DIFFERENCE
        turned = self.least <= 0 if self.change > 0 else self.most >= 0
        if turned:
            return Conclusion.INCONCLUSIVE
        return Conclusion.BETTER if self.change > 0 else Conclusion.WORSE

    @property
    def sentence(self) -> str:
        """The conclusion as a sentence with figures."""
        return self.phrase()

    def phrase(self, a: str = "A", b: str = "B") -> str:
        """Return the sentence with other names for the two."""
        if self.word is Conclusion.NO_COMMON_TASKS:
            return _sentence_case(f"{a} and {b} have no task in common.")
        if not self.tasks:
            none = f"none of {self.left_out} common tasks is"
            common = "the only common task is not" if self.left_out == 1 else none
            return f"It cannot be said: {common} conclusive in both {a} and {b}."
        interval = f"(95 %: {_points(self.low)} to {_points(self.high)})"
        text = f"{b} solves {_difference(self.change, a)} on the same {_tasks(self.tasks)} {interval}"
        neither = _inconclusive(self, a, b)
        if self.word is Conclusion.NO_DIFFERENCE:
            return f"No difference can be seen: {text}.{neither}"
        if self.word is Conclusion.INCONCLUSIVE:
            bounds = f"between {_points(self.least)} and {_points(self.most)} points, whichever way they went"
            return f"It cannot be said: {text}, but{neither[:-1]}: {bounds}."
        return f"{_sentence_case(text)}.{neither}"


def beaten(
    a: Sequence[TaskOutcome], b: Sequence[TaskOutcome], *, seed: int = 0, alpha: float = ALPHA
) -> PairedComparison:
    """Compare B with A over their common tasks; `seed` is that of the bootstrap.

    With an `alpha` other than 0.05, `low` and `high` are not a 95 % interval: do not show the sentence.
    """
    of_a = {outcome.task: outcome for outcome in a if outcome.episodes}
    pairs = [(of_a[outcome.task], outcome) for outcome in b if outcome.task in of_a and outcome.episodes]
    shares = [(old.share, new.share) for old, new in pairs if old.share is not None and new.share is not None]
    before, after = [old for old, _ in shares], [new for _, new in shares]
    change = (0.0, -1.0, 1.0)
    if shares:
        resamples = max(RESAMPLES, ceil(_BEYOND / alpha))
        change = bootstrapped_change(before, after, seed=seed, resamples=resamples, alpha=alpha)
    return PairedComparison(
        len(shares),
        _mean(before),
        _mean(after),
        *change,
        better=sum(new > old for old, new in shares),
        worse=sum(new < old for old, new in shares),
        inconclusive_a=sum(old.inconclusive for old, _ in pairs),
        inconclusive_b=sum(new.inconclusive for _, new in pairs),
        episodes_a=sum(old.episodes for old, _ in pairs),
        episodes_b=sum(new.episodes for _, new in pairs),
        least=_mean([new.worst - old.best for old, new in pairs]),
        most=_mean([new.best - old.worst for old, new in pairs]),
        left_out=len(pairs) - len(shares),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _sentence_case(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _difference(change: float, a: str) -> str:
    points = _points(abs(change))
    if points == "0":
        return f"as many as {a}"
    return f"{points} point{'' if points == '1' else 's'} {'more' if change > 0 else 'less'} than {a}"


def _points(share: float) -> str:
    """Format whole points, with one decimal if a bound would round to zero."""
    whole = round(100 * share)
    return str(whole) if whole or abs(share) < 5e-4 else f"{100 * share:.1f}"


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _inconclusive(pairs: PairedComparison, a: str, b: str) -> str:
    sides = ((a, pairs.inconclusive_a, pairs.episodes_a), (b, pairs.inconclusive_b, pairs.episodes_b))
    counts = " and ".join(f"{count} of {total} episodes of {name}" for name, count, total in sides if count)
    singular = pairs.inconclusive_a + pairs.inconclusive_b == 1
    does = "is inconclusive and counts" if singular else "are inconclusive and count"
    return f" {counts} {does} as neither." if counts else ""


def _differences(before: Sequence[float], after: Sequence[float]) -> "NDArray[np.float64]":
    import numpy as np

    if not before or len(before) != len(after):
        raise ValueError("a change needs the same tasks, one or more, on both sides")
    return np.subtract(after, before, dtype=np.float64)


def mean_change(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Return the change of a mean, with its 95 % interval.

    Paired bootstrap over tasks, percentiles of 2,000 resamples (B. Efron and R. Tibshirani, An Introduction
    to the Bootstrap, 1993, ch. 13), always the same draws. With fewer than about ten tasks it is too narrow.

    Raises:
        ValueError: no tasks, or different numbers on both sides.
    """
    import numpy as np

    differences = _differences(before, after)
    drawn = np.random.default_rng(_SEED).integers(0, len(differences), (RESAMPLES, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), [0.025, 0.975])
    return float(differences.mean()), float(low), float(high)


def bootstrapped_change(
    before: Sequence[float],
    after: Sequence[float],
    *,
    seed: int = _SEED,
    resamples: int = RESAMPLES,
    alpha: float = ALPHA,
) -> tuple[float, float, float]:
    """Return the change of a mean share, with its 95 % interval by a paired bootstrap over tasks.

    Tasks are resampled with both their shares. All resamples also contain the pseudo-pairs of A. Agresti and
    Y. Min (Statist. Med. 24, 2005, p. 729): two more pairs, half better, half worse, one unchanged. Without
    them a resample never shows what few tasks happened to lack: measured over 5 to 100 tasks, plain
    percentiles cover as little as 48 % of the time, these 93 % or more. Equal arguments give equal intervals.

    Args:
        before: one share (0..1) per task.
        after: the same tasks in the same order.
        seed: seed of the draws.
        resamples: number of resamples.
        alpha: the chance (0..1) that the true value is outside, half on either side.

    Returns:
        Change (after - before), its lower and its upper bound.

    Raises:
        ValueError: no tasks, or different numbers on both sides.
    """
    import numpy as np

    differences = _differences(before, after)
    count = len(differences)
    change = float(differences.mean())
    pool = np.concatenate([differences, [1.0, -1.0, 0.0]])
    odds = np.concatenate([np.ones(count), [0.5, 0.5, 1.0]]) / (count + 2)
    draw = np.random.default_rng(seed)
    means = np.empty(resamples)
    for at in range(0, resamples, _AT_ONCE):  # in batches: ten thousand tasks would need gigabytes
        size = min(_AT_ONCE, resamples - at)
        means[at : at + size] = draw.choice(pool, (size, count + 2), p=odds).mean(axis=1)
    low, high = (float(bound) for bound in np.quantile(means, [alpha / 2, 1 - alpha / 2]))
    return change, min(low, change), max(high, change)


GUARD = 0.1  # over all families, one-sided
MAX_LOOKS = 8  # at one baseline; a ninth would need an interval of 99.98 %


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """One family of tasks, on the common tasks."""

    name: str
    paired: PairedComparison  # at its part of 5 %
    luck: float  # the chance of at most these successes for an equally good model
    worse: bool  # whether it is below its part of `GUARD`, or 5 % if B never solves it


@dataclass(frozen=True, slots=True)
class Promotion:
    """The comparison that decides whether B may replace A."""

    whole: PairedComparison  # over all tasks, at 95 %
    strict: PairedComparison  # the same at the level of this look
    families: tuple["FamilyChange", ...]  # empty if there is only one
    look: int  # at this A, from 1

    @property
    def allowed(self) -> bool:
        """Whether B may replace A."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why B may not replace A, as sentences; empty if it may."""
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
        """The families in which B is clearly worse."""
        return tuple(family for family in self.families if family.worse)


def promotion(a: Sequence[TaskOutcome], b: Sequence[TaskOutcome], *, look: int = 1) -> Promotion:
    """Compare B with A for a promotion, over their common tasks.

    Args:
        a: outcomes of the deployed model.
        b: outcomes of the candidate.
        look: number of comparisons with this A, including this one.

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
    """Return the alpha (0..1, two-sided) of a look at one baseline; the first is 1."""
    if look < 1:
        raise ValueError(f"no look {look}")
    return float(ALPHA / 2 ** (min(look, MAX_LOOKS) - 1))


def exact_test(a: Sequence[TaskOutcome], b: Sequence[TaskOutcome]) -> float:
    """Return the chance of at most B's successes if both were equally good; 1.0 without tasks.

    The exact conditional test for stratified 2x2 tables, one-sided (C. R. Mehta, N. R. Patel and R. Gray,
    JASA 80, 1985, p. 969): given a task's successes, B's number of them is hypergeometric. A bootstrap over
    tasks is weak with six tasks. Inconclusive episodes are left out.
    """
    import numpy as np

    of_a = {outcome.task: outcome for outcome in a}
    chances, seen = np.ones(1), 0  # chance of each number of B's successes so far
    for outcome in b:
        other = of_a.get(outcome.task)
        if other is None or not other.decided or not outcome.decided:
            continue
        successes = other.success + outcome.success
        chances = np.convolve(chances, _split(successes, other.decided, outcome.decided))
        seen += outcome.success
    return min(1.0, float(chances[: seen + 1].sum()))


def _split(successes: int, tries_a: int, tries_b: int) -> list[float]:
    """Return the chances that B has 0, 1, 2, ... of a task's successes."""
    ways = comb(tries_a + tries_b, successes)
    return [comb(tries_b, of_b) * comb(tries_a, successes - of_b) / ways if of_b <= successes else 0.0
            for of_b in range(tries_b + 1)]  # fmt: skip
