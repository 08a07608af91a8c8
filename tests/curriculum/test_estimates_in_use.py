"""What a curriculum makes of the groups that it saw."""

from curriculum.making_doubles import asking

from dreamgym_kit.curriculum.curriculum import Curriculum, CurriculumPlan
from dreamgym_kit.curriculum.task_sampler import Clusters
from dreamgym_kit.interfaces import Group, Rollout
from dreamgym_kit.settings.schema import CurriculumSettings
from dreamgym_kit.types import Episode, Task, Verdict

TASKS = [asking(name, name, meta={"family": name[0]}) for name in ("a1", "a2", "b1", "b2")]


def curriculum(*, error: float = 0.0, **more: object) -> Curriculum:
    settings = CurriculumSettings(enabled=True, round_robin_share=0.0)
    plan = CurriculumPlan(
        tasks=TASKS,
        settings=settings,
        per_step=4,
        seed=0,
        error=lambda _: error,
        clusters=Clusters("family", None),
        **more,
    )
    return Curriculum(plan)


def group(task: Task, success: int, failure: int, inconclusive: int = 0) -> Group:
    verdicts = [Verdict.PASSED] * success + [Verdict.FAILED] * failure
    verdicts += [Verdict.INCONCLUSIVE] * inconclusive
    return Group(
        task.id,
        tuple(
            Rollout(Episode(f"{task.id}.{place}", task.id, place, task.environment, verdict, ""))
            for place, verdict in enumerate(verdicts, start=1)
        ),
    )


async def seen(told: Curriculum, step: int, *groups: tuple[int, ...]) -> frozenset[str]:
    await told.tasks(step, 1)
    return told.saw(step, [group(task, *counts) for task, counts in zip(TASKS, groups, strict=True)])


async def test_a_groups_outcome_moves_its_task_most_and_its_likes_a_little() -> None:
    told = curriculum()
    await seen(told, 1, (8, 0), (0, 0, 8), (0, 8), (0, 0, 8))
    means = {one.task.id: one.estimate.mean for one in told.standings(2)}
    assert means["a1"] > means["a2"] > 0.5 > means["b2"] > means["b1"]


async def test_a_task_whose_episodes_nobody_can_judge_is_drawn_less() -> None:
    told = curriculum()
    await seen(told, 1, (4, 4), (1, 1, 6), (0, 0, 8), (4, 4))
    scores = {one.task.id: one.score for one in told.standings(2)}
    assert scores["a2"] < 0.6 * scores["a1"]
    assert scores["b1"] < 0.4 * scores["b2"]


async def test_where_no_siblings_are_compared_a_task_promises_what_its_cluster_does() -> None:
    alone, together = curriculum(), curriculum(by_cluster=True)
    for told in (alone, together):
        await seen(told, 1, (8, 0), (0, 8), (8, 0), (8, 0))
    scores = {one.task.id: one.score for one in together.standings(2)}
    assert scores["a1"] == scores["a2"] > 3 * scores["b1"]
    assert {one.task.id: one.score for one in alone.standings(2)}["a1"] < 0.6 * scores["a1"]


async def test_a_group_that_a_judges_errors_explain_is_not_learned_from() -> None:
    erring, sure = curriculum(error=0.05), curriculum()
    outcomes = ((1, 7), (4, 4), (1, 7), (8, 0))
    assert await seen(erring, 1, *outcomes) == {"a1", "b1"}
    assert await seen(sure, 1, *outcomes) == frozenset()


async def test_a_step_that_is_made_anew_forgets_what_the_first_try_saw() -> None:
    told = curriculum()
    await seen(told, 1, (8, 0), (8, 0), (8, 0), (8, 0))
    first = told.course(1)
    await seen(told, 1, (8, 0), (8, 0), (8, 0), (8, 0))
    assert told.course(1) == first


async def test_what_is_restored_chooses_as_what_was_never_interrupted() -> None:
    whole, resumed = curriculum(), curriculum()
    for step in (1, 2):
        await seen(whole, step, (8, 0), (4, 4), (0, 8), (2, 6))
    resumed.restore({step: whole.course(step) for step in (1, 2)})
    assert resumed.standings(3) == whole.standings(3)
    assert await resumed.tasks(3, 1) == await whole.tasks(3, 1)


async def test_a_family_that_nobody_can_do_is_not_learned_from_for_a_judges_slips() -> None:
    """Its likes all fail: "very hard" explains slips as well as "impossible" does, and would be learned."""
    told = curriculum(error=0.05)
    for step in range(1, 13):
        slips = (int(step % 3 == 1), int(step % 3 == 2))  # of 8 verdicts, one in 24
        left = await seen(told, step, (4, 4), (5, 3), *((slip, 8 - slip) for slip in slips))
    assert left == {"b1", "b2"}
    told = curriculum(error=0.05)
    for step in range(1, 7):
        assert "b1" not in await seen(told, step, (4, 4), (5, 3), (4, 4), (0, 8))  # one that is done is none
    assert not await seen(curriculum(), 1, (4, 4), (5, 3), (1, 7), (0, 8))  # a checker's word stands
