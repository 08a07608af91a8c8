"""Streams a graph asynchronously, or synchronously in a thread where its middleware knows no other way.

LangChain refuses to run a middleware that only wraps synchronous calls (`@wrap_tool_call def ...`) in an
asynchronous run: such an agent works for whoever calls `invoke`, and has to work here.
"""

import asyncio
import contextvars
import functools
import sys
import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._constants import CONFIG_KEY_RUNTIME, CONFIG_KEY_STREAM
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import DEFAULT_RUNTIME

from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of, unwrapped

_MODES: Any = ["updates", "values"]
_MIDDLEWARE = "langchain.agents.middleware.types"
_PAIRS = (("wrap_tool_call", "awrap_tool_call"), ("wrap_model_call", "awrap_model_call"))
_MOST = 5000  # objects looked at: closures may hold a whole application
_DONE = object()


async def stream_graph(
    graph: Pregel[Any], given: Any, config: RunnableConfig, *, in_thread: bool
) -> AsyncIterator[tuple[str, Any]]:
    """Updates and values of one run, each with its mode."""
    if not in_thread:
        stream: Any = graph.astream(given, config, stream_mode=_MODES)
        async for mode, part in stream:
            yield mode, part
        return
    context: Any = contextvars.copy_context()  # one for all parts: what a step sets, the next one finds
    parts = context.run(graph.stream, given, config, stream_mode=_MODES)
    loop = asyncio.get_running_loop()
    while (item := await loop.run_in_executor(None, context.run, next, parts, _DONE)) is not _DONE:
        mode, part = item
        yield mode, part


def only_sync(graph: Pregel[Any]) -> bool:
    """Whether a graph can run synchronously only: by a middleware, and no node says otherwise."""
    kind = getattr(sys.modules.get(_MIDDLEWARE), "AgentMiddleware", None)
    if kind is None:
        return False
    runs = [inner for _, bound in nodes_of(graph) for inner in unwrapped(bound)]
    if any(getattr(run, "afunc", None) and not getattr(run, "func", None) for run in runs):
        return False
    return any(_wraps_sync_only(type(middleware), kind) for middleware in _reached(runs, kind))


def _wraps_sync_only(own: type, kind: type) -> bool:
    return any(
        getattr(own, sync) is not getattr(kind, sync, None)
        and getattr(own, other) is getattr(kind, other, None)
        for sync, other in _PAIRS
        if hasattr(kind, sync)
    )


def _reached(runs: list[Any], kind: type) -> Iterator[Any]:
    """Middleware in the closures of what nodes run."""
    names = ("func", "afunc", "_wrap_tool_call", "_awrap_tool_call")
    todo = deque(getattr(run, name, None) for run in runs for name in names)
    seen: set[int] = set()
    while todo and len(seen) < _MOST:
        item = todo.popleft()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, kind):
            yield item
        else:
            todo.extend(_within(item))


def _within(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args]
    return list(value) if type(value) in (list, tuple) else []


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def hearing_nested_graphs(graph: Pregel[Any], take: Callable[[Any], None]) -> dict[str, Any]:
    """Entries for `config["configurable"]` of `graph`: `take` is given each update of a graph within it.

    `astream(subgraphs=True)` would tell it too, at the price of a task and a wake-up for every step of every
    graph. Here the sink that LangGraph keeps in the config for the same end is ours: a graph that runs in a
    node, in a tool, or by hand finds it there and calls it, from whatever thread it runs in.
    """

    def heard(chunk: tuple[tuple[str, ...], str, Any]) -> None:
        namespace, _, update = chunk
        if namespace:  # the outermost graph's own updates are streamed to its caller
            take(update)

    return {
        CONFIG_KEY_STREAM: StreamProtocol(heard, {"updates"}),
        # a graph that finds a sink takes its writer from there, and its store too
        CONFIG_KEY_RUNTIME: replace(DEFAULT_RUNTIME, store=graph.store),
    }
