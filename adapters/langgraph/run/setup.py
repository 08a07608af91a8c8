"""What episodes stand on, made once: the process, the graph, who answers its calls, and a runner.

A run of tasks (`runs`) and the rollouts of a training (`rollouts`) are made of the same parts. Their order
matters: the process is armed before the user's module is imported, the graph is read before the first
episode, and what cannot be simulated is refused by name while nothing has run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection, inspect_compiled
from dreamgym_kit.adapters.langgraph.analysis.locking import confirmed_in_lock
from dreamgym_kit.adapters.langgraph.analysis.references import (
    check_effects,
    check_expectations,
    check_inputs,
    check_resets,
    checkers_of,
    detectors_named,
    environment_providers,
)
from dreamgym_kit.adapters.langgraph.episode.runner import LangGraphRunner
from dreamgym_kit.adapters.langgraph.episode.streaming import only_sync
from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, hook_tool_functions, install
from dreamgym_kit.adapters.langgraph.intercept.registration import (
    check_confirmed,
    hook_unreached,
    register_functions,
    register_nodes,
)
from dreamgym_kit.adapters.langgraph.policy.capture import ModelPolicy
from dreamgym_kit.adapters.langgraph.policy.loading import check_nodes, open_graph_for
from dreamgym_kit.adapters.langgraph.run.calibration import held_out_trials
from dreamgym_kit.adapters.langgraph.run.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.run.learned_experience import with_decisions
from dreamgym_kit.adapters.langgraph.run.llm_experience import asked_endpoint, with_model
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.models.named_models import allowance, directory_of, gate_of_settings
from dreamgym_kit.dream.judge import ModelJudge
from dreamgym_kit.dream.llm_calibration import ReasonedSupport, ReasonedTrial, learn_support
from dreamgym_kit.errors import UnsupportedGraph
from dreamgym_kit.findings.detectors import Detectors
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import (
    ChatEndpoint,
    Checker,
    EnvironmentProvider,
    EventSink,
    ExperienceModel,
    TransitionStore,
)
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.event_loop import START_OBJECTS, frozen_heap
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks
from dreamgym_kit.routing.process import holding
from dreamgym_kit.routing.router import CallRouter, Mode
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.secrets import open_key_files
from dreamgym_kit.training.distil.gate import Gate
from dreamgym_kit.turns import Turn
from dreamgym_kit.types import Episode, Source, Spend, Task, Transition


def tasks_of(request: RunRequest) -> list[Task]:
    """The request's tasks, read and checked."""
    if isinstance(request.tasks, Path):
        return read_tasks(request.tasks)
    return checked_tasks(request.tasks)


@contextmanager
def gated_process(request: RunRequest, folder: Path) -> Iterator[list[str]]:
    """Gate in; the process held but while recording, and while dreaming guarded: only `folder` is written."""
    if request.mode is not Mode.DREAM:
        install()
        with nullcontext() if request.mode.bare else holding():
            yield open_key_files(request.settings)
        return
    with dreaming_process(request.settings, folder / "scratch", writable=[folder]) as warnings:
        yield [*open_key_files(request.settings), *warnings]


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """A graph that was loaded, read and held against its tasks."""

    graph: Pregel[Any]
    facts: GraphInspection
    detectors: Detectors
    masker: Masker
    checkers: dict[str, Checker]  # of all the tasks
    environments: dict[str, EnvironmentProvider]


async def prepared(stack: AsyncExitStack, request: RunRequest, tasks: Sequence[Task]) -> PreparedGraph:
    """Load the graph, hook what settings name, and refuse what cannot be used; closed with `stack`."""
    settings = request.settings
    with frozen_heap(START_OBJECTS):
        graph = await stack.enter_async_context(open_graph_for(request))
        facts = _ready(graph, request)
    check_nodes(graph, settings, has_policy=request.policy is not None)
    check_expectations(tasks, facts)
    check_inputs(tasks, facts)
    if request.must_be_said:
        check_effects(facts, settings)
    if request.must_reset:
        check_resets(tasks, facts, settings)
    return PreparedGraph(
        graph=graph,
        facts=facts,
        detectors=detectors_named(settings),
        masker=process_masker(settings.experience.key_env),  # the graph's import may have read a .env file
        checkers=dict(checkers_of(settings, tasks)),
        environments=dict(environment_providers(settings, {task.environment.name for task in tasks})),
    )


def _ready(graph: Pregel[Any], request: RunRequest) -> GraphInspection:
    living = register_functions(request.settings)
    register_nodes(graph, request.settings)
    own_model = request.policy is None or bool(request.settings.policy.only_nodes)
    facts = inspect_compiled(graph, request.settings, own_model=own_model, living=living)
    if facts.problems and not request.mode.bare:
        raise UnsupportedGraph(facts.problems)
    if request.mode is not Mode.DREAM:
        confirmed = confirmed_in_lock(request.graph, request.settings, facts.locked, request.store)
        check_confirmed(facts.inventory, request.settings, confirmed)
    hook_tool_functions(living)
    if request.mode is Mode.DREAM and facts.taken is not None:
        hook_unreached(facts.taken, living.functions())
    return facts


@dataclass(frozen=True, slots=True)
class AnswerSources:
    """Who answers a run's calls."""

    model: ExperienceModel | None  # None: the real tools
    recorded: ExperienceModel | None  # the part of it that needs no endpoint
    chat: ChatEndpoint | None  # makes tasks, and judges where a curriculum says so
    judge: ChatEndpoint | None  # beside the checker
    user: ChatEndpoint | None  # plays users
    support: ReasonedSupport
    spend: Spend  # of trying the model on held-out recordings
    trials: Sequence[ReasonedTrial] = ()  # what came of that


async def answering(
    stack: AsyncExitStack,
    request: RunRequest,
    facts: GraphInspection,
    directory: RunDirectory | None,
    budget: RunBudget,
    *,
    known: Sequence[ReasonedTrial] = (),
) -> AnswerSources:
    """Open the endpoint, try it on held-out recordings, and put the chain together.

    Without a `directory` nothing is tried: the driver of this worker did, and `known` came of it.
    """
    settings, dreams = request.settings, not request.mode.bare
    opening = asked_endpoint(settings, budget, dreams=dreams, check=directory is not None)
    chat = await stack.enter_async_context(opening)
    gate = _gate(settings) if chat is not None else None
    if gate is not None or directory_of(settings) is not None:  # what it was taught would flatter it here
        trials: Sequence[ReasonedTrial] = gate.trials if gate is not None else ()
        spend = Spend()
    else:
        trials, spend = known, Spend()
        if directory is not None:
            trials, spend = await held_out_trials(
                directory, request.store, chat, settings, facts.specs(), budget
            )
    support = learn_support(trials)
    if not dreams:
        return AnswerSources(None, None, chat, None, None, support, spend, trials)
    recorded = request.experience or chained_experience(request.store, settings)
    decides = stack.enter_context(with_decisions(recorded, settings))
    allows = allowance(settings, gate, training=request.trains) if chat is not None else None
    model = with_model(recorded, chat, settings, request.store, support, before=decides, allows=allows)
    text = chat if directory_of(settings) is None else None  # a directory decides, and no more

    async def of(role: str, *, wanted: bool = True) -> ChatEndpoint | None:
        if not wanted or getattr(settings.experience, f"{role}_model") is None:
            return text if wanted else None
        own = asked_endpoint(settings, budget, dreams=True, check=directory is not None, role=role)
        return await stack.enter_async_context(own)

    judge, user = await of("judge", wanted=settings.experience.judge), await of("user")
    return AnswerSources(model, recorded, text, judge, user, support, spend, trials)


def _gate(settings: Settings) -> Gate | None:
    with egress.exempt():  # the kit's own files
        return gate_of_settings(settings)


def runner_of(
    request: RunRequest,
    ready: PreparedGraph,
    sources: AnswerSources,
    *,
    events: EventSink,
    budget: RunBudget,
    label: str,
    seed: int,
    policy: ModelPolicy | None = None,
    on_turns: Callable[[str, tuple[Turn, ...]], None] | None = None,
    on_executed: Callable[[Episode], None] | None = None,
) -> LangGraphRunner:
    """What runs the episodes. `label`: put before recorded episodes' ids; `seed`: of planned faults."""
    settings = request.settings
    recording = request.mode is not Mode.DREAM
    return LangGraphRunner(
        graph=ready.graph,
        policy=CallRouter(
            request.mode,
            ready.facts.specs(),
            frozenset(settings.structured_outputs),
            request.stage,
            ready.facts.judge,
            frozenset(settings.leave_out),
        ),
        overseer=request.overseer,
        settings=replace(settings, simulate=replace(settings.simulate, seed=seed)),
        budget=budget,
        events=events,
        experience=sources.model,
        chat=sources.user,
        second=ModelJudge(sources.judge) if sources.judge is not None else None,
        masker=ready.masker,
        environments=ready.environments,
        checkers=ready.checkers,
        judge=request.judge,
        keep=keeper(request.store) if recording else None,
        prefix=f"{label}:" if recording else "",
        in_thread=only_sync(ready.graph),
        detectors=ready.detectors,
        model_policy=policy,
        on_turns=on_turns,
        on_executed=on_executed,
        real_faults=request.real_faults,
    )


def keeper(store: TransitionStore | None) -> Callable[[Transition], None] | None:
    """What stores a transition before the agent goes on; None without a store."""
    if store is None:
        return None

    def keep(entry: Transition) -> None:
        if entry.answer.source is Source.REAL:  # on the way to the real tools some are dreamt
            store.put([entry])

    return keep
