"""Carries out what an overseer asks for before a real call, in a tool's thread or on the loop.

The real body runs here and nowhere else in a session on the way to the real tools. While a tool that reads
runs, it is noted that it does: what its body calls may not change the world.
"""

import asyncio
import copy
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import copy_context
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from dreamgym_kit.adapters.langgraph.intercept.answers import (
    as_of_tool,
    deliver,
    encode_answer,
    encode_failure,
)
from dreamgym_kit.adapters.langgraph.intercept.call_context import letting_through
from dreamgym_kit.adapters.langgraph.intercept.interrupts import ask_person, hearing
from dreamgym_kit.canonical import digest
from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.errors import EpisodeStop, NotSerializable
from dreamgym_kit.guard.thread_owners import unsealed
from dreamgym_kit.interfaces import Approver
from dreamgym_kit.routing.session import Identity, Session
from dreamgym_kit.routing.supervision import (
    AwaitApproval,
    Deferred,
    Execute,
    Passage,
    Predict,
    Step,
    Throttle,
)
from dreamgym_kit.serialization import is_exact, to_json
from dreamgym_kit.supervision.session import effect_of, reading
from dreamgym_kit.threads import run_in_thread
from dreamgym_kit.types import Answer, Approval, Call, Effect, HeldCall

_GLANCE_S = 0.2  # between two looks at whether a question is still of use


class SupervisedCall(NamedTuple):
    """A call that its overseer is asked about."""

    session: Session
    call: Call
    place: CallPosition
    tool: BaseTool | None
    identity: Identity | None
    exact: Callable[[], str | None]  # digest of the arguments as they are now
    owner: object  # whose body runs


class InterruptApprover:
    """Asks whoever runs the graph, by an interrupt of LangGraph; not for runs of the kit.

    The graph stops with `{"dreamgym_kit": "approval", "digest": ..., "tool": ..., ...}`, and goes on with
    `Command(resume={"approve": True, "digest": ...})`. Any other answer is a no. Where several calls of one
    node wait, LangGraph hands answers out by their order: one that names another call that was shown is kept
    for that call, and it is asked again for this one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: set[str] = set()  # digests
        self._given: set[str] = set()

    async def approve(self, held: HeldCall) -> Approval | None:
        """See `Approver.approve`; only inside of a graph."""
        return self.ask(held)

    def ask(self, held: HeldCall) -> Approval | None:
        """Stop the graph, or give the answer that it is gone on with."""
        with self._lock:
            self._shown.add(held.digest)
        while True:
            with self._lock:
                if held.digest in self._given:
                    return Approval(held.digest, "interrupt")
            said = interrupt(shown(held))
            if not isinstance(said, Mapping) or said.get("approve") is not True:
                return None
            with self._lock:
                if said.get("digest") not in self._shown:
                    return None
                self._given.add(str(said["digest"]))


def shown(held: HeldCall) -> dict[str, Any]:
    """A held call as it is shown to whoever runs the graph."""
    return {
        "dreamgym_kit": "approval",
        "digest": held.digest,
        "tool": held.call.tool,
        "args": dict(held.call.args),
        "effect": held.effect.value,
        "expected": held.expected.content if not held.expected.unanswered else None,
        "doubts": list(held.doubts),
    }


def run_supervised(one: SupervisedCall, body: Callable[[], Any]) -> Any:
    """A real call from a tool's thread; gives what the tool gives, in the framework's own form."""
    ran = _Ran()

    def carry_out(step: Step) -> Answer | Approval | None:
        match step:
            case Predict(call, situation):
                return one.session.dreamt_now((call, situation, 0.0))
            case AwaitApproval():
                return _held_now(step)
            case Throttle(seconds):
                time.sleep(seconds)
                return None
            case Execute():
                with _running(one):
                    return ran.keep(one, body)

    return ran.result(one, _driven(one, carry_out))


async def run_supervised_async(one: SupervisedCall, body: Callable[[], Awaitable[Any]]) -> Any:
    """`run_supervised` for coroutines."""
    ran = _Ran()

    async def carry_out(step: Step) -> Answer | Approval | None:
        match step:
            case Predict(call, situation):
                return await one.session.dreamt((call, situation, 0.0))
            case AwaitApproval():
                return await _held(step)
            case Throttle(seconds):
                await asyncio.sleep(seconds)
                return None
            case Execute():
                with _running(one):
                    return await ran.keep_async(one, body)

    return ran.result(one, await _driven_async(one, carry_out))


def copied(args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Mapping[str, Any]) -> tuple[Any, Any]:
    """Arguments that nobody else holds: the call's own lists and objects are copied, the rest handed on."""
    return tuple(_own(value) for value in args), {
        name: _own(value) if name in names else value for name, value in kwargs.items()
    }


def exact_digest(arguments: Callable[[], Mapping[str, Any]]) -> str | None:
    """Names arguments as they are, secrets and all; None where some cannot be told apart."""
    try:
        plain = to_json(dict(arguments()))
        return digest(plain) if is_exact(plain) else None
    except NotSerializable:
        return None


class _Ran:
    """What a real body gave."""

    def __init__(self) -> None:
        self._ran = False
        self._value: Any = None
        self._error: Exception | None = None

    def keep(self, one: SupervisedCall, body: Callable[[], Any]) -> Answer:
        self._ran = True
        try:
            with hearing() as heard:
                self._value = body()
        except (EpisodeStop, GraphBubbleUp):
            raise
        except Exception as error:  # noqa: BLE001  the tool's own failure: it is an answer
            return replace(self._failed(error), replies=tuple(heard))
        return replace(encode_answer(one.tool, self._value), replies=tuple(heard))

    async def keep_async(self, one: SupervisedCall, body: Callable[[], Awaitable[Any]]) -> Answer:
        self._ran = True
        try:
            with hearing() as heard:
                self._value = await body()
        except (EpisodeStop, GraphBubbleUp):
            raise
        except Exception as error:  # noqa: BLE001  the tool's own failure: it is an answer
            return replace(self._failed(error), replies=tuple(heard))
        return replace(encode_answer(one.tool, self._value), replies=tuple(heard))

    def _failed(self, error: Exception) -> Answer:
        self._error = error
        return encode_failure(error)

    def result(self, one: SupervisedCall, answer: Answer) -> Any:
        """What the caller gets: what the body gave, or what it gave to the same request before."""
        if self._error is not None:
            as_of_tool(self._error)
            raise self._error
        if self._ran:
            return self._value
        for reply in answer.replies:  # the graph counts the questions of a node
            ask_person(reply.asked)
        return deliver(one.tool, answer, one.call.call_id)


@contextmanager
def _running(one: SupervisedCall) -> Iterator[None]:
    """The real body runs in the block."""
    reads = effect_of(one.session.spec(one.call, one.place)) is Effect.READ
    token = reading.set(one.call.tool if reads else "")
    try:
        with letting_through(one.owner), unsealed(), one.session.body(one.call, one.place, GraphBubbleUp):
            yield
    finally:
        reading.reset(token)


def _passage(one: SupervisedCall) -> Passage:
    overseer = one.session.overseer
    if overseer is None:
        one.session.refuse(f"{one.call.tool}: nobody oversees this session's real calls; it did not run")
    return overseer.passage(one.session, one.call, one.place, one.identity, one.exact)


def _driven(one: SupervisedCall, carry_out: Callable[[Step], Answer | Approval | None]) -> Answer:
    """Take a passage to its end; what `carry_out` raises reaches it, and then whoever asked."""
    with closing(_passage(one)) as passage:
        try:
            step = next(passage)
            while True:
                try:
                    reply = carry_out(step)
                except BaseException as error:  # noqa: BLE001  the passage decides what it means
                    step = _thrown(passage, error)
                else:
                    step = passage.send(reply)
        except StopIteration as done:
            answer: Answer = done.value
            return answer


async def _driven_async(
    one: SupervisedCall, carry_out: Callable[[Step], Awaitable[Answer | Approval | None]]
) -> Answer:
    """`_driven` for coroutines."""
    with closing(_passage(one)) as passage:
        try:
            step = next(passage)
            while True:
                try:
                    reply = await carry_out(step)
                except BaseException as error:  # noqa: BLE001  the passage decides what it means
                    step = _thrown(passage, error)
                else:
                    step = passage.send(reply)
        except StopIteration as done:
            answer: Answer = done.value
            return answer


def _thrown(passage: Passage, error: BaseException) -> Step:
    """Tell the passage; an interrupt of the graph goes through it as itself."""
    if not isinstance(error, GraphBubbleUp):
        return passage.throw(error)
    try:
        return passage.throw(Deferred())
    except Deferred:
        raise error from None


def _held_now(step: AwaitApproval) -> Approval | None:
    """Ask from a thread."""
    approver = step.approver
    if approver is None:
        return None
    if isinstance(approver, InterruptApprover):
        return approver.ask(step.held)
    context = copy_context()
    return run_in_thread(lambda: context.run(asyncio.run, _asked(step, approver)), name="dreamgym-approval")


async def _held(step: AwaitApproval) -> Approval | None:
    """Ask on the loop."""
    approver = step.approver
    if approver is None:
        return None
    if isinstance(approver, InterruptApprover):
        return approver.ask(step.held)
    return await _asked(step, approver)


async def _asked(step: AwaitApproval, approver: Approver) -> Approval | None:
    """The answer, while there is time for it; a question that is of no use any more is withdrawn."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + step.seconds
    asking = asyncio.ensure_future(approver.approve(step.held))
    try:
        async with asyncio.timeout_at(deadline):
            while not asking.done():
                if step.over():
                    return None
                await asyncio.wait({asking}, timeout=_GLANCE_S)
    finally:
        asking.cancel()
    given = asking.result()
    return given if loop.time() <= deadline else None  # one that cannot be interrupted may be late, too


def _own(value: Any) -> Any:
    if type(value) not in (dict, list, set):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  something in it cannot be copied: that it did not change is looked at
        return value
