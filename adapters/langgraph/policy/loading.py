"""A policy before its first call: as a request has it, its nodes found, the graph open without a provider.

A graph all of whose models the policy answers for needs no provider: where its module asks for a key while it
is imported or makes a model, a stand-in is set that nothing ever sends, for as long as the graph is open.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.loading import open_graph
from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of
from dreamgym_kit.adapters.langgraph.policy.capture import ModelPolicy
from dreamgym_kit.adapters.langgraph.run.request import RunRequest
from dreamgym_kit.errors import GraphNotLoaded, UnknownName
from dreamgym_kit.settings.schema import Settings

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
    """Refuse a name in `policy.only_nodes` of no node: its models would answer for themselves, unnoticed.

    Nodes of graphs that a node or tool runs by hand cannot be known; a pattern or a path below a node is
    taken on trust.
    """
    if not has_policy or not settings.policy.only_nodes:
        return
    known = [path for path, _ in nodes_of(graph)]
    names = {name for path in known for name in (path, path.rpartition("/")[2])}
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
