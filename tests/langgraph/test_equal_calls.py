"""Equal calls of one model turn follow each other in a dream; different ones do not see each other."""

import asyncio
from typing import Any

import dreamgym_kit
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Answer, Call, Source, Task

AGENT = """
    TURNS = [[("get_order", {"order_id": one}) for one in ("o1", "o2", "o1", "o1")], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=TURNS), [get_order])
"""


class CountingDouble:
    """Answers how many calls it was shown before this one; the first call of an order takes long."""

    waits = True

    async def answer(self, call: Call, situation: Situation) -> Answer:
        if not situation.history:
            await asyncio.sleep(0.05)  # sleeps: the others would overtake it
        return Answer(str(len(situation.history)), source=Source.DERIVED)


def test_a_call_sees_what_equal_calls_before_it_in_its_turn_were_answered(project: Any) -> None:
    task = Task("twins", {"messages": [{"role": "user", "content": "look"}]}, expect={"calls": ["get_order"]})
    result = dreamgym_kit.simulate(project.write(AGENT), [task], experience=CountingDouble())
    (episode,) = RunDirectory.open(result.directory).episodes()
    said = [(step.call.args["order_id"], step.answer.content) for step in episode.transitions]
    assert said == [("o1", "0"), ("o2", "0"), ("o1", "1"), ("o1", "2")]
