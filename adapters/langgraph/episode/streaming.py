"""Follows a graph to its end: streams it, and answers what it asks a person.

A graph is streamed asynchronously, or synchronously in a thread where its middleware knows no other way:
LangChain refuses to run a middleware that only wraps synchronous calls (`@wrap_tool_call def ...`) in an
asynchronous run. Such an agent works for whoever calls `invoke`, and has to work here.
"""

import asyncio
import contextvars
import functools
import sys
import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._constants import CONFIG_KEY_RUNTIME, CONFIG_KEY_STREAM
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import StreamProtocol
from langgraph.runtime import DEFAULT_RUNTIME
from langgraph.types import Command

from dreamgym_kit.adapters.langgraph.analysis.gc_objects import closure_of
from dreamgym_kit.adapters.langgraph.analysis.nodes import nodes_of, unwrapped
from dreamgym_kit.adapters.langgraph.episode.state import EpisodeState
from dreamgym_kit.adapters.langgraph.intercept.chat_models import excuse
from dreamgym_kit.adapters.langgraph.intercept.memory import DreamStore
from dreamgym_kit.dream.user import ScriptedUser, SimulatedUser, UserFailed
from dreamgym_kit.findings.case import AnsweredInterrupt
from dreamgym_kit.findings.text import leaves
from dreamgym_kit.routing.session import Session
from dreamgym_kit.serialization import to_json

_MODES: Any = ["updates", "values"]
_MIDDLEWARE = "langchain.agents.middleware.types"
_PAIRS = (("wrap_tool_call", "awrap_tool_call"), ("wrap_model_call", "awrap_model_call"))
_MOST = 5000  # objects looked at: closures may hold a whole application
_DONE = object()


async def follow(
    graph: Pregel[Any],
    config: RunnableConfig,
    state: EpisodeState,
    user: SimulatedUser | None,
    *,
    in_thread: bool,
    context: Any = None,
) -> None:
    """Stream the graph to its end, answering interrupts from the task's replies, then by its user."""
    run = partial(_stream, graph, config=config, context=context, in_thread=in_thread)
    given: Any = dict(state.task.input)
    replies = list(state.task.replies)
    config["configurable"].update(_nested_updates(graph, state.transcript.take, state.session))
    while True:
        at_breakpoint = await _step(run(given), state)
        if state.session.stopped is not None:
            return
        if at_breakpoint:
            state.stop = "interrupted"
            state.reason = "the graph waits at a breakpoint of its own (interrupt_before, interrupt_after)"
            return
        if not state.waiting:
            reply = await user.reply(state.transcript.records) if user is not None else None
            if user is None or reply is None:
                return
            state.add_turn("reply", _played_by(user))
            state.transcript.records.append({"role": "user", "content": reply})
            state.session.hear([reply])
            given = {"messages": [{"role": "user", "content": reply}]}
            continue
        replied: dict[str, Any] = {}
        for waiting in await _in_order(graph, config, state.waiting):
            if not await _replied(waiting, replies, user, state, replied):
                return
        # by id, also where one waits: LangGraph takes a bare empty reply for none
        given = Command(resume=replied)


async def _step(parts: AsyncIterator[tuple[str, Any]], state: EpisodeState) -> bool:
    """Stream a graph until it ends or waits; return whether it waits at a breakpoint, not an interrupt."""
    state.waiting, at_breakpoint = [], False
    async for mode, part in parts:
        if mode == "updates":
            if isinstance(part, Mapping) and "__interrupt__" in part:
                waiting_ids = {interrupt.id for interrupt in state.waiting}
                state.waiting += [new for new in part["__interrupt__"] if new.id not in waiting_ids]
                at_breakpoint = not state.waiting
            state.transcript.take(part)
        else:
            state.values = part
            state.transcript.end_step(part)
    return at_breakpoint


async def _in_order(graph: Pregel[Any], config: RunnableConfig, waiting: list[Any]) -> list[Any]:
    """Interrupts as the graph's state lists them: those of parallel tasks are streamed as chance has it."""
    if len(waiting) == 1 or not graph.checkpointer:
        return waiting
    listed = [interrupt.id for interrupt in (await graph.aget_state(config)).interrupts]
    return sorted(waiting, key=lambda item: listed.index(item.id) if item.id in listed else len(listed))


async def _replied(
    waiting: Any,
    replies: list[Any],
    user: SimulatedUser | None,
    state: EpisodeState,
    replied: dict[str, Any],
) -> bool:
    """Answer one interrupt from the task's replies, then by its user; False where nobody does."""
    question = to_json(waiting.value)
    excuse(state.session, question)
    if not replies and user is None:
        state.add_turn("interrupt", "nobody", question)
        state.stop = "interrupted"
        state.reason = f"waits for an answer that the task does not give: {question}"
        return False
    if user is None or replies:
        by, reply = "task", replies.pop(0)
    else:
        by, reply = _played_by(user), await _ask_user(user, question, state)
    state.add_turn("interrupt", by, question, reply)
    state.replies.append(AnsweredInterrupt(len(state.session.ledger), question, reply))
    state.session.hear(map(str, leaves(reply)))
    replied[waiting.id] = reply
    return True


async def _ask_user(user: SimulatedUser, question: Any, state: EpisodeState) -> Any:
    """The simulated user's reply to an interrupt. If the user fails, the question is still recorded."""
    try:
        return await user.resume(question, state.transcript.records)
    except UserFailed:
        state.add_turn("interrupt", "nobody", question)
        raise


def _played_by(user: SimulatedUser) -> str:
    """Who it is, in the words of a run."""
    return "script" if isinstance(user, ScriptedUser) else "persona"


async def _stream(
    graph: Pregel[Any], given: Any, *, config: RunnableConfig, context: Any, in_thread: bool
) -> AsyncIterator[tuple[str, Any]]:
    """Updates and values of one run, each with its mode."""
    if not in_thread:
        stream: Any = graph.astream(given, config, context=context, stream_mode=_MODES)
        async for mode, part in stream:
            yield mode, part
        return
    here: Any = contextvars.copy_context()  # one for all parts: what a step sets, the next one finds
    parts = here.run(graph.stream, given, config, context=context, stream_mode=_MODES)
    loop = asyncio.get_running_loop()
    while (item := await loop.run_in_executor(None, here.run, next, parts, _DONE)) is not _DONE:
        mode, part = item
        yield mode, part


def only_sync(graph: Pregel[Any]) -> bool:
    """Whether a graph can run synchronously only: by a middleware, and no node says otherwise."""
    kind = getattr(sys.modules.get(_MIDDLEWARE), "AgentMiddleware", None)
    if kind is None:
        return False
    runs = [inner for _, bound in nodes_of(graph) for inner in unwrapped(bound)]
    if any(getattr(run, "afunc", None) and not getattr(run, "func", None) for run in runs):
        return False
    return any(_wraps_sync_only(type(middleware), kind) for middleware in _reached(runs, kind))


def _wraps_sync_only(own: type, kind: type) -> bool:
    return any(
        getattr(own, sync) is not getattr(kind, sync, None)
        and getattr(own, other) is getattr(kind, other, None)
        for sync, other in _PAIRS
        if hasattr(kind, sync)
    )


def _reached(runs: list[Any], kind: type) -> Iterator[Any]:
    """Middleware in the closures of what nodes run."""
    names = ("func", "afunc", "_wrap_tool_call", "_awrap_tool_call")
    todo = deque(getattr(run, name, None) for run in runs for name in names)
    seen: set[int] = set()
    while todo and len(seen) < _MOST:
        item = todo.popleft()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, kind):
            yield item
        else:
            todo.extend(_within(item))


def _within(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return closure_of(value)
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args]
    return list(value) if type(value) in (list, tuple) else []


def _nested_updates(graph: Pregel[Any], take: Callable[[Any, str], None], session: Session) -> dict[str, Any]:
    """Return entries for `config["configurable"]` that pass each update of a graph inside `graph` to `take`.

    `astream(subgraphs=True)` would report them too, at the cost of a task and a wake-up for every step of
    every graph. Here we replace the sink that LangGraph keeps in the config for this: a graph that runs in a
    node, in a tool, or by hand finds it there and calls it, from whatever thread it runs in.
    """

    def take_chunk(chunk: tuple[tuple[str, ...], str, Any]) -> None:
        namespace, _, update = chunk
        if namespace:  # the outermost graph's own updates are streamed to its caller
            take(update, session.within)

    return {
        CONFIG_KEY_STREAM: StreamProtocol(take_chunk, {"updates"}),
        # a graph that finds a sink takes its writer from there, and its store too
        # and where none is compiled in, LangGraph's platform gives one
        CONFIG_KEY_RUNTIME: replace(
            DEFAULT_RUNTIME, store=graph.store if graph.store is not None else DreamStore()
        ),
    }
