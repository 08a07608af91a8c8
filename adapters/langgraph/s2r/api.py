"""`s2r` as a function: the command of that name, for scripts and notebooks."""

from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.api import renamed_arguments, requested
from dreamgym_kit.adapters.langgraph.run.request import S2rRequest, Tasks
from dreamgym_kit.adapters.langgraph.s2r.s2r_run import S2rResult, run_s2r
from dreamgym_kit.adapters.langgraph.training.api import at_least, learning_settings
from dreamgym_kit.errors import UnknownName
from dreamgym_kit.interfaces import Approver, EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.routing.router import Stage
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.supervision.limits import Rule, approver_from


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
    """Let a policy that was trained in a dream go on learning on the REAL tools, as far as it is let.

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
        events: hears what happens while it happens.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: something cannot be used as asked; no real call was made.
    """
    if stage is not None and stage not in set(Stage):
        raise UnknownName("stage", str(stage), known=list(Stage), source="stage", where="the stages")
    at_least(0, "run", max_calls=max_calls, steps=steps, group_size=group_size, seed=seed)
    s2r = {"s2r.max_calls": max_calls, "s2r.stage": None if stage is None else str(Stage(stage))}
    known = learning_settings(settings, policy, held_out, s2r, steps=steps, group_size=group_size, seed=seed)
    with requested(
        S2rRequest,
        graph,
        tasks,
        known,
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
