"""From recorded work to a checklist: mined wordings and patterns, filled examples, trees that mark.

Nothing here is written by hand and no model is asked: success is what was recorded as success.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.checklist.checklist import Checklist, arguments_that_do_not_matter, writes_of
from dreamgym_kit.dream.checklist.completing import Donors, many_filled
from dreamgym_kit.dream.checklist.features import Fields, fields_of
from dreamgym_kit.dream.checklist.labels import (
    Example,
    Work,
    accepted,
    examples_of,
    looks_of,
    mined_wordings,
    patterns_seen,
)
from dreamgym_kit.dream.checklist.marks import Marks, grow_marks, with_cuts
from dreamgym_kit.dream.checklist.patterns import Pattern, Write, mine_patterns
from dreamgym_kit.dream.checklist.things import Advances, Things
from dreamgym_kit.dream.checklist.wording import Wordings

FILLINGS = 8
"""How often each example is filled, each time otherwise."""
TREES = 4
"""How many times trees are grown, each time from other fillings."""
_MOST_FILLED = 6_000  # examples to grow trees from


@dataclass(frozen=True, slots=True)
class Lessons:
    """All that a marking judge learns from."""

    wordings: Wordings
    patterns: tuple[Pattern, ...]
    examples: tuple[Example, ...]  # as recorded
    fillings: tuple[tuple[Example, ...], ...]  # each time all of them, with what nobody read drawn anew
    fields: Fields  # with their cuts
    free: frozenset[tuple[str, str]]
    looks: Mapping[str, frozenset[str]]

    def checklist(self, teacher: "Teacher") -> Checklist:
        """The checklist that somebody marks who was taught by these."""
        return Checklist(self.wordings, self.patterns, teacher(self), self.free, self.looks)


def lessons_of(
    works: Sequence[Work], worlds: Mapping[str, Things], advances: Advances, *, seed: int = 0
) -> Lessons:
    """What recorded work teaches; `worlds` hold what all recordings of each world tell."""
    wordings = mined_wordings(works, worlds.values())
    patterns = mine_patterns(patterns_seen(works, worlds, wordings, advances))
    examples = examples_of(works, worlds, wordings, advances)
    copies = max(1, min(FILLINGS, _MOST_FILLED // max(1, len(examples))))
    fillings = many_filled(examples, Donors(worlds.values()), copies, seed=seed)
    every = [example for filling in fillings for example in filling]
    fields = with_cuts(fields_of(worlds.values()), patterns, every, copies=copies)
    free, looks = _free(works, advances), looks_of(works, wordings, advances)
    return Lessons(wordings, patterns, tuple(examples), fillings, fields, free, looks)


Teacher = Callable[[Lessons], Marks]
"""Makes a marking judge of lessons."""


def tree_marks(lessons: Lessons) -> Marks:
    """The judge that needs no model."""
    grouped = [lessons.fillings[tree::TREES] for tree in range(min(TREES, len(lessons.fillings)))]
    return grow_marks(lessons.fields, lessons.patterns, grouped)


def _free(works: Iterable[Work], advances: Advances) -> frozenset[tuple[str, str]]:
    ways: dict[str, set[frozenset[Write]]] = defaultdict(set)
    for work in works:
        if work.success:
            ways[work.task].add(frozenset(writes_of(accepted(work.transitions, advances))))
    return arguments_that_do_not_matter({task: sorted(sets, key=sorted) for task, sets in ways.items()})
