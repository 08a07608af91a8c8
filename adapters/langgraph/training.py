"""A policy learns: graph, tasks, recordings and a model directory in; a run directory with weights out.

Puts the parts together and says what must be the same for a resume. The loop itself is `training.loop`, who
runs the episodes is `rollouts`, who changes the weights is `adapters.trainers`. In a dream no real tool runs
while it learns; an evaluation on the real tools is asked for by name.
"""

import importlib.metadata
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.adapters.langgraph.curricula import curriculum_of
from dreamgym_kit.adapters.langgraph.evaluating import under_faults
from dreamgym_kit.adapters.langgraph.real_calls import RealCalls
from dreamgym_kit.adapters.langgraph.rollouts import Rollouts, open_rollouts
from dreamgym_kit.adapters.langgraph.run_directories import label_of
from dreamgym_kit.adapters.langgraph.run_request import RunRequest, name_of
from dreamgym_kit.adapters.langgraph.training_options import options_of
from dreamgym_kit.adapters.trainers.extra import require_extra
from dreamgym_kit.errors import UserError
from dreamgym_kit.gate.policy import GatePolicy, Mode, Stage
from dreamgym_kit.gate.registry import PROCESS
from dreamgym_kit.ports import Checker, EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.training import MODE, Training, training_of
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.manifest import Manifest
from dreamgym_kit.rollout.masked import MaskedEvents
from dreamgym_kit.rollout.rundir import REPORT, RunDirectory, half_made, new_run
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks, tasks_digest
from dreamgym_kit.settings.model import CurriculumSettings, Settings
from dreamgym_kit.training.aside import LoopAside
from dreamgym_kit.training.attestation import KNOWN_TEXT
from dreamgym_kit.training.learned_from import write_learned_from
from dreamgym_kit.training.loop import TrainingLoop
from dreamgym_kit.training.plan import Trained, TrainParts, TrainPlan
from dreamgym_kit.training.staleness import version_of
from dreamgym_kit.vocabulary import Split, Task

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.local import LocalPolicy
    from dreamgym_kit.adapters.trainers.options import GrpoOptions
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

ROLLOUTS, EXAMINED, CHECKPOINTS, LOGS = "rollouts", "evaluations", "checkpoints", "logs"
MADE = "made"  # tasks that the curriculum made
_FREE = (
    "steps",
    "eval_every",
    "eval_n",
    "eval_tasks",
    "eval_real",
    "keep",
    "report_to",
)  # of [train]; the rest matters


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


def train(request: TrainRequest, *, events: EventSink, stop: StopSwitch | None = None) -> TrainResult:
    """Train the policy and say what it was worth.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: something cannot be used as asked; nothing was learned.
    """
    require_extra("train")
    switch = stop or StopSwitch()
    learn, held_out = sides_of(request)
    model = model_of(request.settings)
    options = options_of(request.settings)
    options.check()
    with ExitStack() as stack:
        directory = stack.enter_context(_directory(request, learn, held_out, model))
        log = stack.enter_context(closing(directory.events()))
        heard = MaskedEvents(FanOut([log, events]), process_masker(request.settings.endpoint.key_env))
        parts = _Parts(stack, request, directory, heard, switch)
        policy, trainer = parts.policy(model), parts.trainer(model, options)
        collector = parts.collector(
            ROLLOUTS,
            [*learn, *held_out],
            policy,
            request.mode,
            request.settings.train.faults if request.mode is Mode.DREAM else None,
        )
        wanted = request.settings.train
        # where an episode costs real calls, all are learned from and none is spent on measuring
        examiner = None if request.mode is Mode.S2R else parts.examiner(held_out, policy) or collector
        loop = TrainingLoop(
            TrainPlan(
                tasks=learn,
                held_out=held_out,
                train=wanted,
                alarms=request.settings.alarms,
                temperature=request.settings.policy.temperature,
            ),
            TrainParts(
                collector=collector,
                trainer=trainer,
                policy=policy,
                examiner=examiner if held_out else None,
                real=wanted.eval_real or request.mode is Mode.RECORD,
                chooser=curriculum_of(
                    request.settings,
                    learn,
                    held_out,
                    collector,
                    store=request.store if request.experience is None else None,
                    folder=directory.path / MADE,
                ),
                known_ids=_known_ids(trainer),
            ),
            folder=directory.path,
            aside=parts.aside,
            events=heard,
            stop=switch,
        )
        write_learned_from(directory.path, (task.id for task in learn))
        with collector.aside():  # the trainer writes while episodes are guarded
            trained = loop.run()
        _write_report(directory, trained, planned=wanted.steps)
        return TrainResult(
            directory=directory.path,
            training=training_of(directory),
            trained=trained,
            warnings=tuple(
                dict.fromkeys(
                    (*collector.warnings, *collector.notes, *_ignored(trainer), *impatience(policy.impatient))
                )
            ),
            strays=tuple(process_masker().text(stray) for stray in PROCESS.strays),
            stopped_by=switch.signal,
        )


class _Parts:
    """Opens what a training is made of; all of it is closed with the stack."""

    def __init__(
        self,
        stack: ExitStack,
        request: TrainRequest,
        directory: RunDirectory,
        events: EventSink,
        stop: StopSwitch,
    ) -> None:
        self._stack, self._request, self._directory = stack, request, directory
        self._events, self._stop = events, stop
        self.aside = stack.enter_context(LoopAside())

    def policy(self, model: Path) -> "LocalPolicy":
        import torch

        from dreamgym_kit.adapters.models.local import open_local

        device = "cuda" if torch.cuda.is_available() else "cpu"  # where the trainer's copy lies
        opened = open_local(model, version=version_of(0), lockstep=True, device=device)
        return self._stack.enter_context(closing(opened))

    def trainer(self, model: Path, options: "GrpoOptions") -> "TrlTrainer":
        from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

        path = self._directory.path
        return TrlTrainer(model, path / CHECKPOINTS, options, logs=path / LOGS, version_of=version_of)

    def examiner(self, held_out: Sequence[Task], policy: "LocalPolicy") -> Rollouts | None:
        """Who measures, where that is not who collects: really, without its faults, or by the checkers."""
        asked = self._request
        if asked.mode is not Mode.DREAM or not held_out:
            return None
        if asked.settings.train.eval_real:
            return self.collector(EXAMINED, held_out, policy, Mode.RECORD)
        if asked.settings.train.faults is not None or asked.judge is not None:
            return self.collector(EXAMINED, held_out, policy, Mode.DREAM)
        return None

    def collector(
        self,
        name: str,
        tasks: Sequence[Task],
        policy: "LocalPolicy",
        mode: Mode,
        faults: float | None = None,
    ) -> Rollouts:
        """Open graph, gate and buffer; real tools get nothing to keep their calls in.

        `faults`: share of the calls that fail; None: as settings have it.
        """
        dreams, real = not mode.bare, self._request.real
        place = self._directory.path / name
        if half_made(place):
            shutil.rmtree(place)
        request = RunRequest(
            graph=self._request.graph,
            tasks=tasks,
            settings=under_faults(self._request.settings, faults),
            mode=mode,
            store=self._request.store if dreams else None,
            experience=self._request.experience if dreams else None,
            judge=self._request.judge if name == ROLLOUTS else None,
            directory=place,
            resume=(place / "manifest.json").exists(),
            policy=policy,
            must_reset=GatePolicy(mode, stage=real.stage if real else Stage.SHADOW).writes_are_real,
            overseer=real.overseer if real else None,
            stage=real.stage if real else Stage.SHADOW,
            label=f"{real.label}:{name}" if real else None,
            trains=dreams,
        )
        opening: AbstractAsyncContextManager[Rollouts] = open_rollouts(
            request, events=self._events, stop=self._stop
        )
        return self._stack.enter_context(self.aside.held(opening))


def sides_of(request: TrainRequest) -> tuple[list[Task], list[Task]]:
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


def model_of(settings: Settings) -> Path:
    """The model directory that a training begins with.

    Raises:
        UserError: settings name none.
    """
    said = settings.policy
    if said.urls:
        raise UserError(
            f"{settings.where('policy', 'urls')}: a policy behind a server cannot be trained yet; leave "
            "policy.urls out and name its directory in policy.model."
        )
    if said.model is None:
        raise UserError(
            "no policy to train: name a model directory (dreamgym-kit train --policy DIR), or set "
            f"policy.model in {settings.where('policy')}."
        )
    return settings.resolve(said.model)


def _known_ids(trainer: "TrlTrainer") -> list[int]:
    """What the trained model's own tokenizer and template make of the known text."""
    told = [{"role": message.role, "content": message.content} for message in KNOWN_TEXT]
    text = trainer.tokenizer.apply_chat_template(told, add_generation_prompt=True, tokenize=False)
    ids: list[int] = trainer.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _ignored(trainer: "TrlTrainer") -> list[str]:
    return [f"{folder}: is no whole checkpoint, and was passed over" for folder in trainer.ignored]


def impatience(batches: int) -> list[str]:
    """What a person should know of batches that lockstep began without everybody."""
    if not batches:
        return []
    told = (
        f"{batches} times an episode asked the policy nothing for so long that the others went on without "
        "it: who shared a batch hung on time there, so the same training made again, or resumed, may differ "
        "in the last bits; a tool or node that takes minutes is the usual cause"
    )
    return [told]


@contextmanager
def _directory(
    request: TrainRequest, learn: Sequence[Task], held_out: Sequence[Task], model: Path
) -> Iterator[RunDirectory]:
    root = request.settings.resolve(request.settings.runs)
    started = datetime.now(UTC)
    matters: dict[str, Any] = process_masker().plain(_matters(request, learn, model))
    if request.resume:
        if request.directory is None:
            raise UserError("to resume, name the run directory")
        manifest = Manifest(run="", created_at=started.timestamp(), matters=matters)
        directory = RunDirectory.resume(request.directory, manifest)
    else:
        run, folder = new_run(root, f"train-{label_of(name_of(request.graph))}", started.date())
        if request.directory is not None:
            root, folder = request.directory.parent, request.directory.name
        about = _about(request, learn, held_out)
        manifest = Manifest(run=run, created_at=started.timestamp(), matters=matters, about=about)
        directory = RunDirectory.create(root, folder, manifest)
    with directory:
        (directory.path / REPORT).unlink(missing_ok=True)  # the end of an earlier leg is no end any more
        try:
            yield directory
        except BaseException:
            if not request.resume:
                directory.discard_unused()
            raise


def _matters(request: TrainRequest, learn: Sequence[Task], model: Path) -> dict[str, Any]:
    """What a resumed training must share with its first leg; the rollouts' own directory holds the rest."""
    settings = request.settings
    wanted = {name: value for name, value in asdict(settings.train).items() if name not in _FREE}
    return {
        "mode": MODE,
        "graph": name_of(request.graph),
        "tools": request.mode.value,
        "policy": str(model),
        "temperature": settings.policy.temperature,
        "max_output": settings.policy.max_output,
        "only_nodes": list(settings.policy.only_nodes),
        "learned_from": tasks_digest(learn),
        **({"curriculum": _plain(settings.curriculum)} if settings.curriculum.use else {}),
        **wanted,
    }


def _plain(curriculum: CurriculumSettings) -> dict[str, Any]:
    return {**asdict(curriculum), "judges": list(curriculum.judges)}


def _about(request: TrainRequest, learn: Sequence[Task], held_out: Sequence[Task]) -> dict[str, Any]:
    versions = {}
    for package in ("dreamgym-kit", "langgraph", "torch", "transformers", "trl", "peft"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    free: Mapping[str, Any] = {
        name: value for name, value in asdict(request.settings.train).items() if name in _FREE
    }
    return {
        "versions": versions,
        "python": platform.python_version(),
        "tasks": len(learn),
        "held_out": len(held_out),
        "recordings": request.store.count() if request.store is not None else 0,
        "alarms": asdict(request.settings.alarms),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in free.items()},
    }


def _write_report(directory: RunDirectory, trained: Trained, *, planned: int) -> None:
    alarm, weights = trained.alarm, trained.weights
    directory.write_report(
        {
            "kind": MODE,
            "kept": trained.kept,
            "weights": None if weights is None else str(weights.relative_to(directory.path)),
            "alarm": None
            if alarm is None
            else {
                "alarm": alarm.alarm,
                "text": process_masker().text(alarm.text),
                "step": alarm.step,
            },
            "stopped": trained.stopped,
            "planned": planned,
        }
    )
