"""Who marks a checklist: the port, and the judge that needs no model, one mined tree for each pattern."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dreamgym_kit.canonical import digest
from dreamgym_kit.dream.checklist.cuts import mine_cuts
from dreamgym_kit.dream.checklist.features import Fields, facts_of, numbers_of, scene_facts
from dreamgym_kit.dream.checklist.labels import Example
from dreamgym_kit.dream.checklist.patterns import Candidate, Pattern, Scene, candidates_in
from dreamgym_kit.dream.state.trees import Case, Facts, Node, grow, predict

YES, NO = "match", "not match"


class Marks(Protocol):
    """Says of each candidate of a scene how likely it has to be."""

    def mark(self, scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
        """0..1 for each candidate, in their order. Pure: equal scenes get equal marks."""
        ...


@dataclass(frozen=True, slots=True)
class TreeMarks:
    """Implements `Marks` by trees over the facts around a candidate: several for a pattern, and their mean.

    Each is grown from other fillings and held to other worlds, so what only one of them believes is doubted.
    """

    fields: Fields
    trees: Mapping[Pattern, tuple[Node, ...]]

    def mark(self, scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
        """See `Marks.mark`."""
        shared = scene_facts(scene, self.fields)
        return [self._one(scene, candidate, shared) for candidate in candidates]

    def _one(self, scene: Scene, candidate: Candidate, shared: Facts) -> float:
        trees = self.trees.get(candidate.pattern, ())
        if not trees:
            return 0.0
        facts = facts_of(scene, candidate, self.fields, shared)
        return sum(_likely(tree, facts) for tree in trees) / len(trees)


def _likely(tree: Node, facts: Facts) -> float:
    said = predict(tree, facts)
    return said.purity if said.form == YES else 1 - said.purity


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
    fields: Fields, patterns: Sequence[Pattern], fillings: Sequence[Sequence[Example]]
) -> TreeMarks:
    """Mine trees for each pattern, one from each group of filled examples; `fields` have their cuts."""
    trees: dict[Pattern, list[Node]] = defaultdict(list)
    for number, examples in enumerate(fillings):
        cases: dict[Pattern, list[Case]] = defaultdict(list)
        for example in examples:
            world = f"{digest([number, example.world])[:8]} {example.world}"  # other trees hold out others
            shared = scene_facts(example.scene, fields)
            for candidate in candidates_in(example.scene, patterns):
                said = YES if candidate.write in example.expected else NO
                cases[candidate.pattern].append(
                    Case(facts_of(example.scene, candidate, fields, shared), said, world)
                )
        for pattern, some in cases.items():
            trees[pattern].append(grow(some))
    return TreeMarks(fields, {pattern: tuple(some) for pattern, some in trees.items()})
