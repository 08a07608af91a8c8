"""What is known of an episode while it runs: prompts, spend, what was said, how it ended; and its record."""

import sys
import threading
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphRecursionError

from dreamgym_kit.adapters.langgraph.analysis.import_errors import own_frames, raised_by_agent, raised_by_us
from dreamgym_kit.adapters.langgraph.episode.transcript import Transcript, final_state
from dreamgym_kit.adapters.langgraph.intercept.answers import is_of_tool
from dreamgym_kit.adapters.langgraph.intercept.functions import of_library
from dreamgym_kit.adapters.langgraph.policy.responses import PROVIDER
from dreamgym_kit.dream.user import UserFailed, UserSilent
from dreamgym_kit.errors import (
    BudgetExceeded,
    CallUnanswered,
    ContextFull,
    EndpointError,
    EpisodeStop,
    EpisodeTimeout,
    RealCallBlocked,
    RealCallExecuted,
)
from dreamgym_kit.findings.case import AnsweredInterrupt
from dreamgym_kit.interfaces import Judgement
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.routing.session import Session
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import ModelSettings
from dreamgym_kit.supervision.limits import RealCallRefused
from dreamgym_kit.types import (
    KIT_FAILED,
    TIME_IS_UP,
    Episode,
    Finding,
    Task,
    Transition,
    UserTurn,
    Verdict,
    error_text,
    format_executed,
)

_MAX_PROMPTS = 64_000  # characters


class UsageCounter(BaseCallbackHandler):
    """Counts one episode's model calls; ends it when the run's spend budget is gone.

    Keeps the system prompts as well, each text once: the policy that the episode's calls are held against.
    Most ways of building an agent put the prompt before the model and not into the graph's messages, so the
    transcript lacks it. Kept for the episode only, never written down. One handler for both: the framework
    goes through all handlers for each event of each node, and asks every one with each model call whether it
    wants a stream.
    """

    run_inline = True
    ignore_chain = ignore_agent = ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(self, session: Session, prices: ModelSettings, budget: RunBudget) -> None:
        self.calls = 0
        self.tokens = 0
        self.cost_usd = 0.0
        self._prompts: dict[str, None] = {}  # in the order given
        self._room = _MAX_PROMPTS
        self._session = session
        self._prices = prices
        self._budget = budget
        self._lock = threading.Lock()

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002  the framework's form
        messages: list[list[BaseMessage]],
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Take in the system messages that a model is about to read."""
        for message in (message for batch in messages for message in batch):
            if message.type != "system":
                continue
            text = str(message.text)[: self._room]
            with self._lock:
                if text and text not in self._prompts:
                    self._prompts[text] = None
                    self._room -= len(text)

    @property
    def prompts(self) -> str:
        """The system prompts that the models were given, one below the other."""
        return "\n".join(self._prompts)

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:  # noqa: ARG002  the framework's form
        """Take in one model call's usage."""
        read, written = _usage(response)
        cost = 0.0
        if not _of_policy(response):
            cost = (
                read * self._prices.usd_per_million_input + written * self._prices.usd_per_million_output
            ) / 1_000_000
        with self._lock:
            self.calls += 1
            self.tokens += read + written
            self.cost_usd += cost
        try:
            reserved = self._budget.reserve(0, usd=None)
        except BudgetExceeded as spent:
            self._session.stopped = self._session.stopped or spent
            return
        self._budget.settle(reserved, usd=cost)


def _usage(response: LLMResult) -> tuple[int, int]:
    read = written = 0
    for generations in response.generations:
        for generation in generations:
            message = generation.message if isinstance(generation, ChatGeneration) else None
            if isinstance(message, AIMessage) and message.usage_metadata:
                read += message.usage_metadata["input_tokens"]
                written += message.usage_metadata["output_tokens"]
    return read, written


def _of_policy(response: LLMResult) -> bool:
    """Whether a policy of our own answered, for which no provider is paid."""
    return any(
        isinstance(generation, ChatGeneration)
        and generation.message.response_metadata.get("model_provider") == PROVIDER
        for generations in response.generations
        for generation in generations
    )


@dataclass(slots=True, kw_only=True)
class EpisodeState:
    """One episode so far: what was said and asked in it, and how it ended."""

    task: Task
    repeat: int
    attempt: int
    session: Session
    usage: UsageCounter
    transcript: Transcript = field(default_factory=Transcript)
    values: Any = None
    stop: str = "finished"
    reason: str = ""
    traceback: tuple[str, ...] = ()  # the agent's own lines of the exception that ended it
    ran_on: bool = False  # the limit that ended it is of steps or context, which the agent itself spent
    waiting: list[Any] = field(default_factory=list)  # interrupts nobody answered
    replies: list[AnsweredInterrupt] = field(default_factory=list)  # interrupts and their answers
    turns: list[UserTurn] = field(default_factory=list)  # of whoever stood in for a user
    would: Verdict | None = None  # had its imagined answers counted
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)

    def add_turn(self, kind: str, by: str, question: JsonValue = None, answer: JsonValue = None) -> None:
        """Keep what somebody is told, or is about to be, in place of a user."""
        place = len(self.transcript.records)
        self.turns.append(UserTurn(kind, by, place, len(self.session.ledger), question, answer))

    def record(self, judgement: Judgement, findings: Sequence[Finding]) -> Episode:
        """The episode's record, secrets in its texts included."""
        session, usage, task = self.session, self.usage, self.task
        return Episode(
            id=f"{task.id}.{self.repeat}",
            task=task.id,
            repeat=self.repeat,
            environment=task.environment,
            verdict=judgement.verdict,
            reason=judgement.reason,
            reward=judgement.reward,
            transitions=session.ledger.transitions(),
            messages=tuple(self.transcript.records),
            stop=self.stop,
            violations=tuple(session.violations),
            executed=tuple(session.executed),
            findings=tuple(findings),
            model_calls=usage.calls,
            tokens=usage.tokens,
            cost_usd=usage.cost_usd + sum(spend.cost_usd for spend in session.spends.values()),
            attempt=self.attempt,
            started_at=self.started,
            elapsed_s=time.perf_counter() - self.clock,
            counts=dict(session.counts),
            final=final_state(self.values),
            dream_spend=dict(sorted(session.spends.items())),
            user_turns=tuple(self.turns),
            traceback=self.traceback,
            would=self.would,
        )

    def executed_record(self) -> Episode:
        """The record of an episode in which real calls ran: a failure, whatever else it was."""
        self.stop, self.reason = "executed", format_executed(self.session.executed)
        return self.record(Judgement(Verdict.FAILED, self.reason, 0.0), ())


_MODEL_CLIENTS = frozenset(
    {"anthropic", "cohere", "google.genai", "groq", "litellm", "mistralai", "ollama", "openai", "together"}
)
"""Libraries that ask a model and nothing else."""
_NO_CLIENTS = frozenset({"builtins", "langchain", "langchain_core", "langgraph", "pydantic", "pydantic_core"})
"""Packages whose exceptions do not say that an endpoint failed, also where they come out of a chat model."""


def classify_error(
    state: EpisodeState,
    error: BaseException,
    *,
    wants_context: bool,
    timed_out: bool,
    fields: Container[str] = (),
) -> None:
    """What an exception that came out of the graph says about the episode.

    Args:
        state: of the episode.
        error: what came out.
        timed_out: the episode's own time is over.
        wants_context: the graph declares a `context_schema`, and was given no context.
        fields: of the graph's state.
    """
    session = state.session
    of_model, last = session.model_errors, session.ledger.transitions()[-1:]
    recovered = session.model_answers > 0 and session.unrecovered is None
    first = _first_leaf(error)
    text = error_text(first)
    raised = f"the graph raised {type(first).__name__}" + (f": {text}" if text else _cause(first))
    raised += _missing_field(first, state.task, fields)
    if isinstance(first, GraphRecursionError):
        state.stop, state.reason = "limit", "the graph's recursion limit was reached"
        state.ran_on = True
    elif is_of_tool(first) or _is_of_call(first, last):  # first: a model's silence has the same classes
        state.stop, state.reason = "crashed", raised
    elif timed_out and isinstance(first, TimeoutError) and type(error) is TimeoutError and not text:
        state.stop, state.reason = "limit", f"{TIME_IS_UP} was reached"
    elif isinstance(first, UserFailed):
        state.stop = "interrupted" if isinstance(first, UserSilent) else "error"
        state.reason = f"the simulated user failed: {text}"
    elif isinstance(first, EpisodeStop):
        classify_stop(state, first)
    elif _of_endpoint(first, of_model) and not (recovered and raised_by_agent(first)):
        state.stop, state.reason = (
            "error",
            f"the agent's model did not answer: {type(first).__name__}: {text}{_behind(first, of_model)}",
        )
    elif raised_by_us(first):
        state.stop, state.reason = "error", f"{KIT_FAILED}: {raised}"
    elif wants_context:  # a fault of the agent's own looks the same
        state.stop = "error"
        state.reason = (
            "the graph was given no runtime context, which its context_schema declares; give it in "
        )
        state.reason += f"dreamgym.toml under [context], or as the task's context: {raised}"
    else:
        state.stop, state.reason = "crashed", raised
    if state.stop == "crashed" or (wants_context and state.stop == "error"):  # else no code is at fault
        # a group's leaf, or an error that the framework made of the agent's, may have none of its own
        state.traceback = next(filter(None, map(own_frames, (*_causes(first), error))), ())


def _missing_field(error: BaseException, task: Task, fields: Container[str]) -> str:
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    if not isinstance(key, str) or key not in fields or key in task.input:
        return ""
    return "; the state has a field of that name, which the task's input does not give"


def declares_context(graph: Any) -> bool:
    """Whether a graph or a subgraph of it declares a runtime context."""
    inner = [part for _, part in graph.get_subgraphs(recurse=True)] if hasattr(graph, "get_subgraphs") else []
    return any(getattr(part, "context_schema", None) is not None for part in (graph, *inner))


def say_model_down(state: EpisodeState) -> None:
    """End an episode as an error if the agent caught an endpoint's failure and no model answered after it.

    Args:
        state: of an episode that ended by itself, at a limit, at a question or by an exception.
    """
    unrecovered = state.session.unrecovered
    if unrecovered is not None and _of_endpoint(unrecovered, [unrecovered]):
        named = f"{type(unrecovered).__name__}: {error_text(unrecovered)}"
        state.stop = "error"
        state.reason = f"the agent's model did not answer: {named}; the agent caught it"


def _of_endpoint(error: BaseException, of_model: Sequence[BaseException]) -> bool:
    """Whether a model's endpoint gave no answer, also where the agent raised an error of its own for that."""
    for cause in _causes(error):
        if isinstance(cause, EndpointError):
            return True
        if any(cause is failed for failed in of_model):
            return any(map(_of_client, _causes(cause)))
        if not _packages(type(cause)).isdisjoint(_MODEL_CLIENTS) and not raised_by_agent(cause):
            return True
    return False


def _of_client(error: BaseException) -> bool:
    """Whether what came out of a chat model is of its client's library, or of the network."""
    if isinstance(error, ConnectionError | TimeoutError):
        return not raised_by_agent(error)
    modules = (sys.modules.get(package) for package in _packages(type(error)) - _NO_CLIENTS)
    return any(of_library(str(getattr(module, "__file__", None) or "")) for module in modules)


def _packages(kind: type) -> frozenset[str]:
    """The packages that an exception's classes are of: the top-level ones, and those of `google`."""
    parts = [base.__module__.split(".") for base in kind.__mro__]
    return frozenset(".".join(names[: 1 + (names[0] == "google")]) for names in parts)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what stands behind it, the nearest first."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(cause is before for before in seen):
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def _behind(error: BaseException, of_model: Sequence[BaseException]) -> str:
    """What the client of the model had said, where the agent raised an error of its own for that."""
    cause = next(
        (cause for cause in (*islice(_causes(error), 1, None), *of_model[-1:]) if _of_client(cause)), None
    )
    return "" if cause is None or cause is error else f", from {type(cause).__name__}: {error_text(cause)}"


def _cause(error: BaseException) -> str:
    """What stood behind an exception that says nothing itself."""
    cause = error.__cause__ or error.__context__
    return f", from {type(cause).__name__}" if cause is not None else ""


def _is_of_call(error: BaseException, last: Sequence[Transition]) -> bool:
    """Whether this is the time-out of the last call: asyncio makes another exception of one in a thread."""
    return type(error) is TimeoutError and any(
        (entry.answer.error_type, entry.answer.error) == ("TimeoutError", str(error)) for entry in last
    )


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def classify_stop(state: EpisodeState, stop: EpisodeStop) -> None:
    """How an episode ended that was stopped, and why."""
    state.reason, state.ran_on = str(stop), False
    if isinstance(stop, RealCallBlocked):
        state.stop = "violation"
    elif isinstance(stop, RealCallExecuted):
        state.stop = "executed"
    elif isinstance(stop, RealCallRefused):
        state.stop = "refused"
    elif isinstance(stop, CallUnanswered):
        state.stop = "abstained"
    elif isinstance(stop, EpisodeTimeout):
        state.stop = "limit"
    elif isinstance(stop, ContextFull):
        state.stop, state.ran_on = "limit", True
    elif isinstance(stop, BudgetExceeded) and stop.what == "tool calls of one episode":
        state.stop, state.reason, state.ran_on = "limit", f"more than {stop.limit:g} tool calls", True
    else:
        state.stop = "budget" if isinstance(stop, BudgetExceeded) else "error"
