"""Held-out calls put to recordings, to rules, to the model and to all of them together."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from dreamgym_kit.adapters.distilling.material import Material, steps_of
from dreamgym_kit.adapters.langgraph.run.experiences import reasoned_over
from dreamgym_kit.dream.chain import ChainedExperience, chain_over
from dreamgym_kit.dream.held_out import RecordedCall, as_seen, drawn_calls, situation_of
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.state.observed import failed, observation
from dreamgym_kit.dream.state.stated import stated_models
from dreamgym_kit.interfaces import ChatEndpoint, Situation
from dreamgym_kit.rollout.budgets import RunAccount
from dreamgym_kit.training.distil.gate import HeldOutCall
from dreamgym_kit.types import Answer, Transition

_AT_ONCE = 8  # questions


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

    settings = material.settings
    chain = chain_over(seen, threshold=settings.simulate.min_confidence, stated=stated_models(settings))
    model = None
    if chat is not None:
        shown = frozenset(row.id for row in seen)
        model = reasoned_over(material.store, chat, settings, only=shown, following=chain.following)
    calls = _situations(material, without)
    put = drawn_calls(calls, most or len(calls), seed)
    gate, done = asyncio.Semaphore(_AT_ONCE), 0

    async def ask(row: Transition, situation: Situation) -> HeldOutCall:
        nonlocal done
        async with gate:
            call = await _measured(row, situation, chain, model)
        done += 1
        tell(done, len(put))
        return call

    return list(await asyncio.gather(*(ask(*entry) for entry in put)))


async def _measured(
    row: Transition,
    situation: Situation,
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
        recorded=exact(await chain.recorded.answer(row.call, situation)),
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


def _situations(material: Material, without: frozenset[str]) -> list[RecordedCall]:
    tools = material.begun.tools
    return [
        (row, situation_of(row, trajectory.steps[:place], tools[row.call.tool]))
        for trajectory in material.sides.measured
        if trajectory.key not in without
        for place, row in enumerate(trajectory.steps)
        if row.call.tool in tools
    ]
