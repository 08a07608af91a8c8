"""The gate at a tool's leaf: `_run` and `_arun` of every tool class, and the `run` and `arun` around them.

An answer put in there has the framework's validation before it and its formatting, artifacts, error
handling, callbacks and tracing after it. Nothing above the leaf needs to know.
"""

import asyncio
import contextlib
import functools
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_type_hints

from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException
from langgraph.errors import GraphBubbleUp

from dreamgym_kit.adapters.langgraph.intercept.answers import (
    as_of_tool,
    deliver,
    encode_answer,
    encode_failure,
)
from dreamgym_kit.adapters.langgraph.intercept.call_context import (
    ToolCallContext,
    bare_arguments,
    call_of,
    config_here,
    frame,
    goes_on,
    identity_of,
    letting_through,
    running,
    session_key,
)
from dreamgym_kit.adapters.langgraph.intercept.interrupts import ask_person, hearing
from dreamgym_kit.adapters.langgraph.intercept.patches import (
    OURS,
    PatchSet,
    as_function,
    entry_of,
    is_ours,
    plain_wrapper,
)
from dreamgym_kit.adapters.langgraph.intercept.supervised import (
    SupervisedCall,
    copied,
    exact_digest,
    run_supervised,
    run_supervised_async,
)
from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.dream.faults import Fault, FaultKind, failing, spoiled
from dreamgym_kit.errors import EpisodeStop
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.thread_owners import sealed
from dreamgym_kit.replay.masking import masked_arguments
from dreamgym_kit.routing.process import PROCESS, current, find, is_free, is_outside, unowned_call
from dreamgym_kit.routing.router import Route
from dreamgym_kit.routing.schema_work import first_problem
from dreamgym_kit.routing.session import Session
from dreamgym_kit.types import Answer, Call, Effect, Reply

Body = Callable[..., Any]


def sync_leaf(real: Body) -> Body:
    """Wrap a tool class's `_run` (or a field's function given as `real(self, ...)`)."""
    of_framework = _is_framework_leaf(real)

    @functools.wraps(real)
    def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        if is_outside() or goes_on(self):
            return real(self, *args, **kwargs)
        session = find(session_key(config_here(self)), self.name)
        if session is None or (of_framework and not self.__dict__.get("func")):
            return real(self, *args, **kwargs)
        call = call_of(self, args, kwargs)
        check_arguments(self, call, session)
        route, place = session.admit(call, self)
        if route is Route.DREAM:
            answer = session.ask(call, place, identity_of(call, session), ask_person)
            return deliver(self, answer, call.call_id)
        if route is Route.OVERSEEN:
            args, kwargs = copied(args, kwargs, call.args)
            one = _admitted(self, session, call, place, args, kwargs)
            return run_supervised(one, lambda: real(self, *args, **kwargs))
        return run_real(session, call, place, self, lambda: real(self, *args, **kwargs))

    return _finished(wrapper, real)


def async_leaf(real: Callable[..., Awaitable[Any]]) -> Body:
    """Wrap a tool class's `_arun` (or a field's coroutine given as `real(self, ...)`)."""
    of_framework = _is_framework_leaf(real)

    @functools.wraps(real)
    async def wrapper(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        if is_outside() or goes_on(self):
            return await real(self, *args, **kwargs)
        session = find(session_key(config_here(self)), self.name)
        if session is None or (of_framework and not self.__dict__.get("coroutine")):
            return await real(self, *args, **kwargs)
        call = call_of(self, args, kwargs)
        check_arguments(self, call, session)
        route, place = session.admit(call, self)
        if route is Route.DREAM:
            answer = await session.ask_async(call, place, identity_of(call, session), ask_person)
            return deliver(self, answer, call.call_id)
        if route is Route.OVERSEEN:
            args, kwargs = copied(args, kwargs, call.args)
            one = _admitted(self, session, call, place, args, kwargs)
            return await run_supervised_async(one, lambda: real(self, *args, **kwargs))
        return await run_real_async(session, call, place, self, lambda: real(self, *args, **kwargs))

    return _finished(wrapper, real)


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
            patches.replace(owner, name, guarded_override(as_function(real, BaseTool), name))


def guard_runs(patches: PatchSet) -> None:
    """Put the gate around `run` and `arun`, which know the call id and the config."""
    real_run, real_arun = BaseTool.__dict__["run"], BaseTool.__dict__["arun"]

    @functools.wraps(real_run)
    def run(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        if not PROCESS.armed and current.get() is None:
            return real_run(self, tool_input, *args, **kwargs)
        _check_leaves(patches, self)
        around = ToolCallContext(self, kwargs.get("tool_call_id"), kwargs.get("config"), [])
        token = frame.set(around)
        try:
            return real_run(self, tool_input, *args, **kwargs)
        finally:
            if not around.reached:
                _account_for(around)
            frame.reset(token)

    @functools.wraps(real_arun)
    async def arun(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        if not PROCESS.armed and current.get() is None:
            return await real_arun(self, tool_input, *args, **kwargs)
        _check_leaves(patches, self)
        around = ToolCallContext(self, kwargs.get("tool_call_id"), kwargs.get("config"), [])
        token = frame.set(around)
        try:
            return await real_arun(self, tool_input, *args, **kwargs)
        finally:
            if not around.reached:
                _account_for(around)
            frame.reset(token)

    patches.replace(BaseTool, "run", plain_wrapper(run, real_run))
    patches.replace(BaseTool, "arun", plain_wrapper(arun, real_arun))


def _account_for(around: ToolCallContext) -> None:
    """A call that ended before its leaf (bad arguments) ran nothing, whatever a node answers for it."""
    session = current.get()
    if session is not None:
        session.held(around.tool.name, around.call_id)


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
            for one in owner.__mro__:
                if issubclass(one, BaseTool):
                    guard_tool_class(patches, one)


def run_real(
    session: Session,
    call: Call,
    place: CallPosition,
    tool: BaseTool | None,
    body: Callable[[], Any],
    *,
    owner: object = None,
) -> Any:
    """Run a real body and keep what it answered. Interrupts pass unkept: the body runs again on resume."""
    after, started = session.ledger.after(place), time.time()
    fault = session.real_fault(call, place, after)
    if fault is not None and not fault.kind.answers:
        return _failed(session, call, place, tool, fault, after, started)
    if fault is not None and fault.kind is FaultKind.SLOW:
        time.sleep(fault.wait_s)
        session.check_open(call.tool)  # the episode may have ended meanwhile
    try:
        with (
            letting_through(owner if owner is not None else tool),
            hearing() as heard,
            session.body(call, place, GraphBubbleUp),
            _closed(session, call, place),
        ):
            value = body()
        if inspect.iscoroutine(value):
            value = _awaited(session, call, place, value)
    except (EpisodeStop, GraphBubbleUp):
        raise
    except (SystemExit, KeyboardInterrupt) as error:  # what it did before is done
        session.keep_real(call, _with(encode_failure(error), heard), place, after=after, started=started)
        raise
    except Exception as error:
        session.keep_real(call, _with(encode_failure(error), heard), place, after=after, started=started)
        if not session.spec(call, place).effect.runs_in_dream:  # else it may be an agent handed over to
            as_of_tool(error)
        raise
    return _told(session, call, place, tool, fault, value, heard, after, started)


async def run_real_async(
    session: Session,
    call: Call,
    place: CallPosition,
    tool: BaseTool | None,
    body: Callable[[], Awaitable[Any]],
    *,
    owner: object = None,
) -> Any:
    """`run_real` for coroutines."""
    after, started = session.ledger.after(place), time.time()
    fault = session.real_fault(call, place, after)
    if fault is not None and not fault.kind.answers:
        return _failed(session, call, place, tool, fault, after, started)
    if fault is not None and fault.kind is FaultKind.SLOW:
        await asyncio.sleep(fault.wait_s)
        session.check_open(call.tool)
    try:
        with (
            letting_through(owner if owner is not None else tool),
            hearing() as heard,
            session.body(call, place, GraphBubbleUp),
            _closed(session, call, place),
        ):
            value = await body()
    except (EpisodeStop, GraphBubbleUp):
        raise
    except (SystemExit, KeyboardInterrupt) as error:  # what it did before is done
        session.keep_real(call, _with(encode_failure(error), heard), place, after=after, started=started)
        raise
    except Exception as error:
        session.keep_real(call, _with(encode_failure(error), heard), place, after=after, started=started)
        if not session.spec(call, place).effect.runs_in_dream:  # else it may be an agent handed over to
            as_of_tool(error)
        raise
    return _told(session, call, place, tool, fault, value, heard, after, started)


async def _awaited(session: Session, call: Call, place: CallPosition, value: Coroutine[Any, Any, Any]) -> Any:
    """What a plain function gives to be awaited: a pure body is not over until it is."""
    with _closed(session, call, place):
        return await value


@contextmanager
def _closed(session: Session, call: Call, place: CallPosition) -> Iterator[None]:
    """A pure body computes from its arguments: in the block no host is reached, not even an allowed one."""
    if session.mode.bare or session.spec(call, place).effect is not Effect.PURE:
        yield
        return
    egress.listen()
    with sealed(call.tool, session.latch):
        yield


def _failed(
    session: Session,
    call: Call,
    place: CallPosition,
    tool: BaseTool | None,
    fault: Fault,
    after: str,
    started: float,
) -> Any:
    """Fail a real call by plan; its tool is not reached."""
    answer = failing(fault, call)
    session.keep_real(call, answer, place, after=after, started=started)
    return deliver(tool, answer, call.call_id)


def _told(
    session: Session,
    call: Call,
    place: CallPosition,
    tool: BaseTool | None,
    fault: Fault | None,
    value: Any,
    heard: Sequence[Reply],
    after: str,
    started: float,
) -> Any:
    """Keep what a real body gave and pass it on, or what the plan makes of it."""
    answer = _with(encode_answer(tool, value), heard)
    told = answer if fault is None else spoiled(fault, call, answer)
    session.keep_real(call, told, place, after=after, started=started)
    if fault is None or fault.kind is FaultKind.SLOW or told is answer:
        return value
    return deliver(tool, told, call.call_id)


def _with(answer: Answer, heard: Sequence[Reply]) -> Answer:
    """An answer and the replies of people that it hangs on."""
    return replace(answer, replies=tuple(heard)) if heard else answer


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
        session.held(tool.name, call.call_id)
        where = ".".join(str(part) for part in problem.absolute_path)
        raise ToolException(f"Invalid arguments for {tool.name}: {where or 'arguments'}: {problem.message}")


def _admitted(
    tool: BaseTool,
    session: Session,
    call: Call,
    place: CallPosition,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> SupervisedCall:
    """A call to be overseen, told by the very arguments that its body will get."""
    call = replace(call, args=masked_arguments(bare_arguments(tool, args, kwargs)))
    return SupervisedCall(
        session=session,
        call=call,
        place=place,
        tool=tool,
        identity=identity_of(call, session),
        exact=lambda: exact_digest(lambda: bare_arguments(tool, args, kwargs)),
        owner=tool,
    )


def _finished(wrapper: Any, real: Body) -> Body:
    """The wrapper of a leaf, its annotations as types.

    The framework asks for a leaf's type hints on every call and evaluates the strings that its own
    leaves have for annotations each time; given once as types, a call costs less than without us.
    """
    if _is_framework_leaf(real):
        with contextlib.suppress(NameError, TypeError):
            wrapper.__annotations__ = get_type_hints(real, include_extras=True)
    return plain_wrapper(wrapper, real)


def _is_framework_leaf(real: Body) -> bool:
    """StructuredTool's and Tool's own leaves, which only call the field `func` or `coroutine`.

    Where that field is empty the framework must go on: it raises its own NotImplementedError for an
    async-only tool called synchronously, and runs `_run` (gated itself) for a sync-only one.
    """
    return real in _FRAMEWORK_LEAVES


_FRAMEWORK_LEAVES = frozenset(
    kind.__dict__[name] for kind in (StructuredTool, Tool) for name in ("_run", "_arun")
)


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
