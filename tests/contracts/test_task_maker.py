"""What every maker of tasks promises (`interfaces.TaskMaker`): rules of a world, and a chat model."""

from collections.abc import Callable

from curriculum.making_doubles import asking
from deciding_double import ScriptedChatDouble
from each_row import each_row

from dreamgym_kit.curriculum.makers import ModelMaker, RuleMaker
from dreamgym_kit.errors import EndpointError
from dreamgym_kit.interfaces import Pattern, TaskMaker
from dreamgym_kit.recipes.desk.checkers import goal, request_text
from dreamgym_kit.recipes.desk.tasks import drawn_tasks, like
from dreamgym_kit.types import Task

DESK = drawn_tasks(18)
PATTERNS = [
    Pattern(
        task,
        0.4,
        {"missing create_ticket": 2},
        ("O11",),
        tuple(dict.fromkeys(one.environment for one in DESK)),
    )
    for task in DESK
]


def by_rules() -> TaskMaker:
    return RuleMaker(like, "desk")


def by_model() -> TaskMaker:
    proposed = {"variations": ["Cancel O11.", "Cancel it all."]}
    return ModelMaker(ScriptedChatDouble(proposed, {"reasoning": "it is harder", "selection": 2}))


@each_row("made", [by_rules, by_model])
@each_row("pattern", PATTERNS[:9], ids=lambda one: str(one.task.meta["family"]))
async def test_it_gives_no_more_than_asked_for_and_the_same_when_asked_again(
    made: Callable[[], TaskMaker], pattern: Pattern
) -> None:
    first, again = await made().like(pattern, 3, seed=5), await made().like(pattern, 3, seed=5)
    assert first == again
    assert 1 <= len(first) <= 3
    assert all(isinstance(task, Task) for task in first)
    assert all(set(task.input) == set(pattern.task.input) for task in first)


@each_row(
    "maker",
    [
        RuleMaker(like, "desk"),
        ModelMaker(ScriptedChatDouble(EndpointError("timeout", "gone"))),
    ],
)
async def test_where_it_has_no_idea_it_gives_nothing(maker: TaskMaker) -> None:
    assert await maker.like(Pattern(asking("a", "Sing a song.", 1_000_000_000)), 3, seed=0) == []


def test_the_desk_is_asked_for_other_things_than_the_patterns_own_that_a_good_colleague_can_do() -> None:
    for pattern in PATTERNS:
        made = like(pattern, 4, 1)
        assert any(request_text(task.input) != request_text(pattern.task.input) for task in made)
        for task in made:
            assert task.environment in pattern.environments
            assert task.meta == pattern.task.meta
            goal(task.environment.variant, request_text(task.input))  # the checker knows what is right
