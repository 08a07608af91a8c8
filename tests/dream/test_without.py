"""A dream without one of its parts: what that would have said is an abstention, nothing else changes."""

import asyncio
from dataclasses import replace

import pytest

from dreamgym_kit.dream.chain import without
from dreamgym_kit.interfaces import Situation, ToolSpec
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, Transition, history_digest

CALL = Call("get_order", {"order_id": "o1"})
WRITE = Transition(
    Call("cancel_order", {"order_id": "o1"}), Answer("done"), Effect.WRITE, "e", 1, Environment()
)
NOW = Situation(
    environment=Environment(),
    task="t",
    episode="e",
    history=(WRITE,),
    after=history_digest([WRITE.call.key]),
    tool=ToolSpec("get_order", Effect.READ),
    seen=2,
)


class ModelDouble:
    """Answers by a provenance, and keeps where it was asked."""

    waits = False

    def __init__(self, provenance: Source) -> None:
        self.said, self.heard = Answer("paid", source=provenance, confidence=0.9), None

    async def answer(self, call: Call, situation: Situation) -> Answer:
        self.heard = situation
        return self.said


@pytest.mark.parametrize(
    ("part", "gone"),
    [
        ("state", {Source.DERIVED, Source.ANALOGOUS}),
        ("retrieval", {Source.ANALOGOUS}),
        ("reasoning", {Source.MODEL}),
        ("history", set()),
    ],
)
def test_a_part_that_is_left_out_says_nothing(part: str, gone: set[Source]) -> None:
    told = (Source.RECORDED, Source.DERIVED, Source.ANALOGOUS, Source.MODEL)
    silent = set()
    for provenance in told:
        answer = asyncio.run(without(ModelDouble(provenance), [part]).answer(CALL, NOW))
        assert answer.unanswered or answer.content == "paid"
        if answer.unanswered:
            assert answer.why.endswith(f"(simulate.disable: {part})")
            silent.add(provenance)
    assert silent == gone


def test_without_history_nothing_of_the_episode_is_known() -> None:
    model = ModelDouble(Source.RECORDED)
    asyncio.run(without(model, ["history"]).answer(CALL, NOW))
    assert model.heard == replace(NOW, history=(), after=history_digest([]), seen=0)
    assert without(model, []) is model
