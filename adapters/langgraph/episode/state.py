"""What is known of an episode while it runs: prompts, spend, what was said, how it ended; and its record."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from dreamgym_kit.adapters.langgraph.episode.transcript import Transcript, final_state
from dreamgym_kit.adapters.langgraph.policy.responses import PROVIDER
from dreamgym_kit.errors import BudgetExceeded
from dreamgym_kit.findings.case import Asked
from dreamgym_kit.interfaces import Judgement
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.routing.session import Session
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.schema import ModelSettings
from dreamgym_kit.types import Episode, Finding, Task, UserTurn, Verdict, format_executed

_MOST = 64_000  # characters


class SystemPrompts:
    """The system messages of one episode, each text once: the policy that its calls are held against.

    Most ways of building an agent put the prompt before the model and not into the graph's messages, so the
    transcript lacks it. Kept for the episode only, never written down.
    """

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}  # in the order heard
        self._room = _MOST
        self._lock = threading.Lock()

    @property
    def text(self) -> str:
        """All that was heard, one below the other."""
        return "\n".join(self._texts)

    def take(self, messages: list[list[BaseMessage]]) -> None:
        """Take in what a model is about to read."""
        for message in (message for batch in messages for message in batch):
            if message.type != "system":
                continue
            text = str(message.text)[: self._room]
            with self._lock:
                if text and text not in self._texts:
                    self._texts[text] = None
                    self._room -= len(text)


class UsageCounter(BaseCallbackHandler):
    """Counts one episode's model calls; ends it when the run's spend budget is gone.

    One handler for spend and prompts: the framework goes through all handlers for each event of each node,
    and asks every one with each model call whether it wants a stream.

    Attributes:
        heard: the system prompts that the models were given.
    """

    run_inline = True
    ignore_chain = ignore_agent = ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(self, session: Session, prices: ModelSettings, budget: RunBudget) -> None:
        self.calls = 0
        self.tokens = 0
        self.cost_usd = 0.0
        self.heard = SystemPrompts()
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
        """Hear what a model is about to read."""
        self.heard.take(messages)

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


@dataclass(slots=True)
class EpisodeState:
    """What became of one drive through the graph."""

    transcript: Transcript
    values: Any = None
    stop: str = "finished"
    reason: str = ""
    traceback: tuple[str, ...] = ()  # the agent's own lines of the exception that ended it
    ran_on: bool = False  # the limit that ended it is of steps or context, which the agent itself spent
    waiting: list[Any] = field(default_factory=list)  # interrupts nobody answered
    heard: SystemPrompts = field(default_factory=SystemPrompts)
    replies: list[Asked] = field(default_factory=list)  # interrupts and their answers
    calls: Callable[[], int] = field(default=lambda: 0)  # made so far
    hear: Callable[[Iterable[str]], None] = field(default=lambda _: None)  # what the user says
    interrupted: Callable[[JsonValue], None] = field(default=lambda _: None)  # the graph asks a person
    over: Callable[[], bool] = field(default=lambda: False)  # the episode was stopped
    turns: list[UserTurn] = field(default_factory=list)  # of whoever stood in for a user

    def add_turn(self, kind: str, by: str, question: JsonValue = None, answer: JsonValue = None) -> None:
        """Keep what somebody is told, or is about to be, in place of a user."""
        place = len(self.transcript.records)
        self.turns.append(UserTurn(kind, by, place, self.calls(), question, answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """One episode so far."""

    task: Task
    repeat: int
    attempt: int
    session: Session
    usage: UsageCounter
    course: EpisodeState
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)

    def episode(self, judgement: Judgement, findings: Sequence[Finding]) -> Episode:
        """The record, secrets in its texts included."""
        session, usage, course, task = self.session, self.usage, self.course, self.task
        return Episode(
            id=f"{task.id}.{self.repeat}",
            task=task.id,
            repeat=self.repeat,
            environment=task.environment,
            verdict=judgement.verdict,
            reason=judgement.reason,
            reward=judgement.reward,
            transitions=session.ledger.transitions(),
            messages=tuple(course.transcript.records),
            stop=course.stop,
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
            final=final_state(course.values),
            dream_spend=dict(sorted(session.spends.items())),
            user_turns=tuple(course.turns),
            traceback=course.traceback,
        )

    def executed(self) -> Episode:
        """The record of an episode in which real calls ran: a failure, whatever else it was."""
        reason = format_executed(self.session.executed)
        self.course.stop, self.course.reason = "executed", reason
        return self.episode(Judgement(Verdict.FAILED, reason, 0.0), ())
