"""What is known of an episode while it runs: prompts, spend, what was said, how it ended; and its record."""

import threading
import time
from collections.abc import Sequence
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
    replies: list[Asked] = field(default_factory=list)  # interrupts and their answers
    turns: list[UserTurn] = field(default_factory=list)  # of whoever stood in for a user
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
        )

    def executed_record(self) -> Episode:
        """The record of an episode in which real calls ran: a failure, whatever else it was."""
        self.stop, self.reason = "executed", format_executed(self.session.executed)
        return self.record(Judgement(Verdict.FAILED, self.reason, 0.0), ())
