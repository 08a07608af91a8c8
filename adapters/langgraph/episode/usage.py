"""What the framework reports of the agent's own models: tokens and spend, and what they were told.

One handler for both: the framework goes through all of them for each event of each node, and asks every
one with each model call whether it wants a stream.
"""

import threading
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from dreamgym_kit.adapters.langgraph.episode.system_prompts import SystemPrompts
from dreamgym_kit.adapters.langgraph.policy.responses import PROVIDER
from dreamgym_kit.errors import BudgetExceeded
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.routing.session import Session
from dreamgym_kit.settings.schema import ModelSettings


class UsageCounter(BaseCallbackHandler):
    """Counts one episode's model calls; ends it when the run's spend budget is gone.

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
