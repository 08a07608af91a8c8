"""Guesses err towards harm, say why, and never let a tool run in a dream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import tool

from dreamgym_kit.gate.effects import declared_effect, effect, guess_effect
from dreamgym_kit.gate.policy import GatePolicy, Mode, Route
from dreamgym_kit.vocabulary import Effect, ToolSpec

READ, WRITE, DESTRUCTIVE = Effect.READ, Effect.WRITE, Effect.DESTRUCTIVE


@pytest.mark.parametrize(
    ("name", "guessed"),
    [
        ("get_order", READ),
        ("getOrder", READ),
        ("list_orders", READ),
        ("searchRefunds", READ),
        ("find-customer", READ),
        ("is_open", READ),
        ("HTTPGet", READ),
        ("requests_get", READ),
        ("create_ticket", WRITE),
        ("update_address", WRITE),
        ("request_put", WRITE),
        ("cancel_order", WRITE),
        ("draft_email", WRITE),
        ("refund_payment", DESTRUCTIVE),
        ("send_mail", DESTRUCTIVE),
        ("delete_user", DESTRUCTIVE),
        ("requests_post", DESTRUCTIVE),
        ("make_payment", DESTRUCTIVE),
        ("create_refund", DESTRUCTIVE),
        ("submit_wire_transfer", DESTRUCTIVE),
        ("get_and_delete", DESTRUCTIVE),
        ("get_or_create_user", DESTRUCTIVE),
        ("check_out_cart", DESTRUCTIVE),
        ("check_in_guest", DESTRUCTIVE),
        ("please_delete_it", DESTRUCTIVE),
        ("frobnicate", DESTRUCTIVE),
        ("", DESTRUCTIVE),
        ("заказ", DESTRUCTIVE),
        ("1234", DESTRUCTIVE),
    ],
)
def test_a_name_is_guessed(name: str, guessed: Effect) -> None:
    found, reason = guess_effect(name)
    assert found is guessed
    assert reason


@given(st.text(max_size=30), st.text(max_size=60))
def test_no_guess_ever_runs_in_a_dream(name: str, description: str) -> None:
    found, reason = guess_effect(name, description)
    assert not found.runs_in_dream
    assert reason


@pytest.mark.parametrize("word", ["Deletes", "sends", "charges", "refunds", "cancels", "creates", "updates"])
def test_a_description_warns_but_never_calms(word: str) -> None:
    assert guess_effect("get_order", f"{word} the order.")[0] is DESTRUCTIVE
    assert guess_effect("delete_order", "Reads an order.")[0] is DESTRUCTIVE


def test_annotations_are_believed_only_towards_harm_and_for_unclear_names() -> None:
    assert guess_effect("frobnicate", annotations={"readOnlyHint": True})[0] is READ
    assert guess_effect("update_order", annotations={"readOnlyHint": True})[0] is READ
    assert guess_effect("get_order", annotations={"destructiveHint": True})[0] is DESTRUCTIVE
    assert guess_effect("delete_order", annotations={"readOnlyHint": True})[0] is DESTRUCTIVE


def test_an_author_may_declare_an_effect_on_function_or_tool() -> None:
    @effect("pure")
    def square(x: int) -> int:
        """Square."""
        return x * x

    @effect("control")
    @tool
    def think(thought: str) -> str:
        """Think."""
        return thought

    assert declared_effect(square) is Effect.PURE
    assert declared_effect(think) is Effect.CONTROL
    assert declared_effect(tool(square)) is None
    assert declared_effect(lambda: None) is None


def test_an_effect_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'harmless' is not a valid Effect"):
        effect("harmless")


@pytest.mark.parametrize("kind", list(Effect))
def test_in_a_dream_only_pure_and_control_are_real(kind: Effect) -> None:
    policy = GatePolicy(Mode.DREAM, {"x": ToolSpec("x", kind)})
    assert policy.route("x") is (Route.REAL if kind in (Effect.PURE, Effect.CONTROL) else Route.DREAM)


def test_a_stranger_is_destructive_and_dreamt() -> None:
    policy = GatePolicy(Mode.DREAM)
    assert policy.spec("never seen").effect is DESTRUCTIVE
    assert policy.route("never seen") is Route.DREAM


def test_recording_runs_everything() -> None:
    assert GatePolicy(Mode.RECORD).route("delete_all") is Route.REAL
