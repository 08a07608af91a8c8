"""The closed words that calls, facts and decisions are told in: fixed when a model is taught, kept beside it.

A fact is worth a word where its values are few and recur in several worlds; a number goes into the steps
between the cuts that the mined tree of its tool uses. What is open (ids, names, amounts) has no word, and is
said only by what code compares it with. A value that was never seen is "other".
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dreamgym_kit.dream.learned.facts import Facts
from dreamgym_kit.dream.state.values import MISSING, add, as_number
from dreamgym_kit.serialization import JsonValue

OK = "ok"
"""The outcome of a call that went well; failures are "refused_1", "refused_2" ... of their tool."""
OTHER = "other"
OPEN = "~"
"""Where a change's new value is none of a few and none that an argument tells: code tells it, or nobody."""
POINTERS = ("plus:", "minus:", "arg:")
"""A change's new value told by an argument: what was there with it added or taken away, or the argument."""

_GAP = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class FactWords:
    """How one fact of one tool is told: one of a few values, or a step between cuts."""

    values: tuple[str, ...] = ()
    cuts: tuple[float, ...] = ()  # ascending

    def word(self, value: JsonValue) -> str:
        """The word for a value."""
        if self.cuts:
            number = as_number(value)
            return OTHER if number is None else step_word(self.cuts, bisect_right(self.cuts, number))
        text = value_word(value)
        return text if text in self.values else OTHER

    def words(self) -> Iterator[str]:
        """All that it can say."""
        yield from self.values
        if self.cuts:
            yield from (step_word(self.cuts, place) for place in range(len(self.cuts) + 1))
        yield OTHER


@dataclass(frozen=True, slots=True)
class ToolWords:
    """What can be said of one tool's calls.

    Attributes:
        facts: by name, in the order in which they are told.
        refusals: the forms of its failures (`outcomes.form_of_failure`), the commonest first.
        changes: by changed fact ("order.status"), the words for its new value.
    """

    facts: Mapping[str, FactWords] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    changes: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)

    def outcome(self, form: str | None) -> str | None:
        """The word for an outcome: `form` of a failure, None of a success; None for one that has no word."""
        if form is None:
            return OK
        return f"refused_{self.refusals.index(form) + 1}" if form in self.refusals else None

    def form(self, outcome: str) -> str | None:
        """The form of the failure that a word means.

        Raises:
            KeyError: no such word.
        """
        if outcome == OK:
            return None
        forms = {f"refused_{place}": form for place, form in enumerate(self.refusals, 1)}
        return forms[outcome]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of all tools."""

    tools: Mapping[str, ToolWords] = field(default_factory=dict)

    def record(self, tool: str, facts: Facts) -> tuple[str, ...]:
        """A call as it is told: the tool, then each fact that has words, as name and value.

        Raises:
            KeyError: nothing was learned of the tool.
        """
        parts = [tool]
        for name, words in self.tools[tool].facts.items():
            if name in facts:
                parts += [name, words.word(facts[name])]
        return tuple(parts)

    def words(self) -> tuple[str, ...]:
        """Every word that stands in a record or a decision, each once, always in the same order."""
        all_words: dict[str, None] = dict.fromkeys(MARKS)
        for tool in sorted(self.tools):
            known = self.tools[tool]
            all_words[tool] = None
            for name, words in known.facts.items():
                all_words[name] = None
                all_words.update(dict.fromkeys(words.words()))
            all_words.update(dict.fromkeys((OK, *(f"refused_{at + 1}" for at in range(len(known.refusals))))))
            for name, values in known.changes.items():
                all_words[name] = None
                all_words.update(dict.fromkeys(values))
        return tuple(all_words)


ARROW, SET, UNKNOWN = "=>", "set", "unknown"
MARKS = (ARROW, SET, UNKNOWN, OPEN, OTHER)


def value_word(value: JsonValue) -> str:
    """A value as one word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _GAP.sub("_", "null" if value is None else str(value)) or "empty"


def pointed(word: str, args: Mapping[str, JsonValue], old: object) -> object:
    """The value that a word with an argument in it stands for; MISSING where something it needs is not known.

    `old`: what the fact was before; MISSING where nobody knows.
    """
    sign, _, name = word.partition(":")
    if name not in args:
        return MISSING
    if sign == "arg":
        return args[name]
    if old is MISSING:
        return MISSING
    value: object = add(old, args[name], -1 if sign == "minus" else 1)
    return value


def is_pointed(word: str) -> bool:
    """Whether a word tells a value by an argument."""
    return word.startswith(POINTERS)


def step_word(cuts: tuple[float, ...], place: int) -> str:
    """A step between cuts as one word: "<15", ">=15"; each names the cut below it."""
    return f"<{cuts[0]:g}" if place == 0 else f">={cuts[place - 1]:g}"


def vocabulary_to_json(known: Vocabulary) -> dict[str, JsonValue]:
    """As JSON."""
    return {
        tool: {
            "facts": {
                name: {"values": list(fact.values), "cuts": list(fact.cuts)}
                for name, fact in words.facts.items()
            },
            "refusals": list(words.refusals),
            "changes": {name: dict(values) for name, values in words.changes.items()},
        }
        for tool, words in known.tools.items()
    }


def vocabulary_from_json(record: Mapping[str, JsonValue]) -> Vocabulary:
    """From JSON.

    Raises:
        KeyError, TypeError, AttributeError: it is not what `vocabulary_to_json` writes.
    """
    return Vocabulary(
        {
            tool: ToolWords(
                facts={
                    name: FactWords(tuple(map(str, fact["values"])), tuple(map(float, fact["cuts"])))
                    for name, fact in words["facts"].items()
                },
                refusals=tuple(map(str, words["refusals"])),
                changes={name: dict(values) for name, values in words["changes"].items()},
            )
            for tool, words in record.items()
        }
    )
