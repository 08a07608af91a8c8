"""The user's graph without the user's memory: checkpointer, store and caches replaced in a dream.

A dream that wrote into the real checkpointer would turn up in production threads; a node cache would
serve dreamt answers to real runs later. Any graph that is run inside a dream, also one that a node
runs by hand, is run as a copy over the same nodes with memory of its own, kept for the session.
"""

import functools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.globals import get_llm_cache, set_llm_cache
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore

from dreamgym_kit.adapters.langgraph.patches import PatchSet, plain_wrapper
from dreamgym_kit.gate.policy import Mode
from dreamgym_kit.gate.registry import current
from dreamgym_kit.gate.session import Session

MEMORY_METHODS = (
    "stream", "astream", "get_state", "aget_state", "get_state_history", "aget_state_history", "update_state",
    "aupdate_state", "bulk_update_state", "abulk_update_state", "clear_cache", "aclear_cache",
)  # fmt: skip

_COPIES: "weakref.WeakKeyDictionary[Session, dict[int, tuple[Pregel[Any], Pregel[Any]]]]" = (
    weakref.WeakKeyDictionary()
)


def guard_memory(patches: PatchSet) -> None:
    """Make every method of Pregel that touches memory work on the session's copy."""
    for name in MEMORY_METHODS:
        real = Pregel.__dict__.get(name)
        if real is not None:
            patches.replace(Pregel, name, _on_copy(real))


def isolated(graph: Any) -> Any:
    """The copy of `graph` that this context's dream works on; `graph` itself outside dreams."""
    session = current.get()
    if session is None or session.mode is not Mode.DREAM:
        return graph
    return own_graph(session, graph)


def own_graph(session: Session, graph: Pregel[Any], *, needs_saver: bool = False) -> Pregel[Any]:
    """The session's copy of a graph: the same nodes, memory of its own where there was some.

    A `checkpointer` of True or False belongs to the parent graph and is kept. `needs_saver` gives a
    graph without one a saver too: an episode that answers interrupts has to go on where it stopped.
    """
    copies = _COPIES.setdefault(session, {})
    known = copies.get(id(graph))
    if known is None:
        copy = _copy(graph, needs_saver)
        known = copies[id(graph)] = (graph, copy)
        copies[id(copy)] = (copy, copy)
    return known[1]


@contextmanager
def no_llm_cache() -> Iterator[None]:
    """Switch the process-wide LLM cache off and back on."""
    before = get_llm_cache()
    set_llm_cache(None)
    try:
        yield
    finally:
        set_llm_cache(before)


def _copy(graph: Pregel[Any], needs_saver: bool) -> Pregel[Any]:
    update: dict[str, Any] = {"cache": None}
    if needs_saver or isinstance(graph.checkpointer, BaseCheckpointSaver):
        update["checkpointer"] = InMemorySaver()
    if graph.store is not None:
        update["store"] = InMemoryStore()
    return graph.copy(update)


def _on_copy(real: Any) -> Any:
    @functools.wraps(real)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return real(isolated(self), *args, **kwargs)

    return plain_wrapper(wrapper, real)
