"""Have dream and reality parted? Each real answer is held against what the dream would have said.

For each tool, and for all together, a sequential test (CUSUM, E. S. Page, Biometrika 41, 1954, p. 100) of
likelihood ratios: that answers differ as rarely as the dream's calibrated support says, against that they
differ in one case of ten, of two, or nearly always. Beside it the same is asked of answers that differ *and*
leave the form of everything recorded, and of those that say a new word at a closed place: where
only the dream errs, reality seldom says what nobody ever recorded, so fewer of these tell a changed tool. A
statistic beyond the threshold is taken for one. The mean run of one such test without cause is at least its
threshold (G. Lorden, Ann. Math. Stat. 42, 1971, p. 1897); of the five together, at least a fifth of it.

An answer leaves the form that breaks the schema of what was recorded, or that says, at a closed place, a word
that nobody recorded there. A place is closed where many recorded answers say few words: the states of an
order, the tiers of customers. Numbers are no words: a new one is no news. How rare that is without a change
is tried on the recordings themselves, with all that is read off them read anew: a word is held against the
answers of other worlds (of other calls, where one world only was recorded), a schema against the other half
of them. Siblings that asked the same in the same state count once. Whether a place that looks closed is
closed is the same question for all tools, so their answers to it are put together; a tool in which one was
not is taken at its own.

Where the dream cannot tell an answer, one that leaves the form of everything recorded differs as well.
Failures that pass (time-outs, rate limits) say nothing of a tool and are left out.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp, log

from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.faults import is_transient
from dreamgym_kit.dream.json_values import walk
from dreamgym_kit.dream.observed import observation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Effect, Source, ToolSpec, Transition

_MAX_WORDS = 12  # of a closed place
_MIN_EACH = 10  # answers for each of its words, on average
_MIN_NEW = 0.02  # no rarer than that: forms of a quarter of the desk miss up to .013 of its other answers

Word = tuple[str, str | bool]
"""Where in an answer something is said, and what."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a tool's answers, and how probable it is that an unchanged tool leaves it."""

    schema: AnswerSchema | None = None
    closed: Mapping[str, frozenset[str | bool]] = field(default_factory=dict)  # places, and what they say
    strange: float = 1.0  # 0..1, that an answer is of another form; 1.0: nobody knows
    new: float = 1.0  # 0..1, that it says a new word at a closed place; 1.0: there is none

    def says_new(self, answer: Answer) -> bool:
        """Whether an answer says what nobody recorded, at a closed place."""
        return any(value not in self.closed.get(place, (value,)) for place, value in _words(answer))

    def left_by(self, answer: Answer) -> bool:
        """Whether an answer is of another form."""
        broken = self.schema is not None and self.schema.breaks(answer) is not None
        return broken or self.says_new(answer)


class Forms:
    """The forms of all tools that were recorded.

    Args:
        rows: recordings, by tool; those of real calls count.
    """

    def __init__(self, rows: Mapping[str, Sequence[Transition]]) -> None:
        self._tools = {tool: _Recorded(some) for tool, some in rows.items()}
        looked = [tool for tool in self._tools.values() if tool.closed]
        count, new = sum(tool.count for tool in looked), sum(len(tool.new) for tool in looked)
        self._new = max(_MIN_NEW, (new + 1) / (count + 2))

    def of(self, spec: ToolSpec) -> Form:
        """Return the form of a tool's answers."""
        tool = self._tools.get(spec.name)
        if tool is None:
            return Form()
        schema, broken = schema_for(spec, [row.answer for row in tool.rows]), tool.broken(spec)
        if schema is None or broken is None:
            return Form()
        strange = (len(tool.new | broken) + 1) / (tool.count + 2)
        own = (len(tool.new) + 1) / (tool.count + 2) if tool.new else 0.0
        return Form(schema, tool.closed, strange, max(self._new, own) if tool.closed else 1.0)


class _Recorded:
    """What was recorded of one tool."""

    def __init__(self, rows: Sequence[Transition]) -> None:
        self.rows = [row for row in rows if row.answer.source is Source.REAL and not is_transient(row.answer)]
        self._keys: list[Hashable] = [
            (row.tenant, row.environment, row.after, row.call.key) for row in self.rows
        ]  # the call, and the state that it met
        several = len({row.environment for row in self.rows}) > 1
        self._part: dict[Hashable, Hashable] = {
            key: row.environment if several else key for key, row in zip(self._keys, self.rows, strict=True)
        }
        words: dict[Hashable, set[Word]] = {key: set() for key in self._part}
        for key, row in zip(self._keys, self.rows, strict=True):
            words[key] |= _words(row.answer)
        everywhere = _Places(words.values())
        self.count = len(words)
        self.closed = {
            place: everywhere.words(place) for place in everywhere.answers if everywhere.closed(place)
        }
        self.new = self._new(words, everywhere)

    def broken(self, spec: ToolSpec) -> set[Hashable] | None:
        """What was asked where answers break the schema of the other half; None: half is too few for one."""
        place = {part: number for number, part in enumerate(dict.fromkeys(self._part.values()))}
        halves: tuple[list[int], list[int]] = ([], [])
        for number, key in enumerate(self._keys):
            halves[place[self._part[key]] % 2].append(number)
        keys: set[Hashable] = set()
        for inside, outside in (halves, halves[::-1]):
            schema = schema_for(spec, [self.rows[number].answer for number in inside])
            if schema is None:
                return None
            broken = (number for number in outside if schema.breaks(self.rows[number].answer) is not None)
            keys |= {self._keys[number] for number in broken}
        return keys

    def _new(self, words: Mapping[Hashable, set[Word]], everywhere: "_Places") -> set[Hashable]:
        """What was asked where answers say what no other part says, at a place closed without them."""
        members: dict[Hashable, list[Hashable]] = defaultdict(list)
        for key, part in self._part.items():
            members[part].append(key)
        keys = set()
        for inside in members.values():
            own = _Places([words[key] for key in inside])
            alone = {
                word
                for word, count in own.counts.items()
                if everywhere.counts[word] == count and everywhere.closed(word[0], own)
            }
            keys |= {key for key in inside if not alone.isdisjoint(words[key])}
        return keys


class _Places:
    """What is said where, and how often that was asked for."""

    def __init__(self, answers: Collection[Set[Word]]) -> None:
        self.counts = Counter(word for words in answers for word in words)
        self.answers = Counter(place for words in answers for place in {place for place, _ in words})
        self._words: dict[str, set[str | bool]] = defaultdict(set)
        for place, value in self.counts:
            self._words[place].add(value)

    def words(self, place: str) -> frozenset[str | bool]:
        return frozenset(self._words[place])

    def closed(self, place: str, without: "_Places | None" = None) -> bool:
        """Whether many answers say few words there; those of `without` are left out."""
        words, answers = len(self._words[place]), self.answers[place]
        if without is not None:
            here = without.words(place)
            words -= sum(self.counts[place, value] == without.counts[place, value] for value in here)
            answers -= without.answers[place]
        return 0 < words <= _MAX_WORDS and answers >= _MIN_EACH * words


def _words(answer: Answer) -> frozenset[Word]:
    """Each text and truth value in an answer, with its place; items of a list share one."""
    return frozenset(
        (".".join("*" if isinstance(part, int) else str(part) for part in path), value)
        for path, value in walk(observation(answer))
        if isinstance(value, (str, bool))
    )


READS_MOST = 1e4  # calls, on average, until a tool that reads as ever is taken for a changed one
WRITES_MOST = 500.0  # the same of one that writes: a wrong write more costs more than a stop without cause
MIN_SUPPORT = 0.5  # below it what the dream says is a guess, and differing from it says little
_OFTEN = (
    (0.1, 0.5, 0.95),  # how often a changed tool's answers differ,
    (0.5,),  # how often they leave the form as well,
    (0.5,),  # and how often they say a new word
)
_MIN_DOUBT = 0.01  # no answer is surer than that,
_MIN_RECORDED = 0.001  # but for one that repeats a recording of this very call in this very state
_MAX_KNOWN = 100_000  # comparisons that are remembered, so that none counts twice
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
    seen: tuple[bool, bool, bool] = (False, False, False)  # it differs, leaves the form, says a new word
    doubts: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """How probable each is where nothing has changed; 1.0: nobody knows."""

    @property
    def differs(self) -> bool:
        """Whether reality was otherwise than the dream."""
        return self.likeness in (Likeness.DIFFERENT, Likeness.FORM)


@dataclass(slots=True)
class ToolTally:
    """What was seen of one tool."""

    calls: int = 0
    compared: int = 0
    different: int = 0
    new: int = 0  # of these, with a word that nobody recorded
    statistics: list[list[float]] = field(default_factory=lambda: [[0.0] * len(often) for often in _OFTEN])
    """Natural logarithms."""

    def take(self, looked: Compared) -> float:
        """Count a comparison; gives the largest statistic."""
        self.compared += 1
        self.different += looked.seen[0]
        self.new += looked.seen[2]
        for statistics, often, seen, doubt in zip(
            self.statistics, _OFTEN, looked.seen, looked.doubts, strict=True
        ):
            if doubt >= 1.0:
                continue
            rare = min(0.9, doubt)
            for place, share in enumerate(often):
                if share > rare:
                    ratio = log(share / rare) if seen else log((1 - share) / (1 - rare))
                    statistics[place] = max(0.0, statistics[place] + ratio)
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
        self._matched: set[tuple[str, bool]] = set()
        self.tallies: dict[str, ToolTally] = {}
        self._all = ToolTally()

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
            tally = self.tallies.setdefault(spec.name, ToolTally())
            tally.calls += 1
            looked = self._look(spec, expected, real)
            again = (where, looked.differs)
            if looked.likeness is Likeness.UNKNOWN or again in self._matched:
                return looked
            if len(self._matched) < _MAX_KNOWN:
                self._matched.add(again)
            most = WRITES_MOST if spec.effect.changes_environment else READS_MOST
            parted = ""
            for name, tested, bound in ((spec.name, tally, most), (_ALL, self._all, READS_MOST)):
                if tested.take(looked) > log(bound) and not parted:
                    parted = _sentence(name, spec.effect, self.tallies)
            return replace(looked, parted=parted)

    def _look(self, spec: ToolSpec, expected: Answer, real: Answer) -> Compared:
        if is_transient(real):
            return Compared(Likeness.UNKNOWN, expected.confidence)
        if expected.unanswered or expected.confidence < MIN_SUPPORT:
            return self._look_at_form(spec, real)
        same = self._seen(expected, spec.name) == self._seen(real, spec.name)
        repeats = expected.source is Source.RECORDED and expected.cites
        doubt = max(_MIN_RECORDED if repeats else _MIN_DOUBT, 1 - expected.confidence)
        form = self._form_of(spec)
        seen = (not same, not same and form.left_by(real), not same and form.says_new(real))
        doubts = (doubt, max(_MIN_DOUBT, form.strange), form.new)
        likeness = Likeness.SAME if same else Likeness.DIFFERENT
        return Compared(likeness, expected.confidence, seen=seen, doubts=doubts)

    def _look_at_form(self, spec: ToolSpec, real: Answer) -> Compared:
        """The dream cannot tell it."""
        form = self._form_of(spec)
        if form.schema is None or real.error is not None or real.update is not None:
            return Compared(Likeness.UNKNOWN, 0.0)
        left, strange = form.left_by(real), max(_MIN_DOUBT, form.strange)
        seen = (left, left, form.says_new(real))
        likeness = Likeness.FORM if left else Likeness.SAME
        return Compared(likeness, 0.0, seen=seen, doubts=(strange, strange, form.new))

    def _form_of(self, spec: ToolSpec) -> Form:
        if spec.name not in self._forms:
            self._forms[spec.name] = self._form(spec)
        return self._forms[spec.name]


def _sentence(name: str, effect: Effect, tallies: dict[str, ToolTally]) -> str:
    if name == _ALL:
        counts = Counter({tool: tally.different for tool, tally in tallies.items() if tally.different})
        tools = ", ".join(f"{tool} {count}" for tool, count in counts.most_common(4))
        return f"the real tools no longer answer as recorded (answers that differ: {tools})"
    tally = tallies[name]
    return (
        f"{name} ({effect}) no longer answers as recorded: {tally.different} of {tally.compared} real "
        f"answers that could be compared differ from the dream's, {tally.new} in words never recorded"
    )


def figures(tallies: dict[str, ToolTally]) -> dict[str, JsonValue]:
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
