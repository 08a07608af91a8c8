"""Calls of one model turn: what is kept does not depend on their pace; equal ones follow each other."""

import asyncio
from typing import Any

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


KNOWN = ("o1 o3 o4", "o2 o4", "o3", "")


class SlowAnswersDouble:
    """In task KNOWN/LATE it knows the orders KNOWN and keeps LATE's answer back until the others are told."""

    waits = True

    async def answer(self, call: Call, situation: Situation) -> Answer:
        known, _, late = situation.episode.rpartition(".")[0].partition("/")
        if call.args["order_id"] == late:
            for _ in range(50):
                await asyncio.sleep(0.002)  # sleeps: whoever is told first, the same is kept
        if str(call.args["order_id"]) in known:
            return Answer("open", source=Source.DERIVED)
        return Answer(source=Source.UNANSWERED, why=f"no {call.args['order_id']}")


def kept(project: Any, *tasks: Task) -> list[Episode]:
    result = dreamgym_kit.simulate(project.write(AGENT), tasks, experience=SlowAnswersDouble())
    return list(RunDirectory.open(result.directory).episodes())


def test_what_is_kept_does_not_depend_on_which_call_is_faster(project: Any) -> None:
    names = [f"{known}/{late}" for known in KNOWN for late in ("", "o1", "o2", "o3", "o4")]
    episodes = kept(project, *(Task(name, HELLO, expect={"calls": ["get_order"]}) for name in names))
    assert sorted(one.task for one in episodes) == sorted(names)
    for known in KNOWN:
        forms = {
            (one.verdict, one.stop, one.reason, tuple((step.call.args["order_id"], step.answer.source)
             for step in one.transitions), len(one.messages))
            for one in episodes if one.task.startswith(f"{known}/")
        }  # fmt: skip
        assert len(forms) == 1, known
        ((verdict, stop, reason, steps, _),) = forms
        assert (verdict, stop) == (Verdict.INCONCLUSIVE, "abstained"), known
        assert reason.endswith(f": get_order, no {min({'o1', 'o2', 'o3', 'o4'} - set(known.split()))}"), known
        assert [name for name, _ in steps] == ["o1", "o2", "o3", "o4"]  # and none of the turn after


def test_no_user_is_asked_after_a_turn_with_an_unanswered_call(project: Any) -> None:
    (episode,) = kept(project, Task("o1/", HELLO, meta={"user": {"script": ["go on", "go on"]}}))
    assert (episode.stop, episode.user_turns) == ("abstained", ())


TWINS = """
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
    result = dreamgym_kit.simulate(project.write(TWINS), [task], experience=CountingDouble())
    (episode,) = RunDirectory.open(result.directory).episodes()
    said = [(step.call.args["order_id"], step.answer.content) for step in episode.transitions]
    assert said == [("o1", "0"), ("o2", "0"), ("o1", "1"), ("o1", "2")]
