"""From the dream to the real tools: a policy that was trained in a dream goes on learning from real calls.

    gate      held-out tasks in the dream: success with its interval, coverage; nothing real runs
    canaries  a few tasks in shadow on the real tools: reads real, writes dreamed, all compared
    learning  the loop of any training, its episodes at the stage that was asked for

Every real call goes by one overseer, over all three parts and all legs of a run. The audit log, the episodes,
the checkpoints and the weights stay whatever ends it, and the result says what did.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dreamgym_kit.adapters.langgraph.run.api import renamed_arguments, requested
from dreamgym_kit.adapters.langgraph.run.directory import leg_directory
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.request import (
    S2rRequest,
    Tasks,
    base_model,
    name_of,
    part_of,
    task_sides,
)
from dreamgym_kit.adapters.langgraph.s2r.supervisor import (
    EarlierRecordings,
    approver_of,
    open_audit,
    overseer_over,
    real_limits,
    refuse_after_divergence,
)
from dreamgym_kit.adapters.langgraph.training.rollouts import open_rollouts
from dreamgym_kit.adapters.langgraph.training.train import (
    TrainResult,
    at_least,
    learning_settings,
    run_training,
)
from dreamgym_kit.adapters.models.folders import require_extra
from dreamgym_kit.adapters.models.local import LocalPolicy, open_local
from dreamgym_kit.adapters.trainers.ranks import require_alone
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.interfaces import Approver, EventSink, ExperienceModel, Group, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.report.s2r_text import MODE
from dreamgym_kit.rollout.events import FanOut, NoEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import tasks_digest
from dreamgym_kit.routing.router import Mode, Stage
from dreamgym_kit.settings.schema import Settings, WorkersSettings
from dreamgym_kit.supervision.audit import AUDIT, CLOSED, AuditLog, entries_of
from dreamgym_kit.supervision.divergence import figures
from dreamgym_kit.supervision.limits import (
    GateFigures,
    RealCallsStopped,
    Rule,
    Why,
    Word,
    approver_from,
    canary_facts,
    canary_word,
    dream_facts,
    dream_word,
    gate_figures,
)
from dreamgym_kit.supervision.overseer import RealOverseer
from dreamgym_kit.threads import BackgroundLoop
from dreamgym_kit.training.alarms import LOGPROBS, STALE_WEIGHTS, TOKENIZER
from dreamgym_kit.training.batching import version_of
from dreamgym_kit.training.plan import step_seed
from dreamgym_kit.types import Task

_WEIGHTS_CANARIES = (STALE_WEIGHTS, LOGPROBS, TOKENIZER)  # alarms that say so of the weights that act
GATE, CANARIES, TRAINING = "gate", "canaries", "training"


@dataclass(frozen=True, slots=True)
class S2rResult:
    """Result of an S2R run."""

    directory: Path
    gate: Word
    dream: GateFigures | None  # None: an earlier leg passed the gate
    canaries: GateFigures | None  # None: none was asked for, or an earlier leg had them
    real_calls: int  # of all legs
    budget: int
    by_tool: Mapping[str, int]
    compared: Mapping[str, Any]  # by tool
    withheld: int  # calls of episodes in doubt that did not run
    stopped: RealCallsStopped | None  # what ended the real calls; None: nothing did
    training: TrainResult | None  # None: it never began
    head: str  # digest of the audit log's last line, to be kept elsewhere
    stopped_by: int | None = None  # signal number
    executed: str = ""  # the real calls that ran past every gate, in a sentence

    @property
    def weights(self) -> Path | None:
        """The model directory of the last step that was kept."""
        return self.training.weights if self.training is not None else None


def s2r_report(result: S2rResult) -> dict[str, Any]:
    """The result in the form that the run directory holds."""
    weights = result.weights
    return {
        "kind": MODE,
        "gate": {"passed": result.gate.passed, "text": result.gate.text},
        "dream": None if result.dream is None else dream_facts(result.dream),
        "canaries": None if result.canaries is None else canary_facts(result.canaries),
        "real_calls": result.real_calls,
        "budget": result.budget,
        "by_tool": dict(result.by_tool),
        "compared": dict(result.compared),
        "withheld": result.withheld,
        "stopped": None
        if result.stopped is None
        else {"why": result.stopped.why.value, "text": process_masker().text(result.stopped.text)},
        "steps": len(result.training.trained.steps) if result.training is not None else 0,
        "weights": None if weights is None else str(weights.relative_to(result.directory)),
        "audit": {"head": result.head},
        **({"executed": result.executed} if result.executed else {}),
    }


def run_s2r(
    request: S2rRequest, *, events: EventSink | None = None, stop: StopSwitch | None = None
) -> S2rResult:
    """Continue training on the real tools, within the preflight gate, the budget and the stage.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: an argument cannot be used; no real call was made.
    """
    require_extra("train")
    require_alone("s2r")
    # Real calls stay under one overseer, so workers of the settings are not used.
    # And the sandbox is off: real calls must get out.
    guard = replace(request.settings.guard, sandbox="off")
    request = replace(request, settings=replace(request.settings, workers=WorkersSettings(), guard=guard))
    switch, stage = stop or StopSwitch(), Stage(request.settings.s2r.stage)
    real_limits(request.settings)
    learn, held_out = task_sides(request)
    if not held_out:
        raise UserError("no held-out task: the gate has nothing to try. Nothing was run.")
    approver = request.approver or approver_of(request.settings)
    if stage is Stage.APPROVE and approver is None:
        raise UserError(
            "approve: every write waits for a yes, and nobody is there to give it: name a function "
            '(s2r.approver = "module:function"), or run it at a terminal. Nothing was run.'
        )
    model = base_model(request.settings)
    with ExitStack() as stack:
        matters = _matters(request, learn, held_out)
        directory = stack.enter_context(leg_directory(request, matters, kind="s2r-", begun=AUDIT))
        audit = stack.enter_context(closing(open_audit(directory.path / AUDIT)))
        refuse_after_divergence(audit, instead="begin a new run; its weights are kept")
        log = stack.enter_context(closing(directory.events()))
        sink = FanOut([log, events or NoEvents()], process_masker(request.settings.experience.key_env))
        store = EarlierRecordings(request.store, f"s2r-{directory.manifest.run}:")
        dream = request.experience or chained_experience(store, request.settings)
        request = replace(request, store=store, experience=dream)  # one for all parts: it is mined once
        overseer = overseer_over(
            audit,
            request.settings,
            experience=dream,
            store=store,
            approver=approver,
            on_stop=lambda stopped: _report_stop(stopped, sink, switch),
        )
        run = _Run(request, directory, audit, overseer, stage, sink, switch)
        return run.go(learn, held_out, model)


@dataclass
class _Run:
    """One leg."""

    _request: S2rRequest
    _directory: RunDirectory
    _audit: AuditLog
    _overseer: RealOverseer
    _stage: Stage
    _events: EventSink
    _stop: StopSwitch
    _dream: GateFigures | None = None
    _canaries: GateFigures | None = None

    def go(self, learn: Sequence[Task], held_out: Sequence[Task], model: Path) -> S2rResult:
        """Gate, canaries, learning."""
        self._begin(learn, held_out, model)
        dream = self._request.experience
        if isinstance(dream, ChainedExperience):  # mined before anything real is under way: it takes long
            dream.prepare(self._request.settings.tenant)
        word, training = self._gate(learn, held_out, model), None
        ready = word.passed and self._overseer.stopped is None and not self._stop.requested
        if ready and not self._request.gate_only:
            training = self._learn()
            if training.trained.alarm is not None:
                alarm = training.trained.alarm
                why = Why.CANARY if alarm.alarm in _WEIGHTS_CANARIES else Why.ALARM
                self._overseer.stop(RealCallsStopped(why, f"{alarm.alarm}: {alarm.text}"))
        if self._overseer.stopped is None or self._overseer.stopped.why is not Why.AUDIT:
            self._audit.append(CLOSED, real_calls=self._overseer.limits.calls)
        result = self._result(word, training)
        self._directory.write_report(s2r_report(result))
        return result

    def _begin(self, learn: Sequence[Task], held_out: Sequence[Task], model: Path) -> None:
        s2r = self._request.settings.s2r
        self._audit.append(
            "begun",
            run=self._directory.manifest.run,
            stage=self._stage.value,
            budget=s2r.max_calls,
            most=dict(s2r.max_calls_per_tool),
            rates={**s2r.rate_per_tool, "*": s2r.rate},
            unheld=list(s2r.auto_approve),
            approver=s2r.approver or ("given" if self._request.approver is not None else ""),
            graph=name_of(self._request.graph),
            learned_from=tasks_digest(learn),
            held_out=tasks_digest(held_out),
            policy=process_masker().text(str(model)),
            weights=_weights_digest(model),
            earlier_calls=self._overseer.limits.calls,
        )

    # The gate

    def _gate(self, learn: Sequence[Task], held_out: Sequence[Task], model: Path) -> Word:
        if any(entry.kind == "open" for entry in entries_of(self._audit.path)):
            return Word(True)
        s2r = self._request.settings.s2r
        with BackgroundLoop() as aside, closing(_served(model)) as policy:
            self._events.emit("gate_started", episodes=len(held_out) * s2r.preflight_repeats)
            groups = self._collected(aside, policy, GATE, held_out, s2r.preflight_repeats, Mode.DREAM)
            self._dream = gate_figures(groups)
            word = dream_word(self._dream, s2r)
            self._audit.append("gate", passed=word.passed, text=word.text, **dream_facts(self._dream))
            self._events.emit("gate", passed=word.passed, text=word.text)
            if not word.passed or self._stop.requested or self._request.gate_only:
                return word
            if s2r.canaries:
                word = self._try_canaries(aside, policy, learn[: s2r.canaries])
        if word.passed and self._overseer.stopped is None and not self._stop.requested:
            self._audit.append("open", text=word.text)
        return word

    def _try_canaries(self, aside: BackgroundLoop, policy: LocalPolicy, tasks: Sequence[Task]) -> Word:
        assert self._dream is not None
        self._events.emit("canaries_started", episodes=len(tasks))
        groups = self._collected(aside, policy, CANARIES, tasks, 1, Mode.S2R)
        self._canaries = gate_figures(groups)
        word = canary_word(self._canaries, self._dream, self._request.settings.s2r)
        self._audit.append("canaries", passed=word.passed, text=word.text, **canary_facts(self._canaries))
        self._events.emit("canaries", passed=word.passed, text=word.text)
        if not word.passed and not self._stop.requested:
            self._overseer.stop(RealCallsStopped(Why.CANARY, "; ".join(word.reasons)))
        return word

    def _collected(
        self,
        aside: BackgroundLoop,
        policy: LocalPolicy,
        name: str,
        tasks: Sequence[Task],
        n: int,
        mode: Mode,
    ) -> list[Group]:
        """Episodes of one part, in a directory of their own."""
        request = part_of(
            self._request,
            self._directory.path / name,
            tasks=tasks,
            mode=mode,
            policy=policy,
            overseer=self._overseer if mode is Mode.S2R else None,
            needs_confirmed_effects=True,
            must_reset=self._stage is not Stage.SHADOW,
            label=f"s2r-{self._directory.manifest.run}:{name}",
        )
        with aside.keep_open(open_rollouts(request, events=self._events, stop=self._stop)) as rollouts:
            seed = step_seed(request.settings.train.seed, 0, 1)
            return aside.run(rollouts.collect(tasks, n, step=0, seed=seed))

    # Learning

    def _learn(self) -> TrainResult:
        request = part_of(
            self._request,
            self._directory.path / TRAINING,
            mode=Mode.S2R,
            overseer=self._overseer,
            stage=self._stage,
            label=f"s2r-{self._directory.manifest.run}",
        )
        return run_training(request, events=self._events, stop=self._stop)

    def _result(self, word: Word, training: TrainResult | None) -> S2rResult:
        limits, divergence = self._overseer.limits, self._overseer.divergence
        return S2rResult(
            directory=self._directory.path,
            gate=word,
            dream=self._dream,
            canaries=self._canaries,
            real_calls=limits.calls,
            budget=limits.budget,
            by_tool=limits.by_tool,
            compared=figures(divergence.tallies),
            withheld=self._overseer.withheld,
            stopped=self._overseer.stopped,
            training=training,
            head=self._audit.head,
            stopped_by=self._stop.signal,
            executed=self._stop.reason if self._stop.code is not None else "",
        )


def _matters(request: S2rRequest, learn: Sequence[Task], held_out: Sequence[Task]) -> dict[str, Any]:
    """What all legs of a run must share."""
    stage = Stage(request.settings.s2r.stage)
    return {
        "mode": MODE,
        "graph": name_of(request.graph),
        "stage": "staged" if stage is Stage.APPROVE else stage.value,  # as earlier versions wrote it
        "policy": str(base_model(request.settings)),
        "learned_from": tasks_digest(learn),
        "held_out": tasks_digest(held_out),
        "tenant": request.settings.tenant,
    }


def _served(model: Path) -> LocalPolicy:
    return open_local(model, version=version_of(0), lockstep=True)


def _report_stop(stopped: RealCallsStopped, events: EventSink, switch: StopSwitch) -> None:
    events.emit("real_calls_stopped", why=stopped.why.value, text=stopped.text)
    switch.request(stopped.text)


def _weights_digest(model: Path) -> str:
    """Names the weights that acted."""
    digest = hashlib.sha256()
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@renamed_arguments(
    store="buffer", n="group_size", directory="run_dir", calls="max_calls", gate_only="preflight_only"
)
def s2r(
    graph: object,
    tasks: Tasks,
    *,
    policy: str | Path | None = None,
    max_calls: int | None = None,
    stage: Stage | str | None = None,
    approve: Approver | Rule | None = None,
    held_out: Tasks | None = None,
    settings: Settings | None = None,
    buffer: TransitionStore | str | Path | None = None,
    experience: ExperienceModel | None = None,
    steps: int | None = None,
    group_size: int | None = None,
    seed: int | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    preflight_only: bool = False,
    events: EventSink | None = None,
) -> S2rResult:
    """Continue training a policy on the REAL tools, within the preflight gate and the budget.

    Args:
        graph: as for `simulate`.
        tasks: a JSON-lines file, or a list of `Task`; the gate tries the held-out ones in the dream.
        policy: the model directory to begin with; default: `policy.model` of the settings.
        max_calls: most real calls, all legs together; without it, and `s2r.max_calls`, nothing begins.
        stage: "shadow", "approve" or "live".
        approve: who is asked about held calls: an `Approver`, or a function that gives True for a yes.
        held_out: tasks for the gate; default: as for `train`.
        settings: default: the nearest dreamgym.toml. `[s2r]` and `[train]` say the rest.
        buffer: recordings that real answers are compared with and added to; default: that of the settings.
        experience: an experience model of one's own instead of recordings.
        steps: optimiser steps.
        group_size: episodes of each task in a step.
        seed: decides tasks and sampling.
        run_dir: the run directory to make, or to go on with; default: a new one under `settings.runs`.
        resume: go on with the run in `run_dir`.
        preflight_only: no further than the gate; no real call is made.
        events: receives the events of the run.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: an argument cannot be used; no real call was made.
    """
    if stage is not None and stage not in set(Stage):
        raise UnknownName("stage", str(stage), known=list(Stage), source="stage", where="the stages")
    at_least(0, "run", max_calls=max_calls, steps=steps, group_size=group_size, seed=seed)
    s2r = {"s2r.max_calls": max_calls, "s2r.stage": None if stage is None else str(Stage(stage))}
    run_settings = learning_settings(
        settings, policy, held_out, s2r, steps=steps, group_size=group_size, seed=seed
    )
    with requested(
        S2rRequest,
        graph,
        tasks,
        run_settings,
        buffer=buffer,
        run_dir=run_dir,
        create=True,
        held_out=None if isinstance(held_out, (str, Path)) else held_out,
        experience=experience,
        approver=None if approve is None else approver_from(approve),
        resume=resume,
        gate_only=preflight_only,
    ) as request:
        return run_s2r(request, events=events)
