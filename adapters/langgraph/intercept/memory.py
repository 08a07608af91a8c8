"""The user's graph without the user's memory: checkpointer, store and caches replaced in a dream.

A dream that wrote into the real checkpointer would turn up in production threads; a node cache would serve
dreamt answers to real runs later. Any graph that is run inside a dream, also one that a node runs by hand, is
run as a copy over the same nodes with memory of its own, kept for the session.

A node may also write to a store that it holds in a variable, over a connection that no guard sees; so the
methods that touch contents work on the session's memory in its place, the same that graphs over it have.
"""

import copy
import functools
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain_core.globals import get_llm_cache, set_llm_cache
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from dreamgym_kit.adapters.langgraph.intercept.call_context import config_here, session_key
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import methods_of
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    PatchSet,
    as_function,
    entry_of,
    guard_late_classes,
    is_ours,
    of_same_kind,
    plain_wrapper,
    subclasses,
)
from dreamgym_kit.adapters.langgraph.policy.capture import graph_entered
from dreamgym_kit.guard import egress
from dreamgym_kit.routing.process import PROCESS, current, find
from dreamgym_kit.routing.session import Session

MEMORY_METHODS = methods_of("Pregel")

_READING = frozenset({"get_state", "aget_state", "get_state_history", "aget_state_history"})


class DreamSaver(InMemorySaver):
    """A session's own checkpointer."""


class DreamStore(InMemoryStore):
    """A session's own store."""


class DreamCache(InMemoryCache[Any]):
    """A session's own node cache."""


class _Memories:
    """What one session works on in place of the user's graphs, savers and stores.

    Graphs that share a saver or a store outside share one inside, too.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._graphs: dict[int, tuple[Pregel[Any], Pregel[Any]]] = {}  # by id, beside what keeps the id
        self._memories: dict[int, tuple[object, Any]] = {}

    def graph(self, graph: Pregel[Any], *, needs_saver: bool) -> Pregel[Any]:
        pair = self._graphs.get(id(graph))
        if pair is None:
            copy = graph.copy(self._replaced(graph, needs_saver))
            pair = self._graphs[id(graph)] = (graph, copy)
            self._graphs[id(copy)] = (copy, copy)
        return pair[1]

    def graphs(self) -> list[Pregel[Any]]:
        return [real for real, copy in list(self._graphs.values()) if real is not copy]

    def _replaced(self, graph: Pregel[Any], needs_saver: bool) -> dict[str, Any]:
        replaced: dict[str, Any] = {"cache": None}
        if isinstance(graph.checkpointer, BaseCheckpointSaver):
            replaced["checkpointer"] = self.memory(graph.checkpointer)
        elif needs_saver:
            replaced["checkpointer"] = DreamSaver()
        if graph.store is not None:
            replaced["store"] = self.memory(graph.store)
        return replaced

    def memory(self, real: object) -> Any:
        if isinstance(real, (DreamSaver, DreamStore, DreamCache)):
            return real
        pair = self._memories.get(id(real))
        if pair is None:
            pair = self._memories[id(real)] = (real, _like(real))
        return pair[1]


def _like(real: object) -> Any:
    """Memory of the dream's own in place of `real`, empty but for what a store in memory holds.

    An embedding index is left out: filling it would call the user's embedding model.
    """
    if not isinstance(real, BaseStore):
        return DreamSaver() if isinstance(real, BaseCheckpointSaver) else DreamCache()
    made = DreamStore()
    if isinstance(real, InMemoryStore):
        for namespace, items in list(real._data.items()):
            made._data[namespace] = dict(copy.deepcopy(items))
    return made


_BY_SESSION: "weakref.WeakKeyDictionary[Session, _Memories]" = weakref.WeakKeyDictionary()
_BY_SESSION_LOCK = threading.Lock()


def guard_memory(patches: PatchSet) -> None:
    """Make every method of Pregel that touches memory work on the session's copy."""
    for name in MEMORY_METHODS:
        real = Pregel.__dict__.get(name)
        if real is not None:
            patches.replace(Pregel, name, _on_copy(real, name))


def isolated(graph: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The copy of `graph` that this call's dream works on; `graph` itself outside dreams.

    Raises:
        RealCallBlocked: the process dreams, the call belongs to no episode, and it would write to real
            memory.
    """
    session = current.get()
    if session is None:
        if not PROCESS.armed or not _has_memory(graph):
            return graph
        key = _key_in(args, kwargs)
        if key is None and name in _READING:
            return graph
        session = find(key, f"{name} of a graph with a checkpointer, store or cache")
    if session is None or session.mode.bare:
        return graph
    return own_graph(session, graph)


def own_graph(session: Session, graph: Pregel[Any], *, needs_saver: bool = False) -> Pregel[Any]:
    """The session's copy of a graph: the same nodes, memory of its own where there was some.

    A `checkpointer` of True or False belongs to the parent graph and is kept. `needs_saver` gives a
    graph without one a saver too: an episode that answers interrupts has to go on where it stopped.
    """
    with _memories_of(session) as memories:
        return memories.graph(graph, needs_saver=needs_saver)


@contextmanager
def _memories_of(session: Session) -> Iterator[_Memories]:
    with _BY_SESSION_LOCK:
        memories = _BY_SESSION.setdefault(session, _Memories())
    with memories.lock:
        yield memories


def graphs_of(session: Session) -> list[Pregel[Any]]:
    """The user's graphs that were run in this session so far."""
    memories = _BY_SESSION.get(session)
    return memories.graphs() if memories is not None else []


def _has_memory(graph: Pregel[Any]) -> bool:
    return (
        isinstance(graph.checkpointer, BaseCheckpointSaver)
        or graph.store is not None
        or graph.cache is not None
    )


def _key_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The session's key in the config that was passed, else in the one around."""
    for config in (kwargs.get("config"), *args[:2], config_here()):
        key = session_key(config) if isinstance(config, Mapping) else None
        if key is not None:
            return key
    return None


@contextmanager
def no_llm_cache() -> Iterator[None]:
    """Switch the process-wide LLM cache off and back on."""
    before = get_llm_cache()
    set_llm_cache(None)
    try:
        yield
    finally:
        set_llm_cache(before)


def _on_copy(real: Any, name: str) -> Any:
    runs = name in ("stream", "astream")

    @functools.wraps(real)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if runs:
            graph_entered(args, kwargs)
        return real(isolated(self, name, args, kwargs), *args, **kwargs)

    return plain_wrapper(wrapper, real)


_OWN = (DreamSaver, DreamStore, DreamCache)
TOUCHING = {root: methods_of(root.__name__) for root in (BaseStore, BaseCheckpointSaver, BaseCache)}
"""By kind of memory: its methods that read or change what it holds."""


def patch_memory(patches: PatchSet) -> None:
    """Make every store, saver and cache stand for the session's own while a dream asks it."""
    for root in TOUCHING:
        for owner in subclasses(root):
            _guard(patches, owner)
        guard_late_classes(patches, root, _guard)


def _guard(patches: PatchSet, owner: type) -> None:
    for root, names in TOUCHING.items():
        if not issubclass(owner, root):
            continue
        for name in names:
            real = owner.__dict__.get(name) if owner is root else entry_of(owner, name, root)
            if real is not None and not is_ours(real):
                patches.replace(owner, name, _redirected(as_function(real, root), name))


def _redirected(real: Any, name: str) -> Any:
    def choose(memory: Any, *_: object) -> tuple[Any, Any]:
        own = _standing_for(memory)
        return (real if own is memory else getattr(type(own), name)), own

    return of_same_kind(real, choose, at_once=True)


def _standing_for(memory: Any) -> Any:
    if isinstance(memory, _OWN) or (not PROCESS.armed and current.get() is None):
        return memory
    session = _session()
    if session is None or session.mode.bare:
        return memory
    with _memories_of(session) as memories:
        return memories.memory(memory)  # the one that graphs over it have


def _session() -> Session | None:
    """By context, by the key in the config, or by the thread: a bare one belongs to who began it."""
    session = current.get()
    if session is not None:
        return session
    key = session_key(config_here())
    if key is not None and key in PROCESS.sessions:
        return PROCESS.sessions[key]
    owner = egress.owner()
    return owner if isinstance(owner, Session) else None
