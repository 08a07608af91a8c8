"""A policy learns: graph, tasks, recordings and a model directory in; a run directory with weights out.

`train` is the command of that name, for scripts and notebooks; `run_training` puts the parts together.
What must be the same for a resume stands in `run.directory`; the loop itself is `training.loop`, who runs
the episodes `rollouts`, who changes the weights `adapters.trainers`. In a dream no real tool runs while it
learns; an evaluation on the real tools is asked for by name.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dreamgym_kit.adapters.langgraph.run.api import renamed_arguments, requested
from dreamgym_kit.adapters.langgraph.run.directory import training_directory
from dreamgym_kit.adapters.langgraph.run.evaluation import under_faults
from dreamgym_kit.adapters.langgraph.run.experiences import servers_watched
from dreamgym_kit.adapters.langgraph.run.request import Tasks, TrainRequest, base_model, part_of, task_sides
from dreamgym_kit.adapters.langgraph.training.curriculum import curriculum_of
from dreamgym_kit.adapters.langgraph.training.rollouts import Rollouts, open_rollouts
from dreamgym_kit.adapters.models.folders import require_extra
from dreamgym_kit.adapters.models.local import open_local
from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
from dreamgym_kit.adapters.trainers.ranks import Others, leading, lends_a_hand, run_rank
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Checker, EventSink, ExperienceModel, PolicyServer, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.training import Training, training_of
from dreamgym_kit.report.training_text import render_training
from dreamgym_kit.rollout.events import FanOut, NoEvents
from dreamgym_kit.rollout.rundir import TRAINING, RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.routing.process import PROCESS
from dreamgym_kit.routing.router import Mode, writes_are_real
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.threads import BackgroundLoop
from dreamgym_kit.training.alarms import KNOWN_TEXT
from dreamgym_kit.training.batching import version_of
from dreamgym_kit.training.loop import TrainingLoop
from dreamgym_kit.training.plan import Trained, TrainParts, TrainPlan
from dreamgym_kit.training.records import write_learned_from
from dreamgym_kit.types import Task

if TYPE_CHECKING:
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

ROLLOUTS, EXAMINED, CHECKPOINTS, LOGS = "rollouts", "evaluations", "checkpoints", "logs"
MADE = "made"  # tasks that the curriculum made


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
        """The trained model directory."""
        return self.trained.weights

    def __str__(self) -> str:
        """The training as the command prints it."""
        return render_training(self.training)


def run_training(
    request: TrainRequest, *, events: EventSink | None = None, stop: StopSwitch | None = None
) -> TrainResult:
    """Train the policy and say what it was worth; all of several processes get the first one's result.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        FirstStopped: this is one of several processes, and the first one failed.
        UserError: an argument cannot be used; nothing was learned.
    """
    require_extra("train")
    if lends_a_hand():
        return cast("TrainResult", run_rank())
    with leading() as others:
        return others.done(_trained(request, others, events or NoEvents(), stop or StopSwitch()))


def _trained(request: TrainRequest, others: Others, events: EventSink, stop: StopSwitch) -> TrainResult:
    """Open the parts of a training, and run it from its last checkpoint."""
    learn, held_out = task_sides(request)
    model = base_model(request.settings)
    options = grpo_options(request.settings)
    options.check()
    with ExitStack() as stack:
        directory = stack.enter_context(training_directory(request, learn, held_out, model))
        log = stack.enter_context(closing(directory.events()))
        sink = FanOut([log, events], process_masker(request.settings.experience.key_env))
        parts = _Parts(stack, request, directory, sink, stop, stack.enter_context(BackgroundLoop()))
        policy, folder = parts.policy(model), directory.path
        trainer = others.trainer(
            model.absolute(), folder.absolute() / CHECKPOINTS, options, logs=folder / LOGS
        )
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
                    judged_apart=request.judge is not None,
                ),
                known_ids=_known_text_ids(trainer),
            ),
            folder=directory.path,
            aside=parts.aside,
            events=sink,
            stop=stop,
        )
        asks = bool(request.settings.policy.urls)
        watching = servers_watched(request.settings, request.mode, chat=collector.chat, policy=asks)
        watch = stack.enter_context(parts.aside.keep_open(watching))
        write_learned_from(directory.path, (task.id for task in learn))
        goes_on(directory, planned=wanted.steps)
        with collector.aside():  # the trainer writes while episodes are guarded
            trained = loop.run()
        servers = parts.aside.run(watch.table()) if watch is not None else ()
        _write_report(directory, trained, planned=wanted.steps, servers=servers)
        return TrainResult(
            directory=directory.path,
            training=training_of(directory),
            trained=trained,
            warnings=tuple(
                dict.fromkeys(
                    (
                        *collector.warnings,
                        *collector.notes,
                        *(f"{folder}: is no whole checkpoint and was skipped" for folder in trainer.ignored),
                        *impatience(getattr(policy, "impatient", 0)),
                    )
                )
            ),
            strays=tuple(process_masker().text(stray) for stray in PROCESS.stray_calls()),
            stopped_by=stop.signal,
        )


@dataclass
class _Parts:
    """Opens what a training is made of; all of it is closed with the stack."""

    _stack: ExitStack
    _request: TrainRequest
    _directory: RunDirectory
    _events: EventSink
    _stop: StopSwitch
    aside: BackgroundLoop

    def policy(self, model: Path) -> PolicyServer:
        """The policy in this process, or behind the servers that settings name."""
        settings = self._request.settings
        if settings.policy.urls:
            from dreamgym_kit.adapters.models.remote import open_remote

            source, most = settings.where("policy", "urls"), settings.alarms.stale_weights
            remote = self._stack.enter_context(
                closing(open_remote(settings.policy, source=source, most=most))
            )
            remote.check(
                temperature=settings.policy.temperature, adapters=settings.train.lora_rank is not None
            )
            return remote
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"  # where the trainer's copy lies
        opened = open_local(model, version=version_of(0), lockstep=True, device=device)
        return self._stack.enter_context(closing(opened))

    def examiner(self, held_out: Sequence[Task], policy: PolicyServer) -> Rollouts | None:
        """Who measures, where that is not who collects: really, without its faults, or by the checkers."""
        request = self._request
        if request.mode is not Mode.DREAM or not held_out:
            return None
        if request.settings.train.eval_real:
            return self.collector(EXAMINED, held_out, policy, Mode.RECORD)
        if request.settings.train.faults is not None or request.judge is not None:
            return self.collector(EXAMINED, held_out, policy, Mode.DREAM)
        return None

    def collector(
        self,
        name: str,
        tasks: Sequence[Task],
        policy: PolicyServer,
        mode: Mode,
        faults: float | None = None,
    ) -> Rollouts:
        """Open graph, gate and buffer; real tools get nothing to keep their calls in.

        `faults`: share of the calls that fail; None: as settings have it.
        """
        dreams, request = not mode.bare, self._request
        part = part_of(
            request,
            self._directory.path / name,
            tasks=tasks,
            settings=under_faults(request.settings, faults),
            mode=mode,
            store=request.store if dreams else None,
            experience=request.experience if dreams else None,
            judge=request.judge if name == ROLLOUTS else None,
            policy=policy,
            must_reset=writes_are_real(mode, request.stage),
            label=f"{request.label}:{name}" if request.label is not None else None,
            trains=dreams,
        )
        return self._stack.enter_context(
            self.aside.keep_open(open_rollouts(part, events=self._events, stop=self._stop))
        )


def goes_on(directory: RunDirectory, *, planned: int) -> None:
    """A leg begins: the end of an earlier one is no end any more. One that is refused leaves it as it is."""
    directory.write_report({"kind": TRAINING, "planned": planned})


def _write_report(
    directory: RunDirectory, trained: Trained, *, planned: int, servers: Sequence[JsonValue]
) -> None:
    """Write down how it ended, without secrets; `servers`: what each counted in this leg."""
    alarm, weights, mask = trained.alarm, trained.weights, process_masker()
    ended: JsonValue = None
    if alarm is not None:
        ended = {"alarm": alarm.alarm, "text": mask.text(alarm.text), "step": alarm.step}
    directory.write_report(
        {
            "kind": TRAINING,
            "kept": trained.checkpoint,
            "weights": None if weights is None else str(weights.relative_to(directory.path)),
            "alarm": ended,
            "stopped": trained.stopped,
            "planned": planned,
            **({"servers": mask.plain(list(servers))} if servers else {}),
        }
    )


def _known_text_ids(trainer: "TrlTrainer") -> list[int]:
    """Return the token ids of the known text by the trained model's own tokenizer and template."""
    messages = [{"role": message.role, "content": message.content} for message in KNOWN_TEXT]
    text = trainer.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = trainer.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def impatience(batches: int) -> list[str]:
    """What a person should know of batches that lockstep began without everybody."""
    if not batches:
        return []
    note = (
        f"{batches} times an episode asked the policy nothing for so long that the others went on without "
        "it: who shared a batch hung on time there, so the same training made again, or resumed, may differ "
        "in the last bits; a tool or node that takes minutes is the usual cause"
    )
    return [note]


def grpo_options(settings: Settings) -> GrpoOptions:
    """How a trainer is to learn, by `[train]` and `[policy]`."""
    conf = settings.train
    return GrpoOptions(
        algorithm=conf.algorithm,
        loss=conf.loss_type,
        learning_rate=conf.lr,
        warmup_steps=conf.warmup,
        clip=conf.clip_ratio,
        beta=conf.beta,
        gae=conf.gae_lambda,
        value_rate=conf.value_lr,
        value_weight=conf.value_weight,
        dpo_beta=conf.dpo_beta,
        max_grad_norm=conf.grad_clip,
        temperature=settings.policy.temperature,
        micro_batches=conf.micro_batches,
        max_completion=settings.policy.max_output,
        lora=None if conf.lora_rank is None else LoraOptions(rank=conf.lora_rank, alpha=2 * conf.lora_rank),
        adapter_beside=conf.lora_rank is not None and bool(settings.policy.urls),
        seed=conf.seed,
        save_every=conf.save_every,
        keep=conf.keep_checkpoints,
        report_to=conf.report_to,
    )


@renamed_arguments(store="buffer", n="group_size", directory="run_dir")
def train(
    graph: object,
    tasks: Tasks,
    *,
    policy: str | Path | None = None,
    held_out: Tasks | None = None,
    settings: Settings | None = None,
    buffer: TransitionStore | str | Path | None = None,
    experience: ExperienceModel | None = None,
    judge: Checker | None = None,
    steps: int | None = None,
    group_size: int | None = None,
    seed: int | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    events: EventSink | None = None,
) -> TrainResult:
    """Train the agent's own model in the dream; no real tool runs while it learns.

    Waits until it is done, also inside a running event loop.

    Args:
        graph: as for `simulate`.
        tasks: a JSON-lines file, or a list of `Task`; those whose split is held out are never learned from.
        policy: the model directory to begin with; default: `policy.model` of the settings.
        held_out: tasks to measure with; default: those of `train.eval_tasks`, else the held-out of `tasks`.
        settings: default: the nearest dreamgym.toml. `[train]` and `[alarms]` say how, and when to stop.
        buffer: recordings that the dream answers from; default: the buffer of the settings.
        experience: an experience model of one's own instead of recordings.
        judge: rewards what is learned from instead of the tasks' own checkers, which still judge evaluations.
        steps: optimiser steps.
        group_size: episodes of each task in a step.
        seed: same seed, same weights.
        run_dir: the run directory to make, or to go on with; default: a new one under `settings.runs`.
        resume: go on with the training in `run_dir`.
        events: receives the events of the training.

    Returns:
        The result: `weights` is the model directory, `training` the figures, `trained.alarm` what
        ended it early.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: an argument cannot be used; nothing was learned.
    """
    at_least(1, "learned", steps=steps)
    at_least(2, "learned", group_size=group_size)
    at_least(0, "learned", seed=seed)
    run_settings = learning_settings(
        settings, policy, held_out, steps=steps, group_size=group_size, seed=seed
    )
    with requested(
        TrainRequest,
        graph,
        tasks,
        run_settings,
        buffer=buffer,
        run_dir=run_dir,
        held_out=None if isinstance(held_out, (str, Path)) else held_out,
        experience=experience,
        judge=judge,
        resume=resume,
    ) as request:
        return run_training(request, events=events)


def learning_settings(
    settings: Settings | None,
    policy: str | Path | None,
    held_out: Tasks | None,
    more: Mapping[str, object] | None = None,
    **train: object,
) -> Settings:
    """Return the given settings, else the nearest, overridden by the arguments of a public function.

    `train`: keys of `[train]`; `more`: other keys.
    """
    base = settings if settings is not None else load_settings()
    return base.with_overrides(
        {
            "policy.model": str(Path(policy).absolute()) if policy is not None else None,
            "train.eval_tasks": str(Path(held_out).absolute()) if isinstance(held_out, (str, Path)) else None,
            **{f"train.{name}": value for name, value in train.items()},
            **(more or {}),
        }
    )


def at_least(least: int, done: str, **numbers: object) -> None:
    """Refuse what is no whole number, or one below `least`; nothing was `done`.

    Raises:
        UserError: names the first of them.
    """
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise UserError(f"{name}: a whole number from {least} on, got {value!r:.40}. Nothing was {done}.")
