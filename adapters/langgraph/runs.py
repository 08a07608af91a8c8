"""A whole run: graph, tasks and recordings in; a run directory, a summary and an answer out.

`simulate` and `record` are the same path with another gate policy. The order matters: the process is
armed before the user's module is imported, the graph is read before the first episode, and what cannot
be simulated is refused by name while nothing has run.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
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
    check_resets,
    checkers_of,
    detectors_named,
    real_worlds,
)
from dreamgym_kit.adapters.langgraph.registering import register_functions, register_nodes
from dreamgym_kit.adapters.langgraph.run_directories import count_earlier, run_directory
from dreamgym_kit.adapters.langgraph.run_request import RunRequest, name_of
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.judge import DISAGREE, ModelJudge
from dreamgym_kit.dream.reasoned_support import ReasonedSupport, learn_support
from dreamgym_kit.errors import ShapeRefused
from dreamgym_kit.findings.detectors import FAILED, Detectors
from dreamgym_kit.gate import egress
from dreamgym_kit.gate.policy import GatePolicy, Mode
from dreamgym_kit.gate.registry import PROCESS
from dreamgym_kit.ports import ChatEndpoint, EventSink, ExperienceModel, TransitionStore
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.report.figures import CRITICAL, TrustPoint
from dreamgym_kit.report.gating import gate_to_record
from dreamgym_kit.report.summary import Summary, Tally
from dreamgym_kit.report.unmatched import unmatched
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.engine import RunTotals, jobs_for, run_episodes
from dreamgym_kit.rollout.events import FanOut
from dreamgym_kit.rollout.masked import MaskedEvents
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.stop import StopSwitch
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks
from dreamgym_kit.settings.model import GateSettings, Settings
from dreamgym_kit.vocabulary import Task, Transition


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

    def __str__(self) -> str:
        """The run as `simulate` prints it."""
        from dreamgym_kit.report.terminal import render_run

        return render_run(self.summary)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """The report page, for notebooks."""
        from dreamgym_kit.report.page.inline import inline

        return inline(self.directory, str(self))


async def run(request: RunRequest, *, events: EventSink, stop: StopSwitch | None = None) -> RunResult:
    """Run every task n times and say what happened.

    Raises:
        UserError: the graph, tasks, settings, buffer or run directory cannot be used; nothing was run.
    """
    switch = stop or StopSwitch()
    tasks = _tasks(request)
    settings = request.settings
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(run_directory(request, tasks))
        warnings = stack.enter_context(_process(request, directory))
        graph = await stack.enter_async_context(open_graph(request.graph, folder=settings.folder))
        facts = _ready(graph, request)
        check_expectations(tasks, facts)
        check_inputs(tasks, graph)
        if request.must_reset:
            check_resets(tasks, facts, settings)
        detectors = detectors_named(settings)
        journal = directory.journal()
        stack.callback(journal.close)
        log = directory.events()
        stack.callback(log.close)
        masker = process_masker(settings.endpoint.key_env)  # the graph's import may have read a .env file
        heard = MaskedEvents(FanOut([log, events]), masker)
        budget, tally = RunBudget(settings.budget.calls, settings.budget.usd), Tally()
        count_earlier(directory, budget, tally)
        answering = await _answering(stack, request, facts, directory, budget, tally)
        runner = _runner(graph, request, facts, tasks, heard, directory, budget, answering, masker, detectors)
        _tell_start(heard, request, tasks, directory)
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
        summary, slips = _finish(directory, request, totals, tally, answering, masker, facts, detectors)
        heard.emit("run_finished", directory=str(directory.path))
        said = (*warnings, *facts.warnings, *_unreset(request, tasks, facts), *slips)
        return RunResult(
            directory=directory.path,
            summary=summary,
            totals=totals,
            facts=facts,
            strays=tuple(masker.text(stray) for stray in PROCESS.strays),
            warnings=tuple(masker.text(one) for one in said),
            stopped_by=switch.signal,
        )


def _tell_start(
    events: EventSink, request: RunRequest, tasks: Sequence[Task], directory: RunDirectory
) -> None:
    asked = request.settings.simulate
    events.emit(
        "run_started",
        run=directory.manifest.run,
        graph=name_of(request.graph),
        tasks=len(tasks),
        episodes=len(tasks) * asked.n,
        n=asked.n,
        seed=asked.seed,
        directory=str(directory.path),
    )


def _tasks(request: RunRequest) -> list[Task]:
    if isinstance(request.tasks, Path):
        return read_tasks(request.tasks)
    return checked_tasks(request.tasks)


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


@dataclass(frozen=True, slots=True)
class _Answering:
    """Who answers a run's calls."""

    model: ExperienceModel | None  # None: the real tools
    recorded: ExperienceModel | None  # the part of it that needs no endpoint
    chat: ChatEndpoint | None
    support: ReasonedSupport


async def _answering(
    stack: AsyncExitStack,
    request: RunRequest,
    facts: GraphFacts,
    directory: RunDirectory,
    budget: RunBudget,
    tally: Tally,
) -> _Answering:
    """Open the endpoint, try it on held-out recordings, and put the chain together."""
    settings, dreams = request.settings, request.mode is Mode.DREAM
    chat = await stack.enter_async_context(asked_endpoint(settings, budget, dreams=dreams))
    trials, spend = await held_out_trials(directory, request.store, chat, settings, facts.specs(), budget)
    tally.charge("calibration", spend)
    support = learn_support(trials)
    if not dreams:
        return _Answering(None, None, chat, support)
    recorded = request.experience or chained_experience(request.store, settings)
    return _Answering(with_model(recorded, chat, settings, request.store, support), recorded, chat, support)


def _runner(
    graph: Pregel[Any],
    request: RunRequest,
    facts: GraphFacts,
    tasks: Sequence[Task],
    events: EventSink,
    directory: RunDirectory,
    budget: RunBudget,
    answering: _Answering,
    masker: Masker,
    detectors: Detectors,
) -> LangGraphRunner:
    settings, chat = request.settings, answering.chat
    recording = request.mode is Mode.RECORD
    label = request.label if request.label is not None else directory.manifest.run
    return LangGraphRunner(
        graph=graph,
        policy=GatePolicy(request.mode, facts.specs(), frozenset(settings.structured_outputs)),
        settings=settings,
        budget=budget,
        events=events,
        experience=answering.model,
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


def _slips(
    summary: Summary, gate: GateSettings, facts: GraphFacts, detectors: Detectors
) -> list[tuple[str, str]]:
    """Names in the gate of no tool and no kind of finding, neither known before nor met in the run."""
    tools = [*facts.specs(), *(tool.name for tool in summary.tools)]
    kinds = [*detectors.known, FAILED, DISAGREE, CRITICAL, *(group.kind for group in summary.findings)]
    return unmatched(gate, dict.fromkeys(tools), dict.fromkeys(kinds))


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
    answering: _Answering,
    masker: Masker,
    facts: GraphFacts,
    detectors: Detectors,
) -> tuple[Summary, list[str]]:
    """The run's summary, kept in its directory; and a sentence for each slip in its gate."""
    manifest: dict[str, Any] = {
        "mode": request.mode.value,
        "run": directory.manifest.run,
        "graph": name_of(request.graph),
        "directory": str(directory.path),
        "not_run": totals.not_run,
        "stopped": totals.stopped,
        "strays": list(PROCESS.strays),
        "gate": gate_to_record(request.settings.gate),
    }
    if answering.support.rows:
        manifest["reasoned_support"] = answering.support.table()
    summary = tally.summary(masker.plain(manifest), _curve(answering.recorded, request.settings))
    slips = _slips(summary, request.settings.gate, facts, detectors)
    if slips:
        names = masker.plain([pattern for pattern, _ in slips])
        summary = replace(summary, manifest={**summary.manifest, "unmatched": names})
    with egress.exempt():
        directory.write_report(summary.to_json())
    return summary, [sentence for _, sentence in slips]
