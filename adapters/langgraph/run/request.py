"""What is asked for: a run, a training, a way to the real tools; each is the one before and more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Approver, ChatEndpoint, Checker, ExperienceModel, TransitionStore
from dreamgym_kit.rollout.jobs import Shard
from dreamgym_kit.rollout.rundir import to_resume
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.routing.supervision import Overseer
from dreamgym_kit.settings.schema import NO_GATE, GateSettings, Settings
from dreamgym_kit.types import Split, Task

Tasks = str | Path | Sequence[Task]
R = TypeVar("R", bound="RunRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run.

    Attributes:
        graph: a spec ("module:attr", ...) or a live graph, StateGraph or factory.
        tasks: a JSON-lines file, or tasks.
        store: dreams answer from it, recording writes to it; None: nothing is known, all calls abstain.
        directory: where the run directory is (to resume) or is to be made (else under `settings.runs`).
        experience: instead of the recordings, an experience model of one's own.
        label: put before recorded episodes' ids instead of the run's id, for recordings that must
            come out the same each time.
        must_reset: refuse to run where tools change a world that nobody puts back for each episode.
        real_faults: the faults of the settings befall real tools' calls too; nothing of it may be kept.
        overseer: lets the real calls of `Mode.S2R` through, as far as `stage` goes.
        needs_confirmed_effects: refuse tools whose effect is only guessed.
        trains: what the dream answers is learned from, so its model answers only where it is trusted.
        judge: judges every episode instead of the tasks' own checkers.
        policy: answers in place of the graph's chat models, as `settings.policy` says; None: they do.
        shard: runs this part of the tasks only.
        overlap: the caller asked for several episodes at once: where that cannot be, refuse.
        gate: the rules that its verdict follows from; None: those of the settings for a dream that judges an
            agent, else none but those that always hold.
        evaluates: of an evaluation: "measured" where nothing is required of the agent, else "required".
        record: the command that records these tasks, for the report; empty: not known.
        weights: digest of the policy's model directory, where that answers unchanged over the whole run.
    """

    graph: object
    tasks: Tasks
    settings: Settings
    mode: Mode = Mode.DREAM
    store: TransitionStore | None = None
    directory: Path | None = None
    resume: bool = False
    experience: ExperienceModel | None = None
    label: str | None = None
    must_reset: bool = False
    trains: bool = False
    policy: ChatEndpoint | None = None
    judge: Checker | None = None
    real_faults: bool = False
    record: str = ""
    weights: str = ""
    overseer: Overseer | None = None
    stage: Stage = Stage.SHADOW
    needs_confirmed_effects: bool = False
    shard: Shard | None = None
    gate: GateSettings | None = None
    overlap: bool = False
    evaluates: str = ""

    @property
    def rules(self) -> GateSettings:
        """The gate's rules for this run."""
        if self.gate is not None:
            return self.gate
        return self.settings.gate if self.mode is Mode.DREAM and not self.trains else NO_GATE

    @property
    def measures(self) -> bool:
        """Whether a model is trained with what comes of it, or an agent measured."""
        return self.trains or bool(self.evaluates) or isinstance(self, TrainRequest)

    @property
    def kind(self) -> str:
        """What the run's directory says that it is: "dream", "record", "s2r-shadow", ..."""
        return f"{self.mode}-{self.stage}" if self.mode is Mode.S2R else self.mode.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest(RunRequest):
    """What to train.

    Tasks whose split is `held_out` are never learned from; `[train]`, `[alarms]` and `[policy]` of the
    settings say how; a `judge` rewards what is learned from, and the tasks' own checkers still judge
    evaluations.

    Attributes:
        held_out: tasks to measure with; None: the file that settings name, else the held-out among `tasks`.
    """

    held_out: Sequence[Task] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class S2rRequest(TrainRequest):
    """A training that continues on the real tools, within the limits of `[s2r]`.

    The gate tries the held-out tasks in the dream; real answers are held against `store`, and go there.

    Attributes:
        approver: is asked about held calls; None: the function that settings name, if they name one.
        gate_only: do not go further than the gate; no real call is made.
    """

    store: TransitionStore
    approver: Approver | None = None
    gate_only: bool = False


def part_of(request: R, place: Path, **parts: Any) -> R:
    """What a longer run does in a directory of its own, which an earlier leg may have begun."""
    return replace(request, directory=place, resume=to_resume(place), **parts)


def tasks_of(tasks: Tasks) -> list[Task]:
    """Tasks that were named, read and checked.

    Raises:
        UserError: they cannot be used.
    """
    return read_tasks(Path(tasks)) if isinstance(tasks, (str, Path)) else checked_tasks(tasks)


def task_sides(request: TrainRequest) -> tuple[list[Task], list[Task]]:
    """What is learned from, and what it is measured with.

    Raises:
        UserError: the tasks cannot be used, none is to be learned from, or one is on both sides.
    """
    settings, tasks = request.settings, tasks_of(request.tasks)
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


def name_of(graph: object) -> str:
    """What reports call a graph: its spec, its name, or its class."""
    return graph if isinstance(graph, str) else str(getattr(graph, "name", None) or type(graph).__name__)


def name_of_part(part: object) -> str:
    """What a manifest calls a judge or an experience model of one's own: its name, else its code's place."""
    name = getattr(part, "name", None)
    if isinstance(name, str) and name:
        return name
    code: Any = part if hasattr(part, "__qualname__") else type(part)
    return f"{code.__module__}:{code.__qualname__}"
