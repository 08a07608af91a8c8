"""Asks the dream's model recorded calls that it has not seen, to learn what its confidence is worth.

Held out are the episodes of the held-out split; where there are none, every fourth recorded world. Rules,
examples and forms come from the other recordings only, histories are the recorded ones, and only calls are
asked that code alone could not answer: those are what the model will be asked in the run.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.llm_calibration import ReasonedTrial
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.state.models import ToolModels
from dreamgym_kit.dream.state.observed import observation
from dreamgym_kit.dream.state.values import copy_json, field_path, spell, walk
from dreamgym_kit.interfaces import Account, Situation
from dreamgym_kit.types import Answer, Source, Split, ToolSpec, Transition

_MIN_WORLDS = 4
_HELD_OUT = 4  # one world of so many

Reasoner = Callable[[Sequence[Transition], ChainedExperience], ReasonedExperience]
"""Makes the model's side over the recordings that it may see."""


def held_out(rows: Iterable[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Real recordings as (seen, held out); nothing is held out of fewer than four worlds."""
    real = [row for row in rows if row.answer.source is Source.REAL and not row.effect.runs_in_dream]
    kept = [row for row in real if row.split is Split.TRAIN]
    apart = [row for row in real if row.split is Split.HELD_OUT]
    if apart:
        return kept, apart
    environments = sorted({(row.environment.name, row.environment.variant) for row in kept})
    if len(environments) < _MIN_WORLDS:
        return kept, []
    chosen = set(environments[::_HELD_OUT])
    inside = [row for row in kept if (row.environment.name, row.environment.variant) in chosen]
    return [row for row in kept if (row.environment.name, row.environment.variant) not in chosen], inside


async def audit_reasoned(
    rows: Iterable[Transition],
    reasoner: Reasoner,
    specs: Mapping[str, ToolSpec],
    *,
    most: int,
    threshold: float,
    seed: int = 0,
    account: Account | None = None,
    at_once: int = 8,
) -> list[ReasonedTrial]:
    """Ask at most `most` held-out calls; what the model could not decide is no trial.

    Args:
        rows: one tenant's recordings.
        reasoner: makes the model's side.
        specs: the tools; recorded calls of others are left out.
        most: calls asked.
        threshold: support from which code answers without the model.
        seed: draws which calls are asked.
        account: is charged.
        at_once: questions at the same time.
    """
    seen, apart = held_out(rows)
    if not apart or most < 1:
        return []
    repeated = RecordedExperience(
        lambda environment, tenant: [
            row for row in seen if row.environment == environment and row.tenant == tenant
        ]
    )

    def of_tenant(tenant: str) -> list[Transition]:
        return [row for row in seen if row.tenant == tenant]

    chain = ChainedExperience(repeated, of_tenant, threshold=threshold)
    model = reasoner(seen, chain)
    left = [
        (row, situation)
        for row, situation in situations_of(apart, specs, account)
        if (await chain.answer(row.call, situation)).unanswered
    ]
    fresh = chain.following.knowledge(left[0][0].tenant).models if left else ToolModels()
    gate = asyncio.Semaphore(at_once)

    async def tried(row: Transition, situation: Situation) -> ReasonedTrial | None:
        async with gate:
            decided = await model.decide(row.call, situation)
        if decided is None or decided.answer.unanswered:
            return None
        exact = as_seen(decided.answer, row.call.tool, fresh) == as_seen(row.answer, row.call.tool, fresh)
        return ReasonedTrial(decided.form, decided.confidence, exact)

    found = await asyncio.gather(*(tried(*call) for call in drawn_calls(left, most, seed)))
    return [trial for trial in found if trial is not None]


def situations_of(
    rows: Sequence[Transition], specs: Mapping[str, ToolSpec], account: Account | None
) -> Iterable[tuple[Transition, Situation]]:
    """Where each recorded call stood; its history is the recorded one, whatever a dream would have said."""
    episodes: dict[tuple[str, str, str], list[Transition]] = defaultdict(list)
    for row in rows:
        episodes[row.tenant, str(row.environment), row.episode].append(row)
    for key in sorted(episodes):
        steps = sorted(episodes[key], key=lambda row: row.step)
        for place, row in enumerate(steps):
            if row.call.tool in specs:
                yield (
                    row,
                    Situation(
                        environment=row.environment,
                        task=row.task,
                        episode=f"held out {row.episode}",
                        history=tuple(steps[:place]),
                        after=row.after,
                        tool=specs[row.call.tool],
                        tenant=row.tenant,
                        account=account,
                    ),
                )


def drawn_calls(
    left: list[tuple[Transition, Situation]], most: int, seed: int
) -> list[tuple[Transition, Situation]]:
    """As many calls of each tool as can be, drawn by the seed."""
    drawn = random.Random(seed)  # noqa: S311  the same run asks the same calls
    by_tool: dict[str, list[tuple[Transition, Situation]]] = defaultdict(list)
    for one in left:
        by_tool[one[0].call.tool].append(one)
    for ones in by_tool.values():
        drawn.shuffle(ones)
    found: list[tuple[Transition, Situation]] = []
    while len(found) < most and any(by_tool.values()):
        for tool in sorted(by_tool):
            if by_tool[tool] and len(found) < most:
                found.append(by_tool[tool].pop())
    return found


def as_seen(answer: Answer, tool: str, models: ToolModels) -> str:
    """What the agent sees, with a sign in place of ids that the tool makes up."""
    seen = copy_json(observation(answer))
    made_up = models.fresh.get(tool, {})
    for path, _ in list(walk(seen)):
        if path and field_path(path) in made_up:
            here = seen
            for part in path[:-1]:
                here = here[part]
            here[path[-1]] = "made up"
    return spell(seen)
