"""`dreamgym-kit train`: the agent's own model learns in the dream; held-out tasks say what it learned."""

import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dreamgym_kit.cli import options
from dreamgym_kit.cli.approving import agree
from dreamgym_kit.cli.output import near, say, say_json, say_steps, stdout_paint, tell
from dreamgym_kit.cli.progress import TrainingProgress
from dreamgym_kit.cli.running import end, going_on, opened_recordings, watched
from dreamgym_kit.errors import ExitCode, has_extra
from dreamgym_kit.report.sanitize import one_line

if TYPE_CHECKING:
    from dreamgym_kit.adapters.langgraph.run.request import TrainRequest
    from dreamgym_kit.adapters.langgraph.training.train import TrainResult

EXAMPLES = (
    "dreamgym-kit train my_agent:graph --policy models/nano --tasks tasks.jsonl",
    "dreamgym-kit train --steps 40 --tasks-per-step 16 --group-size 8 --lr 2e-4",
    "dreamgym-kit train --policy models/qwen3-8b --lora-rank 16 --lr 5e-5 --set train.staleness=1",
    "dreamgym-kit train --algorithm ppo --set train.faults=0.1",
    "dreamgym-kit train --set curriculum.enabled=true --steps 60",
    "dreamgym-kit train --set train.eval_every=5 --set train.report_to=tensorboard",
    "dreamgym-kit train --resume runs/2026-11-21-train-desk-7f3a",
    "torchrun --nproc-per-node 2 --no-python dreamgym-kit train",
)
CODES = (
    "Exit codes: 0 trained; 1 an alarm stopped it at its last good checkpoint; 2 cannot run; 6 a real call "
    "was executed in a dream; 130 or 143 stopped, can be resumed."
)


@options.keyed(
    *("tasks", "buffer", "train.algorithm", "train.steps", "train.tasks_per_step", "train.group_size"),
    *("train.lr", "train.lora_rank", "train.eval_real"),
)
def command(
    given: options.Given,
    policy: options.StartPolicy = None,
    resume: options.Resume = None,
    yes: options.Yes = False,
    verbose: options.Verbose = 0,
    as_json: options.AsJson = False,
) -> None:
    """Train the agent's model in the dream.

    Each step simulates groups of episodes, grades them and updates the model. The result is the pass rate on
    held-out tasks before and after. Training stops when its figures can no longer be trusted.
    """
    from dreamgym_kit.adapters.trainers.ranks import lends_a_hand

    if lends_a_hand():
        _lend_a_hand()
    settings = given.settings(policy)
    from dreamgym_kit.adapters.models.folders import require_extra

    require_extra("train")
    from dreamgym_kit.adapters.langgraph.run.request import TrainRequest

    spec, chosen = options.graph_of(settings, "train"), options.tasks_of(settings, "train")
    from dreamgym_kit.adapters.langgraph.training.train import run_training

    with opened_recordings(settings) as store:
        request = TrainRequest(
            graph=spec,
            tasks=chosen,
            settings=settings,
            store=store,
            directory=resume.absolute() if resume is not None else None,
            resume=resume is not None,
        )
        if settings.train.eval_real:
            _agree(request, yes=yes)
        with watched(TrainingProgress(), plain=verbose > 0) as (events, stop):
            result = run_training(request, events=events, stop=stop)
    _show(result, as_json=as_json)
    end(_code(result), dreamt=True)


def _lend_a_hand() -> None:
    """Of several processes, not the first: learn with it, say nothing, and leave signals to it."""
    from dreamgym_kit.adapters.models.folders import require_extra
    from dreamgym_kit.adapters.trainers.ranks import FirstStopped, run_rank
    from dreamgym_kit.rollout.stop import SIGNALS

    require_extra("train")
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with suppress(FirstStopped):
        run_rank()
    end(0, dreamt=True)


def _agree(request: "TrainRequest", *, yes: bool) -> None:
    """Say what the real tools can do and how often they may be called, and ask."""
    from dreamgym_kit.adapters.langgraph.run.request import task_sides

    settings, wanted = request.settings, request.settings.train
    _, held_out = task_sides(request)
    times = 2 + (wanted.steps - 1) // wanted.eval_every if wanted.eval_every else 2
    episodes = times * wanted.eval_n * len(held_out)
    most = settings.limits.max_tool_calls
    tell(
        f"Real calls: {times} evaluations of {len(held_out)} tasks, at most {episodes * most:,} calls in all."
    )
    agree(str(request.graph), settings, episodes=episodes, yes=yes, command="train")


def _code(result: "TrainResult") -> int:
    if result.trained.alarm is not None and result.trained.alarm.alarm == "executed":
        return ExitCode.EXECUTED
    if result.stopped_by is not None:
        return 128 + result.stopped_by
    return 1 if result.trained.alarm is not None else 0


def _show(result: "TrainResult", *, as_json: bool) -> None:
    from dreamgym_kit.report.training_text import render_training

    for warning in result.warnings:
        tell(f"warning: {one_line(warning)}")
    for stray in result.strays:
        tell(f"refused outside of any episode: {one_line(stray)}")
    pictures = _draw(result)
    if as_json:
        say_json({"directory": str(result.directory), **result.training.to_json()})
        return
    alarm = result.trained.alarm
    if alarm is not None and alarm.alarm == "executed":
        say(f"FAILED  {one_line(alarm.text)}\n")
    say(f" {near(result.directory)}")
    say(render_training(result.training, paint=stdout_paint()))
    run = shlex.quote(near(result.directory))
    steps = [("Page", f"dreamgym-kit view {run}", "how it went, step by step")]
    if pictures is not None:
        say(f"  {'pictures':<12}{near(pictures)}")
    if result.weights is not None:
        say(f"  {'weights':<12}{near(result.weights)}\n")
        weights = shlex.quote(near(result.weights))
        steps.append(("Use", f"dreamgym-kit evaluate --policy {weights}", "the agent with what was learned"))
    say_steps(*_going_on(result), *steps)


def _going_on(result: "TrainResult") -> list[tuple[str, str, str]]:
    """How a training that did not come to its end goes on."""
    note = "the rest of the steps" if result.trained.stopped else ""
    if result.trained.alarm is not None:
        note = "after what caused it is mended; with other [train] settings begin a new one from the weights"
    return [("Go on", going_on(near(result.directory)), note)] if note else []


def _draw(result: "TrainResult") -> Path | None:
    """Pictures beside the run, where matplotlib is installed."""
    from dreamgym_kit.adapters.plots import draw_training

    if not has_extra("plots"):
        return None
    return result.directory / "plots" if draw_training(result.training, result.directory / "plots") else None
