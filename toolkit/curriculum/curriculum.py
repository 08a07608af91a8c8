"""The curriculum of one training: chooses each draw's tasks from the results of all earlier draws.

A pure function of tasks, settings, seed and the records of earlier steps, which a resumed training restores;
it has no other state. Implements `training.plan.TaskChooser`.

It also has tasks made like those that the policy nearly solves: patterns are chosen, variations filtered.
Patterns are chosen by their score, first those whose failures involve the tool (or step) that fails most now,
and no two of one cluster while others are left. Made tasks are checked, named after their pattern, and stored
before use, so that a resumed training has the same tasks.

Reasons to reject a made task, from its text and values alone (nothing is run), except the last:

    malformed   the input lacks parts of the pattern's, is empty, or is far longer
    unknown     it has an ID (a word with a digit) that is unknown in its environment
    unrecorded  its environment has no recordings, so a dream could not answer
    held_out    it is nearly a held-out task, or its environment has only held-out tasks
    twice       it has the words of a task in the same environment
    reworded    it nearly repeats such a task about the same objects: no meaningful change
    unjudged    no judge may grade it
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from dreamgym_kit.canonical import digest
from dreamgym_kit.curriculum.records import (
    DRAWS,
    MARK,
    Draw,
    GroupSeen,
    Made,
    Seen,
    conclusive_shares,
    failed_at,
    failures_of,
    tool_of,
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
    text_of,
)
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Embedder, Group, Pattern, TaskMaker
from dreamgym_kit.rollout.atomic_files import read_sealed, write_sealed
from dreamgym_kit.rollout.tasks import TASKS, task_from_record
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import CurriculumSettings
from dreamgym_kit.types import Environment, Split, Task, Verdict

UNJUDGED = "unjudged"
MALFORMED, UNKNOWN, UNRECORDED = "malformed", "unknown", "unrecorded"
HELD_OUT, TWICE, REWORDED = "held_out", "twice", "reworded"

_LONGER = 4  # times the pattern's text, and some words
_SPARE = 200  # characters
_NEARLY = 0.75  # cosine of two texts about the same objects
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class TaskBounds:
    """The checks of made tasks.

    Attributes:
        held_out: held-out tasks.
        given: training tasks.
        recorded: returns whether an environment has recordings.
        known_values: returns the known values of an environment.
        embedder: measures similarity of texts; None: only equal words count.
    """

    held_out: Sequence[Task]
    given: Sequence[Task]
    recorded: Callable[[Environment], bool]
    known_values: Callable[[Environment], Sequence[str]]
    embedder: Embedder | None = None


def rejection_reason(task: Task, pattern: Pattern, taken: Iterable[Task], bounds: TaskBounds) -> str:
    """Return why a made task is rejected, or ""; `taken`: all tasks so far."""
    if not _well_formed(task, pattern):
        return MALFORMED
    known_words = {word for value in bounds.known_values(task.environment) for word in _WORD.findall(value)}
    spoken = _ids(text_of(pattern.task)) if task.environment == pattern.task.environment else set()
    if _ids(text_of(task)) - spoken - known_words:
        return UNKNOWN
    if not bounds.recorded(task.environment):
        return UNRECORDED
    if _held_out(task, known_words, bounds):
        return HELD_OUT
    return _repeats(
        task,
        known_words,
        [other for other in taken if other.environment == task.environment],
        bounds.embedder,
    )


def read_again(task: Task) -> Task | None:
    """Return the task as read from a file, for training; None if a file cannot represent it."""
    try:
        return task_from_record(TASKS.write(replace(task, split=Split.TRAIN)), source="a made task")
    except (UserError, TypeError, ValueError, AttributeError):
        return None


def _well_formed(task: Task, pattern: Pattern) -> bool:
    text, before = text_of(task), text_of(pattern.task)
    return (
        read_again(task) is not None
        and _shape(task.input) == _shape(pattern.task.input)
        and bool(text.strip())
        and len(text) <= _LONGER * len(before) + _SPARE
    )


def _shape(value: JsonValue) -> JsonValue:
    """Return an input without its texts: keys and number of messages."""
    if isinstance(value, Mapping):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shape(inner) for inner in value]
    return type(value).__name__


def _ids(text: str) -> set[str]:
    return {word for word in _WORD.findall(text) if any(sign.isdigit() for sign in word)}


def _held_out(task: Task, known_words: Collection[str], bounds: TaskBounds) -> bool:
    own = _text(task)
    if any(
        _text(excluded) == own and excluded.environment.name == task.environment.name
        for excluded in bounds.held_out
    ):
        return True
    there = [excluded for excluded in bounds.held_out if excluded.environment == task.environment]
    if _repeats(task, known_words, there, bounds.embedder):
        return True
    return any(excluded.environment == task.environment for excluded in bounds.held_out) and not any(
        other.environment == task.environment for other in bounds.given
    )


def _text(task: Task) -> tuple[str, ...]:
    return tuple(_WORD.findall(text_of(task).casefold()))


def _repeats(
    task: Task, known_words: Collection[str], others: Sequence[Task], embedder: Embedder | None
) -> str:
    if any(_text(other) == _text(task) for other in others):
        return TWICE
    if embedder is None:
        return ""
    mine = _things(task, known_words)
    same = [other for other in others if _things(other, known_words) == mine]
    if not same:
        return ""
    own, *rest = embedder.embed([text_of(task), *(text_of(other) for other in same)])
    return REWORDED if any(float(own @ row) >= _NEARLY for row in rest) else ""


def _things(task: Task, known_words: Collection[str]) -> set[str]:
    """Return a task's objects: IDs, and words that are values of its environment."""
    text = text_of(task)
    return _ids(text) | {word for word in _WORD.findall(text) if word in known_words}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Makes, checks and stores synthetic tasks.

    Attributes:
        makers: called in order for each pattern.
        bounds: the checks of made tasks.
        judged: returns the task with its judge, or None.
        admit: registers tasks with the runner.
        folder: the folder of made tasks, created on demand.
    """

    makers: Sequence[TaskMaker]
    bounds: TaskBounds
    judged: Callable[[Task], Task | None]
    admit: Callable[[Sequence[Task]], None]
    folder: Path

    async def make(
        self, patterns: Sequence[Pattern], taken: Sequence[Task], *, step: int, count: int, seed: int
    ) -> Draw:
        """Make tasks before a step's first draw: `count` variations of each pattern at most.

        Tasks made earlier for the same patterns are reused; see the module.
        """
        key = digest([step, count, seed, [[each.task.id, dict(each.failed_at)] for each in patterns]])
        path = self.folder / f"step-{step:06d}-{key[:12]}.json"
        earlier = _read(path)
        if earlier is not None:
            return earlier
        made: list[Made] = []
        refused: Counter[str] = Counter()
        for pattern in patterns:
            here, root = pattern.task.environment, pattern.task.id.partition(MARK)[0]
            environments = dict.fromkeys([here, *(task.environment for task in self.bounds.given)])
            filled = replace(
                pattern,
                known=tuple(self.bounds.known_values(here)),
                environments=tuple(
                    environment for environment in environments if environment.name == here.name
                ),
            )
            for maker in self.makers:
                for task in await maker.like(
                    filled, count, seed=int(digest([key, pattern.task.id])[:12], 16)
                ):
                    others = [*taken, *(synthetic.task for synthetic in made)]
                    wrong, fit = self._held_up(task, filled, others)
                    if fit is None:
                        refused[wrong] += 1
                    else:
                        named = replace(fit, id=f"{root}{MARK}{step}.{len(made) + 1}")
                        made.append(Made(named, pattern.task.id, maker.how))
        draw = Draw(0, made=tuple(made), refused=dict(sorted(refused.items())))
        self.folder.mkdir(exist_ok=True)
        write_sealed(path, json.dumps(DRAWS.write(draw), separators=(",", ":")).encode("ascii"))
        return draw

    def _held_up(self, task: Task, pattern: Pattern, others: Sequence[Task]) -> tuple[str, Task | None]:
        wrong = rejection_reason(task, pattern, others, self.bounds)
        if wrong:
            return wrong, None
        judged = self.judged(task)
        return UNJUDGED, read_again(judged) if judged is not None else None


def patterns_of(
    standings: Sequence[Standing],
    failures: Mapping[str, Mapping[str, float]],
    clusters: Mapping[str, int],
    count: int,
) -> list[Pattern]:
    """Choose the patterns to vary.

    Args:
        standings: the current standing of all tasks.
        failures: by task, recent failures and their places ("missing refund_payment").
        clusters: cluster of each task.
        count: maximum number.
    """
    by_tool: Counter[str] = Counter()
    for places in failures.values():
        for place, often in places.items():
            by_tool[tool_of(place)] += often  # type: ignore[assignment]  # decayed counts
    most = max(by_tool.values(), default=0) or 1

    def promise(standing: Standing) -> float:
        failed = failures.get(standing.task.id, {})
        worst = max((by_tool[tool_of(place)] for place in failed), default=0)
        return standing.estimate.value * (1 + worst / most)

    fresh = sorted(
        (standing for standing in standings if not standing.rests),
        key=lambda standing: (-promise(standing), standing.task.id),
    )
    rounds: Counter[int] = Counter()
    ranked = []
    for standing in fresh:
        cluster = clusters[standing.task.id]
        ranked.append((rounds[cluster], standing))
        rounds[cluster] += 1
    ranked.sort(key=lambda pair: pair[0])  # stable sort: the best of each cluster, then the second best ...
    return [
        Pattern(standing.task, round(standing.estimate.mean, 6), _whole(failures.get(standing.task.id, {})))
        for _, standing in ranked[:count]
    ]


def _whole(counts: Mapping[str, float]) -> dict[str, int]:
    """Return decayed counts as integers, at least 1, largest first."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {place: max(1, round(often)) for place, often in ranked}


def _read(path: Path) -> Draw | None:
    """Return the tasks made earlier; None if there are none or the file was changed."""
    try:
        body = read_sealed(path)
    except FileNotFoundError:
        return None
    return DRAWS.read(json.loads(body)) if body is not None else None


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
