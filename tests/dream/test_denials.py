"""A read may fail about a thing that is there; recordings tell such failures from denials."""

import asyncio
import json

import pytest

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.state_tracker import StateTracker
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, ToolSpec, Transition

TRACK = ToolSpec("track_parcel", Effect.READ)


def rows(seed: int, *, deleted: bool = False) -> list[Transition]:
    """An order is read, perhaps its customer deleted, and its parcel looked for."""
    order, world = f"o{seed}", Environment("shop", seed)
    told = Answer({"order_id": order, "status": "open"})
    steps = [("get_order", {"order_id": order}, told, Effect.READ)]
    if deleted:
        steps.append(("delete_customer", {"customer_id": "c"}, Answer("done"), Effect.WRITE))
    failure = Answer(error=f"no parcel was sent for {order} yet", error_type="KeyError")
    steps.append(("track_parcel", {"order_id": order}, failure, Effect.READ))
    return [
        Transition(Call(tool, args), answer, effect, f"e{seed}", place, world)
        for place, (tool, args, answer, effect) in enumerate(steps, 1)
    ]


class SayingDouble:
    def __init__(self, error: str) -> None:
        self.error, self.asked = error, 0

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        said = {"reasoning": "r", "outcome": "error", "like": None, "leaves": [], "answer": None}
        return ChatReply(json.dumps({**said, "error": self.error, "set": [], "confidence": 1.0}))


def answered(recorded: list[Transition], error: str) -> tuple[Answer, int]:
    """What a dream of another world makes of a model's failure, after the order was read there."""
    following, chat = StateTracker(lambda tenant: recorded, calibrated=False), SayingDouble(error)
    before = tuple(rows(99)[:1])
    situation = Situation(Environment("shop", 99), "t", "e", before, "", TRACK)
    model = ReasonedExperience(chat, following=following)
    return asyncio.run(model.answer(Call("track_parcel", {"order_id": "o99"}), situation)), chat.asked


def test_a_failure_that_was_recorded_of_things_that_are_there_stands() -> None:
    answer, asked = answered([*rows(1), *rows(2)], "no parcel was sent for o99 yet")
    assert (answer.error, asked) == ("no parcel was sent for o99 yet", 1)


@pytest.mark.parametrize(
    "recorded",
    [[], rows(1), [*rows(1, deleted=True), *rows(2, deleted=True)]],
    ids=["nothing", "one world", "after a write"],
)
def test_what_was_told_of_is_not_denied_on_less(recorded: list[Transition]) -> None:
    answer, asked = answered(recorded, "no parcel was sent for o99 yet")
    assert (answer.unanswered, asked) == (True, 2)


def test_another_failure_of_the_same_read_is_a_denial() -> None:
    answer, _ = answered([*rows(1), *rows(2)], "there is no order o99")
    assert answer.unanswered
