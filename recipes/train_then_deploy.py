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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dreamgym_kit.errors import UserError
from dreamgym_kit.gate.policy import Mode
from dreamgym_kit.gate.registry import PROCESS, wake
from dreamgym_kit.ports import TransitionStore
from dreamgym_kit.recipes.desk.graph import graph, require_extra
from dreamgym_kit.recipes.desk.record import SETTINGS_FILE
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.recipes.desk.world import times_opened
from dreamgym_kit.report.evaluation import Evaluation
from dreamgym_kit.rollout.events import NoEvents
from dreamgym_kit.settings.load import load_settings
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.trust.beating import Word
from dreamgym_kit.vocabulary import Split, Task

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

GRAPH = "dreamgym_kit.recipes.desk.graph:graph"
COLLEAGUES = "scripted:mixed"
_MODEL_NAME = "desk"
_MOST_READ = 1_000_000  # calls of the crawl: no limit

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    seed: int = 0
    worlds: int = 300  # desks whose requests are recorded, and learned from in the dream
    recorded: int = 4  # episodes of each, by colleagues drawn by chance
    shipped: bool = False  # begin with the weights of the package; else a model is taught from nothing
    steps: int = 40  # of GRPO
    per_step: int = 16  # tasks
    siblings: int = 8  # episodes of each
    rate: float = 3e-4  # learning rate
    lora: int | None = None  # rank of the adapter that is trained; None: all weights are
    held_out: int = 90  # tasks that nothing is learned from
    tries: int = 4  # of each in an evaluation


QUICK = Plan(worlds=27, recorded=3, shipped=True, steps=2, per_step=4, siblings=4, held_out=9, tries=2)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    before: Evaluation
    after: Evaluation
    merged: Path  # the model directory to serve
    adapter: Path | None  # None: all weights were trained
    real_calls: int  # while it learned in the dream
    dreamed_calls: int
    alarm: str  # why training ended early; "": it did not

    @property
    def better(self) -> bool:
        """Whether it clearly got better on the real tools."""
        return self.after.beating is not None and self.after.beating.word is Word.BETTER


def train_then_deploy(out: Path, plan: Plan, *, tell: Tell) -> Outcome:
    """Go the whole way; everything lies below `out`.

    Raises:
        MissingExtra: the packages of the extras `desk` and `train` are not all installed.
        UserError: something is at `out` already; nothing was done.
    """
    from dreamgym_kit.adapters.stores.sqlite import SqliteStore
    from dreamgym_kit.adapters.trainers.extra import require_extra as require_training

    require_extra()
    require_training("the recipe")
    if out.exists():
        raise UserError(f"{out}: is there already; name another folder, or delete it first")
    out.mkdir(parents=True)
    settings = settings_for(out, plan)
    learned_from = drawn_tasks(plan.worlds, seed=plan.seed)
    held_out = drawn_tasks(plan.held_out, split=Split.HELD_OUT, seed=plan.seed)
    store = SqliteStore(out / "recordings.db")
    try:
        record_work(learned_from, settings, store, plan, tell)
        start = taught(out, plan, tell)
        before = tried(start, held_out, settings, plan, None, tell)
        learned = learn(start, learned_from, settings, store, out, tell)
    finally:
        store.close()
    merged, adapter = _export(learned, start, before, out, plan, tell)
    after = tried(merged, held_out, settings, plan, before, tell)
    _write_card_score(merged, after)
    return Outcome(before, after, merged, adapter, learned.real, learned.dreamed, learned.alarm)


@dataclass(frozen=True, slots=True)
class Learned:
    """A training's end."""

    directory: Path
    weights: Path  # of the last good step
    real: int  # calls
    dreamed: int
    alarm: str
    steps: int


def settings_for(out: Path, plan: Plan) -> Settings:
    """The desk's own settings, and how much of everything."""
    return load_settings(file=SETTINGS_FILE, environ={}).with_overrides(
        {
            "runs": str(out / "runs"),
            "simulate.n": 1,
            "simulate.concurrency": 64,
            "simulate.seed": plan.seed,
            "train.seed": plan.seed,
            "train.steps": plan.steps,
            "train.tasks": plan.per_step,
            "train.n": plan.siblings,
            "train.lr": plan.rate,
            "train.lora": plan.lora,
            "train.eval_every": 0,
            "train.save_every": max(1, plan.steps // 8),
        }
    )


def record_work(
    tasks: list[Task], settings: Settings, store: TransitionStore, plan: Plan, tell: Tell
) -> None:
    """Let the colleagues work every task several times, for real, keep each call, then read what is there.

    What nobody has read the dream cannot tell, and an episode that it cannot tell teaches nothing: mostly
    those in which the model looked where no colleague would.
    """
    from dreamgym_kit.adapters.langgraph.api import record
    from dreamgym_kit.adapters.langgraph.crawling import CrawlRequest, crawl, worlds_of
    from dreamgym_kit.rollout.loop import run_to_end

    before = times_opened()
    done = record(_colleagues, tasks, settings=settings, store=store, n=plan.recorded)
    worked = times_opened() - before
    run_to_end(
        crawl(
            CrawlRequest(
                graph=GRAPH,
                worlds=worlds_of(tasks),
                settings=settings,
                store=store,
                most=_MOST_READ,
                per_second=0,
            )
        )
    )
    tell(
        f"1 record     {done.totals.total} requests worked on the real desk by scripted colleagues, "
        f"{done.totals.success / done.totals.total:.0%} of them well; {worked:,} real calls, and "
        f"{times_opened() - before - worked:,} that only read"
    )


def _colleagues() -> "AbstractAsyncContextManager[Any]":
    return graph(COLLEAGUES)


_colleagues.name = "desk"  # type: ignore[attr-defined]  # how a run names a graph that is no spec


def taught(out: Path, plan: Plan, tell: Tell) -> Path:
    """The model that learning in the dream begins with."""
    from dreamgym_kit.recipes.nano import build

    if plan.shipped:
        tell(f"2 start      the nano model of the package, {build.WEIGHTS.name}")
        return build.WEIGHTS
    began = time.process_time()
    facts = build.build(out / "start", build.Plan(seed=plan.seed, samplings=1, worlds_per_family=1))
    tell(
        f"2 start      a nano model of {facts['parameters']:,} parameters, taught from nothing by "
        f"{facts['data']['episodes']} recorded episodes in {time.process_time() - began:.0f} CPU s"
    )
    return out / "start"


def tried(
    model: Path, tasks: list[Task], settings: Settings, plan: Plan, against: Evaluation | None, tell: Tell
) -> Evaluation:
    """Try a model on the real tools."""
    from dreamgym_kit.adapters.langgraph.evaluating import evaluate

    if PROCESS.armed:
        wake()  # the dream is over: these tools run for real
    found = evaluate(GRAPH, tasks, real=True, settings=settings, n=plan.tries, policy=model, against=against)
    which = "3 evaluate" if against is None else "6 evaluate"
    tell(f"{which}   {found.sentence if against is None else _alone(found)}")
    return found


def _alone(found: Evaluation) -> str:
    from dreamgym_kit.report.evaluation import scored

    return scored(found.b)


def learn(
    start: Path,
    tasks: list[Task],
    settings: Settings,
    store: TransitionStore | None,
    out: Path,
    tell: Tell,
    *,
    mode: Mode = Mode.DREAM,
) -> Learned:
    """GRPO: in the dream, where no real tool runs; or, to compare, on the real tools."""
    from dreamgym_kit.adapters.langgraph.training import TrainRequest, train

    before, began = times_opened(), time.monotonic()
    asked = settings.with_overrides({"policy.model": str(start)})
    request = TrainRequest(
        graph=GRAPH,
        tasks=tasks,
        settings=asked,
        mode=mode,
        store=store,
        directory=(out / "training").absolute(),
    )
    result = train(request, events=NoEvents())
    steps = result.trained.steps
    learned = Learned(
        result.directory,
        result.weights or start,
        real=times_opened() - before,
        dreamed=sum(step.facts.calls for step in steps) if mode is Mode.DREAM else 0,
        alarm=str(result.trained.alarm or ""),
        steps=len(steps),
    )
    if mode is not Mode.DREAM:
        tell(f"4 real       {learned.steps} steps of GRPO on the real tools: {learned.real:,} real calls")
        return learned
    tell(
        f"4 dream      {learned.steps} steps of GRPO in {time.monotonic() - began:.0f} s: {learned.real} real"
        f" calls, {learned.dreamed:,} dreamed; how it does in the dream is no result, line 6 is"
    )
    if learned.alarm:
        tell(f"             an alarm ended it at its last good checkpoint: {learned.alarm}")
    return learned


def _export(
    learned: Learned, start: Path, before: Evaluation, out: Path, plan: Plan, tell: Tell
) -> tuple[Path, Path | None]:
    from dreamgym_kit.adapters.langgraph.training import CHECKPOINTS
    from dreamgym_kit.adapters.trainers.export import Card, export
    from dreamgym_kit.adapters.trainers.options import GrpoOptions, LoraOptions
    from dreamgym_kit.adapters.trainers.trainer import TrlTrainer

    lora = None if plan.lora is None else LoraOptions(rank=plan.lora, alpha=2 * plan.lora)
    options = GrpoOptions(seed=plan.seed, lora=lora)
    card = Card(
        name="A nano policy of the support desk",
        base=str(start),
        data=f"{plan.worlds} requests of the support desk, answered by a dream of their recordings",
        seed=plan.seed,
        scores={"the start, on real held-out tasks": before.sentence},
    )
    done = export(TrlTrainer(start, learned.directory / CHECKPOINTS, options), out / "model", card)
    also = f", its LoRA adapter in {done.adapter}" if done.adapter is not None else ""
    tell(f"5 export     merged weights in {done.merged}{also}")
    return done.merged, done.adapter


def _write_card_score(merged: Path, after: Evaluation) -> None:
    """What was measured of these very weights stands with them."""
    with (merged / "README.md").open("a", encoding="utf-8") as card:
        card.write(f"\nOn the real tools, against the start: {after.sentence}\n")


def last_lines(outcome: Outcome) -> str:
    """Whether it got better, plainly, and how to point a graph at it."""
    assert outcome.after.beating is not None  # it was held against the start
    told = outcome.after.beating.told("the start", "the trained model")
    said = "It got better on the real tools." if outcome.better else "No gain is proven on the real tools."
    return (
        f"\n{said} {told}\n\n"
        "To put it in place of the agent's model:\n"
        f"  vllm serve {outcome.merged} --served-model-name {_MODEL_NAME} --enable-auto-tool-choice "
        "--tool-call-parser hermes\n"
        f'  init_chat_model("openai:{_MODEL_NAME}", base_url="http://127.0.0.1:8000/v1", api_key="none")\n'
    )


def main(arguments: list[str] | None = None) -> int:
    """Go the whole way as told on the command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dreamgym_kit.recipes.train_then_deploy")
    parser.add_argument("out", type=Path, help="the folder that everything is written to")
    parser.add_argument(
        "--quick", action="store_true", help="a token effort in about a minute, to see it run"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides data, order and sampling (0)")
    parser.add_argument("--lora", type=int, metavar="RANK", help="train an adapter; else all weights")
    asked = parser.parse_args(arguments)
    plan = QUICK if asked.quick else Plan()
    try:
        outcome = train_then_deploy(asked.out, replace(plan, seed=asked.seed, lora=asked.lora), tell=_say)
    except UserError as refused:
        sys.stderr.write(f"error: {refused}\n")
        return 2
    _say(last_lines(outcome))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
