"""Held-out calls put to recordings, to rules, to the model and to all of them together."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from dreamgym_kit.adapters.distilling.material import Material, steps_of
from dreamgym_kit.adapters.langgraph.run.llm_experience import reasoned_over
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.llm_audit import as_seen
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.observed import failed, observation
from dreamgym_kit.dream.state.stated import stated_models
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.rollout.budgets import RunAccount
from dreamgym_kit.training.distil.gate import HeldOutCall
from dreamgym_kit.training.distil.lessons import situation_of
from dreamgym_kit.types import Answer, Environment, Transition

_AT_ONCE = 8  # questions
Put = tuple[Transition, Situation]


async def held_out_calls(
    material: Material,
    chat: ChatEndpoint | None,
    *,
    without: frozenset[str] = frozenset(),
    most: int = 0,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> list[HeldOutCall]:
    """Ask held-out calls; nothing of their groups is known to any way of answering.

    Of `material`, the taught side answers and the measured side is asked. `chat`: the model; None: only code.
    `without`: trajectories that the model was taught: it is not measured with them, whatever side they are on
    now. `most`: calls, as many of each tool as can be, drawn by the seed; 0: all.
    """
    seen = steps_of(material.sides.taught)

    def of_world(environment: Environment, tenant: str) -> list[Transition]:
        return [row for row in seen if row.environment == environment and row.tenant == tenant]

    def of_tenant(tenant: str) -> list[Transition]:
        return [row for row in seen if row.tenant == tenant]

    settings = material.settings
    repeated = RecordedExperience(of_world)
    chain = ChainedExperience(
        repeated, of_tenant, threshold=settings.simulate.min_confidence, stated=stated_models(settings)
    )
    model = None
    if chat is not None:
        shown = frozenset(row.id for row in seen)
        model = reasoned_over(material.store, chat, settings, only=shown, following=chain.following)
    put = _drawn(_situations(material, without), most, seed)
    gate, done = asyncio.Semaphore(_AT_ONCE), 0

    async def ask(row: Transition, situation: Situation) -> HeldOutCall:
        nonlocal done
        async with gate:
            call = await _measured(row, situation, repeated, chain, model)
        done += 1
        tell(done, len(put))
        return call

    return list(await asyncio.gather(*(ask(*entry) for entry in put)))


async def _measured(
    row: Transition,
    situation: Situation,
    repeated: RecordedExperience,
    chain: ChainedExperience,
    model: ReasonedExperience | None,
) -> HeldOutCall:
    models = chain.following.knowledge(row.tenant).models
    wanted = as_seen(row.answer, row.call.tool, models)

    def exact(answer: Answer) -> bool | None:
        return None if answer.unanswered else as_seen(answer, row.call.tool, models) == wanted

    call = HeldOutCall(
        tool=row.call.tool,
        failed=failed(observation(row.answer)),
        recorded=exact(await repeated.answer(row.call, situation)),
        composed=exact(await chain.answer(row.call, situation)),
    )
    if model is None:
        return call
    account = RunAccount()
    decided = await model.decide(row.call, replace(situation, account=account))
    spend = account.spend
    if decided is None:
        return call
    return replace(
        call,
        model=exact(decided.answer),
        model_failed=not decided.answer.unanswered and failed(observation(decided.answer)),
        form=decided.form,
        confidence=decided.confidence,
        prompt_tokens=spend.prompt_tokens,
        completion_tokens=spend.completion_tokens,
    )


def _situations(material: Material, without: frozenset[str]) -> list[Put]:
    tools = material.begun.tools
    return [
        (row, situation_of(row, trajectory.steps[:place], tools[row.call.tool]))
        for trajectory in material.sides.measured
        if trajectory.key not in without
        for place, row in enumerate(trajectory.steps)
        if row.call.tool in tools
    ]


def _drawn(every: Sequence[Put], most: int, seed: int) -> list[Put]:
    """As many calls of each tool as can be, drawn by the seed; in the order recorded."""
    if not most or len(every) <= most:
        return list(every)
    drawn = random.Random(seed)  # noqa: S311  the same evaluation asks the same calls
    by_tool: dict[str, list[int]] = defaultdict(list)
    for place, (row, _) in enumerate(every):
        by_tool[row.call.tool].append(place)
    for places in by_tool.values():
        drawn.shuffle(places)
    chosen: list[int] = []
    while len(chosen) < most and any(by_tool.values()):
        for tool in sorted(by_tool):
            if by_tool[tool] and len(chosen) < most:
                chosen.append(by_tool[tool].pop())
    return [every[place] for place in sorted(chosen)]
