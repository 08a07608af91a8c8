"""The callables beside tools that can cause an effect, found by reading code before anything runs.

Nodes, tasks, middleware, callbacks and validators are followed to the user's functions that reach the world,
and to those that are picked at run time: out of a table, by name, by code that a model wrote, by a model's
structured answer. The most specific function is listed, so that its arguments tell its calls apart. In a
dream each is intercepted under a guessed effect; real calls need a person's word (`[functions]`).
"""

import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.analysis.nodes import functions_of, is_framework, nodes_of
from dreamgym_kit.adapters.langgraph.analysis.side_effects import (
    Reached,
    Reading,
    form_methods,
    is_users,
    read,
    unpacked,
)
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hook_of, real_of, under
from dreamgym_kit.routing.effects import guess_effect, names_deed
from dreamgym_kit.settings.schema import FunctionSettings, Settings
from dreamgym_kit.types import Effect

_MAKES_TOOLS = frozenset(
    {"bind_tools", "StructuredTool", "ToolNode", "create_agent", "create_react_agent", "get_tools"}
)
_PARTS = ("func", "afunc", "bound", "path", "steps", "_wrap_tool_call", "_awrap_tool_call", "_tools_by_name")
_BESIDE = ("validator", "callback", "middleware")
_MAX_DEPTH = 10


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A callable that can cause an effect without being a tool."""

    reference: str  # "module:qualname", as `[functions]` names it
    name: str  # that its calls go by
    why: str  # what it reaches the world by, or how it comes to be called
    reached: str  # from where: "node 'act'"
    effect: Effect  # a person's, else guessed: never pure or control
    confirmed: bool  # whether a person said the effect
    place: str  # "file.py:12", for a digest of where it is defined
    function: types.FunctionType

    def line(self) -> str:
        """What to add to dreamgym.toml."""
        return f'[functions."{self.reference}"] effect = "{self.effect}"'


@dataclass(slots=True)
class Inventory:
    """What a graph can reach beside its tools."""

    entries: list[InventoryEntry]
    acting: list[tuple[str, types.FunctionType, str]]  # nodes and the like that act in their own code
    named: dict[str, str]  # nodes whose code names something like `send_mail`, with that name
    makes_tools: bool  # whether code makes tools while it runs: they are met when a model is bound with them
    scopes: list[dict[str, Any]]  # the global names of all functions that the graph is seen to run


def taken(graph: Pregel[Any], settings: Settings) -> Inventory:
    """The whole inventory of a graph; nothing is called, nothing is hooked."""
    walk = _Walk(settings)
    walk.graph(graph)
    return Inventory(
        sorted(walk.entries.values(), key=lambda entry: entry.reference),
        walk.acting,
        walk.named,
        walk.makes_tools,
        list(walk.scopes.values()),
    )


class _Walk:
    """A walk over the user's code, from what a graph runs to what acts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = {
            id(_plain(load_named(function, kind="function", where=settings.where("functions", function),
                                 folder=settings.folder))): function
            for function in settings.functions
        }  # fmt: skip
        self._seen: set[tuple[int, bool]] = set()
        self._doubts: dict[int, str | None] = {}
        self._graphs: set[int] = set()
        self.entries: dict[str, InventoryEntry] = {}
        self.acting: list[tuple[str, types.FunctionType, str]] = []
        self.named: dict[str, str] = {}
        self.makes_tools = False
        self.scopes: dict[int, dict[str, Any]] = {}
        self._forms: list[type] = []
        self._words: frozenset[str] = frozenset()

    def graph(self, graph: Pregel[Any]) -> None:
        """Start from everything that a graph runs."""
        if id(graph) in self._graphs:
            return
        self._graphs.add(id(graph))
        for path, bound in nodes_of(graph):
            name = path.rpartition("/")[2]
            if name in self._settings.nodes:
                continue
            own = {id(function) for function in functions_of(bound)}
            for kind, reached in behind(bound):
                where = f"node '{path}'" if id(reached.function) in own else f"{kind} at node '{path}'"
                self._start(reached, where)
                names = sorted({reached.function.__name__} | self._read(reached).words)
                if id(reached.function) in own and (deed := next(filter(names_deed, names), None)):
                    self.named.setdefault(path, deed)
        branches = getattr(getattr(graph, "builder", None), "branches", {}).values()
        for branch in (branch for named in branches for branch in named.values()):
            for kind, reached in behind(branch):
                self._start(reached, kind)
        for kind, reached in callbacks(getattr(graph, "config", None)):
            self._start(reached, kind)
        for reached in (method for form in self._forms for method in form_methods(form, self._words)):
            self._follow(reached, "a model's structured answer", True, 1)

    def _start(self, reached: Reached, where: str) -> None:
        """From code that itself cannot be answered in place of: a node gives a state, a validator a value."""
        beside = where.startswith(_BESIDE)
        if self._settings_key(reached.function) is not None or (id(reached.function), beside) in self._seen:
            return
        self._seen.add((id(reached.function), beside))
        reading = self._read(reached)
        self.makes_tools = self.makes_tools or bool(reading.words & _MAKES_TOOLS)
        if reading.acts is not None:
            if where.startswith("callback"):
                self._list(reached, reading.acts, where)
                return
            self.acting.append((where, reached.function, reading.acts))
        for inner in reading.graphs:
            self.graph(inner)
        for further in reading.reached:
            self._follow(further, where, beside or further.chosen, 1)

    def _follow(self, reached: Reached, where: str, chosen: bool, depth: int) -> None:
        function = reached.function
        if (id(function), chosen) in self._seen or depth > _MAX_DEPTH or HOLDINGS.is_body(function):
            return
        self._seen.add((id(function), chosen))
        reading = self._read(reached, makes=True)
        self.makes_tools = self.makes_tools or bool(reading.words & _MAKES_TOOLS)
        why = reading.acts
        if why is None and chosen:
            why = self._doubt(reached)
            why = f"a callable that is picked at run time ({why})" if why and reached.chosen else why
        if why is not None or self._settings_key(function) is not None:
            self._list(reached, why or "named in dreamgym.toml", where)
            return
        for inner in reading.graphs:
            self.graph(inner)
        for further in reading.reached:
            self._follow(further, where, further.chosen, depth + 1)

    def _read(self, reached: Reached, *, makes: bool = False) -> Reading:
        names = real_of(reached.function).__globals__
        self.scopes[id(names)] = names
        reading = read(reached.function, reached.owner, makes=makes)
        self._forms += [form for form in reading.forms if form not in self._forms]
        self._words |= reading.words
        return reading

    def _doubt(self, reached: Reached) -> str | None:
        """Why a function is not known to only compute: by its own code, or by that of what it calls."""
        function = reached.function
        if id(function) in self._doubts or HOLDINGS.is_body(function):
            return self._doubts.get(id(function))
        self._doubts[id(function)] = None  # while it is looked at: it may call itself
        reading = read(function, reached.owner, makes=True)
        inner = (self._doubt(further) for further in reading.reached)
        why = reading.acts or reading.doubt or next((why for why in inner if why), None)
        self._doubts[id(function)] = why
        return why

    def _settings_key(self, function: types.FunctionType) -> str | None:
        """The entry of `[functions]` for a function, its twin, or what it overrides."""
        hooked = hook_of(function)
        if id(function) in self._keys or hooked is None or hooked.tool is not None or hooked.leaf:
            return self._keys.get(id(function))
        return next(
            (key for key, entry in self._settings.functions.items() if hooked.name == _name(key, entry)),
            None,
        )

    def _list(self, item: Reached, why: str, where: str) -> None:
        function = item.function
        key = self._settings_key(function)
        reference = f"{function.__module__}:{function.__qualname__}"
        entry = self._settings.functions[key] if key is not None else None
        name = (entry.name if entry else item.name if item.name.isidentifier() else None) or function.__name__
        code = real_of(function).__code__
        self.entries.setdefault(
            reference,
            InventoryEntry(
                reference=reference,
                name=name,
                why=why,
                reached=where,
                effect=entry.effect if entry else guess_effect(name)[0],
                confirmed=entry is not None,
                place=f"{Path(code.co_filename).name}:{code.co_firstlineno}",
                function=function,
            ),
        )


def _name(reference: str, entry: FunctionSettings) -> str:
    return entry.name or reference.rpartition(":")[2].rpartition(".")[2]


def _plain(target: Any) -> Any:
    """The function under a task, a tool or a method, as `[functions]` hooks it."""
    inner = getattr(target, "__dict__", {}).get("func")
    return inner if isinstance(inner, types.FunctionType) else under(target)


def behind(value: Any, kind: str = "node", depth: int = 0) -> Iterator[tuple[str, Reached]]:
    """The user's functions in what the framework made of them: nodes, middleware, validators, callbacks."""
    inner, owner = _runs(value)
    if is_users(inner):
        yield kind, Reached(inner, owner)
    elif depth > _MAX_DEPTH:
        return
    elif isinstance(inner, types.FunctionType):
        for held in _held(inner):
            yield from behind(held, "middleware", depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from behind(item, kind, depth + 1)
    elif isinstance(value, (BaseTool, BaseChatModel)):
        yield from callbacks({"callbacks": value.callbacks})
        yield from _validators(getattr(value, "args_schema", None))
    elif isinstance(value, Runnable) or is_framework(type(value).__module__):
        yield from callbacks(getattr(value, "config", None))
        for part, within in _parts(value, kind):
            yield from behind(part, within, depth + 1)


def _runs(value: Any) -> tuple[Any, Any]:
    """The function that calling a value runs, and the object that it is a method of."""
    inner, owner = unpacked(value)
    called = under(inspect.getattr_static(type(value), "__call__", None))
    return (called, value) if not is_users(inner) and is_users(called) else (inner, owner)


def _parts(value: Any, kind: str) -> Iterator[tuple[Any, str]]:
    """What an object of the framework runs; graphs inside have nodes of their own."""
    for name in _PARTS:
        part = getattr(value, name, None)
        if part is not None and not isinstance(part, Pregel):
            yield (
                list(part.values()) if isinstance(part, dict) else part,
                "middleware" if name.endswith("wrap_tool_call") else kind,
            )


def _held(function: types.FunctionType) -> Iterator[Any]:
    """Callables, and lists that may hold some, in the closure of a function that the framework made."""
    for held in closure_of(function):
        if callable(held) or isinstance(held, (list, tuple)):
            yield held


def _validators(schema: Any) -> Iterator[tuple[str, Reached]]:
    """Functions that a pydantic class runs on what a model asks for."""
    decorators = getattr(schema, "__pydantic_decorators__", None)
    for group in ("field_validators", "model_validators", "validators", "root_validators"):
        for validator in getattr(decorators, group, {}).values():
            function = under(getattr(validator.func, "__wrapped__", validator.func))
            if is_users(function):
                yield "validator", Reached(function)
    for field in getattr(schema, "model_fields", {}).values() if isinstance(schema, type) else ():
        for item in field.metadata:
            if is_users(function := under(getattr(item, "func", None))):
                yield "validator", Reached(function)


def callbacks(config: Any) -> Iterator[tuple[str, Reached]]:
    """Methods of the user's own callback handlers in a runnable's config."""
    given = config.get("callbacks") if isinstance(config, dict) else None
    for handler in getattr(given, "handlers", given) or ():
        for kind in type(handler).__mro__:
            for name, var in vars(kind).items():
                if name.startswith("on_") and is_users(var):
                    yield "callback", Reached(var, handler)
