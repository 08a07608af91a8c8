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

from dreamgym_kit.adapters.langgraph.asking_model import asked_endpoint, with_model
from dreamgym_kit.adapters.langgraph.calibrating import held_out_trials
from dreamgym_kit.adapters.langgraph.capture import ModelPolicy
from dreamgym_kit.adapters.langgraph.deciding_model import with_decisions
from dreamgym_kit.adapters.langgraph.driving import only_sync
from dreamgym_kit.adapters.langgraph.episode import LangGraphRunner
from dreamgym_kit.adapters.langgraph.experiences import chained_experience
from dreamgym_kit.adapters.langgraph.guarding import dreaming_process
from dreamgym_kit.adapters.langgraph.inspecting import GraphFacts, inspect_compiled
from dreamgym_kit.adapters.langgraph.install import hook_tool_functions, install
from dreamgym_kit.adapters.langgraph.locking import confirmed_in_lock
from dreamgym_kit.adapters.langgraph.naming import (
    check_expectations,
    check_inputs,
    check_resets,
    check_said,
    checkers_of,
    detectors_named,
    real_worlds,
)
from dreamgym_kit.adapters.langgraph.policy_opening import check_nodes, open_graph_for
from dreamgym_kit.adapters.langgraph.registering import check_confirmed, register_functions, register_nodes
from dreamgym_kit.adapters.langgraph.run_request import RunRequest
from dreamgym_kit.adapters.langgraph.unreached import hook_unreached
from dreamgym_kit.adapters.models.experience_models import allowance, directory_of, gate_of_settings
from dreamgym_kit.dream.judge import ModelJudge
from dreamgym_kit.dream.reasoned_support import ReasonedSupport, ReasonedTrial, learn_support
from dreamgym_kit.errors import ShapeRefused
from dreamgym_kit.findings.detectors import Detectors
from dreamgym_kit.gate import egress
from dreamgym_kit.gate.policy import GatePolicy, Mode
from dreamgym_kit.gate.registry import holding
from dreamgym_kit.ports import ChatEndpoint, Checker, EventSink, ExperienceModel, RealWorld, TransitionStore
from dreamgym_kit.replay.masking import Masker, process_masker
from dreamgym_kit.rollout.budgets import Budget
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.rollout.tasks import checked_tasks, read_tasks
from dreamgym_kit.settings.keys import open_key_files
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.training.distil.gate import Gate
from dreamgym_kit.turns import Turn
from dreamgym_kit.vocabulary import Episode, Provenance, Spend, Task, Transition


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
class Prepared:
    """A graph that was loaded, read and held against its tasks."""

    graph: Pregel[Any]
    facts: GraphFacts
    detectors: Detectors
    masker: Masker
    checkers: dict[str, Checker]  # of all the tasks
    worlds: dict[str, RealWorld]


async def prepared(stack: AsyncExitStack, request: RunRequest, tasks: Sequence[Task]) -> Prepared:
    """Load the graph, hook what settings name, and refuse what cannot be used; closed with `stack`."""
    settings = request.settings
    graph = await stack.enter_async_context(open_graph_for(request))
    facts = _ready(graph, request)
    check_nodes(graph, settings, asked=request.policy is not None)
    check_expectations(tasks, facts)
    check_inputs(tasks, facts)
    if request.must_be_said:
        check_said(facts, settings)
    if request.must_reset:
        check_resets(tasks, facts, settings)
    return Prepared(
        graph=graph,
        facts=facts,
        detectors=detectors_named(settings),
        masker=process_masker(settings.endpoint.key_env),  # the graph's import may have read a .env file
        checkers=dict(checkers_of(settings, tasks)),
        worlds=dict(real_worlds(settings, {task.world.name for task in tasks})),
    )


def _ready(graph: Pregel[Any], request: RunRequest) -> GraphFacts:
    living = register_functions(request.settings)
    register_nodes(graph, request.settings)
    own_model = request.policy is None or bool(request.settings.policy.only_nodes)
    facts = inspect_compiled(graph, request.settings, own_model=own_model, living=living)
    if facts.problems and not request.mode.bare:
        raise ShapeRefused(facts.problems)
    if request.mode is not Mode.DREAM:
        said = confirmed_in_lock(request.graph, request.settings, facts.locked, request.store)
        check_confirmed(facts.inventory, request.settings, said)
    hook_tool_functions(living)
    if request.mode is Mode.DREAM and facts.taken is not None:
        hook_unreached(facts.taken, living.functions())
    return facts


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers a run's calls."""

    model: ExperienceModel | None  # None: the real tools
    recorded: ExperienceModel | None  # the part of it that needs no endpoint
    chat: ChatEndpoint | None  # judges, and plays users
    support: ReasonedSupport
    spend: Spend  # of trying the model on held-out recordings
    trials: Sequence[ReasonedTrial] = ()  # what came of that


async def answering(
    stack: AsyncExitStack,
    request: RunRequest,
    facts: GraphFacts,
    directory: RunDirectory | None,
    budget: Budget,
    *,
    known: Sequence[ReasonedTrial] = (),
) -> Answering:
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
        return Answering(None, None, chat, support, spend, trials)
    recorded = request.experience or chained_experience(request.store, settings)
    decides = stack.enter_context(with_decisions(recorded, settings))
    allows = allowance(settings, gate, training=request.trains) if chat is not None else None
    model = with_model(recorded, chat, settings, request.store, support, before=decides, allows=allows)
    text = chat if directory_of(settings) is None else None  # a directory decides, and no more
    return Answering(model, recorded, text, support, spend, trials)


def _gate(settings: Settings) -> Gate | None:
    with egress.exempt():  # the kit's own files
        return gate_of_settings(settings)


def runner_of(
    request: RunRequest,
    ready: Prepared,
    who: Answering,
    *,
    events: EventSink,
    budget: Budget,
    label: str,
    seed: int,
    policy: ModelPolicy | None = None,
    on_turns: Callable[[str, tuple[Turn, ...]], None] | None = None,
    on_executed: Callable[[Episode], None] | None = None,
) -> LangGraphRunner:
    """What runs the episodes. `label`: put before recorded episodes' ids; `seed`: of planned faults."""
    settings, chat = request.settings, who.chat
    recording = request.mode is not Mode.DREAM
    return LangGraphRunner(
        graph=ready.graph,
        policy=GatePolicy(
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
        experience=who.model,
        chat=chat,
        second=ModelJudge(chat) if chat is not None and settings.endpoint.judge else None,
        masker=ready.masker,
        worlds=ready.worlds,
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
        if entry.answer.provenance is Provenance.REAL:  # on the way to the real tools some are dreamt
            store.put([entry])

    return keep
