"""The gate at entry points that a user's tool class overrides (`invoke`, `run`, `stream`, ...).

The override's body may *be* the tool. While a call is dreamt it is skipped: BaseTool's own method
runs on the same object, so validation, the leaf and formatting stay what they are.
"""

import functools
import inspect
from typing import Any

from langchain_core.tools import BaseTool

from dreamgym_kit.adapters.langgraph.intercept.call_context import config_here, running, session_key
from dreamgym_kit.adapters.langgraph.intercept.patches import plain_wrapper
from dreamgym_kit.routing.process import PROCESS, current, find
from dreamgym_kit.routing.router import Route

LEAVES = ("_run", "_arun")
ENTRY_POINTS = (
    "invoke", "ainvoke", "run", "arun", "batch", "abatch", "batch_as_completed", "abatch_as_completed",
    "stream", "astream", "transform", "atransform", "__call__",
)  # fmt: skip


def guarded_override(real: Any, name: str) -> Any:
    """Wrap an overridden entry point by its own kind: plain, coroutine, generator or async generator."""
    if inspect.isasyncgenfunction(real):

        @functools.wraps(real)
        async def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
            body = _body(real, self, name, args, kwargs)
            async for item in body(self, *args, **kwargs):
                yield item

    elif inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
            return await _body(real, self, name, args, kwargs)(self, *args, **kwargs)

    elif inspect.isgeneratorfunction(real):

        @functools.wraps(real)
        def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
            yield from _body(real, self, name, args, kwargs)(self, *args, **kwargs)

    else:

        @functools.wraps(real)
        def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
            return _body(real, self, name, args, kwargs)(self, *args, **kwargs)

    return plain_wrapper(wrapper, real)


def _body(real: Any, tool: BaseTool, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The override where it may run, else the framework's own method of that name."""
    if running() is tool or (not PROCESS.armed and current.get() is None):
        return real
    config = kwargs.get("config") or (args[1] if len(args) > 1 and isinstance(args[1], dict) else None)
    session = find(session_key(config or config_here(tool)), tool.name)
    if session is None:
        return real
    if session.policy.route(tool.name, tool) is Route.REAL:
        session.check_open(tool.name)
        return real
    if session.policy.route(tool.name, tool) is Route.OVERSEEN:
        session.refuse(
            f"{type(tool).__name__} overrides {name}, which would run past the overseer of real calls; tool "
            f"'{tool.name}' did not run. Put what it does into _run or _arun"
        )
    own = getattr(BaseTool, name, None)
    if own is None:
        session.refuse(
            f"{type(tool).__name__}.{name} of tool '{tool.name}' cannot be simulated: call it through invoke"
        )
    note = f"{type(tool).__name__} overrides {name}; the override was skipped in the dream"
    if note not in session.notes:
        session.notes.append(note)
    return own
