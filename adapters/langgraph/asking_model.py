"""The dream's own model in a run: opened, asked once before anything runs, put behind the recordings."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from dreamgym_kit.adapters.models.endpoint import check_endpoint, open_endpoint
from dreamgym_kit.dream.asked_last import AskedLast
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.reasoned import ReasonedExperience
from dreamgym_kit.gate import egress
from dreamgym_kit.ports import ChatEndpoint, ExperienceModel, Situation, TransitionStore
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.spending import BudgetedEndpoint
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Call, Split, Transition

_EXAMPLES = 6


@asynccontextmanager
async def asked_endpoint(
    settings: Settings, budget: RunBudget, *, dreams: bool
) -> AsyncIterator[ChatEndpoint | None]:
    """The endpoint of the settings for the block; None while recording, and where none is named.

    Raises:
        UserError: it is named wrongly, or gives no answer; nothing was run.
    """
    endpoint = open_endpoint(settings) if dreams else None
    try:
        if endpoint is None:
            yield None
        else:
            budgeted = BudgetedEndpoint(endpoint, budget)
            await check_endpoint(budgeted)
            yield budgeted
    finally:
        if endpoint is not None:
            endpoint.close()


def with_model(
    first: ExperienceModel | None,
    chat: ChatEndpoint | None,
    settings: Settings,
    store: TransitionStore | None,
) -> ExperienceModel | None:
    """`first`, and behind it the model where there is one."""
    if chat is None:
        return first
    reasoned = ReasonedExperience(
        chat,
        retrieve=examples_of(store) if store is not None else None,
        following=first.following if isinstance(first, ChainedExperience) else None,
        threshold=settings.simulate.threshold,
        max_tokens=settings.endpoint.max_output,
        temperature=settings.endpoint.temperature,
        top_p=settings.endpoint.top_p,
        seed=settings.simulate.seed,
    )
    return AskedLast(first, reasoned)


def examples_of(store: TransitionStore) -> Callable[[Call, Situation], Sequence[Transition]]:
    """The newest recordings of a call's tool, successes and failures, without the held-out ones."""
    known: dict[tuple[str, str], list[Transition]] = {}

    def retrieve(call: Call, situation: Situation) -> Sequence[Transition]:
        key = (situation.tenant, call.tool)
        if key not in known:
            with egress.exempt():  # the buffer is the kit's own file
                rows = [row for row in store.scan(tenant=key[0], tool=key[1]) if row.split is Split.TRAIN]
            good = [row for row in rows if row.answer.error is None and row.answer.update is None]
            bad = [row for row in rows if row.answer.error is not None]
            known[key] = [*reversed(good[-_EXAMPLES:]), *reversed(bad[-_EXAMPLES // 2 :])]
        return [row for row in known[key] if row.episode != situation.episode]

    return retrieve
