"""A model's answers fit what was told: known fields, effects, ids; they become part of the state."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from deciding_double import ScriptedChatDouble, decided

from dreamgym_kit.dream.chain import ChainedExperience, FallbackChain
from dreamgym_kit.dream.faults import Fault, FaultKind, spoiled
from dreamgym_kit.dream.llm_experience import ReasonedExperience
from dreamgym_kit.dream.recorded import RecordedExperience
from dreamgym_kit.interfaces import Situation
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition, history_digest

READS, WRITES = ("get_order", "list_orders", "get_ticket"), ("cancel_order", "set_note", "open_ticket")
SPECS = {name: ToolSpec(name, Effect.READ) for name in READS}
SPECS |= {name: ToolSpec(name, Effect.WRITE) for name in WRITES}


def change(entity: str, field: str, value: object) -> list[dict[str, object]]:
    return [{"entity": entity, "field": field, "value": value}]


class Dream:
    """One episode in a dream of some recordings, with a scripted model behind it."""

    def __init__(self, *said: str, recorded: list[Transition] | None = None, world: int = 99) -> None:
        rows = recorded or []
        self.model = ScriptedChatDouble(*said)
        repeated = RecordedExperience(lambda world, tenant: [row for row in rows if row.environment == world])
        chain = ChainedExperience(repeated, lambda tenant: rows)
        examples = [row for row in rows if row.environment.variant != world]
        reasoned = ReasonedExperience(
            self.model,
            retrieve=lambda call, situation: [row for row in examples if row.call.tool == call.tool][:6],
            programs=chain.programs,
        )
        self.experience = FallbackChain(chain, reasoned)
        self.world, self.history = Environment("shop", world), []

    def ask(self, tool: str, **args: Any) -> Answer:
        """The answer, kept as told."""
        call, writes = Call(tool, args), [one.call.key for one in self.history if one.effect is Effect.WRITE]
        after = history_digest(writes)
        situation = Situation(self.world, "t", "t.1", list(self.history), after, SPECS[tool])
        answer = asyncio.run(self.experience.answer(call, situation))
        return self.tell(tool, answer, after=after, **args)

    def tell(self, tool: str, answer: Answer, *, after: str = "", **args: Any) -> Answer:
        """Keep that a call was answered so."""
        effect = SPECS[tool].effect
        step = len(self.history) + 1
        entry = Transition(Call(tool, args), answer, effect, "t.1", step, self.world, "t", after=after)
        self.history.append(entry)
        return answer


def shop(worlds: int = 8) -> list[Transition]:
    """Recorded: an order before and after it was cancelled, nothing else moves; tickets are numbered."""
    rows: list[Transition] = []

    def add(world: int, said: list[tuple[str, dict, object]]) -> None:
        writes: list[str] = []
        for step, (tool, args, content) in enumerate(said, start=1):
            call = Call(tool, args)
            after, effect = history_digest(writes), SPECS[tool].effect
            place = Environment("shop", world)
            rows.append(Transition(call, Answer(content), effect, f"e{world}", step, place, after=after))
            writes += [call.key] if effect is Effect.WRITE else []

    for world in range(worlds):
        args = {"order_id": f"order{world}"}
        order = {**args, "status": "open", "total": world * 3 + 1}
        done = {**order, "status": "cancelled"}
        ticket = {"ticket_id": f"T{world * 7 + 11}9", "about": f"order{world}"}
        cancel = ("cancel_order", args, {**args, "done": True})
        opened = ("open_ticket", {"about": f"order{world}"}, ticket)
        add(world, [("get_order", args, order), cancel, ("get_order", args, done), opened])
    return rows


def test_a_changed_fact_is_what_a_later_read_says_without_the_model() -> None:
    dream = Dream(
        decided({"order_id": "o9", "status": "open", "note": ""}),
        decided("done", set=change("o9", "note", "fragile")),
    )
    dream.ask("get_order", order_id="o9")
    assert dream.ask("set_note", order_id="o9", note="fragile").changes == (
        {"entity": "o9", "field": "note", "value": "fragile"},
    )
    again = dream.ask("get_order", order_id="o9")
    assert again.content == {"order_id": "o9", "status": "open", "note": "fragile"}
    assert len(dream.model.requests) == 2


def test_a_change_holds_for_a_read_that_nobody_has_made_yet() -> None:
    wrong = decided({"order_id": "o9", "status": "open"})
    right = decided({"order_id": "o9", "status": "cancelled"})
    dream = Dream(decided("done", set=change("order o9", "status", "cancelled")), wrong, right)
    dream.ask("cancel_order", order_id="o9")
    assert dream.ask("get_order", order_id="o9").content["status"] == "cancelled"
    told = dream.model.requests[2].messages[-1].content
    assert "status of order o9 is known to be 'cancelled', not 'open'" in told


def test_two_contradictions_and_it_abstains() -> None:
    wrong = decided({"order_id": "o9", "status": "open"})
    dream = Dream(decided("done", set=change("o9", "status", "cancelled")), wrong)
    dream.ask("cancel_order", order_id="o9")
    answer = dream.ask("get_order", order_id="o9")
    assert (answer.unanswered, len(dream.model.requests)) == (True, 3)
    assert "neither could its correction" in answer.why


def test_equal_reads_are_equal_though_the_model_would_say_something_else() -> None:
    dream = Dream(
        decided({"order_id": "o9", "status": "open"}, confidence=0.2),
        decided({"order_id": "o9", "status": "lost"}),
    )
    first = dream.ask("get_order", order_id="o9")
    again = dream.ask("get_order", order_id="o9")
    assert again.content == first.content
    assert (again.source, len(dream.model.requests)) == (Source.MODEL, 1)


def test_two_reads_of_one_thing_agree() -> None:
    row = {"order_id": "o9", "status": "open"}
    dream = Dream(
        decided({"orders": [row]}),
        decided({**row, "status": "lost", "total": 5}),
        decided({**row, "total": 5}),
    )
    dream.ask("list_orders")
    assert dream.ask("get_order", order_id="o9").content == {**row, "total": 5}


def test_a_thing_that_was_made_is_there_and_lists_are_asked_for_anew() -> None:
    dream = Dream(
        decided({"tickets": []}),
        decided({"ticket_id": "T7", "about": "o9"}),
        decided(outcome="error", error="no ticket T7"),
        decided({"ticket_id": "T7", "about": "o9"}),
        decided({"tickets": [{"ticket_id": "T7", "about": "o9"}]}),
    )
    dream.ask("list_orders")
    dream.ask("open_ticket", about="o9")
    assert dream.ask("get_ticket", ticket_id="T7").content["about"] == "o9"
    assert "it is there" in dream.model.requests[3].messages[-1].content
    assert "T7" in str(dream.ask("list_orders").content)


def test_a_made_up_id_is_made_up_by_code() -> None:
    recorded = shop()
    taken = next(row for row in recorded if row.call.tool == "open_ticket").answer.content["ticket_id"]
    said = decided(like=1, leaves=[{"path": "ticket_id", "value": taken}])
    dream = Dream(said, recorded=recorded)
    dream.experience.first._threshold = 2.0  # only the model is asked
    one = dream.ask("open_ticket", about="order1").content
    other = dream.ask("open_ticket", about="order2").content
    assert len({taken, one["ticket_id"], other["ticket_id"]}) == 3
    assert (one["about"], other["about"]) == ("order1", "order2")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        (change("o9", "status", "shipped"), 'status of o9 is "cancelled" after cancel_order, not "shipped"'),
        (change("o9", "total", 1), "total of o9 is 7 after cancel_order, not 1"),
        (change("order77", "status", "x"), "nothing that is known is named 'order77'"),
        (change("episode", "reward", 1), "nothing that is known is named 'episode'"),
    ],
)
def test_a_change_that_recordings_contradict_is_repaired_or_not_told(claims: list, why: str) -> None:
    said = decided(like=1, set=claims)
    dream = Dream(said, recorded=shop())
    dream.tell("get_order", Answer({"order_id": "o9", "status": "open", "total": 7}), order_id="o9")
    dream.experience.first._threshold = 2.0
    assert dream.ask("cancel_order", order_id="o9").unanswered
    assert why in dream.model.requests[1].messages[-1].content


def test_a_field_that_a_tool_never_changed_is_no_change_of_it() -> None:
    dream = Dream(decided(like=1, set=change("o9", "total", 5)), recorded=shop(24))
    dream.experience.first._threshold = 2.0
    assert dream.ask("cancel_order", order_id="o9").unanswered
    why = dream.model.requests[1].messages[-1].content
    assert "recordings show that cancel_order changes status, never total" in why


def test_an_answer_that_shows_a_change_needs_not_say_it_twice() -> None:
    dream = Dream(
        decided({"order_id": "o9", "status": "open", "total": 3}),
        decided({"order_id": "o9", "status": "held"}),
    )
    dream.ask("get_order", order_id="o9")
    assert dream.ask("set_note", order_id="o9", note="x").changes == (
        {"entity": "o9", "field": "status", "value": "held"},
    )
    assert dream.ask("get_order", order_id="o9").content["status"] == "held"


def test_an_id_of_the_examples_world_is_not_told_in_this_one() -> None:
    recorded = shop()
    for number, row in enumerate(recorded):
        if row.call.tool == "get_order":
            content = {**row.answer.content, "customer_id": f"customer{row.environment.variant}"}
            recorded[number] = Transition(
                row.call, Answer(content), row.effect, row.episode, row.step, row.environment, after=row.after
            )
    dream = Dream(decided(like=1), recorded=recorded)
    dream.experience.first._threshold = 2.0
    assert dream.ask("get_order", order_id="o9").unanswered
    assert "which is not of this environment" in dream.model.requests[1].messages[-1].content


def test_what_was_told_with_little_support_may_be_named_all_the_same() -> None:
    """The agent has heard of it, so it may change."""
    order = {"order_id": "o9", "parcel": "p77", "note": ""}
    dream = Dream(decided(order, confidence=0.1), decided("done", set=change("p77", "note", "x")))
    assert dream.ask("get_order", order_id="o9").confidence < 0.5
    told = dream.ask("set_note", order_id="o9", note="x")
    assert told.changes == ({"entity": "p77", "field": "note", "value": "x"},)


def test_an_id_that_was_told_with_little_support_is_of_this_world() -> None:
    recorded = shop()
    for number, row in enumerate(recorded):
        if row.call.tool == "get_order":
            recorded[number] = replace(row, answer=Answer({**row.answer.content, "customer_id": "customer0"}))
    listed = {"orders": [], "customer_id": "customer0"}
    dream = Dream(decided(listed, confidence=0.1), decided(like=1), recorded=recorded)
    dream.experience.first._threshold = 2.0
    assert dream.ask("list_orders").confidence < 0.5
    assert not dream.ask("get_order", order_id="o9").unanswered


def test_a_timed_out_write_that_was_done_is_seen_by_the_next_read() -> None:
    dream = Dream(
        decided({"order_id": "o9", "status": "open"}),
        decided({"order_id": "o9", "status": "cancelled"}),
    )
    dream.ask("get_order", order_id="o9")
    done = Answer("done", Source.MODEL, 0.5, changes=tuple(change("o9", "status", "cancelled")))
    hidden = spoiled(Fault(FaultKind.TIMEOUT_APPLIED), Call("cancel_order", {"order_id": "o9"}), done)
    dream.tell("cancel_order", hidden, order_id="o9")
    assert dream.ask("get_order", order_id="o9").content["status"] == "cancelled"


def test_the_model_is_told_what_is_known_of_the_thing() -> None:
    dream = Dream(decided({"order_id": "o9", "status": "open"}), decided("done"))
    dream.ask("get_order", order_id="o9")
    dream.ask("cancel_order", order_id="o9")
    assert '{"o9": {"status": "open"}}' in dream.model.requests[1].messages[1].content
