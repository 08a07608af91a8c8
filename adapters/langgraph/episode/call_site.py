"""Where in a graph a model call is made: a place that is the same in every run, however fast things are.

A place is the way from the outermost graph in: at each level the step, the node, which of its parallel
runs, and the how-manieth graph it runs there by hand. Steps of one graph follow each other, so that
places in their order are in the order of what happened; what ran side by side stands by name.
"""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

SEPARATOR = "|"


class Level(NamedTuple):
    """One graph on the way to a place."""

    step: int
    node: str
    run: tuple[int, ...]  # which of several parallel runs of the node in this step
    graph: int  # how many graphs the node had run by hand before the one that leads on


CallSite = tuple[Level, ...]


class CallSites:
    """What one episode shows of its graphs: the node runs that other graphs run in. Thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, Level] = {}  # by checkpoint namespace
        self._lock = threading.Lock()

    def enter(self, metadata: Mapping[str, Any]) -> None:
        """A graph is about to run inside of the node run that `metadata` tells of."""
        namespace = metadata.get("langgraph_checkpoint_ns")
        if namespace:
            with self._lock:
                self._runs[str(namespace)] = _level(metadata)

    def place(self, metadata: Mapping[str, Any]) -> CallSite:
        """Where a call is made."""
        namespace = str(metadata.get("langgraph_checkpoint_ns") or "")
        segments = namespace.split(SEPARATOR) if namespace else []
        levels: list[Level] = []
        for end in range(1, len(segments)):
            segment = segments[end - 1]
            if segment.isdigit():
                if levels:
                    levels[-1] = levels[-1]._replace(graph=int(segment))
                continue
            outer = self._runs.get(SEPARATOR.join(segments[:end]))
            levels.append(outer or Level(0, segment.partition(":")[0], (), 0))
        return (*levels, _level(metadata))


def path_of(place: CallSite) -> str:
    """The place's node as `inspect` names it: "agent", or "team/agent" inside of a graph in a node."""
    return "/".join(level.node for level in place if level.node)


def _level(metadata: Mapping[str, Any]) -> Level:
    return Level(
        int(metadata.get("langgraph_step") or 0),
        str(metadata.get("langgraph_node") or ""),
        tuple(_numbers(metadata.get("langgraph_path"))),
        0,
    )


def _numbers(path: Any) -> list[int]:
    """The places of a run among those sent out with it, at any depth of the path."""
    if isinstance(path, bool):
        return []
    if isinstance(path, int):
        return [path]
    return [number for part in path for number in _numbers(part)] if isinstance(path, (tuple, list)) else []
