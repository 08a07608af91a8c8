"""The form of a tool's answers, as recordings have it, and how rarely an unchanged tool leaves it.

An answer leaves it that breaks the schema of what was recorded, or that says, at a closed place, a word that
nobody recorded there. A place is closed where many recorded answers say few words: the states of an order,
the tiers of customers. Numbers are no words: a new one is no news.

How rare that is without a change is tried on the recordings themselves, with all that is read off them read
anew: a word is held against the answers of other worlds (of other calls, where one world only was recorded),
a schema against the other half of them. Siblings that asked the same in the same state count once. Whether a
place that looks closed is closed is the same question for all tools, so their answers to it are put together;
a tool in which one was not is taken at its own.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.passing import passes
from dreamgym_kit.dream.state.observed import observation
from dreamgym_kit.dream.state.values import walk
from dreamgym_kit.vocabulary import Answer, Provenance, ToolSpec, Transition

_MOST_WORDS = 12  # of a closed place
_LEAST_EACH = 10  # answers for each of its words, on average
_LEAST_NEW = 0.02  # no rarer than that: forms of a quarter of the desk miss up to .013 of its other answers

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
        return any(said not in self.closed.get(place, (said,)) for place, said in _words(answer))

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
        looked = [one for one in self._tools.values() if one.closed]
        asked, new = sum(one.asked for one in looked), sum(len(one.new) for one in looked)
        self._new = max(_LEAST_NEW, (new + 1) / (asked + 2))

    def of(self, spec: ToolSpec) -> Form:
        """The form of a tool's answers."""
        known = self._tools.get(spec.name)
        if known is None:
            return Form()
        schema, broken = schema_for(spec, [row.answer for row in known.rows]), known.broken(spec)
        if schema is None or broken is None:
            return Form()
        strange = (len(known.new | broken) + 1) / (known.asked + 2)
        own = (len(known.new) + 1) / (known.asked + 2) if known.new else 0.0
        return Form(schema, known.closed, strange, max(self._new, own) if known.closed else 1.0)


class _Recorded:
    """What was recorded of one tool."""

    def __init__(self, rows: Sequence[Transition]) -> None:
        self.rows = [
            row for row in rows if row.answer.provenance is Provenance.REAL and not passes(row.answer)
        ]
        self._asked: list[Hashable] = [
            (row.tenant, row.world, row.after, row.call.key) for row in self.rows
        ]  # the call, and the state that it met
        several = len({row.world for row in self.rows}) > 1
        self._part: dict[Hashable, Hashable] = {
            asked: row.world if several else asked for asked, row in zip(self._asked, self.rows, strict=True)
        }
        said: dict[Hashable, set[Word]] = {asked: set() for asked in self._part}
        for asked, row in zip(self._asked, self.rows, strict=True):
            said[asked] |= _words(row.answer)
        everywhere = _Places(said.values())
        self.asked = len(said)
        self.closed = {
            place: everywhere.words(place) for place in everywhere.answers if everywhere.closed(place)
        }
        self.new = self._new(said, everywhere)

    def broken(self, spec: ToolSpec) -> set[Hashable] | None:
        """What was asked where answers break the schema of the other half; None: half is too few for one."""
        place = {part: number for number, part in enumerate(dict.fromkeys(self._part.values()))}
        halves: tuple[list[int], list[int]] = ([], [])
        for number, asked in enumerate(self._asked):
            halves[place[self._part[asked]] % 2].append(number)
        found: set[Hashable] = set()
        for inside, outside in (halves, halves[::-1]):
            schema = schema_for(spec, [self.rows[number].answer for number in inside])
            if schema is None:
                return None
            broken = (number for number in outside if schema.breaks(self.rows[number].answer) is not None)
            found |= {self._asked[number] for number in broken}
        return found

    def _new(self, said: Mapping[Hashable, set[Word]], everywhere: "_Places") -> set[Hashable]:
        """What was asked where answers say what no other part says, at a place closed without them."""
        members: dict[Hashable, list[Hashable]] = defaultdict(list)
        for asked, part in self._part.items():
            members[part].append(asked)
        found = set()
        for inside in members.values():
            own = _Places([said[asked] for asked in inside])
            alone = {
                word
                for word, count in own.said.items()
                if everywhere.said[word] == count and everywhere.closed(word[0], own)
            }
            found |= {asked for asked in inside if not alone.isdisjoint(said[asked])}
        return found


class _Places:
    """What is said where, and how often that was asked for."""

    def __init__(self, answers: Collection[Set[Word]]) -> None:
        self.said = Counter(word for words in answers for word in words)
        self.answers = Counter(place for words in answers for place in {place for place, _ in words})
        self._words: dict[str, set[str | bool]] = defaultdict(set)
        for place, said in self.said:
            self._words[place].add(said)

    def words(self, place: str) -> frozenset[str | bool]:
        return frozenset(self._words[place])

    def closed(self, place: str, without: "_Places | None" = None) -> bool:
        """Whether many answers say few words there; those of `without` are left out."""
        words, answers = len(self._words[place]), self.answers[place]
        if without is not None:
            here = without.words(place)
            words -= sum(self.said[place, said] == without.said[place, said] for said in here)
            answers -= without.answers[place]
        return 0 < words <= _MOST_WORDS and answers >= _LEAST_EACH * words


def _words(answer: Answer) -> frozenset[Word]:
    """Each text and truth value in an answer, with its place; items of a list share one."""
    return frozenset(
        (".".join("*" if isinstance(part, int) else str(part) for part in path), value)
        for path, value in walk(observation(answer))
        if isinstance(value, (str, bool))
    )
