"""Trees from few examples: values that go together, bounds, words first, doubt where a fact is unknown."""

import random
from dataclasses import replace

import pytest
from dream.checklist_clinic import Clinic
from dream.checklist_recorded import advances, recorded

from dreamgym_kit.dream.checklist.growing import Branch, Case, grow, likely
from dreamgym_kit.dream.checklist.labels import worlds_of
from dreamgym_kit.dream.checklist.marks import grow_marks

STATUS, DAYS, SAYS, TIER = ("the", "status"), ("the", "days"), ("says",), ("the", "tier")


def one(value: str) -> frozenset[str]:
    return frozenset([value])


def is_open(said: object) -> float:
    return float(said == "open")


def test_values_that_come_to_the_same_are_taken_together_by_one_test() -> None:
    statuses = {"new": "open", "packed": "open", "sent": "shut", "lost": "shut", "back": "shut"}
    cases = [Case({STATUS: one(name)}, label) for name, label in statuses.items() for _ in range(3)]
    tree = grow(cases)
    assert tree.test is not None
    assert tree.test.values in ({"new", "packed"}, {"sent", "lost", "back"})
    assert (tree.yes.test, tree.no.test) == (None, None)
    assert likely(tree, {STATUS: one("packed")}, is_open) > 0.9
    assert likely(tree, {STATUS: one("lost")}, is_open) < 0.1


def test_any_of_a_list_is_one_test_too() -> None:
    lists = [("new", "sent"), ("packed", "sent"), ("new", "packed"), ("packed",), ("sent",), ("sent", "back")]
    cases = [
        Case({STATUS: frozenset(some)}, "open" if {"new", "packed"} & {*some} else "shut")
        for some in lists
        for _ in range(3)
    ]
    tree = grow(cases)
    assert tree.test.values == {"new", "packed"}


def test_a_number_is_held_against_the_bound_that_tells() -> None:
    cases = [Case({DAYS: float(day)}, "open" if day < 15 else "shut") for day in range(0, 30, 2)]
    assert grow(cases).test.below == 16


def test_chance_is_no_reason() -> None:
    for seed in range(20):
        pick = random.Random(seed)
        facts = [{("the", str(at)): one(pick.choice("ab")) for at in range(40)} for _ in range(12)]
        cases = [Case(known, pick.choice(["open", "shut"])) for known in facts]
        assert sum(branch.test is not None for branch in every(grow(cases))) <= 2


def test_a_copy_proves_nothing() -> None:
    cases = [Case({TIER: one("gold")}, "open")] * 8 + [Case({TIER: one("basic")}, "shut")] * 8
    assert grow(cases).test is not None
    assert grow(cases, copies=8).test is None  # one of each


def test_what_is_asked_first_is_asked_first_as_long_as_it_tells() -> None:
    cases = [
        Case({SAYS: one(word), TIER: one(tier)}, f"{word} {tier}" if word == "moan" else word)
        for word in ("moan", "leave")
        for tier in ("gold", "basic")
        for _ in range(8)
    ]
    tree = grow(cases, first=SAYS)
    assert tree.test.name == SAYS
    assert {branch.test.name for branch in (tree.yes, tree.no) if branch.test} == {TIER}


def test_where_a_fact_is_not_known_both_ways_are_weighed() -> None:
    cases = [Case({TIER: one("gold")}, "open")] * 6 + [Case({TIER: one("basic")}, "shut")] * 6
    assert 0.4 < likely(grow(cases), {}, is_open) < 0.6
    told = [*cases, *[Case({STATUS: one("new")}, "shut")] * 6]  # they came to something as well
    assert likely(grow(told), {}, is_open) < 0.1


def every(tree: Branch | None) -> list[Branch]:
    return [] if tree is None else [tree, *every(tree.yes), *every(tree.no), *every(tree.unknown)]


def test_where_somebody_wrote_what_no_pattern_makes_the_list_is_open_and_not_empty() -> None:
    """A rare write that was seen too seldom for a pattern; its world was judged as one that asks for less."""
    lessons = recorded().lessons
    patterns = tuple(pattern for pattern in lessons.patterns if pattern.tool != "charge_fee")
    marks = grow_marks(lessons.fields, patterns, [lessons.fillings[:4], lessons.fillings[4:]])
    checklist = replace(recorded().checklist, patterns=patterns, marks=marks)
    late = next(clinic for seed in range(1000, 1060) if len((clinic := Clinic(seed)).right()) == 2)
    sheet = checklist.sheet(late.text, worlds_of(late.crawled(), advances)[str(late.world)])
    assert [write.tool for write in sheet.open] == ["cancel_visit"]
    assert not sheet.expected


@pytest.mark.parametrize("size", [30])
def test_a_few_dozen_worlds_are_enough(size: int) -> None:
    """Three facts decide here: whose visit, whether it is over, in how many days."""
    checklist, right = recorded(size).checklist, 0
    clinics = [Clinic(seed) for seed in range(1000, 1060)]
    for clinic in clinics:
        sheet = checklist.sheet(clinic.text, worlds_of(clinic.crawled(), advances)[str(clinic.world)])
        right += sorted(write.tool for write in sheet.expected) == sorted(tool for tool, _ in clinic.right())
    assert right >= 50
