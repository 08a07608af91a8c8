"""Could somebody's own code run a function under a name that the model was never told of?

A ToolNode answers unknown names by itself. A node that looks functions up by name does not: a model that
invents (or was told in its prompt) the name of a living function would have it run. Asked only for
unknown names, in episodes whose graphs have no ToolNode; one look costs some ten milliseconds.
"""

import sysconfig
import types
from typing import Any

from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.alive import alive
from dreamgym_kit.adapters.langgraph.isolation import graphs_of
from dreamgym_kit.adapters.langgraph.nodes import nodes_of, unwrapped
from dreamgym_kit.gate.session import Session

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def answers_unknown_names(session: Session) -> bool:
    """Whether a graph of this episode has a ToolNode."""
    return any(_has_tool_node(graph) for graph in graphs_of(session))


def function_called(name: str) -> str | None:
    """Where the user's function of that name stands ("module:qualname"), by its own name or as a key."""
    for function in alive(types.FunctionType):
        if function.__name__ == name and _of_user(function):
            return _where(function)
    for table in alive(dict):
        # dict.get, not the table's own: a subclass may run code
        found = dict.get(table, name) if type(table) is dict else None
        if isinstance(found, types.FunctionType) and _of_user(found):
            return _where(found)
    return None


def _has_tool_node(graph: Pregel[Any]) -> bool:
    return any(isinstance(one, ToolNode) for _, bound in nodes_of(graph) for one in unwrapped(bound))


def _of_user(function: types.FunctionType) -> bool:
    return not function.__code__.co_filename.startswith(("<", *_LIBRARIES))


def _where(function: types.FunctionType) -> str:
    return f"{function.__module__}:{function.__qualname__}"
