"""One run, made of parts: the process, the graph, who answers its calls, the policy, the budget, a runner.

Simulating, recording, evaluating (`run.run`), the rollouts of a training or on the way to the real tools
(`training.rollouts`) and a worker's side of either (`run.workers`) are made of the same. The order of making
matters: the process is armed before the user's module is imported, the graph is read before the first
episode, and what cannot be simulated is refused by name while nothing has run.

A graph all of whose models the policy answers for needs no provider: where its module asks for a key while it
is imported or makes a model, a stand-in is set that nothing ever sends, for as long as the graph is open.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.inspection import GraphInspection, inspect_compiled
from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
from dreamgym_kit.adapters.langgraph.analysis.locking import confirmed_in_lock
from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of
from dreamgym_kit.adapters.langgraph.analysis.references import (
    check_effects,
    check_tasks,
    checkers_of,
    detectors_named,
    environment_providers,
)
from dreamgym_kit.adapters.langgraph.episode.runner import Run
from dreamgym_kit.adapters.langgraph.episode.streaming import only_sync
from dreamgym_kit.adapters.langgraph.intercept.install import dreaming_process, hook_tool_functions, install
from dreamgym_kit.adapters.langgraph.intercept.object_effects import ObjectEffects
from dreamgym_kit.adapters.langgraph.intercept.registration import (
    check_confirmed,
    hook_unreached,
    register_functions,
    register_nodes,
)
from dreamgym_kit.adapters.langgraph.policy.capture import ModelPolicy
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.adapters.stores.factory import salt_of
from dreamgym_kit.errors import GraphNotLoaded, UnknownName, UnsupportedGraph
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import RunHook, TransitionStore
from dreamgym_kit.replay.masking import process_masker
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.event_loop import START_OBJECTS, frozen_heap
from dreamgym_kit.routing.process import holding
from dreamgym_kit.routing.router import CallRouter, Mode, Stage
from dreamgym_kit.sandbox.confining import check, stands_for
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.settings.secrets import keep_secret, open_key_files
from dreamgym_kit.supervision.session import SupervisedCalls
from dreamgym_kit.types import Source, Task, ToolSpec, Transition


@contextmanager
def gated_process(request: RunRequest, folder: Path) -> Iterator[list[str]]:
    """Gate in; the process held but while recording, and while dreaming guarded: only `folder` is written."""
    if request.mode is not Mode.DREAM:
        install()
        with nullcontext() if request.mode.bare else holding():
            yield open_key_files(request.settings)
        return
    wanted, where = request.settings.guard.sandbox, request.settings.where("guard", "sandbox")
    check(wanted, best=stands_for(wanted), where=where)
    with dreaming_process(request.settings, folder / "scratch", writable=[folder]) as warnings:
        yield [*open_key_files(request.settings), *warnings]


async def prepared(
    stack: AsyncExitStack, request: RunRequest, tasks: Sequence[Task], budget: RunBudget
) -> Run:
    """Load the graph, hook what settings name, and refuse what cannot be used; closed with `stack`."""
    settings = request.settings
    with frozen_heap(START_OBJECTS):
        graph = await stack.enter_async_context(open_graph_for(request))
        facts = ready(graph, request)
    check_nodes(graph, settings, has_policy=request.policy is not None)
    if request.needs_confirmed_effects:
        check_effects(facts, settings)
    check_tasks(tasks, facts, settings, must_reset=request.must_reset)
    keep_secret(settings)  # a worker's, or of a caller in Python
    with egress.exempt():  # a file beside the buffer
        salt = salt_of(request.store, settings)
    # here, since the graph's import may have read a .env file
    masker = process_masker(settings.experience.key_env, salt=salt)
    router = router_of(request.mode, settings, facts.specs(), facts.judge, request.stage)
    detectors = detectors_named(settings)
    return Run(
        request=request,
        graph=graph,
        facts=facts,
        router=router,
        detectors=detectors,
        hooks=[*call_hooks(router, request.store), detectors],
        masker=masker,
        checkers=dict(checkers_of(settings, tasks)),
        environments=dict(environment_providers(settings, {task.environment.name for task in tasks})),
        budget=budget,
        policy=policy_of(request),
        in_thread=only_sync(graph),
    )


def ready(graph: Pregel[Any], request: RunRequest) -> GraphInspection:
    """Hook what settings name, read the graph, and refuse what cannot be run as it is asked for."""
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
class Recorder(RunHook):
    """Stores calls that a real tool answered, before the agent continues, and those left without a reply."""

    store: TransitionStore

    def after_call(self, entry: Transition) -> None:
        """See `RunHook.after_call`."""
        if entry.answer.source is Source.REAL or (entry.answer.unanswered and entry.call.replies):
            self.store.put([entry])


def router_of(
    mode: Mode,
    settings: Settings,
    specs: Mapping[str, ToolSpec],
    judge: ObjectEffects | None,
    stage: Stage = Stage.SHADOW,
) -> CallRouter:
    """The rules by which calls are answered; `judge`: of the tools themselves."""
    structured, left_out = frozenset(settings.structured_outputs), frozenset(settings.leave_out)
    return CallRouter(mode, specs, structured, stage, judge, left_out)


def call_hooks(router: CallRouter, store: TransitionStore | None) -> list[RunHook]:
    """What a mode attaches to its calls. `store`: keeps those that are real; None: nobody does."""
    supervised = [SupervisedCalls(router.specs)] if router.mode is Mode.S2R else []
    return [*supervised, *([Recorder(store)] if store is not None and router.mode is not Mode.DREAM else [])]


STAND_IN = "no-key-the-policy-answers"
_KEYS = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY"),
    *("COHERE_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY"),
    *("OPENROUTER_API_KEY", "PERPLEXITY_API_KEY", "NVIDIA_API_KEY", "AZURE_OPENAI_API_KEY"),
)


def policy_of(request: RunRequest) -> ModelPolicy | None:
    """The request's policy with what its settings say of it; None where the graph's own models answer."""
    if request.policy is None:
        return None
    policy = request.settings.policy
    return ModelPolicy(
        server=request.policy,
        only_nodes=policy.only_nodes,
        temperature=policy.temperature,
        max_output=policy.max_output,
        seed=request.settings.simulate.seed,
        grammar=policy.grammar,
    )


def check_nodes(graph: Pregel[Any], settings: Settings, *, has_policy: bool) -> None:
    """Refuse a name in `policy.only_nodes` that no node has: the policy would not answer there, unnoticed.

    Nodes of graphs that a node or tool runs by hand are not visible: a pattern or a path below a node is
    accepted unchecked.
    """
    if not has_policy or not settings.policy.only_nodes:
        return
    paths = [path for path, _ in nodes_of(graph)]
    names = {name for path in paths for name in (path, path.rpartition("/")[2])}
    for name in settings.policy.only_nodes:
        plain = not any(mark in name for mark in "*?[/")
        if plain and name not in names:
            where = settings.where("policy", "only_nodes")
            raise UnknownName("node", name, known=sorted(names), source=where, where="the graph")


@asynccontextmanager
async def open_graph_for(request: RunRequest) -> AsyncIterator[Pregel[Any]]:
    """The request's graph, kept open; with a policy also where no provider's key is set."""
    if request.policy is None or request.settings.policy.only_nodes:  # then models of its own are asked, too
        async with open_graph(request.graph, folder=request.settings.folder) as graph:
            yield graph
        return
    with _stand_ins() as missed:
        async with AsyncExitStack() as stack:
            graph = await _opened(stack, request, missed)
            missed(_KEYS)  # of models that are made while the graph runs
            yield graph


async def _opened(
    stack: AsyncExitStack, request: RunRequest, missed: Callable[[Iterable[str]], bool]
) -> Pregel[Any]:
    while True:
        try:
            return await stack.enter_async_context(open_graph(request.graph, folder=request.settings.folder))
        except GraphNotLoaded as error:
            if not missed(error.variables):
                raise


@contextmanager
def _stand_ins() -> Iterator[Callable[[Iterable[str]], bool]]:
    """Gives what sets stand-ins for keys of these names that are not set, and says whether there were any."""
    ours: list[str] = []

    def missed(names: Iterable[str]) -> bool:
        new = [name for name in names if name.endswith("_API_KEY") and not os.environ.get(name)]
        os.environ.update(dict.fromkeys(new, STAND_IN))
        ours.extend(new)
        return bool(new)

    try:
        yield missed
    finally:
        for name in ours:
            if os.environ.get(name) == STAND_IN:
                del os.environ[name]
