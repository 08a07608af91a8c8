"""Decisions mined from calls: what a branch of few cases is worth beside what its siblings say."""

from collections import Counter

import pytest

from dreamgym_kit.dream.state.trees import Node, TreeCase, grow, predict

OPEN, VIP = ("is", "view.status"), ("is", "view.vip")
FUNDS = (">", "args.amount", "view.funds")


def cases(count, form, **facts):
    named = {"open": OPEN, "vip": VIP, "over": FUNDS}
    told = {named[name]: value for name, value in facts.items()}
    return [TreeCase(told, form, f"w{number}") for number in range(count)]


def test_a_branch_of_two_cases_where_the_fact_is_unknown_asks_what_its_siblings_say() -> None:
    """Twelve calls of an open thing went well, twelve of a closed one failed; of two nobody had looked."""
    known = [*cases(12, "done", open="yes"), *cases(12, "refused", open="no")]
    tree = grow([*known, *cases(2, "done", vip="yes")])
    assert predict(tree, {OPEN: "yes"}).purity > 0.9
    told = predict(tree, {VIP: "yes"})
    assert told.form == "done"
    assert told.purity < 0.5


def test_a_thin_branch_that_its_siblings_agree_with_keeps_its_support() -> None:
    known = [*cases(12, "done", open="yes"), *cases(12, "refused", open="no", over=True)]
    tree = grow([*known, *cases(2, "done", over=False)])
    told = predict(tree, {OPEN: "yes", FUNDS: False})
    assert (told.form, told.purity > 0.9) == ("done", True)


def test_a_branch_that_alone_takes_a_form_is_not_doubted_for_it() -> None:
    """That nothing is known of a thing is what makes it a stranger: no sibling could have said that."""
    known = [*cases(12, "done", open="yes"), *cases(12, "refused", open="no")]
    told = predict(grow([*known, *cases(3, "stranger", vip="yes")]), {VIP: "yes"})
    assert (told.form, told.purity > 0.6) == ("stranger", True)


@pytest.mark.parametrize(("over", "sure"), [(True, False), (False, True)])
def test_a_thin_branch_of_a_known_fact_asks_the_test_beside_it(over: bool, sure: bool) -> None:
    """Payments beyond the funds are refused. Of three things of another status none went beyond them."""
    done, refused = Counter(done=12), Counter(refused=12)
    tested = Node(done + refused, FUNDS, value=True, branches=(Node(refused), Node(done), None))
    few = Counter(done=3)
    tree = Node(done + refused + few, OPEN, "yes", (tested, Node(few), None))
    told = predict(tree, {OPEN: "no", FUNDS: over})
    assert told.form == "done"
    assert (told.purity > 0.5) == sure
