"""Who answers in a dream: recordings, rules over state, a model, or nobody; and without one of its parts."""

import asyncio
from dataclasses import replace

import pytest
from each_row import each_row

from dreamgym_kit.dream.chain import ChainedExperience, FallbackChain, without
from dreamgym_kit.dream.faults import Fault, FaultKind, failing, spoiled, took_effect
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition, history_digest

EFFECTS = {"get_card": Effect.READ, "freeze": Effect.WRITE, "open_card": Effect.WRITE}


def episode(name, world, said):
    """Transitions of one episode from (tool, args, content)."""
    rows, writes = [], []
    for number, (tool, args, content) in enumerate(said, start=1):
        call, after = Call(tool, args), history_digest(writes)
        answer = content if isinstance(content, Answer) else Answer(content)
        rows.append(
            Transition(call, answer, EFFECTS[tool], name, number, Environment("bank", world), after=after)
        )
        if EFFECTS[tool].changes_environment:
            writes.append(call.key)
    return rows


def bank():
    rows = []
    for world in range(8):
        card = f"C{world}"
        read = ("get_card", {"card_id": card}, {"card_id": card, "status": "active", "limit": world * 3})
        frozen = ("get_card", {"card_id": card}, {"card_id": card, "status": "frozen", "limit": world * 3})
        freeze = ("freeze", {"card_id": card}, {"card_id": card, "done": True})
        opened = (
            "open_card",
            {"owner": f"o{world}"},
            {"card_id": f"N{world}{world + 2}7", "owner": f"o{world}"},
        )
        rows += episode(f"a{world}", world, [read, freeze, frozen])
        rows += episode(f"b{world}", world, [read, opened, read])
        rows += episode(f"n{world}", world, [("get_card", {"card_id": "X"}, Answer(error="no card X"))])
    return rows


def chain(threshold=0.5, rows=None):
    recorded = bank() if rows is None else rows
    return ChainedExperience(
        RecordedExperience(lambda world, tenant: [row for row in recorded if row.environment == world]),
        lambda tenant: recorded,
        threshold=threshold,
    )


def ask(experience, tool, args, history=(), world=99):
    done = [row for row in history if row.effect.changes_environment and took_effect(row.answer)]
    writes = [row.call.key for row in done]  # as the ledger names a state
    situation = Situation(
        Environment("bank", world), "t", "e", history, history_digest(writes), ToolSpec(tool, EFFECTS[tool])
    )
    return asyncio.run(experience.answer(Call(tool, args), situation))


def test_a_recording_of_this_very_state_comes_first() -> None:
    answer = ask(chain(), "get_card", {"card_id": "C3"}, world=3)
    assert (answer.source, answer.confidence) == (Source.RECORDED, 1.0)


def test_a_read_after_a_write_of_another_order_is_composed() -> None:
    said = [
        ("open_card", {"owner": "new"}, {"card_id": "N999", "owner": "new"}),
        ("freeze", {"card_id": "C3"}, {"card_id": "C3", "done": True}),
    ]
    answer = ask(chain(), "get_card", {"card_id": "C3"}, episode("e", 3, said), world=3)
    assert answer.content == {"card_id": "C3", "status": "frozen", "limit": 9}
    assert answer.source is Source.DERIVED
    assert 0.5 <= answer.confidence < 1


def test_a_card_that_nobody_has_seen_is_neither_made_up_nor_called_absent() -> None:
    answer = ask(chain(), "get_card", {"card_id": "C77"})
    assert answer.unanswered
    assert answer.why.startswith("get_card was never recorded in environment bank:99")


def test_a_threshold_above_one_leaves_recordings_only() -> None:
    said = [("freeze", {"card_id": "C3"}, {"card_id": "C3", "done": True})]
    strict = chain(threshold=1.1)
    assert ask(strict, "freeze", {"card_id": "C9"}).unanswered
    assert (
        ask(strict, "get_card", {"card_id": "C3"}, episode("e", 3, said), world=3).content["status"]
        == "frozen"
    )


def test_equal_histories_get_equal_answers_and_made_up_ids_are_told_as_values() -> None:
    one, other = (ask(chain(), "open_card", {"owner": "Eva"}) for _ in range(2))
    assert one == other
    assert one.content["owner"] == "Eva"
    assert "\u00a7" not in one.content["card_id"]


def test_a_made_up_id_is_known_by_the_calls_that_follow() -> None:
    experience = chain()
    made = ask(experience, "open_card", {"owner": "Eva"})
    history = episode("e", 99, [("open_card", {"owner": "Eva"}, made)])
    done = ask(experience, "freeze", {"card_id": made.content["card_id"]}, history)
    assert done.content == {"card_id": made.content["card_id"], "done": True}


def test_a_history_that_does_not_go_on_from_the_last_one_is_followed_anew() -> None:
    experience = chain()
    frozen = episode("e", 3, [("freeze", {"card_id": "C3"}, {"card_id": "C3", "done": True})])
    other = episode("e", 3, [("open_card", {"owner": "x"}, {"card_id": "N1", "owner": "x"})])
    assert ask(experience, "get_card", {"card_id": "C3"}, frozen, world=3).content["status"] == "frozen"
    assert ask(experience, "get_card", {"card_id": "C3"}, other, world=3).content["status"] == "active"


def test_what_a_fault_says_is_no_fact_and_a_call_it_kept_from_being_done_changed_nothing() -> None:
    freeze, read = Call("freeze", {"card_id": "C3"}), Call("get_card", {"card_id": "C3"})
    not_done = failing(Fault(FaultKind.TIMEOUT), freeze)
    cut_off = spoiled(Fault(FaultKind.MALFORMED), read, Answer({"card_id": "C3", "status": "act"}))
    history = [
        Transition(freeze, not_done, Effect.WRITE, "e", 1, Environment("bank", 3)),
        Transition(read, cut_off, Effect.READ, "e", 2, Environment("bank", 3)),
    ]
    answer = ask(chain(), "get_card", {"card_id": "C3"}, history, world=3)
    assert answer.content == {"card_id": "C3", "status": "active", "limit": 9}


def test_after_a_write_that_timed_out_but_was_done_the_old_view_is_not_told() -> None:
    freeze = Call("freeze", {"card_id": "C3"})
    done = spoiled(Fault(FaultKind.TIMEOUT_APPLIED), freeze, Answer({"card_id": "C3", "done": True}))
    history = [Transition(freeze, done, Effect.WRITE, "e", 1, Environment("bank", 3))]
    answer = ask(chain(), "get_card", {"card_id": "C3"}, history, world=3)
    assert answer.unanswered or answer.content["status"] == "frozen"


ABSTAINED = Answer(source=Source.UNANSWERED, confidence=0.0, why="cannot tell")


class AnswerDouble:
    """Implements `interfaces.ExperienceModel`: always says the same."""

    waits = False

    def __init__(self, answer: Answer) -> None:
        self.answered, self._answer = 0, answer

    async def answer(self, call: Call, situation: Situation) -> Answer:
        self.answered += 1
        return self._answer


def said(provenance: Source, support: float) -> Answer:
    return Answer(content=provenance.value, source=provenance, confidence=support)


LEARNED = said(Source.MODEL, 0.8)
UNSURE = Answer(source=Source.UNANSWERED, confidence=0.0, why="not sure")
DOUBTFUL, SURE = said(Source.DERIVED, 0.6), said(Source.DERIVED, 0.9)


@each_row(
    ("first", "last", "effect", "answers"),
    [
        (ABSTAINED, LEARNED, Effect.WRITE, LEARNED),
        (ABSTAINED, LEARNED, Effect.READ, LEARNED),
        (said(Source.DERIVED, 0.7), LEARNED, Effect.WRITE, LEARNED),
        (said(Source.ANALOGOUS, 0.7), LEARNED, Effect.DESTRUCTIVE, LEARNED),
        (said(Source.DERIVED, 0.85), LEARNED, Effect.WRITE, said(Source.DERIVED, 0.85)),  # the surer one
        (said(Source.DERIVED, 0.7), LEARNED, Effect.READ, said(Source.DERIVED, 0.7)),  # known to code
        (said(Source.RECORDED, 0.7), LEARNED, Effect.WRITE, said(Source.RECORDED, 0.7)),
        (ABSTAINED, UNSURE, Effect.WRITE, replace(UNSURE, why="cannot tell; not sure")),
        (DOUBTFUL, ABSTAINED, Effect.WRITE, DOUBTFUL),
        (SURE, said(Source.MODEL, 1.0), Effect.WRITE, SURE),
    ],
)
async def test_who_answers(first: Answer, last: Answer, effect: Effect, answers: Answer) -> None:
    chain, learned = AnswerDouble(first), AnswerDouble(last)
    situation = Situation(Environment(), "t", "e", (), "", ToolSpec("pay", effect))
    dream = FallbackChain(chain, learned, second_opinion=True)
    assert await dream.answer(Call("pay", {}), situation) == answers
    assert first != SURE or not learned.answered


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
