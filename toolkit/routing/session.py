"""One episode's session: admits calls, has them answered, stores them, and stops after a violation.

The path of a call: routing -> budget -> repeated request? -> fault plan -> experience -> commit. The decision
is one generator of steps, driven by sync and async callers (`drive`, `drive_async`). A refusal is raised
*and*
stored: after a violation a session refuses everything.
"""

import asyncio
import functools
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from dreamgym_kit.argument_effects import of_call
from dreamgym_kit.chat import ChatReply
from dreamgym_kit.dream.call_log import CallLog, CallPosition
from dreamgym_kit.dream.faults import Fault, FaultKind, FaultPlan, Occurrences, failing, ran, spoiled
from dreamgym_kit.errors import (
    BudgetExceeded,
    CallUnanswered,
    EpisodeStop,
    EpisodeTimeout,
    RealCallBlocked,
    RealCallExecuted,
)
from dreamgym_kit.guard.thread_owners import acting, within
from dreamgym_kit.interfaces import ExperienceModel, RunHook, Situation
from dreamgym_kit.replay.masking import Masker, masked_answer, process_masker
from dreamgym_kit.routing.router import CallRouter, Mode, Route, Stage
from dreamgym_kit.routing.supervision import (
    AwaitApproval,
    Flow,
    Overseer,
    Predict,
    RunBody,
    Throttle,
    approval,
    approval_now,
)
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.views import viewed
from dreamgym_kit.threads import run_in_thread
from dreamgym_kit.types import (
    REACHED,
    Answer,
    Call,
    Effect,
    Environment,
    Executed,
    Reply,
    Source,
    Spend,
    Split,
    ToolSpec,
    Transition,
    error_line,
    format_executed,
)

Identity = tuple[str, str]
"""Identifies a request of a graph task, so that a resumed node gets its old answer: (place, call)."""

UNANSWERED = "(unanswered)"
"""Placeholder for an answer until the turn's other calls are requested; no model reads it."""

_WAIT_S = 2.0  # maximum wait for other calls of a turn or of an earlier run of the node, on a busy machine
_MAX_REFUSALS = 20  # refusals listed one by one


class Refusals(list[str]):
    """Refusals in order; the last line counts those beyond a limit, so that no agent floods a terminal."""

    _more = 0

    def add(self, why: str) -> bool:
        """Add a refusal; return whether it is listed, not only counted."""
        if self._more == 0 and len(self) < _MAX_REFUSALS:
            self.append(why)
            return True
        if self._more:
            self.remove(f"and {self._more} more refusals")
        self._more += 1
        self.append(f"and {self._more} more refusals")
        return False


_BODY: ContextVar[tuple["Session", str, CallPosition] | None] = ContextVar("dreamgym_body", default=None)
"""The call whose real body runs here, or left this work running: in a dream its calls are refused."""


@contextmanager
def _making(session: "Session", tool: str, place: CallPosition) -> Iterator[None]:
    """Attribute calls inside the block to the body of the call at `place`."""
    token = _BODY.set((session, tool, place))
    try:
        yield
    finally:
        _BODY.reset(token)


Person = Callable[[JsonValue], JsonValue]
"""Replies to a tool's question to a person; raises what stops the graph if there is no reply yet."""


def nobody(question: JsonValue) -> JsonValue:
    """Raise because no person can be asked."""
    raise EpisodeStop(f"a tool asks a person, and nobody can be asked here: {question}")


def _unheard(_kind: str, /, **_facts: JsonValue) -> None:
    """A null event sink."""


_Result = TypeVar("_Result")


class Session:
    """The state of one episode's calls. Thread-safe.

    Args:
        policy: routes calls.
        experience: answers dreamed calls; None: all are unanswered.
        hooks: called before and after each call, in order. An exception ends the episode: a call that cannot
            be stored must not be followed by another.
        emit: receives each stored call ("call"), each real write before it runs ("body_started"), and each
            body that paused to ask a person and will run again ("body_paused"), so that a killed process
            leaves a trace.
        step_limit: maximum tool calls in this episode.
        lasts_s: seconds from now after which no call runs any more, for any caller: a thread that could not
            be ended, or a worker that its driver has lost.
        abstain: "stop": an unanswered call ends the episode; "error": the tool fails.
        whole_turns: answer all calls of a turn before an unanswered one ends the episode. The graph's driver
            must then check `stopped`.
        faults: plans failures of dreamed calls, never of real ones.
        masker: removes secrets from stored calls; real tools get their arguments unchanged.
        overseer: admits real calls in `Mode.S2R`; without one none runs.
    """

    def __init__(
        self,
        policy: CallRouter,
        *,
        experience: ExperienceModel | None = None,
        episode: str = "",
        task: str = "",
        environment: Environment | None = None,
        tenant: str = "default",
        split: Split = Split.TRAIN,
        hooks: Sequence[RunHook] = (),
        emit: Callable[..., object] = _unheard,
        step_limit: int | None = None,
        lasts_s: float | None = None,
        abstain: str = "stop",
        whole_turns: bool = False,
        faults: FaultPlan | None = None,
        masker: Masker | None = None,
        overseer: Overseer | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.policy = policy
        self.overseer = overseer
        self.episode = episode or self.id
        self.environment = environment or Environment()
        self.task = task
        self.tenant = tenant
        self.ledger = CallLog(
            episode=self.episode, task=task, environment=self.environment, tenant=tenant, split=split
        )
        self.open = True
        self.stopped: EpisodeStop | None = None
        self._stopped_at: CallPosition | None = None  # the unanswered call that stopped it
        self.violations = Refusals()
        self.beside: list[str] = []  # refused calls of the user's set-up
        self.broken_off = False  # ended by an exception or a limit, so other calls may be running
        self.executed: list[Executed] = []  # executed real calls; `violations` were blocked
        self.on_executed: Callable[[], object] = lambda: None  # records them at once
        self.on_refusal: Callable[[], None] = lambda: None  # called in the refused thread
        self.notes: list[str] = []
        self.model_errors: list[BaseException] = []  # raised by the agent's chat models
        self.model_answers = 0  # chat model calls with at least a partial answer
        self.unrecovered: BaseException | None = (
            None  # of a chat model call that no answer came beside or after
        )
        self.counts: dict[str, int] = {}
        self.spends: dict[str, Spend] = {}
        self.real_calls = 0
        self.running: list[str] = []  # tools with running real writes
        self.held_call_ids: set[str] = set()
        self.held_without_id: Counter[str] = Counter()  # by tool: nodes often pass only arguments
        self.unknown_names: set[str] = set()  # requested names without a living tool or function
        self.asked_tools: list[str] = []
        self.asked_ids: dict[str, str] = {}  # requested tools, by call ID
        self.passed_over: dict[str, str] = {}  # of these: the conversation continued without an answer
        self.excused: set[str] = set()  # of these: a person was asked about the call
        self._experience = experience
        self._forbid = [hook.forbids for hook in hooks if type(hook).forbids is not RunHook.forbids]
        self._before = [
            hook.before_call for hook in hooks if type(hook).before_call is not RunHook.before_call
        ]
        self._after = [hook.after_call for hook in hooks if type(hook).after_call is not RunHook.after_call]
        self._emit = emit
        self._step_limit = step_limit
        self._until = None if lasts_s is None else time.monotonic() + lasts_s
        self._lasts_s = lasts_s
        self._abstain, self._whole_turns = abstain, whole_turns
        self._faults = faults if faults is not None and faults.rules else None
        self.masker = masker or process_masker()
        self._masks = self.masker.current()
        self._occurrences = Occurrences()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._requests: dict[int, tuple[object, Counter[Identity]]] = {}  # by id, with the object of that id
        self._admitted = 0
        self._replies_before: dict[Identity, tuple[Reply, ...]] = {}  # of earlier runs of a node
        self._interrupted_replies: dict[Identity, dict[str, list[Reply]]] = {}  # by call, by graph task
        self._unreplied: dict[object, Transition] = {}  # real calls that wait for a person's reply
        self._one_by_one = False  # calls of a turn are sequential: none is pending
        self._own: dict[int, ToolSpec] = {}  # by arrival of the call: the called object's spec
        self._spoken: tuple[str, ...] = ()

    @property
    def mode(self) -> Mode:
        """The router's mode."""
        return self.policy.mode

    def close(self) -> None:
        """End the session. Work that outlives it is refused."""
        self.open = False

    def hear(self, texts: Iterable[str]) -> None:
        """Add texts of the task or its user: the dream assumes that objects named there exist."""
        with self._lock:
            self._spoken = (*self._spoken, *dict.fromkeys(map(self.masker.text, texts)))

    def count(self, event: str, by: int = 1) -> None:
        """Count an event for the report (bad arguments, unknown tools)."""
        with self._lock:
            self.counts[event] = self.counts.get(event, 0) + by

    def reached(self, host: str) -> None:
        """Count an allowed host, except a model's, once."""
        if (event := f"{REACHED}{host}") not in self.counts:
            self.count(event)

    def spent(self, part: str, reply: ChatReply) -> None:
        """Charge a chat model's answer to a part of the dream."""
        tokens = reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens
        more = Spend(1, *tokens, reply.cost_usd, int(reply.cache_told))
        with self._lock:
            self.spends[part] = self.spends.get(part, Spend()) + more

    def latch(self, why: str) -> RealCallBlocked:
        """Record a blocked real call; nothing in this session runs any more."""
        refusal = RealCallBlocked(why)
        with self._lock:
            if acting.get():
                self.beside.append(why)
            elif why not in self.violations:
                self.violations.add(why)
            self.stopped = self.stopped or refusal
        self.on_refusal()
        return refusal

    def ran(self, calls: Sequence[Executed]) -> RealCallExecuted:
        """Record executed real calls before returning; nothing in this session runs any more.

        Args:
            calls: all executed calls known so far; known ones are stored once.
        """
        masked = [replace(call, args=self.masker.plain(dict(call.args))) for call in calls]
        with self._lock:
            before = list(self.executed)
            for call in masked:
                if call in before:
                    before.remove(call)
                else:
                    self.executed.append(call)
            stop = RealCallExecuted(format_executed(self.executed))
            self.stopped = stop  # overrides other reasons
        self.on_executed()
        return stop

    def refuse(self, why: str) -> NoReturn:
        """Latch the session and end the episode."""
        raise self.latch(why)

    def asked_for(self, calls: Mapping[str, str], requests: Sequence[str] = ()) -> None:
        """Record the calls (ID -> tool name) that a model requested in one turn, in order.

        `requests` distinguishes equal calls of the turn (see `CallLog.announce`).
        """
        if self.ledger.announce(list(calls), requests):
            self.asked_tools.extend(calls.values())
            self.asked_ids.update(calls)
            self._occurrences.reserve(calls)

    def check_open(self, tool: str, call_id: str | None = None) -> None:
        """Refuse a call if none may run any more. `call_id`: of a call that a model requested.

        Raises:
            RealCallBlocked: the session is closed, had a violation, or belongs to another process; or the
                user's set-up makes the call.
            EpisodeStop: the episode was stopped earlier for another reason.
        """
        if actor := acting.get():
            self.refuse(f"{tool} was called by {actor}; in a dream it did not run")
        if not self.open and self.broken_off:
            raise EpisodeStop(f"{tool} was called after its episode had been broken off; it did not run")
        if not self.open:
            raise self.latch(f"{tool} was called after its episode had ended; it did not run")
        if self._until is not None and time.monotonic() > self._until:
            self.stopped = self.stopped or EpisodeTimeout(tool, limit=self._lasts_s or 0.0)
        if self._pid != os.getpid():
            self.refuse(f"{tool} was called in a forked process; it did not run")
        if self.stopped is not None:
            if isinstance(self.stopped, RealCallBlocked):
                raise RealCallBlocked(f"{tool} was called after a refusal; it did not run")
            if not (isinstance(self.stopped, CallUnanswered) and self._beside(call_id)):
                raise self.stopped

    def _beside(self, call_id: str | None) -> bool:
        """Return whether a call is in the unanswered call's turn, and whole turns are answered."""
        at = self._stopped_at
        return self._whole_turns and at is not None and self.ledger.turn(call_id)[0] == at.turn

    def admit(self, call: Call, called: object = None) -> tuple[Route, CallPosition]:
        """Return route and position of a call after its checks. `called`: the tool or function, if known.

        Raises:
            EpisodeStop: see `check_open`; or a limit was reached (`BudgetExceeded`), or a hook stops it.
        """
        own = self.policy.spec(call.tool, called)
        if own.effect_when:
            own = of_call(own, call.args)
        for forbids in self._forbid:  # first: each is reported, also in an ended episode
            if why := forbids(call, own):
                self.refuse(why)
        self.check_open(call.tool, call.call_id)
        try:
            with self._lock:
                self._admitted += 1
                if self._step_limit is not None and self._admitted > self._step_limit:
                    raise BudgetExceeded("tool calls of one episode", limit=self._step_limit)
            if self._before:
                self._pass_hooks(call, own)
                # a remote budget takes time, and the episode may end meanwhile
                self.check_open(call.tool, call.call_id)
        except EpisodeStop as stop:
            self.stopped = self.stopped or stop
            raise
        self.record_intercepted(call.tool, call.call_id)
        body = _BODY.get()
        place = self.ledger.place(call, body[2] if body is not None and body[0] is self else None)
        self._own[place.arrival] = own
        route = self.policy.route_of(own)
        if route is Route.OVERSEEN and self.policy.stage is Stage.SHADOW and self.ledger.after(place):
            return Route.DREAM, place  # real tools do not know the earlier dreamed writes
        return route, place

    def _body(self) -> tuple[str, CallPosition | None]:
        body = _BODY.get()
        return body[1:] if body is not None and body[0] is self else ("", None)

    @property
    def within(self) -> str:
        """The tool whose real body runs here; "" if the agent's code does."""
        return self._body()[0]

    def _pass_hooks(self, call: Call, tool: ToolSpec) -> None:
        try:
            for before_call in self._before:
                before_call(call, tool)
        except EpisodeStop:
            raise
        except Exception as error:  # unwrapped, an agent would treat it as the tool's failure
            raise EpisodeStop(f"{call.tool} was not called: {error_line(error)}") from error

    def spec(self, call: Call, place: CallPosition) -> ToolSpec:
        """Return the spec of the object called at a place, with this call's effect."""
        own = self._own.get(place.arrival) or self.policy.spec(call.tool)
        return of_call(own, call.args) if own.effect_when else own

    def record_intercepted(self, tool: str, call_id: str | None) -> None:
        """Record an intercepted call, which explains its answer in the transcript."""
        with self._lock:
            if call_id is not None:
                self.held_call_ids.add(call_id)
            else:
                self.held_without_id[tool] += 1

    def numbered(self, request: Identity, node_run: object) -> Identity:
        """Number equal requests of one node run: models repeat call IDs.

        A node that runs again repeats its requests from the first on, so they get the same numbers.
        """
        with self._lock:
            _, made = self._requests.setdefault(id(node_run), (node_run, Counter()))
            made[request] += 1
            return f"{request[0]}|{made[request]}", request[1]

    def flow(
        self, call: Call, place: CallPosition, identity: Identity | None = None, person: Person = nobody
    ) -> Flow[Answer]:
        """Have the dream answer a call.

        A tool that asked people asks them again; an exception of `person` without a reply ends this attempt.
        The caller has masked the arguments.
        """
        started = time.time()
        yield from self.earlier_run_ends(place) if self.ledger.overlaps(place) else ()
        yield from self.twins_end(call, place) if place.twin else ()
        after = self.ledger.after(place)
        fault = self._fault(call, place, after) if self._faults is not None else None
        if fault is not None and not fault.kind.answers:
            answer = failing(fault, call)
        else:
            situation = self.situation(call, place, after)
            if fault is not None and fault.kind is FaultKind.STALE_READ:
                situation = replace(situation, history=(), after="", seen=0)
            if fault is not None and fault.kind is FaultKind.SLOW:
                yield Throttle(fault.wait_s)
            answer = yield Predict(call, situation)
            while answer.asks:
                call = self._replied(call, answer.asks[0], person)
                again = self.situation(call, place, after)
                answer = yield Predict(call, replace(situation, seen=again.seen))
            own = self._own.get(place.arrival)
            answer = viewed(answer, own.view) if own is not None and own.view else answer
            answer = spoiled(fault, call, answer) if fault is not None else answer
        if identity is not None:  # LangGraph returns a node's replies in the order of its questions
            for before in self._replies_before.get(identity, ())[len(call.replies) :]:
                person(before.asked)
            self._replies_before[identity] = max(
                call.replies, self._replies_before.get(identity, ()), key=len
            )
        unanswered = answer.unanswered
        if unanswered and self._abstain == "error":
            why = f"{call.tool} is not available right now"
            answer = replace(answer, error=why, error_type="ToolException")
        self.keep(call, answer, place, after=after, started=started)
        if unanswered:
            answer = self._undecided(call, place, answer)
        if answer.error is not None:
            yield from self.siblings_arrive(call)
        return answer

    def earlier_run_ends(self, place: CallPosition) -> Flow[None]:
        """Wait briefly for threads of an earlier run of this node, so that the state is deterministic."""
        until = time.monotonic() + _WAIT_S
        while self.ledger.overlaps(place) and time.monotonic() < until:
            yield Throttle(0.002)

    def twins_end(self, call: Call, place: CallPosition) -> Flow[None]:
        """Wait for equal calls asked for before this one in its turn: it sees what they did."""
        until = time.monotonic() + _WAIT_S
        while self.ledger.awaits_twins(place, call):
            if time.monotonic() >= until and not self.ledger.twin_under_way(place):
                return  # it was cancelled
            yield Throttle(0.002)

    def siblings_arrive(self, call: Call) -> Flow[None]:
        """After a failed call, wait briefly for the other calls of its turn.

        LangGraph cancels calls that have not begun; which ones must not depend on thread timing.
        """
        until = time.monotonic() + _WAIT_S
        while not self._one_by_one and self.ledger.awaits(call.call_id):
            self._one_by_one = time.monotonic() >= until
            yield Throttle(0.002)

    def replies(
        self, identity: Identity | None, heard: Sequence[tuple[str, Reply]], *, ended: bool
    ) -> Sequence[Reply]:
        """Return all replies that a real call got, given those of its last run, each with its graph task.

        A task that runs again receives its earlier replies again, in their order, whichever of its parallel
        calls asks first. Tasks that a graph below the call finished do not run again.
        """
        self._unreplied.pop(identity, None)
        by_task = {} if identity is None else self._interrupted_replies.pop(identity, {})
        for task in dict.fromkeys(task for task, _ in heard):
            again = [reply for receiver, reply in heard if receiver == task]
            by_task[task] = max(again, by_task.get(task, []), key=len)  # stopped sooner, it heard fewer
        if identity is not None and not ended:
            self._interrupted_replies[identity] = by_task
        return [reply for replies in by_task.values() for reply in replies]

    def asks(
        self, identity: Identity | None, call: Call, place: CallPosition, *, after: str, started: float
    ) -> None:
        """Note a real call that stopped at a question, the last of its `replies`, and its answer to come."""
        unreplied = Answer(source=Source.UNANSWERED, why="it asked a person, and nobody replied")
        effect, call = self.spec(call, place).effect, self.masked(call)
        self._unreplied[identity or place.arrival] = self.ledger.commit(
            place, call, unreplied, effect, after=after, elapsed_s=0.0, at=started, keep=False
        )

    def keep_unreplied(self) -> None:
        """Give the hooks the real calls that got no reply: a dream must ask, too, not guess past it."""
        for entry in self._unreplied.values():
            for after_call in self._after if not entry.effect.runs_in_dream else ():  # else its body asks
                after_call(entry)

    def _replied(self, call: Call, question: JsonValue, person: Person) -> Call:
        """Return the call with the reply to another question of its tool."""
        try:
            reply = person(question)
        except BaseException:  # the node runs again with the reply and repeats its calls
            if call.call_id is None:
                self.held_without_id[call.tool] -= 1
            raise
        return self.masked(replace(call, replies=(*call.replies, Reply(question, reply))))

    def drive(self, flow: Flow[_Result]) -> _Result:
        """Execute a flow's steps in a thread (sync tools); return its result."""
        try:
            step = next(flow)
            while True:
                try:
                    reply: object = None
                    if isinstance(step, Predict):
                        reply = self.dreamt_now(step.call, step.situation)
                    elif isinstance(step, RunBody):
                        reply = step.body()
                    elif isinstance(step, AwaitApproval):
                        reply = approval_now(step)
                    else:
                        time.sleep(step.seconds)
                except BaseException as error:  # noqa: BLE001  the flow decides what it means
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as done:
            result: _Result = done.value
            return result
        finally:
            flow.close()  # after a Ctrl-C between two steps, close its open blocks

    async def drive_async(self, flow: Flow[_Result]) -> _Result:
        """Execute a flow's steps on the event loop (async tools)."""
        try:
            step = next(flow)
            while True:
                try:
                    reply: object = None
                    if isinstance(step, Predict):
                        reply = await self.dreamt(step.call, step.situation)
                    elif isinstance(step, RunBody):
                        reply = await step.body()
                    elif isinstance(step, AwaitApproval):
                        reply = await approval(step)
                    else:
                        await asyncio.sleep(step.seconds)
                except BaseException as error:  # noqa: BLE001  the flow decides what it means
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as done:
            result: _Result = done.value
            return result
        finally:
            flow.close()  # after a Ctrl-C between two steps, close its open blocks

    def real_fault(self, call: Call, place: CallPosition, after: str) -> Fault | None:
        """Return the planned fault of a real call; tools that also run in dreams get none."""
        if self.mode is Mode.DREAM or self.spec(call, place).effect.runs_in_dream:
            return None
        fault = self._fault(call, place, after)  # real reads are never stale
        return None if fault is not None and fault.kind is FaultKind.STALE_READ else fault

    def keep_real(
        self, call: Call, answer: Answer, place: CallPosition, *, after: str, started: float
    ) -> None:
        """Commit a call whose real body ran; the body may have revealed a new secret.

        Raises:
            RealCallExecuted: the body ran in a dream, where it must not.
        """
        if answer.replies:
            call, answer = self.masked(replace(call, replies=answer.replies)), replace(answer, replies=())
        elif self.masker.current() is not self._masks:  # new secrets are known
            call = self.masked(call)
        entry = self.keep(call, answer, place, after=after, started=started)
        if answer.source is Source.REAL and self.mode is Mode.DREAM and not entry.effect.runs_in_dream:
            ran = Executed(entry.call.tool, entry.call.args, "its real body ran")
            raise self.ran([*self.executed, ran])

    def keep(
        self, call: Call, answer: Answer, place: CallPosition, *, after: str, started: float
    ) -> Transition:
        """Commit a call with masked arguments, and its answer."""
        entry = self.ledger.commit(
            place,
            call,
            masked_answer(answer, self.masker),
            self.spec(call, place).effect,
            after=after,
            elapsed_s=max(0.0, time.time() - started),
            at=started,
        )
        if answer.source is Source.REAL or (self.policy.mode is Mode.RECORD and ran(answer)):
            with self._lock:
                self.real_calls += 1
        try:
            for after_call in self._after:
                after_call(entry)
            effect, source = entry.effect.value, answer.source.value
            self._emit("call", step=entry.step, tool=call.tool, effect=effect, source=source)
        except EpisodeStop as stop:
            self.stopped = self.stopped or stop
            raise
        except Exception as error:
            # unwrapped, an agent would treat it as the tool's failure and continue
            unkept = EpisodeStop(f"the answer of {call.tool} could not be kept: {error}")
            self.stopped = self.stopped or unkept
            raise unkept from error
        return entry

    @contextmanager
    def body(self, call: Call, place: CallPosition, paused: type[BaseException]) -> Iterator[None]:
        """Run a real body inside the block; it raises `paused` to ask a person, and then runs again."""
        effect = self.spec(call, place).effect
        if effect.runs_in_dream:  # its body also runs in dreams and makes its own calls
            yield
            return
        with _making(self, call.tool, place):
            if self.mode is Mode.DREAM or not effect.changes_environment:
                yield
                return
            with self._write_runs(call, effect, paused):
                yield

    @contextmanager
    def _write_runs(self, call: Call, effect: Effect, paused: type[BaseException]) -> Iterator[None]:
        with self._running(call.tool):
            try:
                self._emit("body_started", tool=call.tool, effect=effect.value)
                yield
            except paused:
                self._emit("body_paused", tool=call.tool, effect=effect.value)
                raise

    def outliving(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, known to run for as long as it does, where a real write hands it to a thread.

        An asynchronous tool that is cancelled ends at once; its thread goes on.
        """
        work = self.of_body(work)
        if not self.running:
            return work
        return within(work, functools.partial(self._running, self.running[-1]))

    def of_body(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, whose calls are made by the body that hands it over, in whatever context it runs."""
        tool, place = self._body()
        return work if place is None else within(work, functools.partial(_making, self, tool, place))

    @contextmanager
    def _running(self, tool: str) -> Iterator[None]:
        with self._lock:
            self.running.append(tool)
        try:
            yield
        finally:
            with self._lock:
                self.running.remove(tool)

    def violated(self) -> bool:
        """Whether anything was refused in this session."""
        return bool(self.violations)

    def masked(self, call: Call) -> Call:
        """The call as it is kept and dreamt about."""
        args = self.masker.plain(call.args)
        if call.replies:
            mask = self.masker.plain
            call = replace(
                call, replies=tuple(Reply(mask(reply.asked), mask(reply.reply)) for reply in call.replies)
            )
        return call if args is call.args else replace(call, args=args)

    def situation(self, call: Call, place: CallPosition, after: str) -> Situation:
        """Where a call stands, as an experience model is told it."""
        return Situation(
            environment=self.environment,
            task=self.task,
            episode=self.episode,
            history=self.ledger.history(place, call),
            after=after,
            seen=self.ledger.seen(call, after, place),
            tool=self.spec(call, place),
            tenant=self.tenant,
            spoken=self._spoken,
            account=self,
        )

    def _fault(self, call: Call, place: CallPosition, after: str) -> Fault | None:
        """What the plan lets befall a call; a real one only where that was asked for."""
        if self._faults is None or (self.policy.mode is not Mode.DREAM and not self._faults.real):
            return None
        return self._faults.fault(
            call,
            self.spec(call, place).effect,
            episode=self.episode,
            occurrence=self._occurrences.next(call),
            wrote=bool(after),
        )

    def _undecided(self, call: Call, place: CallPosition, answer: Answer) -> Answer:
        """Stop the episode at a call that the dream cannot answer.

        In whole turns it stops at the model's next turn: which of parallel calls came first is chance, and
        raising here would cancel the others. So no model reads the stand-in that is given meanwhile.
        """
        self.count("abstained")
        if answer.error is not None:
            return answer
        stop = CallUnanswered(answer.why or f"the dream cannot tell what {call.tool} would answer")
        with self._lock:
            earlier = self._stopped_at is not None and place < self._stopped_at
            if self.stopped is None or (earlier and isinstance(self.stopped, CallUnanswered)):
                self.stopped, self._stopped_at = stop, place
        if not self._whole_turns or self.ledger.turn(call.call_id)[1] == 1:
            raise stop
        return replace(answer, content=UNANSWERED)

    async def dreamt(self, call: Call, situation: Situation) -> Answer:
        """What the dream answers, on the event loop; its failures are abstentions."""
        if self._experience is None:
            return Answer(
                source=Source.UNANSWERED, confidence=0.0, why="this dream has no experience to go by"
            )
        try:
            return await self._experience.answer(call, situation)
        except EpisodeStop as stop:  # the dream's model exceeded the budget
            self.stopped = self.stopped or stop
            raise
        except Exception as error:  # noqa: BLE001  as itself, an agent would take it for the tool's own failure
            why = f"the experience model failed: {type(error).__name__}: {error}"
            return Answer(source=Source.UNANSWERED, confidence=0.0, why=why)

    def dreamt_now(self, call: Call, situation: Situation) -> Answer:
        """Return the dream's answer, from a thread."""
        answering = self.dreamt(call, situation)
        if self._experience is not None and self._experience.waits:  # the caller may run on an event loop
            return run_in_thread(lambda: asyncio.run(answering), name="dreamgym-experience")
        try:
            answering.send(None)  # runs to its end, because it never waits
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        answering.close()
        raise RuntimeError("an experience model that says it never waits has waited")
