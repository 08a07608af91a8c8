"""The gate at `tool.func` and `tool.coroutine`, called directly.

A data descriptor beats the instance `__dict__` in which pydantic keeps the field, so a closure that
calls `tool.func(...)` meets the gate. The framework itself gets the raw function: it inspects
signatures (and caches what it finds), and its own calls pass `_run` anyway.
"""

import functools
import inspect
import sys
from typing import Any

from langchain_core.tools import BaseTool

from dreamgym_kit.adapters.langgraph.intercept.call_context import running
from dreamgym_kit.adapters.langgraph.intercept.tools import async_leaf, sync_leaf
from dreamgym_kit.routing.process import PROCESS, current

_FRAMEWORK = frozenset(
    {"copy", "inspect", "langchain", "langchain_core", "langgraph", "pydantic", "dreamgym_kit"}
)


class ToolAttributes:
    """Stands before the pydantic field `name` of StructuredTool and Tool."""

    def __init__(self, name: str, *, is_async: bool) -> None:
        self._name = name
        self._is_async = is_async

    def __get__(self, tool: BaseTool | None, owner: type | None = None) -> Any:
        if tool is None:
            raise AttributeError(self._name)  # as pydantic's fields do; else subclasses take us for a default
        try:
            raw = tool.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        if raw is None or running() is tool or (not PROCESS.armed and current.get() is None):
            return raw
        asking = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        return raw if asking in _FRAMEWORK else self._gated(tool, raw)

    def __set__(self, tool: BaseTool, value: Any) -> None:
        tool.__dict__[self._name] = value

    def __delete__(self, tool: BaseTool) -> None:
        tool.__dict__.pop(self._name, None)

    def _gated(self, tool: BaseTool, raw: Any) -> Any:
        if self._is_async:

            async def body(_tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
                return await raw(*args, **kwargs)

            leaf = async_leaf(body)

            async def bound(*args: Any, **kwargs: Any) -> Any:
                return await leaf(tool, *args, **kwargs)

        else:
            sync = sync_leaf(lambda _tool, *args, **kwargs: raw(*args, **kwargs))

            def bound(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
                return sync(tool, *args, **kwargs)

        looks_like = raw if inspect.isroutine(raw) else type(raw).__call__
        return functools.wraps(looks_like)(bound)
