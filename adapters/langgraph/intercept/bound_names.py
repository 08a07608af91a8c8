"""Which names the gate holds: a call to a bound name that it does not hold must not reach a node.

Held are tools (their leaves are gated), hooked functions, and schemas that only shape a structured
answer. A name that a model was bound with and that is none of these will be run by somebody's own
code, which the gate cannot see.
"""

import contextlib
import inspect
import types
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, Tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import instances_of
from dreamgym_kit.adapters.langgraph.analysis.tool_bodies import bodies_of
from dreamgym_kit.adapters.langgraph.intercept.functions import (
    NotHookable,
    hook,
    hook_layers,
    is_empty,
    layers,
    of_python,
    under,
)
from dreamgym_kit.adapters.langgraph.intercept.tools import ENTRY_POINTS, LEAVES
from dreamgym_kit.routing.process import PROCESS, current

Callback = Callable[..., Any]


@dataclass(slots=True)
class ModelBinding:
    """What one chat model was told of, by name and by what was bound under it."""

    model: weakref.ref[Any]
    objects: set[str] = field(default_factory=set)  # tools and functions: what runs is known
    structured: set[str] = field(default_factory=set)  # shapes of an answer: nothing runs
    schemas: set[str] = field(default_factory=set)  # descriptions, stubs: what runs is anybody's guess

    def runs_seen_code(self, name: str) -> bool:
        """Whether a call of `name` can only reach code that was seen."""
        return name in self.structured or (name in self.objects and name not in self.schemas)


class BoundNames:
    """Names seen so far in this process, and what stands behind them."""

    def __init__(self) -> None:
        self._tools: dict[int, weakref.ref[BaseTool]] = {}  # by id: tools are models, so unhashable
        self.names: set[str] = set()
        self.structured: set[str] = set()
        self.schemas: set[str] = set()
        self.unhookable: dict[str, str] = {}
        self._bindings: dict[int, ModelBinding] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]

    def add_tool(self, tool: BaseTool) -> None:
        """A tool object: every way into its class is gated."""
        if id(tool) not in self._tools:
            self._tools[id(tool)] = weakref.ref(tool, _forgetting(self._tools, id(tool)))
        if not bodies_of(tool):  # how create_agent tells a model of a structured answer
            self.structured.add(tool.name)
        else:
            self.names.add(tool.name)

    def add_bound(self, model: Any, bound: Iterable[Any], *, structured: bool) -> None:
        """What a model was bound with. Plain functions are hooked on the spot."""
        binding = self._bindings.get(id(model))
        if binding is None:
            binding = self._bindings[id(model)] = ModelBinding(
                weakref.ref(model, _forgetting(self._bindings, id(model)))
            )
        for bound_tool in bound:
            if isinstance(bound_tool, BaseTool):
                self._bind_tool(bound_tool)
                binding.objects.add(bound_tool.name)
                if not _does_something(bound_tool):
                    binding.schemas.add(bound_tool.name)
            elif structured:
                self.structured.add(name_of(bound_tool))
                binding.structured.add(name_of(bound_tool))
            elif callable(bound_tool) and not isinstance(bound_tool, type):
                self._hook(bound_tool)
                binding.objects.add(name_of(bound_tool))
                if is_empty(bound_tool):
                    binding.schemas.add(name_of(bound_tool))
            else:
                self.schemas.add(name_of(bound_tool))
                binding.schemas.add(name_of(bound_tool))

    def tell_copy(self, model: Any, copy: Any) -> None:
        """A copy of a model knows what the model was told of."""
        binding = self.binding_of(model)
        if binding is not None:
            own = weakref.ref(copy, _forgetting(self._bindings, id(copy)))
            self._bindings[id(copy)] = ModelBinding(own, binding.objects, binding.structured, binding.schemas)

    def scan(self, living: Iterable[BaseTool] | None = None) -> None:
        """Find tools that were made since: anything alive may be called. Who just looked gives `living`."""
        for candidate in instances_of(BaseTool) if living is None else living:
            try:
                self.add_tool(candidate)
            except AttributeError:
                continue  # half-built; it will be met again at its leaf

    def binding_of(self, model: Any) -> ModelBinding | None:
        """What `model` was told of, where somebody was seen to tell it anything."""
        return self._bindings.get(id(model))

    def has_tool(self, name: str) -> bool:
        """Whether a tool of that name is alive."""
        if any(tool.name == name for tool in self.tools()):
            return True
        self.scan()
        return any(tool.name == name for tool in self.tools())

    def is_body(self, function: Any) -> bool:
        """Whether a function is what a living tool runs."""
        return any(function in _bodies(tool) for tool in self.tools())

    def tools(self) -> list[BaseTool]:
        """All live tools that were met."""
        return [tool for reference in list(self._tools.values()) if (tool := reference()) is not None]

    def _bind_tool(self, tool: BaseTool) -> None:
        self.add_tool(tool)
        self.unhookable.pop(tool.name, None)
        own = own_entry(tool)
        if own is not None:
            self.unhookable[tool.name] = own
        hook_bodies(tool)  # whoever made it for one request may run the function under it by hand

    def _hook(self, function: Callback) -> None:
        name = name_of(function)
        self.unhookable.pop(name, None)
        try:
            if of_python(function):
                raise NotHookable("a function of Python's own library: all its other calls would be met too")
            hook(function, name)
        except NotHookable as reason:
            self.unhookable[name] = str(reason)


def _forgetting(entries: dict[int, Any], key: int) -> Callable[[weakref.ref[Any]], None]:
    return lambda _: entries.pop(key, None) and None


def hook_bodies(tool: BaseTool) -> None:
    """Put the gate into the functions under a tool.

    Functions of the framework and of Python's own library are left alone (everybody calls those), and so is
    what has no Python code of its own: the tool's leaf holds all of them.
    """
    for name in ("func", "coroutine"):
        body = tool.__dict__.get(name) if isinstance(tool, (StructuredTool, Tool)) else None
        if body is None or of_framework(body) or of_python(body):
            continue
        with contextlib.suppress(NotHookable):
            hook_layers(body, tool.name, tool)


def hook_marked(marked: object) -> None:
    """Put the gate into a function that `@effect` marks while a dream is open: its maker may run it by hand.

    One that was marked before is met where a model is bound with it, or where the inventory finds it.
    """
    function = under(marked)
    if not isinstance(function, types.FunctionType) or of_framework(function) or of_python(function):
        return
    if PROCESS.open_dreams or current.get() is not None:
        with contextlib.suppress(NotHookable):
            hook(marked, function.__name__)  # type: ignore[arg-type]


def of_framework(body: Any) -> bool:
    """Whether the framework made a function."""
    module = getattr(body, "__module__", "") or ""
    return module.partition(".")[0] in {"langchain", "langchain_core", "langgraph", "langchain_mcp_adapters"}


def name_of(bound: Any) -> str:
    """The name under which a model is told of something bound to it."""
    if isinstance(bound, dict):
        function = bound.get("function")
        name = function.get("name") if isinstance(function, dict) else bound.get("name") or bound.get("title")
        return str(name or bound.get("type") or "unnamed")
    if inspect.isroutine(bound) or isinstance(bound, type):
        return bound.__name__
    try:
        return str(convert_to_openai_tool(bound)["function"]["name"])
    except (KeyError, TypeError, ValueError):
        return str(getattr(bound, "name", None) or getattr(bound, "__name__", None) or type(bound).__name__)


def own_entry(tool: BaseTool) -> str | None:
    """What a tool carries on the object itself, past every class."""
    own = next((name for name in (*LEAVES, *ENTRY_POINTS) if name in tool.__dict__), None)
    return None if own is None else f"a tool object with a {own} of its own"


def _bodies(tool: BaseTool) -> list[Any]:
    bodies = [tool.__dict__.get(field) for field in ("func", "coroutine")]
    return [layer for body in bodies if body is not None for layer in layers(body) or [under(body)]]


def _does_something(tool: BaseTool) -> bool:
    """Whether running a tool does more than give back a constant: else other code acts for it."""
    return type(tool) not in (StructuredTool, Tool) or any(not is_empty(body) for body in _bodies(tool))


HOLDINGS = BoundNames()
