"""What is kept of parallel calls of which some are unanswered: the same, whichever of them is faster."""

from typing import Any

import pytest

import dreamgym_kit
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.types import Answer, Call, Episode, Source, Task, Verdict

HELLO = {"messages": [{"role": "user", "content": "look"}]}

AGENT = """
    TURNS = [[("get_order", {"order_id": one}) for one in ("o1", "o2", "o3", "o4")],
             [("get_order", {"order_id": "o1"})], "Done."]
    graph = create_agent(ScriptedModelDouble(turns=TURNS), [get_order])
"""


class SlowAnswersDouble:
    """Knows the orders in `known`; keeps the answer of order `late` back until all the others are told."""

    waits = True

    def __init__(self, known: str, late: str) -> None:
        self._known, self._late = known, late

    async def answer(self, call: Call, situation: Situation) -> Answer:
        import asyncio

        if call.args["order_id"] == self._late:
            for _ in range(50):
                await asyncio.sleep(0.002)
        if str(call.args["order_id"]) in self._known:
            return Answer("open", source=Source.DERIVED)
        return Answer(source=Source.UNANSWERED, why=f"no {call.args['order_id']}")


def kept(project: Any, known: str, late: str, task: Task) -> Episode:
    result = dreamgym_kit.simulate(
        f"{project.module}:graph", [task], experience=SlowAnswersDouble(known, late)
    )
    (episode,) = RunDirectory.open(result.directory).episodes()
    return episode


@pytest.mark.parametrize("known", ["o1 o3 o4", "o2 o4", "o3", ""])
def test_what_is_kept_does_not_depend_on_which_call_is_faster(project: Any, known: str) -> None:
    project.write(AGENT)
    task = Task("t", HELLO, expect={"calls": ["get_order"]})
    episodes = [kept(project, known, late, task) for late in ("", "o1", "o2", "o3", "o4")]
    forms = {
        (one.verdict, one.stop, one.reason, tuple((step.call.args["order_id"], step.answer.source)
         for step in one.transitions), len(one.messages))
        for one in episodes
    }  # fmt: skip
    assert len(forms) == 1
    ((verdict, stop, reason, steps, _),) = forms
    assert (verdict, stop) == (Verdict.INCONCLUSIVE, "abstained")
    assert reason.endswith(f": get_order, no {min({'o1', 'o2', 'o3', 'o4'} - set(known.split()))}")
    assert [name for name, _ in steps] == ["o1", "o2", "o3", "o4"]  # and none of the turn after


def test_no_user_is_asked_after_a_turn_with_an_unanswered_call(project: Any) -> None:
    project.write(AGENT)
    task = Task("t", HELLO, meta={"user": {"script": ["go on", "go on"]}})
    episode = kept(project, "o1", "", task)
    assert (episode.stop, episode.user_turns) == ("abstained", ())
