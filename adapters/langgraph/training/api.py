"""`train` as a function: the command of that name, for scripts and notebooks."""

from collections.abc import Mapping
from pathlib import Path

from dreamgym_kit.adapters.langgraph.run.api import renamed_arguments, requested
from dreamgym_kit.adapters.langgraph.run.request import Tasks, TrainRequest
from dreamgym_kit.adapters.langgraph.training.train import TrainResult
from dreamgym_kit.adapters.langgraph.training.train import train as carried_out
from dreamgym_kit.errors import UserError
from dreamgym_kit.interfaces import Checker, EventSink, ExperienceModel, TransitionStore
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
        The result: `weights` is the model directory, `training` the figures, `trained.alarm` what
        ended it early.

    Raises:
        MissingExtra: the packages of the extra `train` are not installed.
        UserError: something cannot be used as asked; nothing was learned.
    """
    at_least(1, "learned", steps=steps)
    at_least(2, "learned", group_size=group_size)
    at_least(0, "learned", seed=seed)
    known = learning_settings(settings, policy, held_out, steps=steps, group_size=group_size, seed=seed)
    with requested(
        TrainRequest,
        graph,
        tasks,
        known,
        buffer=buffer,
        run_dir=run_dir,
        held_out=None if isinstance(held_out, (str, Path)) else held_out,
        experience=experience,
        judge=judge,
        resume=resume,
    ) as request:
        return carried_out(request, events=events)


def learning_settings(
    settings: Settings | None,
    policy: str | Path | None,
    held_out: Tasks | None,
    more: Mapping[str, object] | None = None,
    **train: object,
) -> Settings:
    """The settings given, else the nearest, with what a public function was given laid over them.

    `train`: keys of `[train]`; `more`: other keys.
    """
    known = settings if settings is not None else load_settings()
    return known.with_overrides(
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
