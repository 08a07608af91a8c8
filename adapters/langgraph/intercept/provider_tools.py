"""Tools that the model's provider runs itself: hosted MCP, web search, code interpreters, computer use.

They run inside the model's answer, where no gate stands. So what is bound decides, before the model is
asked: a dict that does not describe a tool of the caller's own is one of these, whatever it is called.
Unless settings leave it out (`leave_out`), nothing starts with it.
"""

import types
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.runnables import RunnableBinding

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of, unwrapped
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings import advice

_OWN_TYPES = frozenset({"function", "custom", "object"})  # "object": a bare JSON schema
_OWN_PREFIXES = (
    "bash_",
    "text_editor_",
    "memory_",
    "computer_2",
)  # of Anthropic: the caller runs these by name
_OWN_KEYS = frozenset({"function", "parameters", "properties", "input_schema", "inputSchema", "toolSpec"})
_SERVERS = "mcp_servers"  # Anthropic's hosted MCP is no tool, but a setting of the model
_BOTH = "function_declarations"  # Gemini: beside keys of the provider's own


def provider_tools(bound: Any) -> list[str]:
    """The names of what a provider would run of one bound thing: its type, or Gemini's keys."""
    if not isinstance(bound, Mapping):
        bound = _definition(bound)
    if not bound:
        return []
    kind = bound.get("type")
    if kind == "namespace":
        return [name for tool in bound.get("tools") or () for name in provider_tools(tool)]
    if isinstance(kind, str) and kind:
        own = kind in _OWN_TYPES or (kind.startswith(_OWN_PREFIXES) and "name" in bound)
        return [] if own else [kind]
    if _OWN_KEYS & set(bound):
        return []
    if "name" in bound or "title" in bound:  # a description without arguments
        return []
    return [str(key) for key, value in bound.items() if key != _BOTH and value is not None]


def _definition(bound: Any) -> Mapping[str, Any]:
    """Return the definition that a tool sends to its provider, or that a provider's own object holds."""
    given = (getattr(bound, "extras", None) or {}) if hasattr(bound, "args_schema") else {}
    definition = given.get("provider_tool_definition") if isinstance(given, Mapping) else None
    if isinstance(definition, Mapping):
        return definition
    if type(bound).__module__.startswith("google.") and hasattr(bound, "model_dump"):
        dumped: Mapping[str, Any] = bound.model_dump(exclude_none=True)
        return dumped
    return {}


def without_left_out(session: Session | None, bound: Any) -> Any:
    """Return the tools that may be bound in an episode, without those that settings leave out.

    Raises:
        RealCallBlocked: a tool of the provider's is bound that settings do not leave out.
    """
    if session is None or session.mode.bare or not isinstance(bound, (list, tuple)):
        return bound
    allowed = []
    for tool in bound:
        names = provider_tools(tool)
        for name in names:
            if name not in session.policy.left_out:
                session.refuse(refusal(name))
        if not names:
            allowed.append(tool)
        elif isinstance(tool, Mapping) and tool.get(_BOTH):
            allowed.append({_BOTH: tool[_BOTH]})
    return allowed


def refusal(name: str) -> str:
    """Why a tool of the provider's stops a dream, and what takes it out."""
    return (
        f"'{name}' is a tool that the model's provider runs: its calls pass no gate and could not be dreamt; "
        f"{advice.format_lines(advice.left_out(name))}"
    )


def allowed_arguments(session: Session | None, model: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a model is asked with in an episode, its own settings looked at too.

    Raises:
        RealCallBlocked: as `without_left_out`.
    """
    if session is None or session.mode.bare:
        return kwargs
    own = getattr(model, "model_kwargs", None) or {}
    given = {name: kwargs.get(name) or own.get(name) for name in ("tools", _SERVERS)}
    given[_SERVERS] = given[_SERVERS] or getattr(model, _SERVERS, None)
    if given[_SERVERS] and _SERVERS not in session.policy.left_out:
        session.refuse(refusal(_SERVERS))
    if given[_SERVERS]:
        kwargs = {**kwargs, _SERVERS: None}
    allowed = without_left_out(session, given["tools"])
    return kwargs if allowed == given["tools"] else {**kwargs, "tools": allowed or None}


def bound_in(graph: Any) -> list[str]:
    """Return the tools of the model's provider that a graph's nodes visibly bind before a run."""
    names: dict[str, None] = {}
    for _, node in nodes_of(graph):
        for inner in unwrapped(node):
            for bound in _bound_by(inner):
                names.update(dict.fromkeys(provider_tools(bound)))
    return list(names)


def _bound_by(value: Any, name: str = "", depth: int = 2) -> Iterator[Any]:
    """Yield the tools that a node, a function of it, or a variable of the function binds to a model."""
    if isinstance(value, RunnableBinding):
        yield from value.kwargs.get("tools") or ()
    elif isinstance(value, (list, tuple)) and "tool" in name.lower():
        yield from value
    elif isinstance(value, types.FunctionType) and depth:
        code = value.__code__
        variables = dict(zip(code.co_freevars, closure_of(value), strict=True))
        variables |= {
            co_name: value.__globals__[co_name] for co_name in code.co_names if co_name in value.__globals__
        }
        for variable, used in variables.items():
            yield from _bound_by(used, variable, depth - 1)
    elif not name:
        for function in (getattr(value, "func", None), getattr(value, "afunc", None)):
            yield from _bound_by(getattr(function, "__func__", function), "func", depth)
