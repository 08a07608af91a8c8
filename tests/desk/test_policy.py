from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.recipes.desk.cases import FAMILIES, TRAIN_SEEDS, make_case
from dreamgym_kit.recipes.desk.checkers import goal
from dreamgym_kit.recipes.desk.database import scratch_desk
from dreamgym_kit.recipes.desk.policy import Habits, ScriptReply, run_script

MANY = range(TRAIN_SEEDS.start, TRAIN_SEEDS.start + 450)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    seed=st.sampled_from(MANY),
    answers=st.lists(json_values, min_size=1, max_size=6),
    kind=st.sampled_from(["senior", "junior", "slip"]),
)
def test_whatever_the_tools_answer_the_work_comes_to_an_end(seed: int, answers: list[Any], kind: str) -> None:
    told = iter(answers * 10)
    last = run_script(make_case(seed).text, Habits(kind), lambda use: ScriptReply(next(told)))
    assert isinstance(last, str)


def test_the_right_colleague_keeps_the_rules_of_the_house() -> None:
    """The goal of every checker comes from this colleague, so the rules are held here by other means."""
    met = dict.fromkeys(FAMILIES, 0)
    for seed in MANY:
        case = make_case(seed)
        before, after = books_of(seed), goal(seed, case.text)
        order = {
            row[0]: dict(zip(("customer", "item", "status", "days"), row[1:5], strict=True))
            for row in case.rows["orders"]
        }
        cancelled = {key for key, status in after.orders.items() if status != before.orders[key]}
        refunded = {key: refund for key, refund in after.payments.items() if refund.times}
        payment_of = {row[0]: row[1] for row in case.rows["payments"]}
        assert all(refund.times == 1 for refund in refunded.values())
        assert all(order[payment_of[key]]["customer"] == case.customer_id for key in refunded)
        assert all(order[key]["customer"] == case.customer_id for key in cancelled)
        assert all(order[key]["status"] in ("new", "packed") for key in cancelled)
        assert not refunded or after.mailed == {case.customer_id}
        if case.family == "broken":
            assert all(int(order[payment_of[key]]["days"]) <= 30 for key in refunded)
        if case.family == "cancel":
            assert {payment_of[key] for key in refunded} == cancelled
        if case.family == "double":
            for key in refunded:
                assert [row[3] for row in case.rows["payments"] if row[1] == payment_of[key]] == [
                    "captured"
                ] * 2
        if case.customer_id not in after.cities:
            own = [entry["status"] for entry in order.values() if entry["customer"] == case.customer_id]
            assert case.family == "forget"
            assert not {"new", "packed", "shipped"} & {*own}
        met[case.family] += after != before
    # every family changes the desk in some world; only "late" and "double" may end in a word alone
    assert all(met.values())


def books_of(seed: int) -> Any:
    with scratch_desk(make_case(seed).rows) as desk:
        return desk.books()
