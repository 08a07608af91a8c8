"""The dream's own model in a run: opened, asked once before anything runs, put behind the recordings."""

import threading
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from dreamgym_kit.adapters.models.named_models import learned_directory, open_experience
from dreamgym_kit.adapters.stores.factory import is_far
from dreamgym_kit.dream.ablation import without
from dreamgym_kit.dream.answer_schema import AnswerSchema, schema_for
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.fallback import FallbackChain
from dreamgym_kit.dream.llm_calibration import ReasonedSupport
from dreamgym_kit.dream.llm_experience import Allows, ReasonedExperience
from dreamgym_kit.dream.state_tracker import StateTracker
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, ExperienceModel, HybridQuery, Situation, TransitionStore
from dreamgym_kit.replay.retrieval import question_text
from dreamgym_kit.rollout.budgets import BudgetedEndpoint, RunBudget
from dreamgym_kit.routing.router import Mode
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Call, Split, Transition

if TYPE_CHECKING:
    from dreamgym_kit.adapters.models.vllm.watching import ServerWatch

_EXAMPLES = 6
_FAILURES = 3
_MORE = 4  # times as many are looked for where some must not be shown
_FORM_ROWS = 500  # newest recordings that a tool's form is read from


@asynccontextmanager
async def asked_endpoint(
    settings: Settings, budget: RunBudget, *, dreams: bool, check: bool = True, role: str = ""
) -> AsyncIterator[ChatEndpoint | None]:
    """The endpoint of the settings for the block; None while recording, and where none is named.

    `check`: ask it once, to be sure that it answers. `role`: as for `open_experience`.

    Raises:
        UserError: it is named wrongly, or gives no answer; nothing was run.
    """
    endpoint = open_experience(settings, role=role) if dreams else None
    try:
        if endpoint is None:
            yield None
        else:
            budgeted = BudgetedEndpoint(endpoint, budget)
            if check:
                from dreamgym_kit.adapters.models.endpoint import check_endpoint

                await check_endpoint(budgeted)
            yield budgeted
    finally:
        if endpoint is not None:
            endpoint.close()


def servers_watched(
    settings: Settings, mode: Mode, *, chat: ChatEndpoint | None, policy: bool
) -> "AbstractAsyncContextManager[ServerWatch | None]":
    """`watched`, of the servers that are vLLM's and that a run asks; None where it asks none.

    Args:
        settings: name them.
        mode: of the run; only a dream asks a learned experience model.
        chat: the dream's own model, where it has one.
        policy: whether a policy of the settings acts.
    """
    inner = chat.endpoint if isinstance(chat, BudgetedEndpoint) else chat
    learned = mode is Mode.DREAM and learned_directory(settings) is not None
    sections = ["experience"] if learned or getattr(inner, "is_vllm", False) else []
    sections += ["policy"] if policy else []
    if not sections:
        return nullcontext()
    from dreamgym_kit.adapters.models.vllm.watching import watched

    return watched(settings, sections)


def with_model(
    first: ExperienceModel | None,
    chat: ChatEndpoint | None,
    settings: Settings,
    store: TransitionStore | None,
    support: ReasonedSupport | None = None,
    *,
    before: ExperienceModel | None = None,
    allows: Allows | None = None,
    only: Container[str] | None = None,
) -> ExperienceModel | None:
    """`first`, and behind it the model where there is one; `support`: what its confidence is worth.

    `before`: what is asked before the model instead, `first` and more. `only`: ids of the recordings that the
    model may be shown; None: all but the held-out ones. `allows`: which tools the model may answer.
    """
    parts, base = settings.simulate.disable, before or first
    # what was taught without reasons decides without them, and may
    dropped = [
        part for part in parts if part != "reasoning" or settings.experience.no_reasoning_model is None
    ]
    code = without(base, dropped) if base is not None else None
    if chat is None or "reasoning" in parts:
        return code
    following = None
    if isinstance(first, ChainedExperience) and "state" not in parts:
        following = first.following
    model = reasoned_over(
        store, chat, settings, only=only, following=following, support=support, allows=allows
    )
    reasons = without(model, parts)
    return reasons if code is None else FallbackChain(code, reasons)


def reasoned_over(
    store: TransitionStore | None,
    chat: ChatEndpoint,
    settings: Settings,
    *,
    only: Container[str] | None = None,
    following: StateTracker | None = None,
    support: ReasonedSupport | None = None,
    allows: Allows | None = None,
) -> ReasonedExperience:
    """The model's side as settings have it, with examples and forms from recordings.

    `only`: ids of the recordings that may be shown; None: all but the held-out ones.
    """
    recorded = RecordedAnswers(store, only)
    return ReasonedExperience(
        chat,
        retrieve=None if "retrieval" in settings.simulate.disable else recorded.examples,
        schemas=recorded.schema,
        following=following,
        support=support,
        allows=allows,
        threshold=settings.simulate.min_confidence,
        max_tokens=settings.experience.max_output,
        temperature=settings.experience.temperature,
        top_p=settings.experience.top_p,
        seed=settings.simulate.seed,
        far=is_far(store),
    )


class RecordedAnswers:
    """What was recorded of each tool, without the held-out rows; forms are read once a tool.

    Threads may share it: where the store is a server, each call asks in a thread of its own.
    """

    def __init__(self, store: TransitionStore | None, only: Container[str] | None = None) -> None:
        self._store, self._only = store, only
        self._rows: dict[tuple[str, str], list[Transition]] = {}
        self._reading = threading.Lock()  # siblings that begin together read a tool's rows once
        self._schemas: dict[tuple[str, str], AnswerSchema | None] = {}

    def examples(self, call: Call, situation: Situation) -> Sequence[Transition]:
        """What is most like the call among its tool's recordings, none of the episode's own.

        The newest failures stand behind: the like of a call that went well shows no form of a failure.
        """
        like = self._like(call, situation)
        failed = [
            row
            for row in reversed(self._recorded(situation.tenant, call.tool))
            if row.answer.error is not None and row.episode != situation.episode
        ]
        ids = {row.id for row in like}
        return [*like, *[row for row in failed if row.id not in ids][:_FAILURES]]

    def schema(self, call: Call, situation: Situation) -> AnswerSchema | None:
        """The form of a tool's answers: declared, or as recorded."""
        key = (situation.tenant, call.tool)
        if key not in self._schemas:
            answers = [row.answer for row in self._recorded(*key)[-_FORM_ROWS:]]
            self._schemas[key] = schema_for(situation.tool, answers)
        return self._schemas[key]

    def _like(self, call: Call, situation: Situation) -> list[Transition]:
        if self._store is None:
            return []
        query = HybridQuery(
            question_text(call, situation.task),
            tool=call.tool,
            tenant=situation.tenant,
            k=_EXAMPLES if self._only is None else _MORE * _EXAMPLES,
            not_episode=situation.episode,
        )
        with egress.exempt():  # the buffer is the kit's own file, its embedder a host of the settings
            rows = [hit.transition for hit in self._store.search(query)]
        return [row for row in rows if self._may_be_shown(row) and row.answer.update is None][:_EXAMPLES]

    def _recorded(self, tenant: str, tool: str) -> list[Transition]:
        key = (tenant, tool)
        with self._reading:
            if key not in self._rows:
                with egress.exempt():
                    rows = self._store.scan(tenant=tenant, tool=tool) if self._store is not None else ()
                    self._rows[key] = [row for row in rows if self._may_be_shown(row)]
            return self._rows[key]

    def _may_be_shown(self, row: Transition) -> bool:
        return row.split is Split.TRAIN and (self._only is None or row.id in self._only)
