"""Whether a checklist may be believed: held against recorded outcomes, on worlds it never saw.

The mean is the wrong gate: a judge that is blind to one kind of error is found and exploited within a few
steps of training. So agreement is counted for each kind of request, each tool and each kind of error, false
positives first. What is below its bound is inconclusive from then on, and the share of it is told.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dreamgym_kit.dream.checklist.checklist import Checklist, Found, Sheet, Wrong, writes_of
from dreamgym_kit.dream.checklist.labels import Work, accepted
from dreamgym_kit.dream.checklist.patterns import Write
from dreamgym_kit.dream.checklist.things import Advances, Things
from dreamgym_kit.vocabulary import Verdict

_FOLDS, _MORE_FOLDS = 4, 10
_FEW = 1_000  # worlds, below which a fourth of them kept from a judge is too much of what it learns from
_NEAR = 0.5  # of all words of two wordings that are shared, from which on they count as one kind of request


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a judge has to reach."""

    agreement: float = 0.9  # 0..1, of a kind of request or a tool
    false_positives: float = 0.1  # 0..1, most, of the recorded failures of one kind
    least: int = 8  # episodes below which nothing is proven


class Trial(NamedTuple):
    """A recorded episode that was judged by a checklist which never saw its world."""

    kind: str  # of request
    tools: frozenset[str]
    success: bool  # as recorded
    found: Verdict
    wrong: frozenset[Wrong]  # what was wrong with a failure, by a success of the same task; empty: unknown


@dataclass(slots=True)
class Agreement:
    """Counts of one kind of request, tool or error."""

    right: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    inconclusive: int = 0
    failures: int = 0  # recorded, decided

    def count(self, trial: Trial) -> None:
        """Take one trial."""
        if trial.found is Verdict.INCONCLUSIVE:
            self.inconclusive += 1
            return
        self.failures += not trial.success
        said = trial.found is Verdict.PASSED
        self.right += said == trial.success
        self.false_positives += said and not trial.success
        self.false_negatives += trial.success and not said

    @property
    def decided(self) -> int:
        """Episodes that it gave a verdict on."""
        return self.right + self.false_positives + self.false_negatives

    @property
    def share(self) -> float:
        """0..1 of the decided ones."""
        return self.right / self.decided if self.decided else 0.0

    @property
    def false_positive_rate(self) -> float:
        """0..1 of the recorded failures that it decided."""
        return self.false_positives / self.failures if self.failures else 0.0

    def below(self, bounds: Bounds) -> str:
        """Why it cannot be believed; "" where it can."""
        if self.decided < bounds.least:
            return f"tried on {self.decided} episodes, fewer than {bounds.least}"
        if self.false_positive_rate > bounds.false_positives:
            return (
                f"takes {self.false_positive_rate:.0%} of recorded failures for successes, "
                f"more than {bounds.false_positives:.0%}"
            )
        if self.share < bounds.agreement:
            return f"agrees with {self.share:.0%} of recorded outcomes, less than {bounds.agreement:.0%}"
        return ""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a checklist may judge."""

    bounds: Bounds
    kinds: Mapping[str, Agreement]  # of requests
    tools: Mapping[str, Agreement]
    errors: Mapping[tuple[str, Wrong], Agreement]  # of a kind of request
    kind_by_wording: Mapping[str, str]

    def kind(self, wording: str) -> str | None:
        """The kind of a request of this wording, or of the one most like it; None where none is."""
        known = self.kind_by_wording.get(wording)
        if known is not None or not self.kind_by_wording:
            return known
        near = max(sorted(self.kind_by_wording), key=lambda one: alike(one, wording))
        return self.kind_by_wording[near] if alike(near, wording) >= _NEAR else None

    def refuses(self, kind: str | None, tools: Iterable[str]) -> str:
        """Why a verdict is not to be believed; "" where it is."""
        if kind is None or kind not in self.kinds:
            return "no recorded request is like this one"
        why = self.kinds[kind].below(self.bounds)
        if why:
            return f"requests like this one ({kind}): the judge {why}"
        for (of, wrong), counts in self.errors.items():
            rate = counts.false_positive_rate
            if of == kind and counts.failures >= self.bounds.least and rate > self.bounds.false_positives:
                return f"requests like this one ({kind}): the judge overlooks {rate:.0%} of '{wrong}'"
        for tool in sorted(tools):
            if tool in self.tools and self.tools[tool].decided >= self.bounds.least:
                why = self.tools[tool].below(self.bounds)
                if why:
                    return f"{tool}: the judge {why}"
        return ""

    @property
    def total(self) -> Agreement:
        """All kinds together."""
        total = Agreement()
        for one in self.kinds.values():
            total.right += one.right
            total.false_positives += one.false_positives
            total.false_negatives += one.false_negatives
            total.inconclusive += one.inconclusive
            total.failures += one.failures
        return total


def alike(one: str, other: str) -> float:
    """0..1: how many of the words of two wordings are shared."""
    here, there = set(one.casefold().split()), set(other.casefold().split())
    return len(here & there) / len(here | there) if here | there else 0.0


Learn = Callable[[Sequence[Work], Mapping[str, Things]], Checklist]


def gate_of(
    works: Sequence[Work],
    worlds: Mapping[str, Things],
    advances: Advances,
    learn: Learn,
    *,
    bounds: Bounds | None = None,
) -> Gate:
    """Try a way of learning on worlds that it is kept from, fold by fold.

    Args:
        works: recorded episodes, successes and failures.
        worlds: what recordings tell of each world.
        advances: whether a call changed the world.
        learn: makes a checklist of some of them.
        bounds: what has to be reached.
    """
    tried = _with_joined_kinds(trials(works, worlds, advances, learn))
    kinds: dict[str, Agreement] = defaultdict(Agreement)
    tools: dict[str, Agreement] = defaultdict(Agreement)
    errors: dict[tuple[str, Wrong], Agreement] = defaultdict(Agreement)
    for _, trial in tried:
        kinds[trial.kind].count(trial)
        for tool in trial.tools:
            tools[tool].count(trial)
        for wrong in trial.wrong:
            errors[trial.kind, wrong].count(trial)
    by_wording = {wording: trial.kind for wording, trial in tried}
    return Gate(bounds or Bounds(), dict(kinds), dict(tools), dict(errors), by_wording)


def _with_joined_kinds(tried: Sequence[tuple[str, Trial]]) -> list[tuple[str, Trial]]:
    """Kinds that share a wording are one: from the request alone nobody can tell which it is."""
    joined: dict[str, frozenset[str]] = {trial.kind: frozenset([trial.kind]) for _, trial in tried}
    by_wording: dict[str, str] = {}
    for wording, trial in tried:
        other = by_wording.setdefault(wording, trial.kind)
        both = joined[other] | joined[trial.kind]
        joined.update(dict.fromkeys(both, both))
    return [(wording, trial._replace(kind="/".join(sorted(joined[trial.kind])))) for wording, trial in tried]


def trials(
    works: Sequence[Work],
    worlds: Mapping[str, Things],
    advances: Advances,
    learn: Learn,
) -> list[tuple[str, Trial]]:
    """Each recorded episode with its wording, judged by a checklist that never saw its world."""
    names = list(dict.fromkeys(work.world for work in works if work.world in worlds))
    truths = _truths(works, advances)
    found: list[tuple[str, Trial]] = []
    folds = _MORE_FOLDS if len(names) < _FEW else _FOLDS
    for fold in range(min(folds, len(names))):
        held = set(names[fold::folds])
        checklist = learn(
            [work for work in works if work.world not in held],
            {world: things for world, things in worlds.items() if world not in held},
        )
        for work in works:
            if work.world in held:
                found.append(_tried(work, checklist, worlds[work.world], advances, truths.get(work.task)))
    return found


def _tried(
    work: Work, checklist: Checklist, things: Things, advances: Advances, truth: frozenset[Write] | None
) -> tuple[str, Trial]:
    wording = checklist.wordings.read(work.text).wording
    sheet = checklist.sheet(work.text, things)
    made = writes_of(accepted(work.transitions, advances))
    said: Found = checklist.judge(sheet, made)
    wrong: frozenset[Wrong] = frozenset()
    if not work.success and truth is not None:
        wrong = wrong_with(made, truth, checklist)
    tools = sheet.tools | {write.tool for write in made}
    return wording, Trial(work.family or wording, frozenset(tools), work.success, said.verdict, wrong)


def wrong_with(made: Sequence[Write], truth: frozenset[Write], checklist: Checklist) -> frozenset[Wrong]:
    """What was wrong with writes, by those of a success of the same task."""
    return checklist.judge(Sheet(truth), made).wrong


def _truths(works: Iterable[Work], advances: Advances) -> dict[str, frozenset[Write]]:
    found: dict[str, frozenset[Write]] = {}
    for work in works:
        if work.success:
            found.setdefault(work.task, frozenset(writes_of(accepted(work.transitions, advances))))
    return found
