"""What the agent is measured on is never mined, never composed from and never calibrated on."""

import asyncio
from dataclasses import replace

import pytest

from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.dream.recorded_episodes import recordings
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, Split, ToolSpec, Transition, history_digest


def lamp(world: int, split: Split) -> list[Transition]:
    """A lamp is looked at, switched on and looked at again; its room is told by no other world."""
    room, place = f"room {world}", Environment("house", world)
    rows = [
        ("look", {"lamp": "l1"}, {"lamp": "l1", "on": False, "room": room}, Effect.READ),
        ("switch_on", {"lamp": "l1"}, {"lamp": "l1", "done": True}, Effect.WRITE),
        ("look", {"lamp": "l1"}, {"lamp": "l1", "on": True, "room": room}, Effect.READ),
        ("look", {"lamp": "l9"}, {"error": "no lamp l9"}, Effect.READ),
    ]
    return [
        Transition(Call(tool, args), Answer(said), effect, f"e{world}", step, place, split=split)
        for step, (tool, args, said, effect) in enumerate(rows, 1)
    ]


TRAIN = [row for world in range(8) for row in lamp(world, Split.TRAIN)]
HELD_OUT = [row for world in range(100, 120) for row in lamp(world, Split.HELD_OUT)]


def test_held_out_rows_change_nothing_that_is_learned() -> None:
    assert recordings([*HELD_OUT, *TRAIN, *HELD_OUT]) == recordings(TRAIN)
    assert recordings(HELD_OUT) == []


@pytest.mark.parametrize(("split", "knows"), [(Split.TRAIN, True), (Split.HELD_OUT, False)])
def test_the_chain_composes_nothing_from_held_out_rows(split: Split, *, knows: bool) -> None:
    """The same row as training data would tell the room."""
    rows = [*TRAIN, *(replace(row, split=split) for row in lamp(100, split)[:1])]
    chain = ChainedExperience(
        RecordedExperience(lambda _world, _tenant: []), lambda _tenant: rows, threshold=0.2
    )
    look = ToolSpec("look", Effect.READ)
    situation = Situation(
        Environment("house", 100), "t", "now", history=(), after=history_digest([]), tool=look
    )
    assert chain.programs.curve("default") == ()
    answer = asyncio.run(chain.answer(Call("look", {"lamp": "l1"}), situation))
    assert ("room 100" in str(answer.content)) is knows
    assert answer.unanswered is not knows
