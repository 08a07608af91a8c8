"""Stores, savers and caches that code holds in a variable: in a dream they stand for the session's own.

A graph's own memory is replaced with the graph (`isolation`). A node may also write to a store that it
imported, over a connection that no guard sees; so the methods that touch contents work on the session's
memory in its place, the same that graphs over it have.
"""

import functools
import inspect
from typing import Any

from langgraph.cache.base import BaseCache
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from dreamgym_kit.adapters.langgraph.episode.isolation import DreamCache, DreamSaver, DreamStore, own_memory
from dreamgym_kit.adapters.langgraph.intercept.call_context import config_here, session_key
from dreamgym_kit.adapters.langgraph.intercept.foreign_names import methods_of
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    PatchSet,
    as_function,
    entry_of,
    guard_late_classes,
    is_ours,
    plain_wrapper,
    subclasses,
)
from dreamgym_kit.guard import egress
from dreamgym_kit.routing.process import PROCESS, current
from dreamgym_kit.routing.session import Session

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
    if inspect.isasyncgenfunction(real):

        @functools.wraps(real)
        async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            own = _standing_for(self)
            async for item in (real if own is self else getattr(type(own), name))(own, *args, **kwargs):
                yield item

    elif inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            own = _standing_for(self)
            return await (real if own is self else getattr(type(own), name))(own, *args, **kwargs)

    else:

        @functools.wraps(real)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            own = _standing_for(self)
            return (real if own is self else getattr(type(own), name))(own, *args, **kwargs)

    return plain_wrapper(wrapper, real)


def _standing_for(memory: Any) -> Any:
    if isinstance(memory, _OWN) or (not PROCESS.armed and current.get() is None):
        return memory
    session = _session()
    return memory if session is None or session.mode.bare else own_memory(session, memory)


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
