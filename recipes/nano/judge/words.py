"""A scene and its candidates in closed words, a token for each: facts first, then the candidates.

A fact is one word, a candidate is the word of its pattern and the words of its own facts. The mark is read
at the last word of each candidate, of all in one pass; what a candidate is followed by is never its mark,
so the next one does not see it. Words that lessons did not have are left out.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.checklist.features import OWN, Fields, facts_of, scene_facts
from dreamgym_kit.dream.checklist.labels import Example
from dreamgym_kit.dream.checklist.patterns import Candidate, Pattern, Scene, candidates_in
from dreamgym_kit.dream.state.trees import Feature

MATCH, NOT = "match", "not_match"
_LEAST = 2  # examples that must have a word


@dataclass(frozen=True, slots=True)
class Asked:
    """A scene in words: what all candidates share, and each of them."""

    shared: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]


def in_words(scene: Scene, candidates: Sequence[Candidate], fields: Fields) -> Asked:
    """Spell a scene and its candidates."""
    shared = scene_facts(scene, fields)
    return Asked(
        tuple(_words(shared)),
        tuple(
            (_pattern_word(one.pattern), *_words(_own(facts_of(scene, one, fields, shared))))
            for one in candidates
        ),
    )


def vocabulary(examples: Iterable[Example], patterns: Sequence[Pattern], fields: Fields) -> list[str]:
    """The words of these examples that recur, in an order of their own."""
    counts: Counter[str] = Counter()
    for example in examples:
        asked = in_words(example.scene, candidates_in(example.scene, patterns), fields)
        counts.update({*asked.shared, *(word for one in asked.candidates for word in one)})
    return [MATCH, NOT, *sorted(word for word, count in counts.items() if count >= _LEAST)]


def _own(facts: Mapping[Feature, Hashable]) -> dict[Feature, Hashable]:
    return {feature: value for feature, value in facts.items() if feature[0] == OWN}


def _words(facts: Mapping[Feature, Hashable]) -> list[str]:
    return sorted(_word("/".join(feature), value) for feature, value in facts.items())


def _word(name: str, value: Hashable) -> str:
    told = name if value is True else f"{name}={value}"
    return told.replace(" ", "_")


def _pattern_word(pattern: Pattern) -> str:
    return str(pattern).replace(" ", "_")
