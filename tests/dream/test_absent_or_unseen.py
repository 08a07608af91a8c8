"""What is not there, what is only unseen, and what a write has made of which nobody knows the outcome.

A lending desk: loans are renewed by their id, opened under a new one, and counted. Its recorded worlds show
few of their loans, and none of them is shown to the dreamed one.
"""

from collections import Counter
from dataclasses import replace

import pytest

from dreamgym_kit.dream.state.absences import Absence
from dreamgym_kit.dream.state.advance import forget
from dreamgym_kit.dream.state.candidates import CONTESTED
from dreamgym_kit.dream.state.dreaming import Knowledge, Told, consider
from dreamgym_kit.dream.state.facts import vouched
from dreamgym_kit.dream.state.history import OFF_RECORD, HistoryStep, RecordedEpisode
from dreamgym_kit.dream.state.mining import mine, pooled, renamed
from dreamgym_kit.dream.state.models import AnswerForm
from dreamgym_kit.dream.state.observed import failed
from dreamgym_kit.dream.state.templates import Template
from dreamgym_kit.dream.state.trees import Test as Asks
from dreamgym_kit.dream.state.unanswered import source_touched, unknown_since
from dreamgym_kit.dream.state.values import spell
from dreamgym_kit.dream.state.views import State

WRITES = ("renew", "lend")
NEW = State({}, OFF_RECORD)


def step(tool, seen, **args):
    return HistoryStep(tool, args, spell(args), seen, tool in WRITES, failed(seen))


def renewed(loan):
    return step("renew", {"loan": loan, "due": 21}, loan=loan)


def unknown(loan):
    return step("renew", {"error": f"no such loan: {loan}"}, loan=loan)


def counted(count):
    return step("count", {"open": count})


def lent(reader):
    return step("lend", {"reader": reader, "lent": True}, reader=reader)


@pytest.fixture(scope="module")
def desk() -> Knowledge:
    episodes = []
    for world in range(10):
        name = f"w{world}"
        loans = step("list", [{"loan": f"L{world}{number}"} for number in range(3)], page=1)
        towns = [step("open_at", {"day": day, "open": True}, day=day) for day in ("mo", "tu", "we", "th")]
        known = [loans, counted(0), *towns, renewed(f"L{world}1"), renewed(f"L{world}2"), counted(0)]
        episodes.append(RecordedEpisode(f"k{world}", name, tuple(known)))
        unseen = [renewed(f"X{world}1"), *(unknown(f"Y{world}{number}") for number in range(3))]
        episodes.append(RecordedEpisode(f"u{world}", name, tuple(unseen)))
        episodes.append(RecordedEpisode(f"l{world}", name, (counted(0), lent("ann"), counted(1))))
    models = mine(episodes)
    return Knowledge(models, pooled([renamed(one, models) for one in episodes], models))


def best(desk: Knowledge, state: State, tool: str, **args: object) -> Told:
    return consider(desk, state, "never recorded", tool, args)[0][0]


def test_an_unheard_thing_that_was_often_denied_is_not_presumed_to_be_there(desk) -> None:
    """One loan went well that nothing had named: that makes it no free text, for three were denied."""
    usual = desk.models.usual["renew", "loan"]
    assert usual.unheard + usual.unheard_small >= 2
    told = best(desk, NEW, "renew", loan="L77")
    assert told.support < 0.5


def test_an_unanswered_write_does_not_vouch_for_what_it_named(desk) -> None:
    after = forget(desk.models, NEW, renewed("L77"))
    assert best(desk, after, "renew", loan="L77").support < 0.5


def test_what_is_usual_says_nothing_after_a_write_that_nobody_answered(desk) -> None:
    before = best(desk, NEW, "count")
    assert (before.seen, before.basis) == ({"open": 0}, "rule")
    assert before.support >= 0.5
    after = best(desk, forget(desk.models, NEW, lent("ann")), "count")
    assert after.support < 0.5
    assert after.why.endswith("but nobody knows what lend has changed before")


def test_an_unanswered_write_leaves_what_it_was_seen_to_leave(desk) -> None:
    after = best(desk, forget(desk.models, NEW, renewed("L77")), "count")
    assert after.basis != CONTESTED
    assert after.support >= 0.5


def test_nothing_is_absent_that_an_unanswered_write_may_have_made(desk) -> None:
    """The count stands for a source that shows all loans: a lending that nobody answered changes it."""
    models = replace(desk.models, absences={("renew", "loan"): Absence("count", 1)})
    well_known = replace(NEW, breadth={"count": 9})
    assert not source_touched(models, well_known, "count")
    assert source_touched(models, forget(models, well_known, lent("ann")), "count")
    assert not source_touched(models, forget(models, well_known, renewed("L77")), "count")


@pytest.mark.parametrize(
    ("about", "denied", "holds"),
    [
        ("view.hidden:lend.number.", [], True),
        ("view.hidden:lend.number.", ["loan"], False),
        ("row.list.[][loan=loan].open", ["loan"], True),
        ("bound.show(loan:loan).failed", ["loan"], True),
        ("bound.show(page:page).failed", ["loan"], False),
    ],
)
def test_that_a_thing_is_not_there_is_told_only_by_what_is_known_of_it(about, denied, holds) -> None:
    asks = Asks(("is", about), "6", 0, Counter({"missing": 9}), Counter({"shown": 9}))
    assert vouched([asks], lambda form: form == "missing", denied) is holds


def test_an_answer_of_a_kind_that_was_never_tried_is_worth_what_the_form_is() -> None:
    """Lists of ids that another world's words happened to explain were told at even odds."""
    form = AnswerForm(Template(), worlds=8)
    for _ in range(60):
        form.count("guessed", right=False)
    assert form.contested("named")
    assert form.support("named") < 0.05
    form.count("named", right=True)
    assert not form.contested("named")


@pytest.mark.parametrize(("way", "doubted"), [(0, None), (2, "lend")])
def test_a_read_that_nobody_made_is_not_as_usual_after_a_write_that_changes_it(desk, way, doubted) -> None:
    """A coupon was put on a cart that nobody had looked at; the cart was then told without it, 0.91 sure."""
    done = replace(NEW, done=frozenset({("lend", '{"reader":"ann"}'), ("renew", '{"loan":"L1"}')}))
    asks = Asks(("is", "view.count.open"), "0", way, Counter({"none": 9}), Counter())
    assert unknown_since(desk.models, done, "count", {}, [asks]) == doubted
    assert unknown_since(desk.models, NEW, "count", {}, [asks]) is None
