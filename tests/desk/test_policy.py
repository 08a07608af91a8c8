import json
from typing import Any

from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.recipes.desk.cases import FAMILIES, TRAIN_SEEDS, make_case
from dreamgym_kit.recipes.desk.checkers import goal
from dreamgym_kit.recipes.desk.database import DeskError, refund_share, scratch_desk
from dreamgym_kit.recipes.desk.policy import (
    Habits,
    ScriptCall,
    ScriptReply,
    ScriptTurn,
    next_turn,
    read_request,
    run_script,
)

MANY = range(TRAIN_SEEDS.start, TRAIN_SEEDS.start + 450)


def test_a_request_is_read_by_its_known_words() -> None:
    asked = read_request("My name is Ana. I was charged twice for the bike, order O11. I live in Oslo.")
    assert (asked.name, asked.item, asked.order_id, asked.city) == ("Ana", "bike", "O11", "Oslo")


def test_a_request_of_no_family_is_answered_without_a_call() -> None:
    assert isinstance(next_turn("What is the weather?", [], Habits()), str)
    assert isinstance(next_turn("", [], Habits()), str)


def test_a_refusal_that_the_work_hangs_on_ends_it_with_the_reason() -> None:
    said = next_turn(
        "Ana here. Your service is bad.", [[ScriptReply(error="no customer is called Ana")]], Habits()
    )
    assert said == "I could not do that: no customer is called Ana."


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


def works(seed: int) -> list[ScriptCall]:
    """The right colleague's calls that change the desk."""
    case, done = make_case(seed), []

    def answer(use: ScriptCall) -> ScriptReply:
        done.append(use)
        if use.tool == "refund_quote":
            return ScriptReply(refund_share(**use.args))
        try:
            return ScriptReply(desk.call(use.tool, use.args) if use.tool != "summarise_case" else {})
        except DeskError as error:
            return ScriptReply(error=str(error))

    with scratch_desk(case.rows) as desk:
        run_script(case.text, Habits(), answer)
    return done


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


def test_a_mail_comes_before_the_customer_is_gone() -> None:
    for seed in MANY:
        tools = [use.tool for use in works(seed)]
        if "delete_customer" in tools:
            assert tools.index("send_mail") < tools.index("delete_customer")


def test_an_episode_is_short_and_its_arguments_are_text() -> None:
    lengths = []
    for seed in MANY:
        uses = works(seed)
        lengths.append(len(uses))
        assert all(isinstance(value, str) for use in uses for value in use.args.values())
        assert json.dumps([dict(use.args) for use in uses]).isascii()
    assert max(lengths) <= 8
    assert sum(lengths) / len(lengths) < 5


@each_row("kind", ["junior", "slip"])
def test_slips_and_habits_are_the_same_every_time(kind: str) -> None:
    for seed in MANY[:50]:
        text = make_case(seed).text
        turns = [next_turn(text, [], Habits(kind, seed="3")) for _ in range(2)]
        assert turns[0] == turns[1]
        assert isinstance(turns[0], ScriptTurn)


def test_other_seeds_slip_elsewhere() -> None:
    def course(text: str, seed: int, habits: Habits) -> list[ScriptCall]:
        done = []

        def answer(use: ScriptCall) -> ScriptReply:
            done.append(use)
            return ScriptReply(
                refund_share(**use.args) if use.tool == "refund_quote" else desk.call(use.tool, use.args)
            )

        with scratch_desk(make_case(seed).rows) as desk:
            run_script(text, habits, answer)
        return done

    seeds = [seed for seed in MANY if make_case(seed).family == "address"][:20]
    courses = [
        [course(make_case(s).text, s, Habits("slip", seed=name)) for s in seeds] for name in ("1", "2")
    ]
    assert courses[0] != courses[1]
