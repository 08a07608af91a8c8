"""The run's budget of dollars around a chat endpoint: nothing is asked once it is spent.

Whatever a model of the dream costs (answers, judgements, a simulated user's words, the question before the
run) is counted where the agent's own models are. What an answer costs is known only afterwards, so a run
passes its limit by at most what was in flight.
"""

import threading

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.ports import ChatEndpoint
from dreamgym_kit.rollout.budgets import Budget
from dreamgym_kit.vocabulary import Spend


class BudgetedEndpoint:
    """Implements `ports.ChatEndpoint` over another one.

    Args:
        endpoint: where the model answers.
        budget: what may be spent.
        calls: how many of the budget's calls a question is; in a run those are the agent's alone.
    """

    def __init__(self, endpoint: ChatEndpoint, budget: Budget, *, calls: int = 0) -> None:
        self._endpoint, self._budget, self._calls = endpoint, budget, calls

    @property
    def endpoint(self) -> ChatEndpoint:
        """What the budget is around."""
        return self._endpoint

    async def chat(self, request: ChatRequest) -> ChatReply:
        """See `ports.ChatEndpoint.chat`.

        Raises:
            BudgetSpent: the run has no dollars or no calls left; nothing was asked.
        """
        reserved = self._budget.reserve(self._calls, usd=None)
        try:
            reply = await self._endpoint.chat(request)
        except BaseException:
            self._budget.refund(reserved)
            raise
        self._budget.settle(reserved, usd=reply.cost_usd)
        return reply


class RunAccount:
    """Implements `ports.Account` for what belongs to a run and to no episode of it."""

    def __init__(self) -> None:
        self.spend = Spend()
        self._lock = threading.Lock()

    def spent(self, part: str, reply: ChatReply) -> None:  # noqa: ARG002  all of it is one part
        """See `Account.spent`."""
        with self._lock:
            told = reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens
            self.spend += Spend(1, *told, reply.cost_usd, int(reply.cache_told))

    def count(self, what: str, by: int = 1) -> None:
        """See `Account.count`; an account of a run tells its spend only."""
