"""Calls past every tool: whether somebody's own code could run what a model asks for, and whether it did.

A ToolNode runs tools and answers unknown names by itself. A node that looks functions up by name runs what it
finds. So where it is not known what stands behind a name (a bare schema was bound, or the model was never
told of it), the living functions of that name are looked at. One look costs some ten milliseconds; what it
found is kept for the graph.

After every turn of a model it is asked whether the calls of before passed the gate. A conversation that goes
on shows what became of its calls. One that has its answer, though the gate saw no such call, was run by
somebody's own code: the episode ends there, before the next call. One that has none is only suspected, since
what runs side by side may still be on its way; the end of the episode settles it.
"""

import functools
import gc
import sysconfig
import types
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import instances_of
from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hooked_names, is_hooked
from dreamgym_kit.adapters.langgraph.intercept.memory import graphs_of
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.transcript_check import PAST_THE_GATE
from dreamgym_kit.serialization import to_json
from dreamgym_kit.types import Executed

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def answers_unknown_names(session: Session) -> bool:
    """Whether a graph of this episode has a ToolNode."""
    return any(True for _ in _tool_nodes(session))


def tool_of_node(session: Session, name: str) -> BaseTool | None:
    """The tool of that name that a ToolNode of this episode runs."""
    tools = (node.tools_by_name.get(name) for node in _tool_nodes(session))
    return next((tool for tool in tools if tool is not None), None)


def loose_function(session: Session, name: str, *, again: bool = False) -> str | None:
    """Return the "module:qualname" of a user's function of that name that no gate holds; None: there is none.

    `again`: search again for a function that was found before: it may be hooked by now.
    """
    graphs = graphs_of(session)
    places = _PLACES.setdefault(graphs[0] if graphs else session, {})
    if name not in places or (again and places[name] is not None):
        places[name] = _find(name)
    return places[name]


def _find(name: str) -> str | None:
    if _first(name) is None:
        return None
    gc.collect()  # what nobody can reach any more cannot be run
    return _first(name)


_PLACES: "weakref.WeakKeyDictionary[Any, dict[str, str | None]]" = weakref.WeakKeyDictionary()
"""By graph, or by session where no graph runs."""


def _first(name: str) -> str | None:
    for function in instances_of(types.FunctionType):
        if function.__name__ == name and _is_loose(function):
            return _where(function)
    for table in instances_of(dict):
        # dict.get, not the table's own: a subclass may run code
        value = dict.get(table, name) if type(table) is dict else None
        candidate = _under(value)
        if candidate is not None and _is_loose(candidate, bound=type(value) is types.MethodType):
            return _where(candidate)
    return None


def _under(value: Any) -> types.FunctionType | None:
    """The function that a function, method or partial runs; a tool's own methods are gated."""
    while type(value) in (functools.partial, types.MethodType):
        if type(value) is types.MethodType and isinstance(value.__self__, BaseTool):
            return None
        value = value.func if type(value) is functools.partial else value.__func__
    return value if isinstance(value, types.FunctionType) else None


def _is_loose(function: types.FunctionType, *, bound: bool = False) -> bool:
    """Whether a function is a user's, no gate holds it, and it is no method (unless taken off an object)."""
    if function.__code__.co_filename.startswith(("<", *_LIBRARIES)) or is_hooked(function):
        return False
    if HOLDINGS.is_body(function):
        return False
    # a client's method is named as the tool that calls it: that says nothing
    outside = function.__qualname__.rpartition(".")[0]
    return bound or not outside or outside.endswith("<locals>")


def _tool_nodes(session: Session) -> Iterator[ToolNode]:
    for graph in graphs_of(session):
        for _, bound in nodes_of(graph):
            yield from (runnable for runnable in unwrapped(bound) if isinstance(runnable, ToolNode))


def _where(function: types.FunctionType) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def check_answered(session: Session, messages: Any) -> None:
    """Look at the conversation that a model is about to go on with.

    Raises:
        RealCallExecuted: a call of it was answered past the gate.
    """
    if session.mode.bare or not session.asked_ids or not isinstance(messages, Sequence):
        return
    given = {message.tool_call_id: message.status for message in messages if isinstance(message, ToolMessage)}
    missing = past_the_gate(session, messages)
    session.passed_over.update({str(call["id"]): call["name"] for call in missing if call["id"] not in given})
    ran = [call for call in missing if given.get(call["id"]) == "success"]
    if ran:
        raise session.ran([Executed(call["name"], to_json(call["args"]), PAST_THE_GATE) for call in ran])


def past_the_gate(session: Session, messages: Sequence[Any]) -> list[Any]:
    """Return the calls of this episode in a conversation that bypassed the gate, with an id or without."""
    gated, structured = HOLDINGS.names | hooked_names(), HOLDINGS.structured | session.policy.structured
    unseen = [
        call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] in session.asked_ids and call["id"] not in session.held_call_ids
    ]
    left = Counter(session.held_without_id)
    names = set(session.asked_ids.values())
    spare = sum(times for name, times in left.items() if name not in names)  # under the name of what acted
    missing = []
    for call in unseen:
        name = call["name"]
        if name not in gated or name in structured | session.unknown_names or call["id"] in session.excused:
            continue
        if left[name] > 0:
            left[name] -= 1
        elif spare > 0:
            spare -= 1
        else:
            missing.append(call)
    return missing


def excuse(session: Session, question: object) -> None:
    """Excuse calls that an interrupt asks a person about: the agent may answer them ("the user declined")."""
    text = str(question)
    for call_id, name in session.asked_ids.items():
        about = name in text or call_id in text
        if about and call_id not in session.held_call_ids and loose_function(session, name) is None:
            session.excused.add(call_id)
