"""Where failed episodes fail, and what a report says of a curriculum."""

import pytest
from curriculum.making_doubles import asking
from each_row import each_row

from dreamgym_kit.curriculum.records import DRAWS, Draw, GroupSeen, Made, failed_at, tool_of
from dreamgym_kit.errors import RunDirectoryError
from dreamgym_kit.report.training import curriculum_facts
from dreamgym_kit.report.training_text import facts_of_curriculum
from dreamgym_kit.training.records import CourseRecord
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Transition, Verdict

READS = ("find", "list")


def episode(verdict: Verdict, *calls: tuple[str, str] | tuple[str, str, str]) -> Episode:
    """Calls as (tool, argument) or (tool, argument, error)."""
    steps = tuple(
        Transition(
            Call(tool, {"id": argument}),
            Answer(error=error[0] if error else None),
            Effect.READ if tool in READS else Effect.WRITE,
            "e",
            place,
        )
        for place, (tool, argument, *error) in enumerate(calls, start=1)
    )
    return Episode("e", "t", 1, Environment(), verdict, "", steps)


GOOD = episode(Verdict.PASSED, ("find", "C1"), ("refund", "P1"), ("mail", "C1"))


@each_row(
    ("calls", "place", "siblings"),
    [
        ([("find", "C1"), ("refund", "P1")], "missing mail", [GOOD]),
        ([("find", "C1"), ("mail", "C1")], "missing refund", [GOOD]),
        ([("find", "C1"), ("refund", "P2"), ("mail", "C1")], "otherwise refund", [GOOD]),
        ([("find", "C1"), ("refund", "P1"), ("cancel", "O1"), ("mail", "C1")], "extra cancel", [GOOD]),
        ([("find", "C1"), ("refund", "P1", "no"), ("mail", "C1")], "refused refund", [GOOD]),
        ([("find", "C2"), ("refund", "P1"), ("mail", "C1")], "asks find", [GOOD]),
        ([("find", "C1"), ("refund", "P1"), ("find", "C1")], "ended refund", []),  # and where none was good
        ([("find", "C1", "no such")], "refused find", []),
        ([], None, []),
    ],
)
def test_an_episode_failed_where_it_did_otherwise_than_a_good_sibling_or_ended(
    calls: list, place: str | None, siblings: list
) -> None:
    assert failed_at([*siblings, episode(Verdict.FAILED, *calls)]) == ({} if place is None else {place: 1})
    assert failed_at([GOOD, episode(Verdict.INCONCLUSIVE, *calls)]) == {}
    assert place is None or tool_of(place) == place.split()[1]


FIRST = Draw(
    1,
    groups=(
        GroupSeen("a", "turn", 0.2, 3, 5, 0, failed_at={"missing refund": 4, "extra cancel": 1}),
        GroupSeen("b", "score", 0.2, 1, 7, 0, left_out=True, failed_at={"missing refund": 7}),
    ),
)
SECOND = Draw(
    1,
    groups=(
        GroupSeen("a~2.1", "score", 0.2, 0, 8, 0, left_out=True),  # would have taught nothing anyway
        GroupSeen("a", "score", 0.2, 8, 0, 0),
    ),
    made=(Made(asking("a~2.1", "Cancel O12."), "a", "rules"),),
    refused={"twice": 3},
    rests={"mastered": 1},
)
COURSES = [CourseRecord(1, [DRAWS.write(FIRST)]), CourseRecord(2, [DRAWS.write(SECOND)])]


def test_it_says_what_was_chosen_made_left_out_and_what_fails() -> None:
    assert curriculum_facts([]) is None
    facts = curriculum_facts(COURSES)
    assert dict(facts_of_curriculum(facts)) == {
        "curriculum": "4 groups of 3 tasks, 25 % in turn; resting: 1 mastered; left out as perhaps "
        "impossible: 1 groups",
        "made tasks": "1 by rules, in 25 % of the groups; not taken: 3 twice",
        "fails at": "missing refund 11, extra cancel 1 (episodes)",
    }
    assert facts.failed_at == {"missing refund": 11, "extra cancel": 1}


def test_a_line_that_is_no_record_is_named_with_its_step() -> None:
    with pytest.raises(RunDirectoryError, match="step 3 is not a record of a curriculum"):
        curriculum_facts([CourseRecord(3, [{"drew": 1}])])
