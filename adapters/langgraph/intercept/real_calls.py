"""Real bodies: run where a tool may run, and, under oversight, once the overseer lets the call through.

In a session on the way to the real tools a body runs under its overseer and nowhere else. While a tool that
reads runs, it is noted that it does: what its body calls may not change the world.

A real body that asks a person (LangGraph's `interrupt()`) is recorded with the question and the reply, since
its answer depends on them. In a dream the recorded question is asked again. `interrupt` gets a code object of
ours, as hooked functions do, so that it is heard under any name that it was imported by, and in graphs that a
tool runs.
"""

import copy
import inspect
import threading
import time
import types
from collections.abc import Callable, Container, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import interrupt

from dreamgym_kit.adapters.langgraph.intercept.answers import (
    as_of_tool,
    deliver,
    encode_answer,
    encode_failure,
)
from dreamgym_kit.adapters.langgraph.intercept.call_context import letting_through
from dreamgym_kit.adapters.langgraph.intercept.patches import PatchSet, reroute
from dreamgym_kit.canonical import digest
from dreamgym_kit.dream.call_log import CallPosition
from dreamgym_kit.dream.faults import FaultKind, failing, spoiled
from dreamgym_kit.errors import EpisodeStop, NotSerializable
from dreamgym_kit.guard import egress
from dreamgym_kit.guard.thread_owners import sealed, unsealed
from dreamgym_kit.replay.masking import masked_answer
from dreamgym_kit.routing.session import Identity, Session
from dreamgym_kit.routing.supervision import (
    CallerApprover,
    Deferred,
    Execute,
    Flow,
    Passage,
    RunBody,
    Step,
    Throttle,
)
from dreamgym_kit.serialization import JsonValue, is_exact, to_json
from dreamgym_kit.settings.views import viewed
from dreamgym_kit.supervision.session import effect_of, reading
from dreamgym_kit.types import Answer, Approval, Call, Effect, HeldCall, Reply


class GatedCall(NamedTuple):
    """A call that the gate is asked about, and how its real body is run."""

    session: Session
    call: Call
    called: object  # the tool or function itself
    tool: BaseTool | None  # in whose form it is answered
    owner: object  # whose body runs
    real: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    own: Container[str]  # names of the keyword arguments that are the call's, not the framework's
    arguments: Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]  # by name, with secrets in them
    identity: Callable[[Call], Identity | None]


def run_real(
    session: Session,
    call: Call,
    place: CallPosition,
    tool: BaseTool | None,
    body: Callable[[], Any],
    *,
    owner: object = None,
    identity: Identity | None = None,
) -> Flow[Callable[[], Any]]:
    """Run a real body and record its answer. After an interrupt the body runs again on resume.

    `identity`: of the call, the same when its node runs again.

    Calling the result gives the caller what the body returned or raised, or what the fault plan puts there.
    """
    yield from session.earlier_run_ends(place)
    after, started = session.ledger.after(place), time.time()
    keep = partial(session.keep_real, place=place, after=after, started=started)
    fault = session.real_fault(call, place, after)
    if fault is not None and not fault.kind.answers:  # its tool is not reached
        answer = failing(fault, call)
        keep(call, answer)
        return partial(deliver, tool, answer, call.call_id)
    if fault is not None and fault.kind is FaultKind.SLOW:
        yield Throttle(fault.wait_s)
        session.check_open(call.tool)  # the episode may have ended meanwhile
    replies: Sequence[HeardReply] = ()
    try:
        with (
            letting_through(owner if owner is not None else tool),
            hearing() as replies,
            session.body(call, place, GraphBubbleUp),
            sealed_if_pure(session, call.tool, session.spec(call, place).effect),
        ):
            value = yield RunBody(body)
        if inspect.iscoroutine(value):
            value = _awaited(session, call, place, value)
    except (EpisodeStop, GraphBubbleUp) as paused:
        before = session.replies(identity, replies, ended=False)
        if isinstance(paused, GraphInterrupt) and paused.args[0]:  # else it hands over to a parent graph
            question = replace(call, replies=(*before, Reply(to_json(paused.args[0][0].value), None)))
            session.asks(identity, question, place, after=after, started=started)
        raise
    except (SystemExit, KeyboardInterrupt) as error:  # what it did before is done
        keep(call, _with(encode_failure(error), session.replies(identity, replies, ended=True)))
        raise
    except Exception as error:  # noqa: BLE001  it is raised where the flow is over
        keep(call, _with(encode_failure(error), session.replies(identity, replies, ended=True)))
        yield from session.siblings_arrive(call)
        if not session.spec(call, place).effect.runs_in_dream:  # else it may be an agent handed over to
            as_of_tool(error)
        return partial(raise_error, error)
    answer, given = _seen(session, call, place, tool, value)
    answer = _with(answer, session.replies(identity, replies, ended=True))
    delivered = answer if fault is None else spoiled(fault, call, answer)
    keep(call, delivered)
    if fault is None or fault.kind is FaultKind.SLOW or delivered is answer:
        return given
    return partial(deliver, tool, delivered, call.call_id)


def _seen(
    session: Session, call: Call, place: CallPosition, tool: BaseTool | None, value: Any
) -> tuple[Answer, Callable[[], Any]]:
    """What a body gave, through its tool's view, as an answer and as the caller gets it."""
    answer = encode_answer(tool, value)
    view = viewed(answer, session.spec(call, place).view)
    if view is answer:
        return answer, lambda: value
    made = partial(deliver, tool, view, call.call_id)
    if view.artifact is None:
        return view, made
    return view, lambda: (made()[0], value[1])  # the agent's code gets the artifact itself


def raise_error(error: Exception) -> NoReturn:
    """Fail as a tool did, where its flow is over."""
    raise error


async def _awaited(session: Session, call: Call, place: CallPosition, value: Coroutine[Any, Any, Any]) -> Any:
    """What a plain function gives to be awaited: a pure body is not over until it is."""
    with sealed_if_pure(session, call.tool, session.spec(call, place).effect):
        return await value


@contextmanager
def sealed_if_pure(session: Session, tool: str, effect: Effect) -> Iterator[None]:
    """A pure body computes from its arguments: in the block no host is reached, not even an allowed one."""
    if session.mode.bare or effect is not Effect.PURE:
        yield
        return
    egress.listen()
    with sealed(tool, session.latch):
        yield


def _with(answer: Answer, replies: Sequence[Reply]) -> Answer:
    """An answer and the replies of people that it hangs on."""
    return replace(answer, replies=tuple(replies)) if replies else answer


def run_supervised(gated: GatedCall, place: CallPosition) -> Flow[Callable[[], Any]]:
    """Run a real body if the supervisor allows it, which sees exactly the arguments that the body gets."""
    session = gated.session
    args, kwargs = copied(gated.args, gated.kwargs, gated.own)
    arguments = partial(gated.arguments, args, kwargs)
    call = replace(gated.call, args=session.masker.plain(arguments()))
    identity = gated.identity(call)
    if session.overseer is None:
        session.refuse(f"{call.tool}: nobody oversees this session's real calls; it did not run")
    given: list[Callable[[], Any]] = []  # what the body gave, once it ran
    with closing(
        session.overseer.passage(session, call, place, identity, partial(exact_digest, arguments))
    ) as passage:
        try:
            step = next(passage)
            while True:
                try:
                    if isinstance(step, Execute):
                        reply = yield from _executed(
                            gated, place, partial(gated.real, *args, **kwargs), given
                        )
                    else:
                        reply = yield step
                except BaseException as error:  # noqa: BLE001  the passage decides what it means
                    step = _thrown(passage, error)
                else:
                    step = passage.send(reply)
        except StopIteration as done:
            answer: Answer = done.value
    if given:
        return given[0]
    for given_before in answer.replies:  # the graph counts the questions of a node
        ask_person(given_before.asked)
    return partial(deliver, gated.tool, answer, call.call_id)


def _executed(
    gated: GatedCall, place: CallPosition, body: Callable[[], Any], given: list[Callable[[], Any]]
) -> Generator[RunBody, Any, Answer]:
    """Run the body; gives its answer, and in `given` what the caller gets."""
    with _running(gated, place):
        try:
            with hearing() as replies:
                value = yield RunBody(body)
        except (EpisodeStop, GraphBubbleUp):
            raise
        except Exception as error:  # noqa: BLE001  the tool's own failure: it is an answer
            answer = encode_failure(error)
            as_of_tool(error)
            given.append(partial(raise_error, error))
        else:
            answer, gives = _seen(gated.session, gated.call, place, gated.tool, value)
            given.append(gives)
    # the supervisor compares and logs it before the session keeps it
    return masked_answer(replace(answer, replies=tuple(reply for _, reply in replies)), gated.session.masker)


@contextmanager
def _running(gated: GatedCall, place: CallPosition) -> Iterator[None]:
    """The real body runs in the block."""
    reads = effect_of(gated.session.spec(gated.call, place)) is Effect.READ
    token = reading.set(gated.call.tool if reads else "")
    try:
        with letting_through(gated.owner), unsealed(), gated.session.body(gated.call, place, GraphBubbleUp):
            yield
    finally:
        reading.reset(token)


def _thrown(passage: Passage, error: BaseException) -> Step:
    """Tell the passage; an interrupt of the graph goes through it as itself."""
    if not isinstance(error, GraphBubbleUp):
        return passage.throw(error)
    try:
        return passage.throw(Deferred())
    except Deferred:
        raise error from None


class InterruptApprover(CallerApprover):
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

    def ask(self, held: HeldCall) -> Approval | None:
        """Stop the graph, or give the answer that it is gone on with."""
        with self._lock:
            self._shown.add(held.digest)
        while True:
            with self._lock:
                if held.digest in self._given:
                    return Approval(held.digest, "interrupt")
            reply = interrupt(shown(held))
            if not isinstance(reply, Mapping) or reply.get("approve") is not True:
                return None
            with self._lock:
                if reply.get("digest") not in self._shown:
                    return None
                self._given.add(str(reply["digest"]))


def shown(pending: HeldCall) -> dict[str, Any]:
    """Return a pending call in the form that LangGraph shows to the caller of the graph."""
    return {
        "dreamgym_kit": "approval",
        "digest": pending.digest,
        "tool": pending.call.tool,
        "args": dict(pending.call.args),
        "effect": pending.effect.value,
        "expected": pending.expected.content if not pending.expected.unanswered else None,
        "doubts": list(pending.doubts),
    }


def copied(args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Container[str]) -> tuple[Any, Any]:
    """Arguments that nobody else holds: the call's own lists and objects are copied, the rest handed on."""
    return tuple(_own(value) for value in args), {
        name: _own(value) if name in names else value for name, value in kwargs.items()
    }


def exact_digest(arguments: Callable[[], Mapping[str, Any]]) -> str | None:
    """Names arguments, secrets included; None where two cannot be distinguished."""
    try:
        plain = to_json(dict(arguments()))
        return digest(plain) if is_exact(plain) else None
    except NotSerializable:
        return None


def _own(value: Any) -> Any:
    if type(value) not in (dict, list, set):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  something in it cannot be copied: that it did not change is looked at
        return value


HeardReply = tuple[str, Reply]  # with the graph task that received it
_HEARING: ContextVar[tuple[list[HeardReply], ...]] = ContextVar("dreamgym_hearing", default=())
_IN_ORDER = threading.RLock()  # hear parallel tools in the order in which LangGraph numbers their questions
_REAL: list[types.FunctionType] = []  # `interrupt` as it was, while ours stands in its place


@contextmanager
def hearing() -> Iterator[list[HeardReply]]:
    """Yield the replies to the questions of the block, in order; those of inner blocks too."""
    replies = list[HeardReply]()
    token = _HEARING.set((*_HEARING.get(), replies))
    try:
        yield replies
    finally:
        _HEARING.reset(token)


def ask_person(question: JsonValue) -> JsonValue:
    """Ask the person who answers this graph's interrupts; the first time the graph stops here.

    Raises:
        GraphInterrupt: there is no reply yet; the node runs again when there is.
    """
    return to_json(interrupt(question))


def hear_interrupts(patches: PatchSet) -> None:
    """Put ours into `interrupt`, until `patches` is undone."""

    def register(real: types.FunctionType, put_back: Callable[[], None]) -> None:
        _REAL[:] = [real]

        def undo() -> None:
            put_back()
            _REAL.clear()

        patches.on_undo(undo)

    reroute(interrupt, f"{__name__}:_interrupted", 0, register)


def _interrupted(_: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where calls of `interrupt` arrive."""
    with _IN_ORDER:
        reply = _REAL[0](*args, **kwargs)
        question = args[0] if args else kwargs.get("value")
        task = get_config()["configurable"].get("checkpoint_ns", "")
        for replies in _HEARING.get():
            replies.append((task, Reply(to_json(question), to_json(reply))))
    return reply
