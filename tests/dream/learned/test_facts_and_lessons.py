"""What a call is told as, and what recordings teach of it, on a shop that nobody looked at."""

from functools import cache

import pytest
from strict_shop_double import PATIENCE, probed, recordings_of

from dreamgym_kit.dream.learned.facts import facts_of, things_of
from dreamgym_kit.dream.learned.training_data import DecisionLesson, Taught, lesson, met, taught
from dreamgym_kit.dream.learned.vocabulary import CallDecision
from dreamgym_kit.dream.state.audit import learn
from dreamgym_kit.dream.state.dreaming import Knowledge
from dreamgym_kit.dream.state.history import recordings
from dreamgym_kit.dream.state.views import State, View
from dreamgym_kit.dream.state.worlds import start


@cache
def shop_known() -> Knowledge:
    return learn(recordings(recordings_of(range(30))), calibrated=False)


@cache
def shop_taught() -> Taught:
    return taught(list(met(shop_known())))


def lessons(tool: str, outcome: str) -> list[DecisionLesson]:
    return [one for one in shop_taught().lessons if (one.tool, one.label.outcome) == (tool, outcome)]


def an_order(**fields: object) -> dict[str, object]:
    return {"order_id": "O7", "customer_id": "C3", "status": "shipped", "days": 20, "owed": 40, **fields}


def test_a_call_is_told_by_what_is_known_of_its_things_and_of_those_that_they_link_to() -> None:
    models = shop_known().models
    state = start(shop_known().pool, models, "nobody's")
    for tool, args, seen in (
        ("get_order", '{"order_id":"O7"}', an_order()),
        ("get_customer", '{"customer_id":"C3"}', {"customer_id": "C3", "tier": "gold"}),
    ):
        state = state.told(View(tool, args, seen, confidence=0.97, source="told"))
    facts = facts_of(models, state, "pay", {"order_id": "O7", "amount": 45})
    assert facts["order.status"] == "shipped"
    assert facts["customer.tier"] == "gold"
    assert (facts["order.there"], facts["done"]) == ("yes", "no")
    assert (facts["amount~order.owed"], facts["amount~0"]) == ("more", "above")
    unknown = facts_of(models, state, "pay", {"order_id": "O8", "amount": 45})
    assert unknown["order.there"] == "unknown"
    assert not any(name.startswith(("order.s", "customer.")) for name in unknown)


def test_two_things_of_one_kind_go_by_the_names_of_their_arguments() -> None:
    state = State({})
    for entity, pin in (("A1", "set"), ("A2", "open")):
        seen = {"account_id": entity, "pin": pin}
        state = state.told(
            View("get_account", f'{{"account_id":"{entity}"}}', seen, confidence=0.97, source="told")
        )
    things = things_of(state, {}, "transfer", {"from_id": "A1", "to_id": "A2", "amount": 3})
    assert [(one.role, one.fields) for one in things] == [("from", {"pin": "set"}), ("to", {"pin": "open"})]
    alone = things_of(state, {}, "close", {"target_id": "A2"})
    assert [(one.role, one.fields) for one in alone] == [("account", {"pin": "open"})]


def test_no_id_and_no_open_value_stands_in_a_record() -> None:
    words = {word for one in shop_taught().lessons for word in one.record}
    assert not any(word[0] in "OC" and word[1:].isdigit() for word in words)
    assert words <= set(shop_taught().vocabulary.words())


def test_a_number_is_told_in_the_steps_that_the_mined_tree_cuts() -> None:
    [cut] = shop_taught().vocabulary.tools["reship"].facts["order.days"].cuts
    assert PATIENCE - 1 < cut < PATIENCE + 1


def test_the_reason_is_the_path_of_the_tree() -> None:
    known = [one for one in lessons("reship", "ok") if "order.days" in one.record]
    assert known
    for one in known:
        why = dict(one.label.why)
        assert (why["order.status"], why["order.days"][:2]) == ("shipped", ">=")


def test_changes_are_the_difference_of_reads_and_point_at_arguments() -> None:
    assert {one.label.changes for one in lessons("reship", "ok")} == {
        (("order.days", "1"), ("order.status", "new"))
    }
    assert {one.label.changes for one in lessons("pay", "ok")} == {(("order.owed", "minus:amount"),)}
    assert {one.label.changes for one in lessons("pay", "refused_1")} == {()}


def test_where_nobody_looked_again_changes_are_left_open() -> None:
    probes = [probed(world, 0) for world in range(100, 112)]
    rows = [row for probe in probes for row in probe if row.call.tool != "get_order" or row.step <= 3]
    known = Knowledge(shop_known().models, learn(recordings(rows), calibrated=False).pool)
    [blind, *_] = [one for one in met(known) if one.tool == "reship" and one.form is None]
    told = lesson(blind, shop_taught().vocabulary, shop_taught().trees)
    assert told is not None
    assert told.label.changes is None
    assert "set" not in told.label.words()


def test_an_episode_does_not_explain_itself() -> None:
    """What only this episode will read is not known before it is read."""
    rows = probed(77, 0)
    alone = Knowledge(shop_known().models, learn(recordings(rows), calibrated=False).pool)
    first = next(met(alone))
    assert first.tool == "get_order"
    assert "order.status" not in first.facts


@pytest.mark.parametrize("tool", ["reship", "pay", "hurry"])
def test_every_lesson_says_an_outcome_of_its_tool(tool: str) -> None:
    words = shop_taught().vocabulary.tools[tool]
    said: list[CallDecision] = [one.label for one in shop_taught().lessons if one.tool == tool]
    assert {words.outcome(words.form(one.outcome)) for one in said} == {one.outcome for one in said}
    assert len({one.outcome for one in said}) >= 2
