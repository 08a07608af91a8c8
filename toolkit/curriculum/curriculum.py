"""The curriculum of one training: chooses each draw's tasks from what all earlier draws saw.

A pure function of tasks, settings, seed and the records of earlier steps: it is told them when a training
goes on, and keeps nothing else. Implements `training.plan.TaskChooser`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from dreamgym_kit.canonical import digest
from dreamgym_kit.curriculum.making import Workshop, patterns_of
from dreamgym_kit.curriculum.records import (
    DRAWS,
    Draw,
    GroupSeen,
    Made,
    Seen,
    conclusive_shares,
    failed_at,
    failures_of,
)
from dreamgym_kit.curriculum.task_sampler import (
    Clusters,
    Doubt,
    Estimate,
    Pick,
    SeenOutcomes,
    Standing,
    drawn,
    estimated,
    evidence_of,
    pooled,
    rests,
    score_of,
)
from dreamgym_kit.interfaces import Group
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import CurriculumSettings
from dreamgym_kit.types import Task, Verdict

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
        error: share of a task's verdicts that are wrong; 0 where a checker's word is taken as it is.
        clusters: which tasks are alike; all tasks are added to it.
        workshop: makes more tasks; None: those that were given are all.
        by_cluster: clusters are the groups, for an algorithm that compares no siblings (PPO): what a task
            promises is what its cluster does.
    """

    tasks: Sequence[Task]
    settings: CurriculumSettings
    per_step: int
    seed: int
    error: Callable[[Task], float]
    clusters: Clusters
    workshop: Workshop | None = None
    by_cluster: bool = False


class Curriculum:
    """See `training.plan.TaskChooser`."""

    def __init__(self, plan: CurriculumPlan) -> None:
        self._plan = plan
        self._draws: dict[int, list[Draw]] = {}
        self._picks: list[Pick] = []
        plan.clusters.add(plan.tasks)

    def restore(self, courses: Mapping[int, JsonValue]) -> None:
        """Take up what earlier legs remembered, by step."""
        self._draws = {step: [DRAWS.read(item) for item in _list(course)] for step, course in courses.items()}
        for step in sorted(self._draws):
            self._admit([synthetic.task for draw in self._draws[step] for synthetic in draw.made])

    def course(self, step: int) -> JsonValue:
        """What a later leg has to know of the step."""
        return [DRAWS.write(draw) for draw in self._draws.get(step, [])]

    async def tasks(self, step: int, draw: int) -> list[Task]:
        """Choose the tasks of a draw; the first of a step forgets what an earlier try at it saw."""
        if draw == 1:
            self._draws[step] = []
            made = await self._made(step)
        else:
            made = Draw(draw)
        earlier = [group.task for previous in self._draws[step] for group in previous.groups]
        self._draws[step].append(replace(made, draw=draw))
        standings = self.standings(step)
        resting = Counter(standing.rests for standing in standings if standing.rests)
        self._draws[step][-1] = replace(made, draw=draw, rests=dict(sorted(resting.items())))
        self._picks = drawn(
            standings,
            self._plan.per_step,
            settings=self._plan.settings,
            key=["curriculum", self._plan.seed, step, draw],
            without=earlier,
        )
        return [pick.task for pick in self._picks]

    def saw(self, step: int, groups: Sequence[Group]) -> frozenset[str]:
        """Keep what a draw came to; gives the tasks that are not learned from, for they may be impossible."""
        picks = {pick.task.id: pick for pick in self._picks}
        now = self._draws[step][-1]
        seen = tuple(_seen(group, picks[group.task]) for group in groups)
        self._draws[step][-1] = replace(now, groups=seen)
        estimates = self._estimates(step)
        most = self._plan.settings.doubtful
        left = frozenset(group.task for group in seen if estimates[group.task].impossible > most)
        marked = tuple(replace(group, left_out=group.task in left) for group in seen)
        self._draws[step][-1] = replace(now, groups=marked)
        return left

    def standings(self, step: int) -> list[Standing]:
        """How each task stands before a draw of this step."""
        settings, met = self._plan.settings, self._met(step)
        made = self._made_ids(step)
        estimates, decided = self._estimates(step), conclusive_shares(self._seen(step))
        whole = self._estimates(step, half_life=inf) if made else {}
        return [
            Standing(
                task,
                estimates[task.id],
                score_of(estimates[task.id], settings.explore, decided.get(task.id, 1.0)),
                rests((whole if task.id in made else estimates)[task.id], settings),  # a made one for good
                made=task.id in made,
                met=met.get(task.id, 0),
            )
            for task in self._pool(step)
        ]

    async def _made(self, step: int) -> Draw:
        """Have tasks made where it is time, and while not enough wait to be tried already."""
        workshop, settings = self._plan.workshop, self._plan.settings
        if workshop is None or step == 1 or (step - 1) % settings.every:
            return Draw(1)
        met, made = self._met(step), self._made_ids(step)
        waiting = sum(identity not in met for identity in made)
        if waiting >= settings.synthetic * self._plan.per_step * settings.every:
            return Draw(1)
        failures = failures_of(self._seen(step), step=step, half_life=settings.half_life)
        patterns = patterns_of(self.standings(step), failures, self._plan.clusters.of, settings.seeds)
        done = await workshop.make(
            patterns,
            self._pool(step),
            step=step,
            count=settings.candidates,
            seed=int(digest(["made", self._plan.seed, step])[:12], 16),
        )
        self._admit([synthetic.task for synthetic in done.made])
        return done

    def _admit(self, tasks: Sequence[Task]) -> None:
        if tasks and self._plan.workshop is not None:
            self._plan.workshop.admit(tasks)
        self._plan.clusters.add(tasks)

    def _draws_until(self, step: int) -> list[tuple[int, Draw]]:
        """All draws up to now with their steps, earlier ones of this step included."""
        return [(at, draw) for at in sorted(self._draws) if at <= step for draw in self._draws[at]]

    def _seen(self, step: int) -> Seen:
        return [(at, group) for at, draw in self._draws_until(step) for group in draw.groups]

    def _pool(self, step: int) -> list[Task]:
        return [*self._plan.tasks, *(synthetic.task for synthetic in self._all_made(step))]

    def _all_made(self, step: int) -> list[Made]:
        return [synthetic for _, draw in self._draws_until(step) for synthetic in draw.made]

    def _made_ids(self, step: int) -> frozenset[str]:
        return frozenset(synthetic.task.id for synthetic in self._all_made(step))

    def _estimates(self, step: int, half_life: float | None = None) -> dict[str, Estimate]:
        """Of every task."""
        plan, made = self._plan, self._made_ids(step)
        own = evidence_of(self._seen(step), step=step, half_life=half_life or plan.settings.half_life)
        likes, clusters = pooled(own, plan.clusters.of), plan.clusters.of
        estimates = {}
        for task in self._pool(step):
            mine, error = own.get(task.id, SeenOutcomes()), plan.error(task)
            theirs = likes.get(clusters[task.id], SeenOutcomes()) - mine
            doubt = Doubt(error, MADE_IMPOSSIBLE if task.id in made else GIVEN_IMPOSSIBLE)
            if error:  # where none of its likes was ever done, one more that looks done proves little
                never = estimated(theirs, SeenOutcomes(), doubt).impossible
                doubt = replace(doubt, impossible=max(doubt.impossible, never))
            estimates[task.id] = estimated(mine, theirs, doubt)
            if plan.by_cluster:
                together = estimated(mine + theirs, SeenOutcomes(), replace(doubt, impossible=0.0))
                estimates[task.id] = replace(together, impossible=estimates[task.id].impossible)
        return estimates

    def _met(self, step: int) -> dict[str, int]:
        """The step that each task was drawn in last."""
        return {group.task: at for at, group in self._seen(step)}


def _seen(group: Group, pick: Pick) -> GroupSeen:
    episodes = [rollout.episode for rollout in group.rollouts]
    verdicts = [episode.verdict for episode in episodes]
    return GroupSeen(
        task=group.task,
        why=pick.why,
        score=round(pick.score, 6),
        success=verdicts.count(Verdict.PASSED),
        failure=verdicts.count(Verdict.FAILED),
        inconclusive=sum(not verdict.conclusive for verdict in verdicts),
        failed_at=failed_at(episodes),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
