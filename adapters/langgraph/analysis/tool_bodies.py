"""What runs when a tool is called: told by its code and by what that holds, never by what it says of itself.

Names, metadata, `__module__` and `__wrapped__` can be set by anybody, a server included; where a code object
was compiled from cannot. Two tools that one factory made are one body, unless what they hold runs other code.
"""

import functools
import sys
import types
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.tools import BaseTool, StructuredTool, Tool

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.intercept.functions import real_of
from dreamgym_kit.adapters.langgraph.intercept.patches import is_ours

_SERVED = ("langchain_mcp_adapters", "langchain.mcp", "mcp", "fastmcp")
_HAND_OFF = frozenset({"create_handoff_tool.<locals>.handoff_to_agent"})
_FRAMEWORK_CONTROL = {  # package: (names of code that only steers the agent, what it does)
    "langgraph_supervisor": (_HAND_OFF, "hands over to another agent"),
    "langgraph_swarm": (_HAND_OFF, "hands over to another agent"),
    "langchain": (frozenset({"write_todos", "_write_todos", "_awrite_todos"}), "the agent's own to-do list"),
}
_DEEP = 5  # holders within holders that are looked into
_MAX_ITEMS = 64  # of one container


def body_of(called: object) -> Hashable:
    """Equal for tools and functions that run the same code."""
    body = _Reading().of(called)
    return body if type(called) in (StructuredTool, Tool) else (body,)


def is_served(called: object) -> bool:
    """Whether calling it asks an MCP server, directly or by a wrapper's closure."""
    return any(_lies_in(file, package) for file in files_of(called) for package in _SERVED)


def files_of(called: object) -> set[str]:
    """The files of the code that calling it runs, as far as that holds it."""
    reading = _Reading()
    reading.of(called)
    return set(reading.files)


def framework_control(tool: BaseTool) -> str | None:
    """What a hand-off or to-do list of the framework does, recognized by its code."""
    bodies = bodies_of(tool)
    for package, (names, description) in _FRAMEWORK_CONTROL.items():
        if bodies and all(_is_code_of(body, package, names) for body in bodies):
            return description
    return None


def bodies_of(tool: BaseTool) -> list[Any]:
    """Return the functions that the framework's own tool classes call; for other classes, the tool itself."""
    if type(tool) not in (StructuredTool, Tool):
        return [tool]
    bodies = (tool.__dict__.get(field) for field in ("func", "coroutine"))
    return [body for body in bodies if body is not None]


def place_of(called: object) -> str:
    """Where a person finds it: "module:qualname"."""
    if isinstance(called, BaseTool):
        called = next((body for body in bodies_of(called) if body is not called), type(called))
    while isinstance(called, functools.partial):
        called = called.func
    if not hasattr(called, "__qualname__"):
        called = type(called)
    return f"{called.__module__}:{called.__qualname__}"


def _is_code_of(body: object, package: str, names: frozenset[str]) -> bool:
    if not isinstance(body, types.FunctionType):
        return False
    code = real_of(body).__code__
    return code.co_qualname in names and _lies_in(code.co_filename, package)


def _lies_in(file: str, package: str) -> bool:
    module = sys.modules.get(package)
    if module is None:
        return False
    folders = [str(path) + "/" for path in getattr(module, "__path__", ())]
    if not folders:
        return file == getattr(module, "__file__", None)
    return Path(file).as_posix().startswith(tuple(Path(folder).as_posix() + "/" for folder in folders))


class _Reading:
    """One look at what something runs, and at the files that its code comes from."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._seen: set[int] = set()

    def of(self, value: Any, depth: int = 0) -> Hashable:
        if id(value) in self._seen or depth > _DEEP:
            return type(value).__qualname__
        self._seen.add(id(value))
        if isinstance(value, types.MethodType):
            return "method", self.of(value.__func__, depth + 1), self.of(value.__self__, depth + 1)
        if isinstance(value, types.FunctionType):
            return self._function(value, depth + 1)
        if type(value) in (StructuredTool, Tool):  # they only call the functions given to them
            return self._all(bodies_of(value), depth + 1)
        if isinstance(value, functools.partial):
            values = (value.func, *value.args, *value.keywords.values())
            return "partial", self._all(values, depth + 1)
        if isinstance(value, type):
            return self._kind(value)
        if isinstance(value, dict):
            return self._all(value.values(), depth + 1)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._all(value, depth + 1)
        attributes = getattr(value, "__dict__", {}).values()
        fields = [item for item in attributes if callable(item) and not isinstance(item, type)]
        return self._kind(type(value)), self._all(fields, depth + 1)

    def _all(self, values: Iterable[Any], depth: int) -> Hashable:
        return tuple(self.of(value, depth) for value, _ in zip(list(values), range(_MAX_ITEMS), strict=False))

    def _function(self, function: types.FunctionType, depth: int) -> Hashable:
        code = real_of(function).__code__
        self.files.add(code.co_filename)
        values = (*closure_of(function), *(function.__defaults__ or ()))
        return code.co_filename, code, self._all(values, depth)

    def _kind(self, kind: type) -> Hashable:
        code = _KINDS.get(kind)
        if code is None:
            code = _KINDS[kind] = _code_of(kind)
        self.files |= {file for _, file, _ in code[1]}
        return code


_Kind = tuple[str, tuple[tuple[str, str, Hashable], ...]]
_KINDS: "WeakKeyDictionary[type, _Kind]" = WeakKeyDictionary()


def _code_of(kind: type) -> _Kind:
    """The code in a class and in those that it is made of, up to the framework's."""
    bodies = []
    for cls in kind.__mro__:
        if cls in BaseTool.__mro__:
            continue
        for name, entry in list(vars(cls).items()):
            while is_ours(entry):
                entry = entry.__wrapped__
            plain = getattr(entry, "__func__", entry)
            if isinstance(plain, types.FunctionType) and not name.startswith("__pydantic"):
                code = real_of(plain).__code__
                bodies.append((name, code.co_filename, code))
    return f"{kind.__module__}:{kind.__qualname__}", tuple(bodies)
