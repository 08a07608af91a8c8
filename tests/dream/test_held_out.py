"""Held-out calls: never mined or composed from, and what a model's confidence is worth on them."""

import asyncio
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.chat import ChatReply, ChatRequest
from dreamgym_kit.dream.calibration import CEILING, ReasonedSupport, ReasonedTrial, learn_support
from dreamgym_kit.dream.chain import ChainedExperience
from dreamgym_kit.dream.held_out import audit_reasoned, held_out
from dreamgym_kit.dream.llm_experience import ReasonedExperience
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


SPEC = ToolSpec("get_fact", Effect.READ)
confidences = st.floats(0, 1)
trials = st.lists(st.builds(ReasonedTrial, st.sampled_from(sorted(CEILING)), confidences, st.booleans()))


@given(trials, st.sampled_from(sorted(CEILING)), confidences, confidences)
def test_support_is_a_share_and_rises_with_confidence(
    tried: list, form: str, one: float, other: float
) -> None:
    support = learn_support(tried)
    low, high = (support.support(form, value) for value in sorted((one, other)))
    assert 0 <= low <= high <= 1


def test_what_was_never_tried_is_worth_its_ceiling_at_most() -> None:
    assert ReasonedSupport().support("template", 0.5) == 0.4
    only_whole = learn_support([ReasonedTrial("whole", 0.9, True)] * 50)
    assert only_whole.support("template", 1.0) == 0.8
    assert only_whole.support("whole", 0.9) > 0.9


def test_held_out_calls_order_right_before_wrong_and_say_how_many_are_right() -> None:
    drawn = random.Random(3)

    def some(count: int) -> list[ReasonedTrial]:
        """A model that is too sure: right in 20 to 80 % where it says 50 to 100 %, by form."""
        made = []
        for _ in range(count):
            form, said = drawn.choice(("template", "whole")), drawn.uniform(0.4, 1.0)
            share = (said - 0.3) * (1.1 if form == "template" else 0.6)
            made.append(ReasonedTrial(form, said, drawn.random() < share))
        return made

    support = learn_support(some(600))
    points = [(support.support(one.form, one.confidence), one.exact) for one in some(3000)]
    ordered = sorted(points, reverse=True)
    exact = [sum(right for _, right in part) / len(part) for part in (ordered[:1000], ordered[-1000:])]
    assert exact[0] > exact[1] + 0.25
    error = 0.0
    for number in range(10):
        inside = [one for one in points if number <= one[0] * 10 < number + 1]
        error += abs(sum(value for value, _ in inside) - sum(right for _, right in inside)) / len(points)
    assert error < 0.06


def decided(value: object, confidence: float = 0.95) -> str:
    whole = {"reasoning": "", "outcome": "ok", "like": 1, "answer": None, "error": "", "set": []}
    return json.dumps({**whole, "leaves": [{"path": "value", "value": value}], "confidence": confidence})


class GuessingModelDouble:
    """Says the same value of every fact, very sure of itself."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        return ChatReply(decided("v0"), prompt_tokens=10)


def facts(worlds: int) -> list[Transition]:
    """One fact a world that nothing explains; in one of four it is what the model guesses."""
    return [
        Transition(
            Call("get_fact", {"name": f"n{world}{number}"}),
            Answer({"value": "v0" if number == 0 else f"v{world}{number}", "name": f"n{world}{number}"}),
            Effect.READ,
            f"e{world}",
            number + 1,
            Environment("facts", world),
        )
        for world in range(worlds)
        for number in range(4)
    ]


def audited(model: GuessingModelDouble, rows: list[Transition], most: int) -> list[ReasonedTrial]:
    def reasoner(seen, chain) -> ReasonedExperience:
        assert not {row.environment for row in seen} & {row.environment for row in held_out(rows)[1]}
        return ReasonedExperience(model, retrieve=lambda call, at: seen[:3], programs=chain.programs)

    return asyncio.run(audit_reasoned(rows, reasoner, {"get_fact": SPEC}, most=most, threshold=0.5))


def test_a_model_that_is_too_sure_is_found_out_and_not_believed() -> None:
    model = GuessingModelDouble()
    tried = audited(model, facts(24), most=20)
    assert (len(tried), sum(one.exact for one in tried)) == (20, pytest.approx(5, abs=4))
    dream = ReasonedExperience(
        model, retrieve=lambda call, at: facts(1), support=learn_support(tried), threshold=0.5
    )
    situation = Situation(Environment("facts", 99), "t", "t.1", [], "", SPEC)
    answer = asyncio.run(dream.answer(Call("get_fact", {"name": "new"}), situation))
    assert answer.unanswered
    assert answer.why.startswith("the model: confidence 0.")
    trusting = ReasonedExperience(model, retrieve=lambda call, at: facts(1), threshold=0.5)
    assert not asyncio.run(trusting.answer(Call("get_fact", {"name": "new"}), situation)).unanswered


def test_few_worlds_hold_nothing_out_and_ask_nothing() -> None:
    model = GuessingModelDouble()
    assert audited(model, facts(3), most=20) == []
    assert model.requests == []


def test_the_held_out_split_is_what_is_held_out_where_there_is_one() -> None:
    rows = facts(5)
    apart = Transition(
        rows[0].call, rows[0].answer, Effect.READ, "h", 1, Environment("facts", 77), split=Split.HELD_OUT
    )
    assert held_out([*rows, apart]) == (rows, [apart])


def test_the_same_seed_asks_the_same_calls() -> None:
    one, other = GuessingModelDouble(), GuessingModelDouble()
    audited(one, facts(24), most=6)
    audited(other, facts(24), most=6)
    asked = [{_asked(request) for request in model.requests} for model in (one, other)]
    assert asked[0] == asked[1]
    assert len(asked[0]) == 6


def _asked(request: ChatRequest) -> str:
    return request.messages[1].content.rpartition(" call\n")[2].partition("\n")[0]
