"""The curriculum of one training: chooses each draw's tasks from the results of all earlier draws.

A pure function of tasks, settings, seed and the records of earlier steps, which a resumed training restores;
it has no other state. Implements `training.plan.TaskChooser`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

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
"""Prior chance that a given task is impossible."""
MADE_IMPOSSIBLE = 0.3
"""Prior chance that a synthetic task is impossible: it was never solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumPlan:
    """The inputs of a curriculum.

    Attributes:
        tasks: the training tasks, in order.
        settings: settings of `[curriculum]`.
        per_step: tasks per draw.
        seed: seed of the run.
        error: share of wrong verdicts of a task; 0 if a checker is trusted.
        clusters: groups similar tasks; all tasks are added to it.
        workshop: makes synthetic tasks; None: no synthetic tasks.
        by_cluster: clusters are the groups, for an algorithm without groups of repeats (PPO): a task's value
            comes from its cluster.
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
        """Restore the records of earlier parts, by step."""
        self._draws = {
            step: [DRAWS.read(item) for item in course] if isinstance(course, list) else []
            for step, course in courses.items()
        }
        for step in sorted(self._draws):
            self._admit([synthetic.task for draw in self._draws[step] for synthetic in draw.made])

    def course(self, step: int) -> JsonValue:
        """Return the record of a step for a resume."""
        return [DRAWS.write(draw) for draw in self._draws.get(step, [])]

    async def tasks(self, step: int, draw: int) -> list[Task]:
        """Choose the tasks of a draw; the first of a step discards an earlier attempt at it."""
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
        """Record a draw's results; return the tasks left out as possibly impossible."""
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
        """Return each task's standing before a draw of this step."""
        settings, met = self._plan.settings, self._met(step)
        made = self._made_ids(step)
        estimates, decided = self._estimates(step), conclusive_shares(self._seen(step))
        whole = self._estimates(step, half_life=inf) if made else {}
        return [
            Standing(
                task,
                estimates[task.id],
                score_of(estimates[task.id], settings.explore, decided.get(task.id, 1.0)),
                rests((whole if task.id in made else estimates)[task.id], settings),  # synthetic: permanently
                made=task.id in made,
                met=met.get(task.id, 0),
            )
            for task in self._pool(step)
        ]

    async def _made(self, step: int) -> Draw:
        """Make tasks when due, unless enough untried ones exist."""
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
        """Return all draws so far with their steps, including earlier ones of this step."""
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
        """Return the estimate of every task."""
        plan, made = self._plan, self._made_ids(step)
        own = evidence_of(self._seen(step), step=step, half_life=half_life or plan.settings.half_life)
        likes, clusters = pooled(own, plan.clusters.of), plan.clusters.of
        estimates = {}
        for task in self._pool(step):
            mine, error = own.get(task.id, SeenOutcomes()), plan.error(task)
            theirs = likes.get(clusters[task.id], SeenOutcomes()) - mine
            doubt = Doubt(error, MADE_IMPOSSIBLE if task.id in made else GIVEN_IMPOSSIBLE)
            if error:  # if no similar task was ever solved, one apparent success proves little
                never = estimated(theirs, SeenOutcomes(), doubt).impossible
                doubt = replace(doubt, impossible=max(doubt.impossible, never))
            estimates[task.id] = estimated(mine, theirs, doubt)
            if plan.by_cluster:
                together = estimated(mine + theirs, SeenOutcomes(), replace(doubt, impossible=0.0))
                estimates[task.id] = replace(together, impossible=estimates[task.id].impossible)
        return estimates

    def _met(self, step: int) -> dict[str, int]:
        """Return the step in which each task was last drawn."""
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
