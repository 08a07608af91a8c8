"""`train` as a function: the command of that name, for scripts and notebooks."""

from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.api import Tasks, opened_store, renamed_arguments
from dreamgym_kit.adapters.langgraph.training.train import train as carried_out
from dreamgym_kit.adapters.langgraph.training.types import TrainRequest, TrainResult
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Checker, EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings


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
        events: hears what happens while it happens.

    Returns:
        What came of it: `weights` is the model directory, `training` the figures, `trained.alarm` what
        ended it early.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: something cannot be used as asked; nothing was learned.
    """
    known = settings if settings is not None else load_settings()
    known = known.with_overrides(
        {
            "policy.model": str(Path(policy).absolute()) if policy is not None else None,
            "train.steps": _at_least("steps", steps, 1),
            "train.group_size": _at_least("group_size", group_size, 2),
            "train.seed": _at_least("seed", seed, 0),
            "train.eval_tasks": str(Path(held_out).absolute()) if isinstance(held_out, (str, Path)) else None,
        }
    )
    with opened_store(buffer, known, create=False) as opened:
        request = TrainRequest(
            graph=graph,
            tasks=Path(tasks) if isinstance(tasks, (str, Path)) else tasks,
            settings=known,
            held_out=None if isinstance(held_out, (str, Path)) else held_out,
            store=opened,
            experience=experience,
            judge=judge,
            directory=Path(run_dir).absolute() if run_dir is not None else None,
            resume=resume,
        )
        return carried_out(request, events=events or NoEvents())


def _at_least(name: str, value: object, least: int) -> object:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise UserError(f"{name}: a whole number from {least} on, got {value!r:.40}. Nothing was learned.")
    return value
