"""The dream's own model in a run: opened, asked once before anything runs, put behind the recordings."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from dreamgym_kit.adapters.models.endpoint import check_endpoint, open_endpoint
from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.asked_last import AskedLast
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.following import Following
from dreamgym_kit.dream.reasoned import ReasonedExperience
from dreamgym_kit.dream.reasoned_support import ReasonedSupport
from dreamgym_kit.gate import egress
from dreamgym_kit.ports import ChatEndpoint, ExperienceModel, Situation, TransitionStore
from dreamgym_kit.rollout.budgets import RunBudget
from dreamgym_kit.rollout.spending import BudgetedEndpoint
from dreamgym_kit.settings.model import Settings
from dreamgym_kit.vocabulary import Call, Split, Transition

Rows = Callable[[str, str], Iterable[Transition]]
"""Gives what was recorded of a tenant's tool, in the order recorded."""

_EXAMPLES = 6
_FORM_ROWS = 500  # newest recordings that a tool's form is read from


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
    support: ReasonedSupport | None = None,
) -> ExperienceModel | None:
    """`first`, and behind it the model where there is one; `support`: what its confidence is worth."""
    if chat is None:
        return first

    def rows(tenant: str, tool: str) -> list[Transition]:
        if store is None:
            return []
        with egress.exempt():  # the buffer is the kit's own file
            return list(store.scan(tenant=tenant, tool=tool))

    following = first.following if isinstance(first, ChainedExperience) else None
    return AskedLast(first, reasoned_over(rows, chat, settings, following=following, support=support))


def reasoned_over(
    rows: Rows,
    chat: ChatEndpoint,
    settings: Settings,
    *,
    following: Following | None = None,
    support: ReasonedSupport | None = None,
) -> ReasonedExperience:
    """The model's side as settings have it, with examples and forms from recordings."""
    recorded = RecordedAnswers(rows)
    return ReasonedExperience(
        chat,
        retrieve=recorded.examples,
        schemas=recorded.schema,
        following=following,
        support=support,
        threshold=settings.simulate.threshold,
        max_tokens=settings.endpoint.max_output,
        temperature=settings.endpoint.temperature,
        top_p=settings.endpoint.top_p,
        seed=settings.simulate.seed,
    )


class RecordedAnswers:
    """What was recorded of each tool, without the held-out rows; each tool is read once."""

    def __init__(self, rows: Rows) -> None:
        self._read = rows
        self._rows: dict[tuple[str, str], list[Transition]] = {}
        self._schemas: dict[tuple[str, str], AnswerSchema | None] = {}

    def examples(self, call: Call, situation: Situation) -> Sequence[Transition]:
        """The newest recordings of a call's tool, successes and failures, none of the episode's own."""
        rows = self._of(situation.tenant, call.tool)
        good = [row for row in rows if row.answer.error is None and row.answer.update is None]
        bad = [row for row in rows if row.answer.error is not None]
        newest = [*reversed(good[-_EXAMPLES:]), *reversed(bad[-_EXAMPLES // 2 :])]
        return [row for row in newest if row.episode != situation.episode]

    def schema(self, call: Call, situation: Situation) -> AnswerSchema | None:
        """The form of a tool's answers: declared, or as recorded."""
        key = (situation.tenant, call.tool)
        if key not in self._schemas:
            answers = [row.answer for row in self._of(*key)[-_FORM_ROWS:]]
            self._schemas[key] = schema_for(situation.tool, answers)
        return self._schemas[key]

    def _of(self, tenant: str, tool: str) -> list[Transition]:
        key = (tenant, tool)
        if key not in self._rows:
            self._rows[key] = [row for row in self._read(tenant, tool) if row.split is Split.TRAIN]
        return self._rows[key]
