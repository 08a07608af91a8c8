"""Have dream and reality parted? Each real answer is held against what the dream would have said.

For each tool, and for all together, a sequential test (CUSUM, E. S. Page, Biometrika 41, 1954, p. 100) of
likelihood ratios: that answers differ as rarely as the dream's calibrated support says, against that they
differ in one case of ten, of two, or nearly always. A statistic beyond the threshold is taken for a tool that
has changed. The mean run of one such test without cause is at least its threshold (G. Lorden, Ann. Math.
Stat. 42, 1971, p. 1897); of the three together, at least a third of it.

Where the dream cannot tell an answer, its form is looked at: one that breaks the form of everything recorded
differs as well. Failures that pass (time-outs, rate limits) say nothing of a tool and are left out.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log

from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.passing import passes
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Answer, Effect, Provenance, ToolSpec

READS_MOST = 1e4  # calls, on average, until a tool that reads as ever is taken for a changed one
WRITES_MOST = 500.0  # the same of one that writes: a wrong write more costs more than a stop without cause
LEAST_SUPPORT = 0.5  # below it what the dream says is a guess, and differing from it says little
_DIFFER = (0.1, 0.5, 0.95)  # how often a changed tool's answers differ
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
class Form:
    """The form of a tool's answers, and how often recorded ones break it that it was not read from."""

    schema: AnswerSchema | None
    broken: float  # 0..1


def form_of(spec: ToolSpec, recorded: Sequence[Answer]) -> Form:
    """Read a tool's form from its recordings; how far it holds is tried on every second one."""
    schema = schema_for(spec, recorded)
    half = schema_for(spec, recorded[::2])
    if schema is None or half is None:
        return Form(None, 1.0)
    rest = [answer for answer in recorded[1::2] if answer.error is None]
    broken = sum(half.breaks(answer) is not None for answer in rest)
    return Form(schema, (broken + 1) / (len(rest) + 2))


@dataclass(slots=True)
class Tally:
    """What was seen of one tool."""

    calls: int = 0
    compared: int = 0
    different: int = 0
    statistics: list[float] = field(default_factory=lambda: [0.0] * len(_DIFFER))  # natural logarithms


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
            likeness, doubt, support = self._look(spec, expected, real)
            if likeness is Likeness.UNKNOWN:
                return Compared(likeness, support)
            differs = likeness is not Likeness.SAME
            if (where, differs) in self._known:
                return Compared(likeness, support)
            if len(self._known) < _MOST_KNOWN:
                self._known.add((where, differs))
            tally.compared += 1
            tally.different += differs
            most = WRITES_MOST if spec.effect.changes_world else READS_MOST
            parted = ""
            for name, one, bound in ((spec.name, tally, most), (_ALL, self._all, READS_MOST)):
                if _moved(one, differs, doubt) > log(bound) and not parted:
                    parted = _said(name, spec.effect, self.tallies)
            return Compared(likeness, support, parted)

    def _look(self, spec: ToolSpec, expected: Answer, real: Answer) -> tuple[Likeness, float, float]:
        """Likeness, how probable a difference is where nothing has changed, and the dream's support."""
        if passes(real):
            return Likeness.UNKNOWN, 1.0, expected.support
        if not expected.abstained and expected.support >= LEAST_SUPPORT:
            same = self._seen(expected, spec.name) == self._seen(real, spec.name)
            repeats = expected.provenance is Provenance.RECORDED and expected.cites
            least = _LEAST_RECORDED if repeats else _LEAST_DOUBT
            doubt = max(least, 1 - expected.support)
            return Likeness.SAME if same else Likeness.DIFFERENT, doubt, expected.support
        form = self._forms.get(spec.name)
        if form is None:
            form = self._forms[spec.name] = self._form(spec)
        if form.schema is None or real.error is not None or real.update is not None:
            return Likeness.UNKNOWN, 1.0, 0.0
        broken = form.schema.breaks(real) is not None
        return Likeness.FORM if broken else Likeness.SAME, max(_LEAST_DOUBT, form.broken), 0.0


def _moved(tally: Tally, differs: bool, doubt: float) -> float:
    """Take one comparison into a tally's statistics; gives the largest."""
    rare = min(0.9, doubt)
    for place, often in enumerate(_DIFFER):
        if often > rare:
            ratio = log(often / rare) if differs else log((1 - often) / (1 - rare))
            tally.statistics[place] = max(0.0, tally.statistics[place] + ratio)
    return max(tally.statistics)


def _said(name: str, effect: Effect, tallies: dict[str, Tally]) -> str:
    if name == _ALL:
        counts = Counter({tool: tally.different for tool, tally in tallies.items() if tally.different})
        told = ", ".join(f"{tool} {count}" for tool, count in counts.most_common(4))
        return f"the real tools no longer answer as recorded (answers that differ: {told})"
    tally = tallies[name]
    return (
        f"{name} ({effect}) no longer answers as recorded: {tally.different} of {tally.compared} real "
        "answers that could be compared differ from the dream's"
    )


def figures(tallies: dict[str, Tally]) -> dict[str, JsonValue]:
    """What was compared, tool by tool, for reports."""
    return {
        tool: {
            "calls": tally.calls,
            "compared": tally.compared,
            "different": tally.different,
            "evidence": round(exp(min(50.0, max(tally.statistics))), 1),
        }
        for tool, tally in sorted(tallies.items())
    }
