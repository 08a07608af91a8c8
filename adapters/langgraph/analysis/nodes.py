"""The nodes of a graph, those of graphs inside nodes too, and the user's own functions that they run."""

import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.runnables import RunnableBinding
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.intercept.functions import of_library

_PACKAGES = frozenset({"deepagents", "dreamgym_kit", "langchain", "langgraph", "langsmith"})
_FAMILIES = ("langchain_", "langgraph_")


def is_framework(module: str) -> bool:
    """Whether a module, by its dotted name, is a framework's.

    A user may call a package `langgraph_shop`: of the packages that are named after a framework, only
    installed ones are the framework's.
    """
    top = module.partition(".")[0]
    if top in _PACKAGES:
        return True
    loaded = sys.modules.get(module) if top.startswith(_FAMILIES) else None
    file = getattr(loaded, "__dict__", {}).get("__file__")  # its `__getattr__` is the user's code
    return isinstance(file, str) and of_library(file)


MAX_DEPTH = 4


def nodes_of(graph: Pregel[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nodes with their paths ("agent", "team/agent"), those of graphs inside nodes too."""
    for name, node in graph.nodes.items():
        if name == "__start__":
            continue
        bound = node.bound
        yield f"{prefix}{name}", bound
        for inner in unwrapped(bound):
            if isinstance(inner, Pregel) and prefix.count("/") < MAX_DEPTH:
                yield from nodes_of(inner, f"{prefix}{name}/")


def unwrapped(bound: Any) -> list[Any]:
    """A runnable and those inside bindings and sequences."""
    if isinstance(bound, RunnableBinding):
        return [bound, *unwrapped(bound.bound)]
    if hasattr(bound, "steps"):
        return [bound, *(inner for step in bound.steps for inner in unwrapped(step))]
    return [bound]


def functions_of(bound: Any) -> list[types.FunctionType]:
    """The user's own plain functions that a node runs."""
    functions = []
    for inner in unwrapped(bound):
        for attribute in ("func", "afunc"):
            function = inspect.unwrap(getattr(inner, attribute, None) or (lambda: None))
            function = getattr(function, "__func__", function)
            if isinstance(function, types.FunctionType) and not is_framework(function.__module__ or ""):
                functions.append(function)
    return list(dict.fromkeys(functions))


def runtime_context(graph: Pregel[Any], given: Mapping[str, Any]) -> Any:
    """What the graph finds in `runtime.context`: what is given, else what its schema makes of nothing.

    None where the graph declares no context, or one that cannot be made of nothing.
    """
    schema: Any = graph.context_schema
    if given or schema is None:
        return dict(given) or None
    try:
        return schema()
    except Exception:  # noqa: BLE001  a user's class
        return None


def missing_context(graph: Pregel[Any], given: Mapping[str, Any]) -> list[str]:
    """The fields of the graph's runtime context that nobody gives; nothing is made: defaults are code."""
    schema: Any = graph.context_schema
    if schema is None or given or typing.is_typeddict(schema):
        return []
    try:
        return [
            name
            for name, parameter in inspect.signature(schema).parameters.items()
            if parameter.default is parameter.empty
        ]
    except (TypeError, ValueError):
        return [str(getattr(schema, "__name__", schema))]
