"""What a training is asked for, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dreamgym_kit.adapters.langgraph.s2r.supervisor import RealCalls
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Checker, ExperienceModel, TransitionStore
from dreamgym_kit.report.training import Training
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.training.plan import Trained
from dreamgym_kit.types import Split, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What to train.

    Attributes:
        graph: a spec ("module:attr", ...) or a live graph, StateGraph or factory.
        tasks: a JSON-lines file, or tasks. Those whose split is `held_out` are never learned from.
        settings: `[train]`, `[alarms]` and `[policy]` among them; `policy.model` is what it begins with.
        held_out: tasks to measure with; None: the file that settings name, else the held-out among `tasks`.
        mode: where it learns: in the dream, or on the real tools (to compare).
        store: dreams answer from it.
        experience: instead of the recordings, an experience model of one's own.
        judge: rewards what is learned from instead of the tasks' own checkers, which still judge evaluations.
        directory: where the run directory is (to resume) or is to be made (else under `settings.runs`).
        real: what lets real calls through in `Mode.S2R`.
    """

    graph: object
    tasks: Path | Sequence[Task]
    settings: Settings
    held_out: Sequence[Task] | None = None
    mode: Mode = Mode.DREAM
    store: TransitionStore | None = None
    experience: ExperienceModel | None = None
    judge: Checker | None = None
    directory: Path | None = None
    resume: bool = False
    real: RealCalls | None = None


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What came of a training."""

    directory: Path
    training: Training
    trained: Trained
    warnings: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()  # refused calls that belonged to no episode
    stopped_by: int | None = None  # signal number

    @property
    def weights(self) -> Path | None:
        """The model directory that came of it."""
        return self.trained.weights

    def __str__(self) -> str:
        """The training as the command prints it."""
        from dreamgym_kit.report.training_text import render_training

        return render_training(self.training)


def task_sides(request: TrainRequest) -> tuple[list[Task], list[Task]]:
    """What is learned from, and what it is measured with.

    Raises:
        UserError: the tasks cannot be used, none is to be learned from, or one is on both sides.
    """
    settings = request.settings
    tasks = read_tasks(request.tasks) if isinstance(request.tasks, Path) else checked_tasks(request.tasks)
    learn = [task for task in tasks if task.split is Split.TRAIN]
    if request.held_out is not None:
        held_out = checked_tasks(request.held_out)
    elif settings.train.eval_tasks is not None:
        held_out = read_tasks(settings.resolve(settings.train.eval_tasks))
    else:
        held_out = [task for task in tasks if task.split is Split.HELD_OUT]
    if not learn:
        raise UserError("no task to learn from: every task's split is held_out.")
    both = {task.id for task in learn} & {task.id for task in held_out}
    if both:
        raise UserError(
            f"task '{min(both)}' is to be learned from and to be measured with; it can be one of them only."
        )
    return learn, held_out


def base_model(settings: Settings) -> Path:
    """The model directory that a training begins with.

    Raises:
        UserError: settings name none.
    """
    policy = settings.policy
    if policy.urls:
        if policy.weights is None:
            raise UserError(
                f"{settings.where('policy', 'urls')}: a policy behind a server is trained from the directory "
                "that the server was started with; name it in policy.weights, where both can read it."
            )
        return settings.resolve(policy.weights)
    if policy.model is None:
        raise UserError(
            "no policy to train: name a model directory (dreamgym-kit train --policy DIR), or set "
            f"policy.model in {settings.where('policy')}."
        )
    return settings.resolve(policy.model)
