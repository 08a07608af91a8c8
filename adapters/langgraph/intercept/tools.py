"""The gate at a tool: its leaves `_run` and `_arun`, `run` and `arun` around them, and the other ways in.

An answer put in at a leaf has the framework's validation before it and its formatting, artifacts, error
handling, callbacks and tracing after it. Nothing above the leaf needs to know. A tool class may override
entry points (`invoke`, `stream`, ...): the override's body may *be* the tool, so while a call is dreamt it is
skipped, and BaseTool's own method runs on the same object. Of a tool that may run, an override that gives one
answer runs as its body does, and is the call where it reaches no leaf. `tool.func(...)` and
`tool.coroutine(...)`, called directly, meet the gate as well.
"""

import contextlib
import functools
import inspect
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException
from langgraph.errors import GraphBubbleUp

from dreamgym_kit.adapters.langgraph.intercept.answers import deliver, encode_answer, encode_failure
from dreamgym_kit.adapters.langgraph.intercept.call_context import (
    bare_arguments,
    call_of,
    called,
    config_here,
    goes_on,
    identity_of,
    running,
    session_key,
)
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    OURS,
    PatchSet,
    as_function,
    entry_of,
    is_ours,
    of_same_kind,
    plain_wrapper,
)
from dreamgym_kit.adapters.langgraph.intercept.real_calls import (
    GatedCall,
    ask_person,
    raise_error,
    run_real,
    run_supervised,
    sealed_if_pure,
)
from dreamgym_kit.routing.process import PROCESS, current, find, is_free, is_outside, unowned_call
from dreamgym_kit.routing.router import Route
from dreamgym_kit.routing.schema_work import first_problem
from dreamgym_kit.routing.session import Session
from dreamgym_kit.routing.supervision import Flow, RunBody
from dreamgym_kit.types import Call

Body = Callable[..., Any]


def sync_leaf(real: Body) -> Body:
    """Wrap a tool class's `_run` (or a field's function given as `real(self, ...)`)."""
    field = "func" if real in _FRAMEWORK_LEAVES else ""

    @functools.wraps(real)
    def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        session = _session(self, field)
        if session is None:
            return real(self, *args, **kwargs)
        return session.drive(_call(self, session, real, args, kwargs))()

    return _finished(wrapper, real)


def async_leaf(real: Callable[..., Awaitable[Any]]) -> Body:
    """Wrap a tool class's `_arun` (or a field's coroutine given as `real(self, ...)`)."""
    field = "coroutine" if real in _FRAMEWORK_LEAVES else ""

    @functools.wraps(real)
    async def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        session = _session(self, field)
        if session is None:
            return await real(self, *args, **kwargs)
        return (await session.drive_async(_call(self, session, real, args, kwargs)))()

    return _finished(wrapper, real)


def _session(tool: BaseTool, field: str) -> Session | None:
    """The session that a call at a leaf belongs to; None where the leaf may go on unasked.

    `field`: what a leaf of the framework's only calls, see `_FRAMEWORK_LEAVES`.
    """
    if is_outside() or goes_on(tool):
        return None
    session = find(session_key(config_here(tool)), str(getattr(tool, "name", "")))
    if session is not None and not isinstance(tool, BaseTool):
        session.refuse(f"the body of a tool class was called on {tool!r:.60}, not on a tool; it did not run")
    return None if field and not tool.__dict__.get(field) else session


def _call(
    tool: BaseTool, session: Session, real: Body, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Flow[Callable[[], Any]]:
    """The way of a call that reached a leaf."""
    call = call_of(tool, args, kwargs, session.masker)
    check_arguments(tool, call, session)
    return answered(
        GatedCall(
            session=session,
            call=call,
            called=tool,
            tool=tool,
            owner=tool,
            real=functools.partial(real, tool),
            args=args,
            kwargs=kwargs,
            own=call.args,
            arguments=functools.partial(bare_arguments, tool),
            identity=functools.partial(identity_of, session),
        )
    )


def answered(gated: GatedCall) -> Flow[Callable[[], Any]]:
    """Decide who answers a call, and have it answered.

    The result gives the caller what the tool gives, or raises it. It is called once the flow is over: a tool
    may fail with anything, `StopIteration` too.
    """
    session, call = gated.session, gated.call
    route, place = session.admit(call, gated.called)
    try:
        if route is Route.DREAM:
            answer = yield from session.flow(call, place, gated.identity(call), ask_person)
            return functools.partial(deliver, gated.tool, answer, call.call_id)
        if route is Route.OVERSEEN:
            return (yield from run_supervised(gated, place))
        body = functools.partial(gated.real, *gated.args, **gated.kwargs)
        identity = gated.identity(call) if not session.spec(call, place).effect.runs_in_dream else None
        return (
            yield from run_real(session, call, place, gated.tool, body, owner=gated.owner, identity=identity)
        )
    finally:
        session.ledger.end(place)


def check_arguments(tool: BaseTool, call: Call, session: Session) -> None:
    """Validate JSON-schema tools (all MCP tools): the framework leaves that to the server.

    Raises:
        ToolException: what is wrong, for the agent; the dream is not asked.
    """
    if not isinstance(tool.args_schema, dict) or session.mode.bare:
        return
    try:
        problem = first_problem(tool.args_schema, dict(call.args))
    except Exception:  # noqa: BLE001  a schema with a bad or costly pattern, type or reference: the server's to judge
        session.count("unchecked_arguments")
        return
    if problem is not None:
        session.count("bad_arguments")
        session.record_intercepted(tool.name, call.call_id)
        where = ".".join(str(part) for part in problem.absolute_path)
        raise ToolException(f"Invalid arguments for {tool.name}: {where or 'arguments'}: {problem.message}")


def _finished(wrapper: Any, real: Body) -> Body:
    """The wrapper of a leaf, its annotations as types.

    The framework asks for a leaf's type hints on every call and evaluates the strings that its own
    leaves have for annotations each time; given once as types, a call costs less than without us.
    """
    if real in _FRAMEWORK_LEAVES:
        with contextlib.suppress(NameError, TypeError):
            wrapper.__annotations__ = get_type_hints(real, include_extras=True)
    return plain_wrapper(wrapper, real)


_FRAMEWORK_LEAVES = frozenset(
    kind.__dict__[name] for kind in (StructuredTool, Tool) for name in ("_run", "_arun")
)
"""Leaves that only call the field `func` or `coroutine`.

Where that field is empty the framework must go on: it raises its own NotImplementedError for an
async-only tool called synchronously, and runs `_run` (gated itself) for a sync-only one.
"""


LEAVES = ("_run", "_arun")
ENTRY_POINTS = (
    "invoke", "ainvoke", "run", "arun", "batch", "abatch", "batch_as_completed", "abatch_as_completed",
    "stream", "astream", "transform", "atransform", "__call__",
)  # fmt: skip


def guard_tool_class(patches: PatchSet, owner: type) -> None:
    """Put the gate into the leaves and entry points that a class has of its own."""
    if owner is BaseTool:
        return
    for name, wrap in zip(LEAVES, (sync_leaf, async_leaf), strict=True):
        real = entry_of(owner, name, BaseTool)
        if real is not None and not is_ours(real):
            patches.replace(owner, name, wrap(as_function(real, BaseTool)))
    if owner.__module__.startswith("langchain_core."):
        return
    for name in ENTRY_POINTS:
        real = entry_of(owner, name, BaseTool)
        if real is not None and not is_ours(real):
            override = as_function(real, BaseTool)
            patches.replace(
                owner, name, of_same_kind(override, functools.partial(_entry_point, override, name))
            )


def guard_runs(patches: PatchSet) -> None:
    """Put the gate around `run` and `arun`, which know the call id and the config."""
    real_run, real_arun = BaseTool.__dict__["run"], BaseTool.__dict__["arun"]

    @functools.wraps(real_run)
    def run(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        if not PROCESS.armed and current.get() is None:
            return real_run(self, tool_input, *args, **kwargs)
        _check_leaves(patches, self)
        with called(self, kwargs.get("tool_call_id"), kwargs.get("config")):
            return real_run(self, tool_input, *args, **kwargs)

    @functools.wraps(real_arun)
    async def arun(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        if not PROCESS.armed and current.get() is None:
            return await real_arun(self, tool_input, *args, **kwargs)
        _check_leaves(patches, self)
        with called(self, kwargs.get("tool_call_id"), kwargs.get("config")):
            return await real_arun(self, tool_input, *args, **kwargs)

    patches.replace(BaseTool, "run", plain_wrapper(run, real_run))
    patches.replace(BaseTool, "arun", plain_wrapper(arun, real_arun))


def _check_leaves(patches: PatchSet, tool: BaseTool) -> None:
    """Catch leaves that were put there past us: on the instance, or into the class later."""
    owner = type(tool)
    for name in LEAVES:
        if name in tool.__dict__:
            why = f"tool '{tool.name}' carries its own {name} on the instance: it cannot be simulated"
            session = current.get()
            if session is not None:
                session.refuse(why)
            if not is_free():
                unowned_call(why)
        leaf = getattr(owner, name)
        if getattr(leaf, OURS, False) is not True and leaf is not BaseTool.__dict__[name]:
            for base in owner.__mro__:
                if issubclass(base, BaseTool):
                    guard_tool_class(patches, base)


def _entry_point(
    real: Any, name: str, tool: BaseTool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseTool]:
    """What runs for an overridden entry point: the override where it may, else the framework's own method."""
    if running() is tool or (not PROCESS.armed and current.get() is None):
        return real, tool
    config = kwargs.get("config") or (args[1] if len(args) > 1 and isinstance(args[1], dict) else None)
    session = find(session_key(config or config_here(tool)), tool.name)
    if session is None:
        return real, tool
    route = session.policy.route(tool.name, tool)
    single = name in ("invoke", "ainvoke", "run", "arun", "__call__")
    if route is Route.REAL and (single or session.mode.bare):
        session.check_open(tool.name)
        return (real if session.mode.bare else _as_body(real, name, session, config)), tool
    if route is Route.OVERSEEN:
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
    return own, tool


def _as_body(real: Any, name: str, session: Session, config: Any) -> Any:
    """An override of a tool that may run, which runs as its body does."""

    def run(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
        return session.drive(_overridden(real, session, config, tool, args, kwargs))()

    async def run_async(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
        return (await session.drive_async(_overridden(real, session, config, tool, args, kwargs)))()

    return run_async if name in ("ainvoke", "arun") else run


def _overridden(
    real: Body, session: Session, config: Any, tool: BaseTool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Flow[Callable[[], Any]]:
    """Run the override of a tool that may run, and keep the call if no leaf of the tool did."""
    given = args[0] if args else next(iter(kwargs.values()), {})
    asked = isinstance(given, dict) and given.get("type") == "tool_call"
    call_id, given = (given["id"], given["args"]) if asked else (kwargs.get("tool_call_id"), given)
    started = time.time()
    with called(tool, call_id, config) as around:
        with sealed_if_pure(session, tool.name, session.policy.spec(tool.name, tool).effect):
            try:
                value = yield RunBody(functools.partial(real, tool, *args, **kwargs))
                content = value.content if isinstance(value, ToolMessage) else value
                answer, result = encode_answer(None, content), lambda: value
            except GraphBubbleUp:
                around.reached.append(tool)
                raise
            except Exception as error:  # noqa: BLE001  it is raised where the flow is over
                answer, result = encode_failure(error), functools.partial(raise_error, error)
        # one that calls itself: what the model asked for is still to be kept
        if not around.reached or (call_id is not None and call_id not in session.held_call_ids):
            positional, named = ((), given) if isinstance(given, dict) else ((given,), {})
            call = call_of(tool, positional, named, session.masker)
            _, place = session.admit(call, tool)
            session.keep_real(call, answer, place, after=session.ledger.after(place), started=started)
            session.ledger.end(place)
            around.reached.append(tool)
        return result


_FRAMEWORK = frozenset(
    {"copy", "inspect", "langchain", "langchain_core", "langgraph", "pydantic", "dreamgym_kit"}
)


class ToolAttributes:
    """Stands before the pydantic field `name` of StructuredTool and Tool.

    A data descriptor beats the instance `__dict__` in which pydantic keeps the field, so a closure that
    calls `tool.func(...)` meets the gate. The framework itself gets the raw function: it inspects
    signatures (and caches what it finds), and its own calls pass `_run` anyway.
    """

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
        leaf = (async_leaf if self._is_async else sync_leaf)(lambda _, *args, **kwargs: raw(*args, **kwargs))
        if self._is_async:

            async def bound(*args: Any, **kwargs: Any) -> Any:
                return await leaf(tool, *args, **kwargs)

        else:

            def bound(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
                return leaf(tool, *args, **kwargs)

        looks_like = raw if inspect.isroutine(raw) else type(raw).__call__
        return functools.wraps(looks_like)(bound)
