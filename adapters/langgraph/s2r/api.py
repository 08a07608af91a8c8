"""`s2r` as a function: the command of that name, for scripts and notebooks."""

from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.api import Tasks, opened_store, renamed_arguments
from dreamgym_kit.adapters.langgraph.s2r.s2r_run import run_s2r
from dreamgym_kit.adapters.langgraph.s2r.types import S2rRequest, S2rResult
from dreamgym_kit.errors import UnknownName, UserError
from dreamgym_kit.interfaces import Approver, EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.routing.router import Stage
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.supervision.approvals import Rule, approver_from


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
    known = settings if settings is not None else load_settings()
    if stage is not None and stage not in set(Stage):
        raise UnknownName("stage", str(stage), known=list(Stage), source="stage", where="the stages")
    numbers: dict[str, object] = {
        "max_calls": max_calls,
        "steps": steps,
        "group_size": group_size,
        "seed": seed,
    }
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise UserError(f"{name}: a whole number from 0 on, got {value!r:.40}. Nothing was run.")
    known = known.with_overrides(
        {
            "policy.model": str(Path(policy).absolute()) if policy is not None else None,
            "s2r.max_calls": max_calls,
            "s2r.stage": None if stage is None else str(Stage(stage)),
            "train.steps": steps,
            "train.group_size": group_size,
            "train.seed": seed,
            "train.eval_tasks": str(Path(held_out).absolute()) if isinstance(held_out, (str, Path)) else None,
        }
    )
    with opened_store(buffer, known, create=True) as opened:
        assert opened is not None  # it is made where there is none
        request = S2rRequest(
            graph=graph,
            tasks=Path(tasks) if isinstance(tasks, (str, Path)) else tasks,
            settings=known,
            store=opened,
            held_out=None if isinstance(held_out, (str, Path)) else held_out,
            experience=experience,
            approver=None if approve is None else approver_from(approve),
            directory=Path(run_dir).absolute() if run_dir is not None else None,
            resume=resume,
            gate_only=preflight_only,
        )
        return run_s2r(request, events=events or NoEvents())
