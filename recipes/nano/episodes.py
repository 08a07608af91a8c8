"""Recordings to learn from: the scripted colleagues at work on train worlds, for real.

Decides who works what. Seniors are right; juniors have habits that skip checks; slips are moments of
inattention. What a model learns from all of them is neither good nor bad, and that is wanted: the right
way is in it, and training in the dream has something to find.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dreamgym_kit.jsonread import read_json
from dreamgym_kit.recipes.desk.cases import TRAIN_SEEDS, make_case
from dreamgym_kit.recipes.desk.checkers import differences, goal
from dreamgym_kit.recipes.desk.database import scratch_desk
from dreamgym_kit.recipes.desk.policy import Habits, Reply, Turn, next_turn
from dreamgym_kit.recipes.nano.direct import DirectTools, Told


@dataclass(frozen=True, slots=True)
class Mix:
    """Whose work is recorded, as shares; the rest are slips."""

    senior: float = 0.35
    junior: float = 0.50
    bold: float = 0.35  # of juniors and slips: those who refund again after a time-out without looking


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of the agent with calls, and what it was told."""

    turn: Turn
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Worked:
    """One episode from the request to the last word."""

    seed: int
    family: str
    request: str
    habits: Habits
    exchanges: tuple[Exchange, ...]
    last_word: str
    solved: bool


def record(count: int, *, seed: int = 0, mix: Mix | None = None) -> Iterator[Worked]:
    """Record `count` episodes on train worlds; the same seed gives the same episodes, always.

    The worlds are drawn without repetition while there are enough of them, families in equal shares.
    """
    chance = random.Random(f"record {seed}")  # noqa: S311  reproducible, not secret
    worlds = chance.sample(TRAIN_SEEDS, count)
    for world in worlds:
        yield work(world, draw_habits(mix or Mix(), chance, world))


def draw_habits(mix: Mix, chance: random.Random, world: int) -> Habits:
    """Who works this one."""
    drawn, bold = chance.random(), chance.random() < mix.bold
    if drawn < mix.senior:
        return Habits("senior", seed=str(world))
    kind = "junior" if drawn < mix.senior + mix.junior else "slip"
    return Habits(kind, looks_first=not bold, seed=str(world))


def work(seed: int, habits: Habits) -> Worked:
    """Let somebody with these habits work the request of a seed on its own desk."""
    case = make_case(seed)
    exchanges: list[Exchange] = []
    with scratch_desk(case.rows) as desk:
        tools = DirectTools(desk)
        while True:
            turn = next_turn(case.text, [_replies(exchange.told) for exchange in exchanges], habits)
            if isinstance(turn, str):
                break
            tools.begin_turn()
            told = tuple(tools.call(use.tool, dict(use.args)) for use in turn.uses)
            exchanges.append(Exchange(turn, told))
        solved = not differences(goal(seed, case.text), desk.books(), case.customer_id)
    return Worked(seed, case.family, case.text, habits, tuple(exchanges), turn, solved)


def _replies(told: Sequence[Told]) -> list[Reply]:
    return [Reply(error=each.text) if each.failed else Reply(read_json(each.text)) for each in told]
