"""A dream without goals, from a user's own recordings: what was recorded how, and how it was judged.

The judge learns from the episodes of recorded runs and their verdicts; the worlds of tasks that nobody
recorded are composed. What comes of it goes into `train` as its experience and its judge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.adapters.langgraph.experiences import recorded_experience
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.checklist.gate import Bounds
from dreamgym_kit.dream.checklist.imagined import ImaginedExperience
from dreamgym_kit.dream.checklist.verdict import ChecklistJudge
from dreamgym_kit.dream.checklist.without_goals import GoalFree, without_goals, works_of
from dreamgym_kit.dream.state.stated import stated_models
from dreamgym_kit.errors import UserError
from dreamgym_kit.ports import TransitionStore
from dreamgym_kit.rollout.journal import JournalReader
from dreamgym_kit.rollout.rundir import EPISODES
from dreamgym_kit.rollout.tasks import read_tasks
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Episode, Split, Task, Transition


@dataclass(frozen=True, slots=True)
class GoalFreeDream:
    """What to learn in: give these three to `train`, and show `found` to a person first."""

    experience: ImaginedExperience
    judge: ChecklistJudge
    tasks: tuple[Task, ...]
    found: GoalFree


def goal_free(
    tasks: Sequence[Task],
    recorded: Sequence[Path],
    *,
    recorded_tasks: Sequence[Task],
    store: TransitionStore,
    settings: Settings,
    held_out: Sequence[Task] = (),
    bounds: Bounds | None = None,
    seed: int = 0,
) -> GoalFreeDream:
    """Make a dream in which these tasks are learned without any goal of theirs.

    Args:
        tasks: to learn from; their checkers are never asked.
        recorded: run directories of `record`: what the judge learns from.
        recorded_tasks: the tasks of these runs.
        store: the recordings.
        settings: whose recordings, the threshold of the dream, and what is declared of tools.
        held_out: what will be measured with: the judge learns from none of these, nor from worlds that only
            they are set in.
        bounds: what the judge has to reach before it is believed.
        seed: of what is drawn anew and composed.

    Raises:
        UserError: a run cannot be read, or there is no task that the judge may be believed on.
    """

    def rows(tenant: str) -> list[Transition]:
        return list(store.scan(tenant=tenant))

    chain = ChainedExperience(
        recorded_experience(store),
        rows,
        threshold=settings.simulate.threshold,
        stated=stated_models(settings),
    )
    models = chain.following.knowledge(settings.tenant).models
    apart = {task.id for task in held_out}
    train = [task for task in recorded_tasks if task.split is Split.TRAIN and task.id not in apart]
    worlds = {task.world for task in held_out} - {task.world for task in (*tasks, *train)}
    seen = [
        row for row in rows(settings.tenant) if row.split is not Split.HELD_OUT and row.world not in worlds
    ]
    works = works_of((one for one in _episodes(recorded) if one.world not in worlds), train)
    if not works:
        told = ", ".join(str(run) for run in recorded) or "none"
        raise UserError(
            f"there is nothing for a judge to learn from: no judged episode of these runs ({told}) is of a "
            "task that is said to have been recorded; name their tasks (judge.tasks, --judge-tasks)."
        )
    made = without_goals(works, seen, tasks, models.advances, bounds=bounds, seed=seed)
    if not made.tasks:
        raise UserError(f"no task can be learned without its goal. {made}")
    imagined = ImaginedExperience(chain, made.imagined, name=f"imagined {made.made_of}")
    return GoalFreeDream(imagined, made.judge, made.tasks, made)


def judged_without_goals(
    settings: Settings, tasks: Sequence[Task], held_out: Sequence[Task], store: TransitionStore | None
) -> GoalFreeDream:
    """The dream that `[judge]` asks for.

    Raises:
        UserError: as of `goal_free`; or there are no recordings, or nobody says what the runs were asked.
    """
    said, where = settings.judge, settings.where("judge")
    if store is None:
        raise UserError(
            f"{where}: a judge without goals learns from recordings, and there are none; make some with: "
            "dreamgym-kit record"
        )
    file = said.tasks or settings.tasks
    if file is None:
        raise UserError(
            f"{where}: the tasks of the recorded runs are not named; set judge.tasks to their file."
        )
    return goal_free(
        tasks,
        [settings.resolve(run) for run in said.recorded],
        recorded_tasks=read_tasks(settings.resolve(file)),
        store=store,
        settings=settings,
        held_out=held_out,
        bounds=Bounds(said.agreement, said.false_positives, said.least),
        seed=settings.train.seed,
    )


def _episodes(runs: Sequence[Path]) -> Iterator[Episode]:
    for run in runs:
        if not (run / EPISODES).is_file():
            raise UserError(f"{run}: holds no episodes; name the run directory of a recording")
        yield from JournalReader(run / EPISODES)
