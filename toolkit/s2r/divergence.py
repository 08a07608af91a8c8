"""Have dream and reality parted? Each real answer is held against what the dream would have said.

For each tool, and for all together, a sequential test (CUSUM, E. S. Page, Biometrika 41, 1954, p. 100) of
likelihood ratios: that answers differ as rarely as the dream's calibrated support says, against that they
differ in one case of ten, of two, or nearly always. Beside it the same is asked of answers that differ *and*
leave the form of everything recorded, and of those that say a new word at a closed place (`forms`): where
only the dream errs, reality seldom says what nobody ever recorded, so fewer of these tell a changed tool. A
statistic beyond the threshold is taken for one. The mean run of one such test without cause is at least its
threshold (G. Lorden, Ann. Math. Stat. 42, 1971, p. 1897); of the five together, at least a fifth of it.

Where the dream cannot tell an answer, one that leaves the form of everything recorded differs as well.
Failures that pass (time-outs, rate limits) say nothing of a tool and are left out.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log

from dreamgym_kit.dream.passing import passes
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.s2r.forms import Form
from dreamgym_kit.vocabulary import Answer, Effect, Provenance, ToolSpec

READS_MOST = 1e4  # calls, on average, until a tool that reads as ever is taken for a changed one
WRITES_MOST = 500.0  # the same of one that writes: a wrong write more costs more than a stop without cause
LEAST_SUPPORT = 0.5  # below it what the dream says is a guess, and differing from it says little
_OFTEN = (
    (0.1, 0.5, 0.95),  # how often a changed tool's answers differ,
    (0.5,),  # how often they leave the form as well,
    (0.5,),  # and how often they say a new word
)
_LEAST_DOUBT = 0.01  # no answer is surer than that,
_LEAST_RECORDED = 0.001  # but for one that repeats a recording of this very call in this very state
_MOST_KNOWN = 100_000  # comparisons that are remembered, so that none counts twice
_ALL = ""

Seen = Callable[[Answer, str], str]
"""Spells what an agent sees of a tool's answer, with a sign in place of ids that the tool makes up."""


class Likeness(StrEnum):
    """How a real answer stands to the dream's."""

    SAME = "same"
    DIFFERENT = "different"
    FORM = "form"  # the dream could not tell it, and its form is none that was recorded
    UNKNOWN = "unknown"  # nothing to hold it against


@dataclass(frozen=True, slots=True)
class Compared:
    """What one real answer showed."""

    likeness: Likeness
    support: float  # of what the dream would have said
    parted: str = ""  # in a sentence, where the test now says that dream and reality have parted

    @property
    def differs(self) -> bool:
        """Whether reality was otherwise than the dream."""
        return self.likeness in (Likeness.DIFFERENT, Likeness.FORM)


@dataclass(frozen=True, slots=True)
class _Looked:
    """One comparison, before it counts."""

    likeness: Likeness
    support: float
    seen: tuple[bool, bool, bool] = (False, False, False)  # it differs, leaves the form, says a new word
    doubts: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """How probable each is where nothing has changed; 1.0: nobody knows."""


@dataclass(slots=True)
class Tally:
    """What was seen of one tool."""

    calls: int = 0
    compared: int = 0
    different: int = 0
    new: int = 0  # of these, with a word that nobody recorded
    statistics: list[list[float]] = field(default_factory=lambda: [[0.0] * len(often) for often in _OFTEN])
    """Natural logarithms."""

    def take(self, looked: _Looked) -> float:
        """Count a comparison; gives the largest statistic."""
        self.compared += 1
        self.different += looked.seen[0]
        self.new += looked.seen[2]
        for statistics, often, seen, doubt in zip(
            self.statistics, _OFTEN, looked.seen, looked.doubts, strict=True
        ):
            _move(statistics, often, seen, doubt)
        return self.evidence

    @property
    def evidence(self) -> float:
        """The largest statistic."""
        return max(max(statistics) for statistics in self.statistics)


class Divergence:
    """Looks at the real answers of a run, in the order in which they come. Thread-safe.

    Args:
        seen: spells an answer for comparison.
        form: the form of a tool's answers.
    """

    def __init__(self, seen: Seen, form: Callable[[ToolSpec], Form]) -> None:
        self._seen, self._form = seen, form
        self._lock = threading.Lock()
        self._forms: dict[str, Form] = {}
        self._known: set[tuple[str, bool]] = set()
        self.tallies: dict[str, Tally] = {}
        self._all = Tally()

    def take(self, spec: ToolSpec, expected: Answer, real: Answer, *, where: str) -> Compared:
        """Hold one real answer against what the dream would have said.

        Args:
            spec: the tool.
            expected: what the dream would have said.
            real: what the tool said.
            where: names the call and the state that it met. Siblings make the same calls in the same states,
                and a dream that errs there errs each time: it counts once.
        """
        with self._lock:
            tally = self.tallies.setdefault(spec.name, Tally())
            tally.calls += 1
            looked = self._look(spec, expected, real)
            likeness, support = looked.likeness, looked.support
            if likeness is Likeness.UNKNOWN:
                return Compared(likeness, support)
            differs = likeness is not Likeness.SAME
            if (where, differs) in self._known:
                return Compared(likeness, support)
            if len(self._known) < _MOST_KNOWN:
                self._known.add((where, differs))
            most = WRITES_MOST if spec.effect.changes_world else READS_MOST
            parted = ""
            for name, one, bound in ((spec.name, tally, most), (_ALL, self._all, READS_MOST)):
                if one.take(looked) > log(bound) and not parted:
                    parted = _said(name, spec.effect, self.tallies)
            return Compared(likeness, support, parted)

    def _look(self, spec: ToolSpec, expected: Answer, real: Answer) -> _Looked:
        if passes(real):
            return _Looked(Likeness.UNKNOWN, expected.support)
        if expected.abstained or expected.support < LEAST_SUPPORT:
            return self._look_at_form(spec, real)
        same = self._seen(expected, spec.name) == self._seen(real, spec.name)
        repeats = expected.provenance is Provenance.RECORDED and expected.cites
        doubt = max(_LEAST_RECORDED if repeats else _LEAST_DOUBT, 1 - expected.support)
        form = self._form_of(spec)
        seen = (not same, not same and form.left_by(real), not same and form.says_new(real))
        doubts = (doubt, max(_LEAST_DOUBT, form.strange), form.new)
        return _Looked(Likeness.SAME if same else Likeness.DIFFERENT, expected.support, seen, doubts)

    def _look_at_form(self, spec: ToolSpec, real: Answer) -> _Looked:
        """The dream cannot tell it."""
        form = self._form_of(spec)
        if form.schema is None or real.error is not None or real.update is not None:
            return _Looked(Likeness.UNKNOWN, 0.0)
        left, strange = form.left_by(real), max(_LEAST_DOUBT, form.strange)
        seen = (left, left, form.says_new(real))
        return _Looked(Likeness.FORM if left else Likeness.SAME, 0.0, seen, (strange, strange, form.new))

    def _form_of(self, spec: ToolSpec) -> Form:
        if spec.name not in self._forms:
            self._forms[spec.name] = self._form(spec)
        return self._forms[spec.name]


def _move(statistics: list[float], alternatives: Sequence[float], seen: bool, doubt: float) -> None:
    """Take one comparison into the statistics of one question."""
    if doubt >= 1.0:
        return
    rare = min(0.9, doubt)
    for place, often in enumerate(alternatives):
        if often > rare:
            ratio = log(often / rare) if seen else log((1 - often) / (1 - rare))
            statistics[place] = max(0.0, statistics[place] + ratio)


def _said(name: str, effect: Effect, tallies: dict[str, Tally]) -> str:
    if name == _ALL:
        counts = Counter({tool: tally.different for tool, tally in tallies.items() if tally.different})
        told = ", ".join(f"{tool} {count}" for tool, count in counts.most_common(4))
        return f"the real tools no longer answer as recorded (answers that differ: {told})"
    tally = tallies[name]
    return (
        f"{name} ({effect}) no longer answers as recorded: {tally.different} of {tally.compared} real "
        f"answers that could be compared differ from the dream's, {tally.new} in words never recorded"
    )


def figures(tallies: dict[str, Tally]) -> dict[str, JsonValue]:
    """What was compared, tool by tool, for reports."""
    return {
        tool: {
            "calls": tally.calls,
            "compared": tally.compared,
            "different": tally.different,
            "new": tally.new,
            "evidence": round(exp(min(50.0, tally.evidence)), 1),
        }
        for tool, tally in sorted(tallies.items())
    }
