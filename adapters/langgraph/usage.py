"""Tokens and spend of the agent's own models, counted where the framework reports them."""

import threading
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from dreamgym_kit.errors import BudgetSpent
from dreamgym_kit.gate.session import Session
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.settings.model import ModelSettings


class UsageCounter(BaseCallbackHandler):
    """Counts one episode's model calls; ends it when the run's spend budget is gone."""

    run_inline = True
    ignore_chain = ignore_agent = ignore_retriever = ignore_retry = ignore_custom_event = True
    ignore_chat_model = True  # its start; its end is an event of `ignore_llm`

    def __init__(self, session: Session, prices: ModelSettings, budget: RunBudget) -> None:
        self.calls = 0
        self.tokens = 0
        self.cost_usd = 0.0
        self._session = session
        self._prices = prices
        self._budget = budget
        self._lock = threading.Lock()

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:  # noqa: ARG002  the framework's form
        """Take in one model call's usage."""
        read, written = _usage(response)
        cost = (
            read * self._prices.usd_per_million_input + written * self._prices.usd_per_million_output
        ) / 1_000_000
        with self._lock:
            self.calls += 1
            self.tokens += read + written
            self.cost_usd += cost
        try:
            reserved = self._budget.reserve(0, usd=None)
        except BudgetSpent as spent:
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
