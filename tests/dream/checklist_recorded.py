"""Recorded clinics, ready to learn a checklist from."""

from functools import cache
from typing import NamedTuple

from dream.checklist_clinic import Clinic

from dreamgym_kit.dream.checklist.checklist import Checklist
from dreamgym_kit.dream.checklist.labels import Work, worlds_of
from dreamgym_kit.dream.checklist.learning import Lessons, lessons_of, tree_marks
from dreamgym_kit.dream.checklist.things import Things
from dreamgym_kit.dream.state.history import Step
from dreamgym_kit.vocabulary import Transition


class Recorded(NamedTuple):
    """What was recorded, and what was learned of it."""

    works: tuple[Work, ...]
    rows: tuple[Transition, ...]
    worlds: dict[str, Things]
    lessons: Lessons
    checklist: Checklist


def advances(step: Step) -> bool:
    """In the clinic whatever writes changes something, unless it says that it failed."""
    return step.writes and not step.failed


@cache
def recorded(worlds: int = 90) -> Recorded:
    """So many clinics, each worked by somebody careful and by somebody hasty, and crawled."""
    clinics = [Clinic(seed) for seed in range(worlds)]
    works = tuple(one.worked(number, hasty=number == 2) for one in clinics for number in (1, 2))
    rows = tuple(row for work in works for row in work.transitions)
    rows += tuple(row for one in clinics for row in one.crawled())
    known = worlds_of(rows, advances)
    lessons = lessons_of(works, known, advances)
    return Recorded(works, rows, known, lessons, lessons.checklist(tree_marks))
