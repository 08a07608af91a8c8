"""Who marks a checklist: the port, and the judge that needs no model, by trees grown from recorded work."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from dreamgym_kit.dream.checklist.cuts import mine_cuts
from dreamgym_kit.dream.checklist.features import SAYS, Fields, numbers_of, own_seen, scene_seen
from dreamgym_kit.dream.checklist.growing import Branch, Case, Seen, grow, likely
from dreamgym_kit.dream.checklist.labels import Example
from dreamgym_kit.dream.checklist.patterns import Candidate, Pattern, Scene, candidates_in


class Marks(Protocol):
    """Says of each candidate of a scene how likely it has to be."""

    def mark(self, scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
        """0..1 for each candidate, in their order. Pure: equal scenes get equal marks."""
        ...


Form = frozenset[Pattern | None]
"""What a request comes to: the patterns of all its writes; None stands for one that no pattern makes."""


class Grown(NamedTuple):
    """Trees of one group of fillings: which form a scene has, and which things a pattern of it is for."""

    form: Branch
    which: Mapping[Pattern, Branch]


@dataclass(frozen=True, slots=True)
class TreeMarks:
    """Implements `Marks` by trees, several and their mean.

    What belongs together is told together, so few examples go far: first the form of the whole list, from
    the facts of the scene; then, where a pattern fits several things, which of them, from their own facts.
    Each group of trees is grown from other fillings, so what only one of them believes is doubted.
    """

    fields: Fields
    grown: tuple[Grown, ...]

    def mark(self, scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
        """See `Marks.mark`."""
        facts = scene_seen(scene, self.fields)
        counts = Counter(one.pattern for one in candidates)
        there = {
            pattern: [likely(trees.form, facts, partial(_fits, pattern)) for trees in self.grown]
            for pattern in counts
        }
        marks = []
        for one in candidates:
            sure = there[one.pattern]
            if counts[one.pattern] > 1:
                own = own_seen(scene, one, self.fields)
                sure = [mark * _is_one(trees, one, own) for mark, trees in zip(sure, self.grown, strict=True)]
            marks.append(sum(sure) / len(sure) if sure else 0.0)
        return marks


def _is_one(trees: Grown, candidate: Candidate, facts: Seen) -> float:
    tree = trees.which.get(candidate.pattern)
    return 1.0 if tree is None else likely(tree, facts, lambda said: float(said is True))


def _fits(pattern: Pattern, form: Hashable) -> float:
    """Whether a form has a pattern; of one that has more than can be named nobody can tell."""
    assert isinstance(form, frozenset)
    return 0.5 if None in form else float(pattern in form)


def with_cuts(
    fields: Fields, patterns: Sequence[Pattern], examples: Sequence[Example], *, copies: int = 1
) -> Fields:
    """The fields with their numbers cut where that tells what matches."""
    cases = (
        (
            key,
            str(candidate.pattern),
            (number, example.scene.reading.wording, candidate.write in example.expected),
        )
        for example in examples
        for candidate in candidates_in(example.scene, patterns)
        for key, number in numbers_of(example.scene, candidate, fields)
    )
    return replace(fields, cuts=mine_cuts(cases, copies=copies))


def grow_marks(
    fields: Fields, patterns: Sequence[Pattern], fillings: Sequence[Sequence[Sequence[Example]]]
) -> TreeMarks:
    """Mine trees from each group of fillings; numbers are told as such."""
    told = replace(fields, cuts={})
    return TreeMarks(told, tuple(_grown(told, patterns, group) for group in fillings))


def _grown(fields: Fields, patterns: Sequence[Pattern], group: Sequence[Sequence[Example]]) -> Grown:
    forms: list[Case] = []
    which: dict[Pattern, list[Case]] = defaultdict(list)
    for example in (example for filling in group for example in filling):
        candidates = candidates_in(example.scene, patterns)
        counts = Counter(one.pattern for one in candidates)
        made = {one.write: one.pattern for one in candidates}
        form = frozenset(made.get(write) for write in example.expected)
        forms.append(Case(scene_seen(example.scene, fields), form))
        for one in candidates:
            if one.pattern in form and counts[one.pattern] > 1:
                facts = own_seen(example.scene, one, fields)
                which[one.pattern].append(Case(facts, one.write in example.expected))
    copies = len(group)
    return Grown(
        grow(forms, copies=copies, first=(SAYS,)),
        {pattern: grow(some, copies=copies) for pattern, some in which.items()},
    )
