"""What graphs inside a graph write, heard where LangGraph itself hands it on.

`astream(subgraphs=True)` would tell it too, at the price of a task and a wake-up for every step of every
graph. Here the sink that LangGraph keeps in the config for the same end is ours: a graph that runs in a
node, in a tool, or by hand finds it there and calls it, from whatever thread it runs in.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from langgraph._internal._constants import CONFIG_KEY_RUNTIME, CONFIG_KEY_STREAM
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import DEFAULT_RUNTIME


def hearing_nested_graphs(graph: Pregel[Any], take: Callable[[Any], None]) -> dict[str, Any]:
    """Entries for `config["configurable"]` of `graph`: `take` is given each update of a graph within it."""

    def heard(chunk: tuple[tuple[str, ...], str, Any]) -> None:
        namespace, _, update = chunk
        if namespace:  # the outermost graph's own updates are streamed to its caller
            take(update)

    return {
        CONFIG_KEY_STREAM: StreamProtocol(heard, {"updates"}),
        # a graph that finds a sink takes its writer from there, and its store too
        CONFIG_KEY_RUNTIME: replace(DEFAULT_RUNTIME, store=graph.store),
    }
