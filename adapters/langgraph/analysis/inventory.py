"""The callables beside tools that can cause an effect, found by reading code before anything runs.

Nodes, tasks, middleware, callbacks and validators are followed to the user's functions that reach the world,
and to those that are picked at run time: out of a table, by name, by code that a model wrote, by a model's
structured answer. The most specific function is listed, so that its arguments tell its calls apart. In a
dream each is intercepted under a guessed effect; real calls need a person's word (`[functions]`).
"""

import functools
import inspect
import itertools
import types
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.constants import START
from langgraph.pregel import Pregel

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.loading import load_named
from dreamgym_kit.adapters.langgraph.analysis.nodes import functions_of, is_framework, nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.analysis.side_effects import (
    Reached,
    Reading,
    acts_by,
    form_methods,
    is_library_class,
    is_users,
    is_users_object,
    read,
    unpacked,
)
from dreamgym_kit.adapters.langgraph.analysis.tool_bodies import bodies_of
from dreamgym_kit.adapters.langgraph.intercept.bound_names import HOLDINGS
from dreamgym_kit.adapters.langgraph.intercept.functions import hook_of, real_of, under
from dreamgym_kit.routing.effects import guess_effect, names_deed
from dreamgym_kit.settings.schema import FunctionSettings, Settings
from dreamgym_kit.types import Effect

_MAKES_TOOLS = frozenset(
    {"bind_tools", "StructuredTool", "ToolNode", "create_agent", "create_react_agent", "get_tools"}
)
_BESIDE = ("validator", "callback", "middleware")
_MAX_DEPTH = 10
_MAX_WITHIN = 40  # framework objects hold each other deeply: a branch in a writer in a sequence
_MADE_BY = frozenset({"__init__", "__new__", "__post_init__", "__setattr__", "model_post_init"})
_REPLACED = frozenset({"builder", "cache", "checkpointer", "nodes", "store"})  # a dream brings its own


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
    stated: list[types.FunctionType]  # of nodes whose effect settings say
    makes_tools: bool  # whether code makes tools while it runs: they are met when a model is bound with them
    scopes: list[dict[str, Any]]  # the global names of all functions that the graph is seen to run
    around: list[dict[str, Any]]  # those of the modules of all tools in the process


def taken(graph: Pregel[Any], settings: Settings) -> Inventory:
    """The whole inventory of a graph; nothing is called, nothing is hooked."""
    walk = _Walk(settings)
    walk.graph(graph)
    return Inventory(
        sorted(walk.entries.values(), key=lambda entry: entry.reference),
        walk.acting,
        walk.named,
        walk.stated,
        walk.makes_tools,
        list(walk.scopes.values()),
        list(walk.around.values()),
    )


class _Walk:
    """A walk over the user's code, from what a graph runs to what acts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys: dict[int, str] = {}
        for function in settings.functions:
            where = settings.where("functions", function)
            body = body_of_task(load_named(function, kind="function", where=where, folder=settings.folder))
            self._keys[id(under(body))] = function
        self._seen: set[tuple[int, bool]] = set()
        self._doubts: dict[int, str | None] = {}
        self._graphs: set[int] = set()
        self.entries: dict[str, InventoryEntry] = {}
        self.acting: list[tuple[str, types.FunctionType, str]] = []
        self.named: dict[str, str] = {}
        self.stated: list[types.FunctionType] = []
        self.makes_tools = False
        self.scopes: dict[int, dict[str, Any]] = {}
        self.around: dict[int, dict[str, Any]] = {}
        self._forms: list[type] = []
        self._words: frozenset[str] = frozenset()

    def graph(self, graph: Pregel[Any]) -> None:
        """Start from all the code that a graph runs."""
        if id(graph) in self._graphs:
            return
        self._graphs.add(id(graph))
        for path, bound in nodes_of(graph):
            name = path.rpartition("/")[2]
            if name in self._settings.nodes:
                self.stated += [reached.function for _, reached in behind(bound)]
                continue
            own = {id(function) for function in functions_of(bound)}
            for kind, reached in behind(bound):
                where = f"node '{path}'" if id(reached.function) in own else f"{kind} at node '{path}'"
                self._start(reached, where)
                names = sorted({reached.function.__name__} | self._read(reached).words)
                if id(reached.function) in own and (deed := next(filter(names_deed, names), None)):
                    self.named.setdefault(path, deed)
        bodies = (under(body) for tool in HOLDINGS.tools() for body in bodies_of(tool))
        # what acts around a body, in its module, is met when an episode calls it
        scopes = (real_of(body).__globals__ for body in bodies if is_users(body))
        self.around |= {id(scope): scope for scope in scopes}
        for callback in beside_nodes(graph):
            if callback.node not in self._settings.nodes:
                self._start(callback.reached, callback.where)
        for reached in (method for form in self._forms for method in form_methods(form, self._words)):
            self._follow(reached, "a model's structured answer", True, 1)

    def _start(self, reached: Reached, where: str) -> None:
        """From code that itself cannot be answered in place of: a node gives a state, a validator a value."""
        beside = where.startswith(_BESIDE)
        if self._settings_key(reached.function) is not None or (id(reached.function), beside) in self._seen:
            return
        self._seen.add((id(reached.function), beside))
        if not is_users(reached.function):  # a library's, handed to the framework as it is
            self.acting += [(where, reached.function, acts)] if (acts := acts_by(reached.function)) else []
            return
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
        if id(function) in self._keys or hooked is None or hooked.tool or hooked.leaf or hooked.in_episodes:
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


def body_of_task(target: Any) -> Any:
    """Return the plain function under a `@task` or a tool; any other value unchanged."""
    bodies = (getattr(target, "__dict__", {}).get(attribute) for attribute in ("func", "coroutine"))
    return next((inner for inner in bodies if isinstance(inner, types.FunctionType)), target)


class Beside(NamedTuple):
    """A function that LangGraph itself calls, beside what its nodes run."""

    kind: str  # "reducer", "retry policy"
    node: str  # its node's name; empty: the whole graph's
    reached: Reached

    @property
    def where(self) -> str:
        """For a person: "retry policy at node 'work'"."""
        return f"{self.kind} at node '{self.node}'" if self.node else self.kind


def beside_nodes(graph: Pregel[Any]) -> Iterator[Beside]:
    """Reducers, routers, policies, schemas, callbacks: whatever a graph holds and calls beside its nodes."""
    for name, channel in graph.channels.items():
        for kind, reached in behind(channel, f"reducer of {name!r}"):
            yield Beside(kind, "", reached)
    for attribute, value in _attributes(graph):
        for kind, reached in behind(value, attribute.strip("_").replace("_", " ")):
            yield Beside(kind, "", reached)
    for name, node in graph.nodes.items():
        for attribute, value in _attributes(node):
            if attribute != "bound":
                word = "router" if attribute == "writers" else attribute.replace("_", " ")
                for kind, reached in behind(value, word):
                    yield Beside(kind, "" if name == START else name, reached)
        for inner in unwrapped(node.bound):
            yield from beside_nodes(inner) if isinstance(inner, Pregel) else ()


def behind(
    value: Any, kind: str = "node", seen: dict[int, Any] | None = None, depth: int = 0
) -> Iterator[tuple[str, Reached]]:
    """The functions in what the framework made of them: nodes, middleware, validators, callbacks, policies.

    Whatever an object of the framework holds is looked at, not a list of its attributes: what holds a
    function can call it.
    """
    seen = {} if seen is None else seen
    if id(value) in seen or depth > _MAX_WITHIN or isinstance(value, (str, bytes, int, float, Pregel)):
        return
    seen[id(value)] = value
    inner, owner = _runs(value)
    if is_users(inner):
        yield kind, Reached(inner, owner)
    elif isinstance(value, type):
        yield from _of_schema(value)
    elif inspect.isroutine(inner) and not is_framework(inner.__module__ or "") and acts_by(inner):
        yield kind, Reached(cast("types.FunctionType", inner))
    elif isinstance(value, (BaseTool, BaseChatModel)):
        yield from callbacks({"callbacks": value.callbacks})
        yield from _of_schema(getattr(value, "args_schema", None))
        for name in ("handle_tool_error", "handle_validation_error"):
            yield from behind(getattr(value, name, None), "callback", seen, depth + 1)
    elif isinstance(value, Runnable) or any(is_framework(base.__module__) for base in type(value).__mro__):
        yield from callbacks(getattr(value, "config", None))
        for method in _overrides(type(value)):
            yield kind, Reached(method, value)
    for part, within in _parts(value, inner, owner, kind):
        yield from behind(part, within, seen, depth + 1)


def _runs(value: Any) -> tuple[Any, Any]:
    """The function that calling a value runs, and the object that it is a method of."""
    inner, owner = unpacked(value)
    called = under(inspect.getattr_static(type(value), "__call__", None))
    return (called, value) if not is_users(inner) and is_users(called) else (inner, owner)


def _parts(value: Any, inner: Any, owner: Any, kind: str) -> Iterator[tuple[Any, str]]:
    """Yield the values that a value may call, without inner graphs (own nodes) and tools (intercepted)."""
    if isinstance(value, functools.partial):
        yield from ((part, kind) for part in (*value.args, *value.keywords.values()))
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        yield from ((part, kind) for part in (value.values() if isinstance(value, dict) else value))
    elif isinstance(inner, types.FunctionType) and is_framework(inner.__module__ or ""):
        yield owner, kind
        values = (*closure_of(inner), *(inner.__defaults__ or ()), *(inner.__kwdefaults__ or {}).values())
        yield from ((part, "middleware" if kind == "node" else kind) for part in values)
    elif is_framework(type(value).__module__) and not isinstance(value, (type, BaseTool, BaseChatModel)):
        for name, part in _attributes(value):
            yield part, "middleware" if name.endswith("wrap_tool_call") else kind


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, by name; nothing is computed for it."""
    slots = (vars(base).get("__slots__", ()) for base in type(value).__mro__)
    named = (name for names in slots for name in ([names] if isinstance(names, str) else names))
    for name in dict.fromkeys((*getattr(value, "__dict__", ()), *named)):
        if not (isinstance(value, Pregel) and name in _REPLACED):
            with suppress(AttributeError):  # a slot that is empty
                yield name, object.__getattribute__(value, name)


def _overrides(kind: type) -> Iterator[types.FunctionType]:
    """Yield the user's methods of a class that override a framework's method: the framework may call them."""
    framework_names = {name for base in kind.__mro__ if is_library_class(base) for name in vars(base)}
    for base in itertools.filterfalse(is_library_class, kind.__mro__):
        for name in framework_names & vars(base).keys():
            entry = vars(base)[name]
            method = getattr(entry, "fget", None) or getattr(entry, "__func__", entry)
            if is_users(method):
                yield method


def _of_schema(schema: Any) -> Iterator[tuple[str, Reached]]:
    """Yield the user's functions that Python or pydantic runs when a class is instantiated or changed."""
    if not isinstance(schema, type) or is_library_class(schema):
        return
    decorators = getattr(schema, "__pydantic_decorators__", None)
    groups = getattr(decorators, "__dict__", None) or {
        name: getattr(decorators, name) for name in getattr(decorators, "__slots__", ())
    }
    decorated = [group for group in groups.values() if isinstance(group, dict)]
    declared = [decorator.func for group in decorated for decorator in group.values()]
    fields = (
        *getattr(schema, "model_fields", {}).values(),
        *getattr(schema, "__dataclass_fields__", {}).values(),
    )
    for field in fields:
        declared += [getattr(item, "func", None) for item in getattr(field, "metadata", ())]
        declared.append(getattr(field, "default_factory", None))
    declared += _overrides(schema)
    for base in itertools.filterfalse(is_library_class, schema.__mro__):
        for name, entry in vars(base).items():
            if name in _MADE_BY:
                declared.append(entry)
            elif is_users_object(entry) and hasattr(type(entry), "__get__"):
                declared += [vars(type(entry)).get(key) for key in ("__get__", "__set__", "__set_name__")]
    for entry in declared:
        function = under(getattr(entry, "__wrapped__", entry))
        function = getattr(function, "fget", None) or getattr(function, "__func__", function)
        if is_users(function):
            yield "validator", Reached(function)


def callbacks(config: Any) -> Iterator[tuple[str, Reached]]:
    """Methods of the user's own callback handlers in a runnable's config."""
    given = config.get("callbacks") if isinstance(config, dict) else None
    for handler in getattr(given, "handlers", given) or ():
        for kind in type(handler).__mro__:
            for name, var in vars(kind).items():
                if name.startswith("on_") and is_users(var):
                    yield "callback", Reached(var, handler)
