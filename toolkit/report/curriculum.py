"""What a training's curriculum did, from its records: what was chosen, made and left out, and what fails."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dreamgym_kit.curriculum.making import MARK
from dreamgym_kit.curriculum.records import DRAWS, TURN, Draw
from dreamgym_kit.errors import RunDirectoryError, UserError
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.report.whole import whole_percent
from dreamgym_kit.training.records import COURSES, CourseRecord

_MOST = 4  # places of failure that are told


@dataclass(frozen=True, slots=True)
class CurriculumFacts:
    """The figures of all draws together."""

    groups: int = 0
    tasks: int = 0  # met
    in_turn: int = 0  # groups drawn because their turn had come
    of_made: int = 0  # groups of tasks that were made
    left_out: int = 0  # groups that differ, of tasks that may be impossible all the same
    made: Mapping[str, int] = field(default_factory=dict)  # how -> tasks
    refused: Mapping[str, int] = field(default_factory=dict)  # why -> tasks that were made and not taken
    rests: Mapping[str, int] = field(default_factory=dict)  # why -> tasks, before the last draw
    failed_at: Mapping[str, int] = field(default_factory=dict)  # place -> episodes, most first

    def to_json(self) -> dict[str, JsonValue]:
        """The same for machines."""
        return {
            "groups": self.groups,
            "tasks": self.tasks,
            "in_turn": self.in_turn,
            "of_made": self.of_made,
            "left_out": self.left_out,
            "made": dict(self.made),
            "refused": dict(self.refused),
            "rests": dict(self.rests),
            "failed_at": dict(self.failed_at),
        }


def curriculum_facts(courses: Sequence[CourseRecord]) -> CurriculumFacts | None:
    """Add up what the steps' records say; None where tasks went in turn.

    Raises:
        RunDirectoryError: one is no record of a curriculum.
    """
    draws = list(_draws(courses))
    if not draws:
        return None
    groups = [group for draw in draws for group in draw.groups]
    made, refused, failed = Counter[str](), Counter[str](), Counter[str]()
    for draw in draws:
        made.update(one.how for one in draw.made)
        refused.update(draw.refused)
    for group in groups:
        failed.update(group.failed_at)
    return CurriculumFacts(
        groups=len(groups),
        tasks=len({group.task for group in groups}),
        in_turn=sum(group.why == TURN for group in groups),
        of_made=sum(MARK in group.task for group in groups),
        left_out=sum(group.left_out and group.success > 0 < group.failure for group in groups),
        made=dict(made),
        refused=dict(refused.most_common()),
        rests=dict(draws[-1].rests),
        failed_at=dict(failed.most_common()),
    )


def facts_of_curriculum(facts: CurriculumFacts) -> Iterator[tuple[str, str]]:
    """Label and text of each line."""
    yield "curriculum", _chosen(facts)
    if facts.made or facts.refused:
        yield "made tasks", _made(facts)
    if facts.failed_at:
        places = list(facts.failed_at.items())[:_MOST]
        yield "fails at", f"{', '.join(f'{place} {count}' for place, count in places)} (episodes)"


def _chosen(facts: CurriculumFacts) -> str:
    told = f"{facts.groups:,} groups of {facts.tasks:,} tasks, {_share(facts.in_turn, facts)} in turn"
    if any(facts.rests.values()):
        told += f"; resting: {', '.join(f'{count} {why}' for why, count in facts.rests.items())}"
    if facts.left_out:
        told += f"; left out as perhaps impossible: {facts.left_out} groups"
    return told


def _made(facts: CurriculumFacts) -> str:
    who = {"rules": "by rules", "model": "by a model"}
    made = ", ".join(f"{count} {who.get(how, how)}" for how, count in facts.made.items())
    told = f"{made or 'none'}, in {_share(facts.of_made, facts)} of the groups"
    if facts.refused:
        not_taken = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in facts.refused.items())
        told += f"; not taken: {not_taken}"
    return told


def _share(count: int, facts: CurriculumFacts) -> str:
    return f"{whole_percent(count / facts.groups) if facts.groups else 0} %"


def _draws(courses: Sequence[CourseRecord]) -> Iterator[Draw]:
    for course in courses:
        told = course.course if isinstance(course.course, list) else []
        for one in told:
            try:
                yield DRAWS.read(one)
            except (KeyError, TypeError, ValueError, UserError) as error:
                raise RunDirectoryError(
                    f"{COURSES}: step {course.step} is no record of a curriculum: {error}."
                ) from None
