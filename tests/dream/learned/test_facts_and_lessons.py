"""What a call is told as, and what recordings teach of it, on a shop that nobody looked at."""

from functools import cache

import pytest
from strict_shop_double import PATIENCE, mined_shop, probed

from dreamgym_kit.dream.learned.experience import facts_of
from dreamgym_kit.dream.learned.training_data import DecisionLesson, Taught, met, met_in, taught
from dreamgym_kit.dream.learned.vocabulary import CallDecision
from dreamgym_kit.dream.programs.dreaming import ProgramEpisode
from dreamgym_kit.dream.programs.experience import seen_calls
from dreamgym_kit.dream.programs.values import SeenStep
from dreamgym_kit.dream.recorded_episodes import recordings


@cache
def shop_taught() -> Taught:
    return taught(list(met(*mined_shop(30))))


def lessons(tool: str, outcome: str) -> list[DecisionLesson]:
    return [one for one in shop_taught().lessons if (one.tool, one.label.outcome) == (tool, outcome)]


def told(dream: ProgramEpisode, tool: str, out: dict, *, ok: bool = True, **args: object) -> None:
    wrap = dream.model.tools[tool].wraps[True]
    dream.observe(SeenStep(tool, dict(args), ok, out, tool in dream.model.writes, wrap))


def named(facts: dict[str, object], ending: str) -> list[object]:
    return [value for name, value in facts.items() if name.endswith(ending)]


def test_a_call_is_told_by_what_is_known_of_its_things_and_of_those_that_they_link_to() -> None:
    model, _ = mined_shop(30)
    dream = ProgramEpisode(model, "nobody's", None)
    order = {"order_id": "O7", "customer_id": "C3", "status": "shipped", "days": 20, "owed": 40}
    told(dream, "get_order", order, order_id="O7")
    told(dream, "get_customer", {"customer_id": "C3", "tier": "gold"}, customer_id="C3")
    facts = facts_of(dream, "pay", {"order_id": "O7", "amount": 45}).values
    assert named(facts, "<args.order_id>.status") == ["shipped"]
    assert named(facts, ".tier") == ["gold"]
    assert (named(facts, "<args.order_id>?"), facts["done"]) == ([True], False)
    owed = [value for name, value in facts.items() if name.startswith("amount~") and name.endswith(".owed")]
    assert (owed, facts["amount~0"]) == (["more"], "above")
    unknown = facts_of(dream, "pay", {"order_id": "O888", "amount": 45}).values
    assert not any("<args.order_id>" in name for name in unknown)
    assert unknown["heard.args.order_id"] is False


def test_what_was_done_and_refused_before_is_told_of_the_same_thing_alone() -> None:
    model, _ = mined_shop(30)
    dream = ProgramEpisode(model, "nobody's", None)
    told(dream, "hurry", {"order_id": "ORDER7"}, order_id="ORDER7")
    told(dream, "reship", {"error": "no"}, ok=False, order_id="ORDER7")
    facts = facts_of(dream, "pay", {"order_id": "ORDER7", "amount": 4}).values
    assert (facts["after.hurry"], facts["refused.reship"]) == (True, True)
    other = facts_of(dream, "pay", {"order_id": "ORDER8", "amount": 4}).values
    assert not any(name.startswith(("after.", "refused.")) for name in other)


def test_no_id_and_no_open_value_stands_in_a_record() -> None:
    words = {word for one in shop_taught().lessons for word in one.record}
    assert not any(word[0] in "OC" and word[1:].isdigit() for word in words)
    assert words <= set(shop_taught().vocabulary.words())


def test_a_number_is_told_in_steps_cut_where_outcomes_part() -> None:
    facts = shop_taught().vocabulary.tools["reship"].facts
    [days] = [words for name, words in facts.items() if name.endswith("<args.order_id>.days")]
    assert any(PATIENCE - 1 < cut < PATIENCE + 1 for cut in days.cuts)


def test_the_reason_is_what_the_outcome_hangs_on() -> None:
    known = [one for one in lessons("reship", "ok") if any(name.endswith(".days") for name in one.record)]
    assert known
    for one in known:
        why = {name.rpartition(".")[2]: word for name, word in one.label.why}
        assert why["status"] == "shipped"
        assert why["days"].startswith(">=")


def test_an_episode_does_not_explain_itself() -> None:
    """What only this episode will read is not known before it is read."""
    model, _ = mined_shop(30)
    [episode] = recordings(probed(7, 0))
    first = next(met_in(model, seen_calls(episode, model.parameters)._replace(world="nobody's")))
    assert first.tool == "get_order"
    assert not named(first.facts, ".status")


@pytest.mark.parametrize("tool", ["reship", "pay", "hurry"])
def test_every_lesson_says_an_outcome_of_its_tool(tool: str) -> None:
    words = shop_taught().vocabulary.tools[tool]
    said: list[CallDecision] = [one.label for one in shop_taught().lessons if one.tool == tool]
    assert {words.outcome(words.form(one.outcome)) for one in said} == {one.outcome for one in said}
    assert len({one.outcome for one in said}) >= 2
