"""Whether B beats A, on the tasks that both tried: one word, one sentence, and what they rest on.

A difference is claimed only where its interval is clear of zero and no way of settling the inconclusive
episodes would turn it round. The task is the unit: each gives a pair of shares (or means), one for each run.

May B take A's place? B has to be better on the whole, and clearly worse at no family of tasks. There doubt
counts against it: one that is as good as A at every family is held back with a chance of 10 % (`GUARD`). A
comparison that is made again and again ends well by chance, so each further look at the same A has to be
twice as sure as the one before: the first at 95 %, the second at 97.5 %, and so on. Over all looks together a
model that is no better takes A's place with a chance of 5 % at most (2.5 % + 1.25 % + ..., the upper side of
each).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, comb, sqrt

from dreamgym_kit.trust.outcomes import TaskOutcome, wilson_of_share

ALPHA = 0.05  # of a 95 % interval
RESAMPLES = 2_000
_SEED = 0
_AT_ONCE = 100  # resamples held in memory
_BEYOND = 40  # resamples beyond the two bounds of an interval, or more


class Conclusion(StrEnum):
    """What can be said of B against A."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no_difference"  # none can be seen: that is not to say there is none
    INCONCLUSIVE = "inconclusive"  # inconclusive episodes could turn it round, or leave no task to compare
    NO_COMMON_TASKS = "no_common_tasks"

    @property
    def label(self) -> str:
        """As reports say it: "NO DIFFERENCE"."""
        return self.value.replace("_", " ").upper()


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """B against A; shares are means over the tasks that are decided on both sides, 0..1."""

    tasks: int  # decided on both sides
    a: float
    b: float
    change: float  # b - a
    low: float  # of its 95 % interval
    high: float
    better: int  # tasks that B solves more often
    worse: int
    inconclusive_a: int  # episodes, over all tasks that both tried
    inconclusive_b: int
    episodes_a: int
    episodes_b: int
    least: float  # the change, had every inconclusive episode spoken for A, over all tasks that both tried
    most: float  # and for B
    left_out: int  # tasks that both tried and that are not decided on both sides

    @property
    def word(self) -> Conclusion:
        """The judgement."""
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
        """The judgement as a plain sentence, with its figures."""
        return self.phrase()

    def phrase(self, a: str = "A", b: str = "B") -> str:
        """The sentence with other names for the two."""
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
    """Hold B against A over the tasks that both tried; `seed` is that of the bootstrap.

    With another `alpha` than 0.05 `low` and `high` are no 95 % interval, and the sentence is not to be told.
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
    """Whole points; one place where a bound would round to a zero that it is not."""
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


def _require_pairs(before: Sequence[float], after: Sequence[float]) -> int:
    if not before or len(before) != len(after):
        raise ValueError("a change needs the same tasks, one or more, on both sides")
    return len(before)


def share_change(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Give the change of a mean share, with its 95 % interval.

    Newcombe's method 10 for a difference of paired proportions (R. G. Newcombe, Statist. Med. 17, 1998,
    p. 2635): Wilson's intervals of both shares, joined by how far they go together. Made for one episode a
    task (shares of 0 and 1); with several, a task's share varies less than a single yes or no, so the
    interval is wider than it need be.

    Args:
        before: one share (0..1) a task.
        after: the same tasks in the same order.

    Returns:
        Change (after - before), its lower and its upper bound.

    Raises:
        ValueError: no tasks, or not as many on both sides.
    """
    count = _require_pairs(before, after)
    old, new = sum(before) / count, sum(after) / count
    low_1, high_1 = wilson_of_share(old, count)
    low_2, high_2 = wilson_of_share(new, count)
    together = _correlation(before, after)
    change = new - old
    down = (new - low_2) ** 2 - 2 * together * (new - low_2) * (high_1 - old) + (high_1 - old) ** 2
    up = (high_2 - new) ** 2 - 2 * together * (high_2 - new) * (old - low_1) + (old - low_1) ** 2
    return change, max(-1.0, change - sqrt(max(0.0, down))), min(1.0, change + sqrt(max(0.0, up)))


def mean_change(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Give the change of a mean, with its 95 % interval.

    Paired bootstrap over tasks, percentiles of 2,000 resamples (B. Efron and R. Tibshirani, An Introduction
    to the Bootstrap, 1993, ch. 13), always the same draws. With fewer than about ten tasks it is too narrow.

    Raises:
        ValueError: no tasks, or not as many on both sides.
    """
    import numpy as np

    _require_pairs(before, after)
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
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
    """Give the change of a mean share, with its 95 % interval by a paired bootstrap over tasks.

    Tasks are drawn again with both their shares. To them are added, in all resamples, the pseudo-pairs of
    A. Agresti and Y. Min (Statist. Med. 24, 2005, p. 729): two pairs more, half better, half worse, one
    unchanged. Without these a resample never shows what few tasks happened not to: measured over 5 to 100
    tasks, plain percentiles cover as little as 48 % of the time, these 93 % or more. Equal arguments give
    equal intervals.

    Args:
        before: one share (0..1) a task.
        after: the same tasks in the same order.
        seed: of the draws.
        resamples: how many.
        alpha: the chance (0..1) that the truth lies outside, half of it on either side.

    Returns:
        Change (after - before), its lower and its upper bound.

    Raises:
        ValueError: no tasks, or not as many on both sides.
    """
    import numpy as np

    count = _require_pairs(before, after)
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    change = float(differences.mean())
    pool = np.concatenate([differences, [1.0, -1.0, 0.0]])
    odds = np.concatenate([np.ones(count), [0.5, 0.5, 1.0]]) / (count + 2)
    draw = np.random.default_rng(seed)
    means = np.empty(resamples)
    for at in range(0, resamples, _AT_ONCE):  # not all at once: ten thousand tasks would take gigabytes
        size = min(_AT_ONCE, resamples - at)
        means[at : at + size] = draw.choice(pool, (size, count + 2), p=odds).mean(axis=1)
    low, high = (float(bound) for bound in np.quantile(means, [alpha / 2, 1 - alpha / 2]))
    return change, min(low, change), max(high, change)


def _correlation(before: Sequence[float], after: Sequence[float]) -> float:
    """The phi coefficient with Newcombe's correction, which lessens it; 0 where one side never varies."""
    count = len(before)
    old, new = sum(before) / count, sum(after) / count
    together = sum((a - old) * (b - new) for a, b in zip(before, after, strict=True))
    if together > 0:
        together = max(0.0, together - 0.5)  # ad - bc less n/2, over n
    spread = sqrt(sum((a - old) ** 2 for a in before) * sum((b - new) ** 2 for b in after))
    return together / spread if spread else 0.0


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
