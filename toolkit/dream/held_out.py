"""Recorded calls that a dream has not seen, put to it: how often it says what the real tool said.

What is held out, `held_out` and `held_out_episodes` say. Histories are the recorded ones, whatever a dream
would have said; equal is what the agent sees, up to ids that a tool makes up. To learn what a model's
confidence is worth, only calls are asked that code alone could not answer: those are what a run will ask.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dreamgym_kit.dream.calibration import ReasonedTrial
from dreamgym_kit.dream.chain import ChainedExperience, chain_over
from dreamgym_kit.dream.json_values import Path, copy_json, spell
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.observed import observation, opened
from dreamgym_kit.dream.programs.model import Model, made_up_places
from dreamgym_kit.interfaces import Account, ExperienceModel, Situation
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Answer, Source, Split, ToolSpec, Transition

_MIN_WORLDS = 4
_HELD_OUT = 4  # one world, or one episode, of so many

Reasoner = Callable[[Sequence[Transition], ChainedExperience], ReasonedExperience]
"""Makes the model's side over the recordings that it may see."""
Finish = Callable[[ChainedExperience, Sequence[Transition]], ExperienceModel]
"""Makes the whole dream of the chain over the recordings that it may see."""
_SIGN = "made up"
RecordedCall = tuple[Transition, Situation]
"""A recorded call, and where it stood."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a dream said of recorded calls."""

    calls: int
    answered: int
    exact: int


def held_out(rows: Iterable[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Real recordings as (seen, held out): the held-out split, else every fourth of at least four worlds."""
    real = _real(rows)
    apart = [row for row in real if row.split is Split.HELD_OUT]
    seen = [row for row in real if row.split is Split.TRAIN]
    environments = sorted({(row.environment.name, row.environment.variant) for row in seen})
    if apart or len(environments) < _MIN_WORLDS:
        return seen, apart
    chosen = set(environments[::_HELD_OUT])
    return _parted(seen, lambda row: (row.environment.name, row.environment.variant) in chosen)


def held_out_episodes(rows: Iterable[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Real recordings as (seen, held out): every fourth episode of each world, crawls never."""
    real = _real(rows)
    environments: dict[str, set[str]] = defaultdict(set)
    for row in real:
        if row.effect.changes_environment:
            environments[str(row.environment)].add(row.episode)
    chosen = {episode for episodes in environments.values() for episode in sorted(episodes)[::_HELD_OUT]}
    return _parted(real, lambda row: row.episode in chosen)


async def fidelity(
    rows: Iterable[Transition],
    finish: Finish,
    specs: Mapping[str, ToolSpec],
    *,
    threshold: float,
    most: int = 400,
) -> Fidelity:
    """Put at most `most` held-out calls to a dream of the others, as many of each tool as can be."""
    seen, apart = held_out_episodes(rows)
    chain = chain_over(seen, threshold=threshold, specs=specs)
    dream = finish(chain, seen)
    calls, answered, exact = drawn_calls(_situations(apart, specs), most, seed=0), 0, 0
    for row, situation in calls:
        answer = await dream.answer(row.call, situation)
        answered += not answer.unanswered
        exact += is_exactly(answer, row, chain.programs.programs(row.tenant).model)
    return Fidelity(len(calls), answered, exact)


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
    chain = chain_over(seen, threshold=threshold, specs=specs)
    model = reasoner(seen, chain)
    left = [
        (row, situation)
        for row, situation in _situations(apart, specs, account)
        if (await chain.answer(row.call, situation)).unanswered
    ]
    gate = asyncio.Semaphore(at_once)

    async def tried(row: Transition, situation: Situation) -> ReasonedTrial | None:
        async with gate:
            decided = await model.decide(row.call, situation)
        if decided is None or decided.answer.unanswered:
            return None
        exact = is_exactly(decided.answer, row, chain.programs.programs(row.tenant).model)
        return ReasonedTrial(decided.form, decided.confidence, exact)

    trials = await asyncio.gather(*(tried(*call) for call in drawn_calls(left, most, seed)))
    return [trial for trial in trials if trial is not None]


def situation_of(
    row: Transition, before: Sequence[Transition], spec: ToolSpec, account: Account | None = None
) -> Situation:
    """Where a recorded call stood, after these calls of its episode."""
    return Situation(
        environment=row.environment,
        task=row.task,
        episode=row.episode,
        history=tuple(before),
        after=row.after,
        tool=spec,
        tenant=row.tenant,
        account=account,
    )


def drawn_calls(calls: Sequence[RecordedCall], most: int, seed: int) -> list[RecordedCall]:
    """As many calls of each tool as can be, drawn by the seed; in their order."""
    drawn = random.Random(seed)  # noqa: S311  the same seed asks the same calls
    by_tool: dict[str, list[int]] = defaultdict(list)
    for place, (row, _) in enumerate(calls):
        by_tool[row.call.tool].append(place)
    for places in by_tool.values():
        drawn.shuffle(places)
    turns = [
        (turn, tool, place) for tool, places in by_tool.items() for turn, place in enumerate(places[::-1])
    ]
    return [calls[place] for place in sorted(place for _, _, place in sorted(turns)[:most])]


def is_exactly(answer: Answer, row: Transition, model: Model) -> bool:
    """Whether an answer is the recorded one, as the agent sees both."""
    tool = row.call.tool
    return not answer.unanswered and as_seen(answer, tool, model) == as_seen(row.answer, tool, model)


def as_seen(answer: Answer, tool: str, model: Model | None) -> str:
    """What the agent sees, with a sign in place of ids that the tool makes up."""
    seen = observation(answer)
    return spell(without_made_up(seen, tool, model) if model is not None else seen)


def without_made_up(seen: JsonValue, tool: str, model: Model) -> JsonValue:
    """An observation with a sign in place of what the tool makes up."""
    places = made_up_places(model.tools.get(tool))
    if not places:
        return seen
    inside, wrap = opened(copy_json(seen))
    for place in places:
        inside = _with_sign(inside, place)
    return wrap(inside)


def _with_sign(value: JsonValue, place: Path) -> JsonValue:
    if not place:
        return _SIGN
    if isinstance(value, dict) and place[0] in value:
        value[str(place[0])] = _with_sign(value[str(place[0])], place[1:])
    elif isinstance(value, list) and isinstance(place[0], int) and place[0] < len(value):
        value[place[0]] = _with_sign(value[place[0]], place[1:])
    return value


def _real(rows: Iterable[Transition]) -> list[Transition]:
    return [row for row in rows if row.answer.source is Source.REAL and not row.effect.runs_in_dream]


def _parted(
    rows: list[Transition], apart: Callable[[Transition], bool]
) -> tuple[list[Transition], list[Transition]]:
    return [row for row in rows if not apart(row)], [row for row in rows if apart(row)]


def _situations(
    rows: Iterable[Transition], specs: Mapping[str, ToolSpec], account: Account | None = None
) -> list[RecordedCall]:
    """The calls of known tools, episode by episode."""
    episodes: dict[tuple[str, str, str], list[Transition]] = defaultdict(list)
    for row in rows:
        episodes[row.tenant, str(row.environment), row.episode].append(row)
    return [
        (row, situation_of(row, steps[:place], specs[row.call.tool], account))
        for _, entries in sorted(episodes.items(), key=lambda episode: episode[0])
        for steps in [sorted(entries, key=lambda row: row.step)]
        for place, row in enumerate(steps)
        if row.call.tool in specs
    ]
