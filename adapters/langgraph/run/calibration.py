"""Before a run: what the dream's model is worth on held-out recordings, asked once and kept with the run."""

from collections.abc import Mapping, Sequence

from dreamgym_kit.adapters.langgraph.run.llm_experience import reasoned_over
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.llm_audit import audit_reasoned
from dreamgym_kit.dream.llm_calibration import ReasonedTrial
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.guard import egress
from dreamgym_kit.interfaces import ChatEndpoint, TransitionStore
from dreamgym_kit.rollout.budgets import RunAccount, RunBudget
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.types import Spend, ToolSpec, Transition


async def held_out_trials(
    directory: RunDirectory,
    store: TransitionStore | None,
    chat: ChatEndpoint | None,
    settings: Settings,
    specs: Mapping[str, ToolSpec],
    budget: RunBudget,
) -> tuple[list[ReasonedTrial], Spend]:
    """The trials of this run and what they cost: kept by an earlier leg, or asked now.

    None without a model or recordings.
    """
    if chat is None or store is None or not settings.experience.calibration_calls:
        return [], Spend()
    earlier = directory.read_trials()
    if earlier is not None:
        budget.count_earlier(calls=0, usd=earlier[1].cost_usd)
        return earlier
    with egress.exempt():  # the buffer is the kit's own file
        rows = list(store.scan(tenant=settings.tenant))

    def reasoner(seen: Sequence[Transition], chain: ChainedExperience) -> ReasonedExperience:
        shown = frozenset(row.id for row in seen)
        return reasoned_over(store, chat, settings, only=shown, following=chain.following)

    account = RunAccount()
    trials = await audit_reasoned(
        rows,
        reasoner,
        specs,
        most=settings.experience.calibration_calls,
        threshold=settings.simulate.min_confidence,
        seed=settings.simulate.seed,
        account=account,
        at_once=settings.simulate.concurrency,
    )
    with egress.exempt():
        directory.write_trials(trials, account.spend)
    return trials, account.spend
