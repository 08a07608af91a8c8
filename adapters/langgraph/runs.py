"""A whole run: graph, tasks and recordings in; a run directory, a summary and an answer out.

`simulate` and `record` are the same path with another gate policy. The order matters: the process is
armed before the user's module is imported, the graph is read before the first episode, and what cannot
be simulated is refused by name while nothing has run.
"""

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.asking_model import asked_endpoint, with_model
from dreamgym_kit.adapters.langgraph.calibrating import held_out_trials
from dreamgym_kit.adapters.langgraph.driving import only_sync
from dreamgym_kit.adapters.langgraph.episode import LangGraphRunner
from dreamgym_kit.adapters.langgraph.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.guarding import dreaming_process
from dreamgym_kit.adapters.langgraph.inspecting import GraphFacts, inspect_compiled
from dreamgym_kit.adapters.langgraph.install import hook_tool_functions, install
from dreamgym_kit.adapters.langgraph.loading import open_graph
from dreamgym_kit.adapters.langgraph.naming import (
    check_expectations,
    check_inputs,
    checkers_of,
    detectors_named,
    real_worlds,
)
from dreamgym_kit.adapters.langgraph.registering import register_functions, register_nodes
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.judge import ModelJudge
from dreamgym_kit.dream.reasoned_support import ReasonedSupport, learn_support
from dreamgym_kit.dream.state.stated import stated_models
from dreamgym_kit.errors import ShapeRefused, UserError
from dreamgym_kit.findings.detectors import Detectors
from dreamgym_kit.gate import egress
from dreamgym_kit.gate.policy import GatePolicy, Mode
from dreamgym_kit.gate.registry import PROCESS
from dreamgym_kit.ports import ChatEndpoint, EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.report.figures import TrustPoint
from dreamgym_kit.report.gating import gate_to_record
from dreamgym_kit.report.summary import Summary, Tally
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import RunTotals, jobs_for, run_episodes
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.manifest import Manifest
from dreamgym_kit.rollout.masked import MaskedEvents
from dreamgym_kit.rollout.rundir import RunDirectory, new_run
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks, tasks_digest
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.settings.tool_models import as_data
from dreamgym_kit.vocabulary import Task, Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run.

    Attributes:
        graph: a spec ("module:attr", ...) or a live graph, StateGraph or factory.
        tasks: a JSON-lines file, or tasks.
        store: dreams answer from it, recording writes to it; None: nothing is known, all calls abstain.
        directory: where the run directory is (to resume) or is to be made (else under `settings.runs`).
        experience: instead of the recordings, an experience model of one's own.
        label: put before recorded episodes' ids instead of the run's id, for recordings that must
            come out the same each time.
    """

    graph: object
    tasks: Path | Sequence[Task]
    settings: Settings
    mode: Mode = Mode.DREAM
    store: TransitionStore | None = None
    directory: Path | None = None
    resume: bool = False
    experience: ExperienceModel | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run."""

    directory: Path
    summary: Summary
    totals: RunTotals
    facts: GraphFacts
    strays: tuple[str, ...]  # refused calls that belonged to no episode
    warnings: tuple[str, ...]
    stopped_by: int | None = None  # signal number


async def run(request: RunRequest, *, events: EventSink, stop: StopSwitch | None = None) -> RunResult:
    """Run every task n times and say what happened.

    Raises:
        UserError: the graph, tasks, settings, buffer or run directory cannot be used; nothing was run.
    """
    switch = stop or StopSwitch()
    tasks = _tasks(request)
    settings = request.settings
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(_run_directory(request, tasks))
        warnings = stack.enter_context(_process(request, directory))
        graph = await stack.enter_async_context(open_graph(request.graph, folder=settings.folder))
        facts = _ready(graph, request)
        check_expectations(tasks, facts)
        check_inputs(tasks, graph)
        detectors = detectors_named(settings)
        journal = directory.journal()
        stack.callback(journal.close)
        log = directory.events()
        stack.callback(log.close)
        masker = process_masker(settings.endpoint.key_env)  # the graph's import may have read a .env file
        heard = MaskedEvents(FanOut([log, events]), masker)
        budget, tally = RunBudget(settings.budget.calls, settings.budget.usd), Tally()
        _count_earlier(directory, budget, tally)
        dreams = request.mode is Mode.DREAM
        chat = await stack.enter_async_context(asked_endpoint(settings, budget, dreams=dreams))
        trials, spend = await held_out_trials(directory, request.store, chat, settings, facts.specs(), budget)
        tally.charge("calibration", spend)
        support = learn_support(trials)
        first = _experience(request) if dreams else None
        answers = with_model(first, chat, settings, request.store, support) if dreams else None
        runner = _runner(
            graph, request, facts, tasks, heard, directory, budget, chat, answers, masker, detectors
        )
        heard.emit(
            "run_started",
            run=directory.manifest.run,
            graph=_name(request.graph),
            tasks=len(tasks),
            episodes=len(tasks) * settings.simulate.n,
            n=settings.simulate.n,
            seed=settings.simulate.seed,
            directory=str(directory.path),
        )
        totals = await run_episodes(
            jobs_for(tasks, settings.simulate.n),
            runner,
            journal=journal,
            concurrency=settings.simulate.concurrency,
            events=heard,
            stop=switch,
            on_episode=tally.add,
            limit_s=settings.limits.seconds,
        )
        summary = _finish(directory, request, totals, tally, _curve(first, settings), support, masker)
        heard.emit("run_finished", directory=str(directory.path))
        return RunResult(
            directory=directory.path,
            summary=summary,
            totals=totals,
            facts=facts,
            strays=tuple(masker.text(stray) for stray in PROCESS.strays),
            warnings=tuple(
                masker.text(said) for said in (*warnings, *facts.warnings, *_unreset(request, tasks, facts))
            ),
            stopped_by=switch.signal,
        )


def _tasks(request: RunRequest) -> list[Task]:
    if isinstance(request.tasks, Path):
        return read_tasks(request.tasks)
    return checked_tasks(request.tasks)


@contextmanager
def _run_directory(request: RunRequest, tasks: Sequence[Task]) -> Iterator[RunDirectory]:
    settings = request.settings
    root = settings.resolve(settings.runs)
    started = datetime.now(UTC)
    name = _name(request.graph)
    matters: dict[str, Any] = {
        "mode": request.mode.value,
        "graph": name,
        "tasks": tasks_digest(tasks),
        "n": settings.simulate.n,
        "seed": settings.simulate.seed,
        "abstain": settings.simulate.abstain,
        "threshold": settings.simulate.threshold,
        "steps": settings.limits.steps,
        "recursion": settings.limits.recursion,
        "tenant": settings.tenant,
        "effects": {tool: said.effect.value for tool, said in settings.tools.items()},
    }
    if request.mode is Mode.DREAM and (stated := stated_models(settings)):
        matters["models"] = {tool: [model.source, as_data(model.said)] for tool, model in stated.items()}
    if settings.endpoint.urls and request.mode is Mode.DREAM:
        matters["endpoint_model"] = settings.endpoint.model
        matters["endpoint_judge"] = settings.endpoint.judge
        matters["endpoint_calibrate"] = settings.endpoint.calibrate
    if settings.faults and request.mode is Mode.DREAM:
        matters["faults"] = {
            pattern: {**asdict(rule), "kinds": list(rule.kinds)} for pattern, rule in settings.faults.items()
        }
    matters = process_masker().plain(matters)
    if request.resume:
        if request.directory is None:
            raise UserError("to resume, name the run directory")
        manifest = Manifest(run="", created_at=started.timestamp(), matters=matters)
        directory = RunDirectory.resume(request.directory, manifest)
    else:
        label = name.rpartition(":")[0].rpartition(".")[2] if ":" in name else name
        run, folder = new_run(root, label, started.date())
        if request.directory is not None:
            root, folder = request.directory.parent, request.directory.name
        manifest = Manifest(
            run=run, created_at=started.timestamp(), matters=matters, about=_about(request, tasks)
        )
        directory = RunDirectory.create(root, folder, manifest)
    with directory:
        try:
            yield directory
        except BaseException:
            if not request.resume:
                directory.discard_unused()
            raise


def _about(request: RunRequest, tasks: Sequence[Task]) -> dict[str, Any]:
    versions = {}
    for package in ("dreamgym-kit", "langgraph", "langchain-core", "langchain"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "python": platform.python_version(),
        "tasks": len(tasks),
        "concurrency": request.settings.simulate.concurrency,
        "recordings": request.store.count() if request.store is not None else 0,
        "gate": gate_to_record(request.settings.gate),
        "budget": {"calls": request.settings.budget.calls, "usd": request.settings.budget.usd},
    }


@contextmanager
def _process(request: RunRequest, directory: RunDirectory) -> Iterator[list[str]]:
    """Gate in; while dreaming also armed and guarded."""
    if request.mode is not Mode.DREAM:
        install()
        yield []
        return
    with dreaming_process(
        request.settings, directory.path / "scratch", writable=[directory.path]
    ) as warnings:
        yield warnings


def _ready(graph: Pregel[Any], request: RunRequest) -> GraphFacts:
    """Hook what settings name, read the graph, and refuse what cannot be simulated."""
    register_functions(request.settings)
    register_nodes(graph, request.settings)
    facts = inspect_compiled(graph, request.settings)
    if facts.problems and request.mode is Mode.DREAM:
        raise ShapeRefused(facts.problems)
    hook_tool_functions(look=False)
    return facts


def _runner(
    graph: Pregel[Any],
    request: RunRequest,
    facts: GraphFacts,
    tasks: Sequence[Task],
    events: EventSink,
    directory: RunDirectory,
    budget: RunBudget,
    chat: ChatEndpoint | None,
    answers: ExperienceModel | None,
    masker: Masker,
    detectors: Detectors,
) -> LangGraphRunner:
    settings = request.settings
    recording = request.mode is Mode.RECORD
    label = request.label if request.label is not None else directory.manifest.run
    return LangGraphRunner(
        graph=graph,
        policy=GatePolicy(request.mode, facts.specs(), frozenset(settings.structured_outputs)),
        settings=settings,
        budget=budget,
        events=events,
        experience=answers,
        chat=chat,
        second=ModelJudge(chat) if chat is not None and settings.endpoint.judge else None,
        masker=masker,
        worlds=real_worlds(settings, {task.world.name for task in tasks}),
        checkers=checkers_of(settings, tasks),
        keep=keeper(request.store) if recording else None,
        prefix=f"{label}:" if recording else "",
        in_thread=only_sync(graph),
        detectors=detectors,
    )


def _count_earlier(directory: RunDirectory, budget: RunBudget, tally: Tally) -> None:
    """A resumed run goes on with the counts and the budget that its earlier legs left."""
    calls, usd = 0, 0.0
    for episode in directory.episodes():
        tally.add(episode)
        calls += len(episode.transitions)
        usd += episode.cost_usd
    budget.count_earlier(calls=calls, usd=usd)


def _experience(request: RunRequest) -> ExperienceModel | None:
    return request.experience or chained_experience(request.store, request.settings)


def keeper(store: TransitionStore | None) -> Callable[[Transition], None] | None:
    """What stores a transition before the agent goes on; None without a store."""
    if store is None:
        return None

    def keep(entry: Transition) -> None:
        store.put([entry])

    return keep


def _unreset(request: RunRequest, tasks: Sequence[Task], facts: GraphFacts) -> list[str]:
    """Worlds that several recorded episodes write to one after the other, each starting from the last."""
    if request.mode is not Mode.RECORD or not any(spec.effect.changes_world for spec in facts.tools):
        return []
    times = Counter(task.world for task in tasks if task.world.name not in request.settings.worlds)
    return [
        f"world {world} is recorded by {count * request.settings.simulate.n} episodes and nobody resets it: "
        "each begins where the last one ended, and a dream abstains where they disagree. Give tasks worlds "
        "of their own, or name what resets this one: [worlds.NAME] ref"
        for world, count in times.items()
        if count * request.settings.simulate.n > 1
    ]


def _curve(first: ExperienceModel | None, settings: Settings) -> list[TrustPoint]:
    """What each threshold gave on held-out recordings; nothing where nothing was mined in this run."""
    if not isinstance(first, ChainedExperience):
        return []
    return [TrustPoint(one.threshold, one.answered, one.exact) for one in first.curve(settings.tenant)]


def _finish(
    directory: RunDirectory,
    request: RunRequest,
    totals: RunTotals,
    tally: Tally,
    curve: Sequence[TrustPoint],
    support: ReasonedSupport,
    masker: Masker,
) -> Summary:
    manifest: dict[str, Any] = {
        "mode": request.mode.value,
        "run": directory.manifest.run,
        "graph": _name(request.graph),
        "directory": str(directory.path),
        "not_run": totals.not_run,
        "stopped": totals.stopped,
        "strays": list(PROCESS.strays),
        "gate": gate_to_record(request.settings.gate),
    }
    if support.rows:
        manifest["reasoned_support"] = support.table()
    summary = tally.summary(masker.plain(manifest), curve)
    with egress.exempt():
        directory.write_report(summary.to_json())
    return summary


def _name(graph: object) -> str:
    return graph if isinstance(graph, str) else str(getattr(graph, "name", None) or type(graph).__name__)
