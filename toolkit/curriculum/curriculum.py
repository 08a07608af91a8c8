"""The curriculum of one training: chooses each draw's tasks from what all earlier draws saw.

A pure function of tasks, settings, seed and the records of earlier steps: it is told them when a training
goes on, and keeps nothing else. Implements `training.choosing.Chooser`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dreamgym_kit.curriculum.choosing import Pick, Standing, drawn, rests, score_of
from dreamgym_kit.curriculum.clusters import Clusters
from dreamgym_kit.curriculum.estimates import Doubt, Estimate, Evidence, estimated, evidence_of, pooled
from dreamgym_kit.curriculum.failures import failed_at
from dreamgym_kit.curriculum.records import (
    Draw,
    GroupSeen,
    draw_from_record,
    draw_to_record,
    seen_in,
)
from dreamgym_kit.plain import JsonValue
from dreamgym_kit.ports import Group
from dreamgym_kit.settings.model import CurriculumSettings
from dreamgym_kit.vocabulary import Task, Verdict

GIVEN_IMPOSSIBLE = 0.05
"""How likely a task that a person gave is impossible, before anything was seen of it."""
MADE_IMPOSSIBLE = 0.3
"""The same of one that was made: nobody has ever done it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumPlan:
    """What a curriculum works with.

    Attributes:
        tasks: those that were given to learn from, in their order.
        settings: of `[curriculum]`.
        per_step: tasks of a draw.
        seed: of the run.
        doubted: whether a task's verdicts are a model's word alone, which `judge_error` is for.
        clusters: which tasks are alike; the plan's tasks are added to it.
    """

    tasks: Sequence[Task]
    settings: CurriculumSettings
    per_step: int
    seed: int
    doubted: Callable[[Task], bool]
    clusters: Clusters


class Curriculum:
    """See `training.choosing.Chooser`."""

    def __init__(self, plan: CurriculumPlan) -> None:
        self._plan = plan
        self._draws: dict[int, list[Draw]] = {}
        self._picks: list[Pick] = []
        plan.clusters.add(plan.tasks)

    def restore(self, courses: Mapping[int, JsonValue]) -> None:
        """Take up what earlier legs remembered, by step."""
        self._draws = {step: [draw_from_record(one) for one in _list(told)] for step, told in courses.items()}

    def course(self, step: int) -> JsonValue:
        """What a later leg has to know of the step."""
        return [draw_to_record(draw) for draw in self._draws.get(step, [])]

    async def tasks(self, step: int, draw: int) -> list[Task]:
        """Choose the tasks of a draw; the first of a step forgets what an earlier try at it saw."""
        if draw == 1:
            self._draws[step] = []
        earlier = [group.task for one in self._draws[step] for group in one.groups]
        self._picks = drawn(
            self.standings(step),
            self._plan.per_step,
            settings=self._plan.settings,
            key=["curriculum", self._plan.seed, step, draw],
            without=earlier,
        )
        self._draws[step].append(Draw(draw))
        return [pick.task for pick in self._picks]

    def saw(self, step: int, groups: Sequence[Group]) -> frozenset[str]:
        """Keep what a draw came to; gives the tasks that are not learned from, for they may be impossible."""
        why = {pick.task.id: pick for pick in self._picks}
        seen = tuple(_seen(group, why[group.task]) for group in groups)
        now = self._draws[step][-1]
        self._draws[step][-1] = replace(now, groups=seen)
        estimates = self._estimates(step)
        left = frozenset(
            group.task for group in seen if estimates[group.task].impossible > self._plan.settings.doubtful
        )
        kept = tuple(replace(group, left_out=group.task in left) for group in seen)
        self._draws[step][-1] = replace(now, groups=kept)
        return left

    def standings(self, step: int) -> list[Standing]:
        """How each task stands before a draw of this step."""
        settings, met = self._plan.settings, self._met(step)
        return [
            Standing(
                task,
                estimate,
                score_of(estimate, settings.explore),
                rests(estimate, settings),
                met=met.get(task.id, 0),
            )
            for task, estimate in zip(self._plan.tasks, self._estimates(step).values(), strict=True)
        ]

    def _estimates(self, step: int) -> dict[str, Estimate]:
        """Of every task, from what was seen up to now, earlier draws of this step included."""
        plan = self._plan
        told = {at: draws for at, draws in self._draws.items() if at <= step}
        own = evidence_of(seen_in(told), step=step, half_life=plan.settings.half_life)
        likes, clusters = pooled(own, plan.clusters.of), plan.clusters.of
        found = {}
        for task in plan.tasks:
            mine = own.get(task.id, Evidence())
            theirs = likes.get(clusters[task.id], Evidence()) - mine
            found[task.id] = estimated(mine, theirs, self._doubt(task))
        return found

    def _doubt(self, task: Task) -> Doubt:
        error = self._plan.settings.judge_error if self._plan.doubted(task) else 0.0
        return Doubt(error, error, GIVEN_IMPOSSIBLE)

    def _met(self, step: int) -> dict[str, int]:
        """The step that each task was drawn in last."""
        return {
            group.task: at
            for at in sorted(self._draws)
            if at <= step
            for draw in self._draws[at]
            for group in draw.groups
        }


def _seen(group: Group, pick: Pick) -> GroupSeen:
    verdicts = [rollout.episode.verdict for rollout in group.rollouts]
    return GroupSeen(
        task=group.task,
        why=pick.why,
        score=round(pick.score, 6),
        success=verdicts.count(Verdict.SUCCESS),
        failure=verdicts.count(Verdict.FAILURE),
        undetermined=verdicts.count(Verdict.UNDETERMINED),
        failed_at=failed_at([rollout.episode for rollout in group.rollouts]),
    )


def _list(told: Any) -> list[Any]:
    return told if isinstance(told, list) else []
