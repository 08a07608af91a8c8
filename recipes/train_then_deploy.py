"""The whole way on the support desk, in one command: record, learn to begin with, dream, prove, deploy.

    python -m dreamgym_kit.recipes.train_then_deploy OUT
    python -m dreamgym_kit.recipes.train_then_deploy OUT --quick

Scripted colleagues, good and bad ones, work the desk for real and are recorded. A nano model learns from
such work and is tried on the real tools. Then it learns in the dream: no real tool runs, which is counted at
the desk itself. What came of it is exported and tried on the real tools again, on tasks that nothing was
learned from; the last lines say whether it got better, and how to put it in place of the agent's model.
Only glue: each step is a call that works on a graph of one's own as well.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.deployment.model_registry import KEY
from dreamgym_kit.errors import UserError, require_extra
from dreamgym_kit.interfaces import TransitionStore
from dreamgym_kit.recipes.desk.environment import times_opened
from dreamgym_kit.recipes.desk.graph import graph
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.report.evaluation import Evaluation, scored
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.rollout.rundir import to_resume
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Task

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from dreamgym_kit.recipes.whole_way import WholeWayOutcome

GRAPH = "dreamgym_kit.recipes.desk.graph:graph"
COLLEAGUES = "scripted:mixed"
_MAX_READ = 1_000_000  # calls of the crawl: no limit

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeWayPlan:
    """How much of everything."""

    seed: int = 0
    environments: int = 300  # desks whose requests are recorded, and learned from in the dream
    recorded: int = 4  # episodes of each, by colleagues drawn by chance
    shipped: bool = False  # begin with the weights of the package; else a model is taught from nothing
    steps: int = 40  # of GRPO
    per_step: int = 16  # tasks
    repeats: int = 8  # episodes of each
    rate: float = 3e-4  # learning rate
    lora: int | None = None  # rank of the adapter that is trained; None: all weights are
    held_out: int = 90  # tasks that nothing is learned from
    tries: int = 4  # of each in an evaluation
    curriculum: bool = True  # tasks that are hard but can be solved are drawn more often, in the dream
    gate: int = 27  # recorded tasks that nothing is learned from: the gate to the real tools tries them
    gate_low: float = 0.3  # least lower bound of the success there, 0..1
    gate_coverage: float = 0.8  # least share of the calls there that the dream can answer, 0..1
    canaries: int = 8  # tasks tried in shadow before anything is written for real
    real_calls: int = 1400  # most calls on the real tools while it goes on learning there
    real_steps: int = 2  # of GRPO on the real tools


QUICK = WholeWayPlan(
    environments=27,
    recorded=3,
    shipped=True,
    steps=2,
    per_step=4,
    repeats=4,
    held_out=9,
    tries=2,
    gate=9,
    gate_low=0.05,
    gate_coverage=0.5,
    canaries=0,  # of few recordings little can be told, and they would shut the gate
    real_calls=200,
    real_steps=1,
)


def train_then_deploy(out: Path, plan: WholeWayPlan, *, tell: Tell) -> "WholeWayOutcome":
    """Go the whole way; everything lies below `out`. What a killed process did there is gone on with.

    Raises:
        MissingExtra: the packages of the extras `demo` and `train` are not all installed.
        UserError: something else is at `out`, or work by another plan; nothing was done.
    """
    from dreamgym_kit.adapters.models.folders import require_extra as require_training
    from dreamgym_kit.recipes.whole_report import write_report
    from dreamgym_kit.recipes.whole_way import WholeWay

    require_extra("demo", needed_by="the support desk")
    require_training("the recipe")
    outcome = WholeWay(out.absolute(), plan, tell).go()
    page = write_report(out.absolute(), plan, outcome)
    tell(f"10 report    {page}")
    return outcome


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A training's end."""

    directory: Path
    weights: Path  # of the last good step
    real: int  # calls
    dreamed: int
    alarm: str
    steps: int


def settings_for(out: Path, plan: WholeWayPlan) -> Settings:
    """The desk's own settings, and how much of everything."""
    return load_settings(file=SETTINGS_FILE, environ={}).with_overrides(
        {
            "runs": str(out / "runs"),
            "simulate.repeats": 1,
            "simulate.concurrency": 64,
            "simulate.seed": plan.seed,
            "train.seed": plan.seed,
            "train.steps": plan.steps,
            "train.tasks_per_step": plan.per_step,
            "train.group_size": plan.repeats,
            "train.lr": plan.rate,
            "train.lora_rank": plan.lora,
            "train.eval_every": 0,
            "train.save_every": max(1, plan.steps // 8),
        }
    )


def record_work(
    tasks: list[Task], settings: Settings, store: TransitionStore, plan: WholeWayPlan, tell: Tell
) -> None:
    """Let the colleagues work every task several times, for real, keep each call, then read what is there.

    What nobody has read the dream cannot tell, and an episode that it cannot tell teaches nothing: mostly
    those in which the model looked where no colleague would.
    """
    from dreamgym_kit.adapters.langgraph.run.api import record
    from dreamgym_kit.adapters.langgraph.run.crawling import CrawlRequest, crawl, crawl_targets
    from dreamgym_kit.rollout.event_loop import run_to_end

    before = times_opened()
    label = f"work-{plan.seed}"  # who works an episode is drawn by its name: no run's id may be in it
    done = record(_colleagues, tasks, settings=settings, buffer=store, repeats=plan.recorded, label=label)
    worked = times_opened() - before
    request = CrawlRequest(
        graph=GRAPH,
        environments=crawl_targets(tasks),
        settings=settings,
        store=store,
        most=_MAX_READ,
        per_second=0,
    )
    run_to_end(crawl(request))
    tell(
        f"1 record     {done.totals.total} requests worked on the real desk by scripted colleagues, "
        f"{done.totals.passed / done.totals.total:.0%} of them well; {worked:,} real calls, and "
        f"{times_opened() - before - worked:,} that only read"
    )


def _colleagues() -> "AbstractAsyncContextManager[Any]":
    return graph(COLLEAGUES)


_colleagues.name = "desk"  # type: ignore[attr-defined]  # how a run names a graph that is no spec


def taught(out: Path, plan: WholeWayPlan, tell: Tell) -> Path:
    """The model that learning in the dream begins with."""
    from dreamgym_kit.recipes.nano import build

    if plan.shipped:
        tell(f"3 start      the nano model of the package, {build.WEIGHTS.name}")
        return build.WEIGHTS
    began = time.process_time()
    facts = build.build(
        out / "start", build.BuildPlan(seed=plan.seed, samplings=1, environments_per_family=1)
    )
    tell(
        f"3 start      a nano model of {facts['parameters']:,} parameters, taught from nothing by "
        f"{facts['data']['episodes']} recorded episodes in {time.process_time() - began:.0f} CPU s"
    )
    return out / "start"


def tried(
    model: Path,
    tasks: list[Task],
    settings: Settings,
    plan: WholeWayPlan,
    against: Evaluation | Path | None,
    tell: Tell,
    *,
    directory: Path | None = None,
    line: str = "4 evaluate",
) -> Evaluation:
    """Try a model on the real tools."""
    from dreamgym_kit.adapters.langgraph.run.evaluation import evaluate

    evaluation = evaluate(
        GRAPH,
        tasks,
        real=True,
        settings=settings,
        repeats=plan.tries,
        policy=model,
        baseline=against,
        run_dir=directory,
    )
    tell(f"{line}   {evaluation.sentence if against is None else scored(evaluation.b)}")
    return evaluation


def learn(
    start: Path,
    tasks: list[Task],
    settings: Settings,
    store: TransitionStore | None,
    out: Path,
    tell: Tell,
    *,
    mode: Mode = Mode.DREAM,
) -> TrainingResult:
    """GRPO: in the dream, where no real tool runs; or, to compare, on the real tools.

    A training that is in its folder already, broken off, is gone on with.
    """
    from dreamgym_kit.adapters.langgraph.run.request import TrainRequest
    from dreamgym_kit.adapters.langgraph.training.train import run_training

    before, began = times_opened(), time.monotonic()
    changed = settings.with_overrides({"policy.model": str(start)})
    place = (out / "training").absolute()
    request = TrainRequest(
        graph=GRAPH,
        tasks=tasks,
        settings=changed,
        mode=mode,
        store=store,
        directory=place,
        resume=to_resume(place),
    )
    result = run_training(request, events=NoEvents())
    steps = result.trained.steps
    learned = TrainingResult(
        result.directory,
        result.weights or start,
        real=times_opened() - before,
        dreamed=sum(step.facts.calls for step in steps) if mode is Mode.DREAM else 0,
        alarm=str(result.trained.alarm or ""),
        steps=len(steps),
    )
    if mode is not Mode.DREAM:
        tell(f"5 real       {learned.steps} steps of GRPO on the real tools: {learned.real:,} real calls")
        return learned
    tell(
        f"5 dream      {learned.steps} steps of GRPO in {time.monotonic() - began:.0f} s: {learned.real} real"
        f" calls, {learned.dreamed:,} dreamed; how it does in the dream is no result, the next line is"
    )
    if learned.alarm:
        tell(f"             an alarm ended it at its last good checkpoint: {learned.alarm}")
    return learned


def last_lines(outcome: "WholeWayOutcome") -> str:
    """Whether it got better and is in use, plainly, and how to point a graph at it."""
    lines = "\n".join(f"  {line}" for line in outcome.pointing.lines)
    key = f"({KEY} is a secret of your own, set where the server runs and where the agent does)"
    return f"\n{outcome.sentence}\n\nTo put what is in use in place of the agent's model:\n{lines}\n  {key}\n"


def main(arguments: list[str] | None = None) -> int:
    """Go the whole way as told on the command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dreamgym_kit.recipes.train_then_deploy")
    parser.add_argument("out", type=Path, help="the folder that everything is written to")
    parser.add_argument(
        "--quick", action="store_true", help="a token effort in about a minute, to see it run"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides data, order and sampling (0)")
    parser.add_argument("--lora", type=int, metavar="RANK", help="train an adapter; else all weights")
    flags, say = parser.parse_args(arguments), partial(print, flush=True)
    plan = QUICK if flags.quick else WholeWayPlan()
    try:
        outcome = train_then_deploy(flags.out, replace(plan, seed=flags.seed, lora=flags.lora), tell=say)
    except UserError as refused:
        sys.stderr.write(f"error: {refused}\n")
        return 2
    say(last_lines(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
