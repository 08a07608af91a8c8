"""Guesses err towards harm, say why, and never let a tool run in a dream."""

import copy
import functools
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, StructuredTool, tool

from dreamgym_kit.routing.effects import declared_effect, effect, guess_effect
from dreamgym_kit.routing.router import CallRouter, Mode, Route
from dreamgym_kit.types import Effect, ToolSpec

READ, WRITE, DESTRUCTIVE = Effect.READ, Effect.WRITE, Effect.DESTRUCTIVE


@each_row(
    ("name", "guessed"),
    [
        ("get_order", READ),
        ("getOrder", READ),
        ("list_orders", READ),
        ("searchRefunds", READ),
        ("find-customer", READ),
        ("is_open", READ),
        ("HTTPGet", READ),
        ("email.search_emails", READ),
        ("github__get_issue", READ),
        ("web_search", READ),
        ("find_user_id_by_name_and_zip", READ),
        ("read_item_items__item_id__get", READ),
        ("email.delete_email", DESTRUCTIVE),
        ("delete.item", DESTRUCTIVE),
        ("user_create", WRITE),
        ("status_update", DESTRUCTIVE),
        ("find_replace", DESTRUCTIVE),
        ("search_and_book", DESTRUCTIVE),
        ("order_status", DESTRUCTIVE),
        ("browser_select_option", DESTRUCTIVE),
        ("return_order_items", DESTRUCTIVE),
        ("sql_db_query", DESTRUCTIVE),
        ("track_event", DESTRUCTIVE),
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


@each_row(
    ("name", "description", "guessed"),
    [
        ("weather", "Get the weather of a city.", READ),
        ("weather", "This tool fetches the weather.", READ),
        ("weather", "Label: Displays the weather.", READ),
        ("weather", "GET /v1/weather", READ),
        ("weather", "POST /v1/weather, gets the weather", DESTRUCTIVE),
        ("weather", "Gets the weather and sends it.", DESTRUCTIVE),
        ("weather", "Return the weather station to the shop.", DESTRUCTIVE),
        ("order_status", "Get the status of an order.", READ),
        ("message_get_login_status", "Get the login status.", READ),
        ("order_pizza", "Get a pizza to your door.", DESTRUCTIVE),
        ("slack_post", "Returns the id of the message.", DESTRUCTIVE),
        ("take_hours", "Take hours of a person; returns the hours left.", DESTRUCTIVE),
        ("get_update_status", "Get the status of an update.", READ),
        ("query", "Query the SQL database.", DESTRUCTIVE),
        ("wikipedia", "A wrapper around Wikipedia.", READ),
        ("wikipedia", "Edits a page of Wikipedia.", WRITE),
    ],
)
def test_a_description_tells_what_a_name_leaves_open(name: str, description: str, guessed: Effect) -> None:
    assert guess_effect(name, description)[0] is guessed


@each_row("word", ["Deletes", "sends", "charges", "refunds", "cancels", "creates", "updates"])
def test_a_description_warns_but_never_calms(word: str) -> None:
    assert guess_effect("get_order", f"{word} the order.")[0] is DESTRUCTIVE
    assert guess_effect("delete_order", "Reads an order.")[0] is DESTRUCTIVE


@each_row(
    ("name", "told", "guessed"),
    [
        ("frobnicate", {"readOnlyHint": True}, DESTRUCTIVE),
        ("update_order", {"readOnlyHint": True}, WRITE),
        ("delete_order", {"readOnlyHint": True}, DESTRUCTIVE),
        ("get_order", {"readOnlyHint": True}, READ),
        ("get_order", {"destructiveHint": True}, DESTRUCTIVE),
        ("get_order", {"destructive_hint": True}, DESTRUCTIVE),
        ("get_order", {"annotations": {"destructive_hint": True}}, DESTRUCTIVE),
        ("get_order", {"metadata": {"annotations": {"destructiveHint": True}}}, DESTRUCTIVE),
        ("get_order", {"destructiveHint": True, "readOnlyHint": True}, DESTRUCTIVE),
        ("get_order", {"destructiveHint": False, "annotations": {"destructiveHint": True}}, DESTRUCTIVE),
        ("update_order", {"destructiveHint": True}, DESTRUCTIVE),
        ("update_order", {"destructiveHint": False, "readOnlyHint": True}, WRITE),
        ("get_order", {"readOnlyHint": False}, WRITE),
        ("get_order", {"annotations": {"read_only_hint": False}}, WRITE),
        ("get_order", {"readOnlyHint": None, "destructiveHint": None}, READ),
        ("delete_order", {"dreamgym_effect": "pure", "__handoff_destination": "x"}, DESTRUCTIVE),
    ],
)
def test_what_a_server_says_of_its_tool_is_believed_only_towards_harm(
    name: str, told: dict[str, object], guessed: Effect
) -> None:
    assert guess_effect(name, annotations=told)[0] is guessed


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


@each_row("kind", list(Effect))
def test_in_a_dream_only_pure_and_control_are_real(kind: Effect) -> None:
    policy = CallRouter(Mode.DREAM, {"x": ToolSpec("x", kind)})
    assert policy.route("x") is (Route.REAL if kind in (Effect.PURE, Effect.CONTROL) else Route.DREAM)


def test_a_stranger_is_destructive_and_dreamt() -> None:
    policy = CallRouter(Mode.DREAM)
    assert policy.spec("never seen").effect is DESTRUCTIVE
    assert policy.route("never seen") is Route.DREAM


@each_row(
    ("source", "kind", "judged"),
    [
        ("decorator", Effect.PURE, Effect.PURE),
        ("declared", Effect.PURE, Effect.PURE),
        ("guessed", READ, DESTRUCTIVE),
    ],
)
def test_of_a_stranger_only_a_persons_word_is_believed(source: Any, kind: Effect, judged: Effect) -> None:
    def judge(called: object, known: ToolSpec) -> ToolSpec:
        return ToolSpec(known.name, kind, source=source)

    policy = CallRouter(Mode.DREAM, judge=judge)
    assert policy.spec("never seen", pay).effect is judged
    assert policy.spec("never seen").effect is DESTRUCTIVE


def test_recording_runs_everything() -> None:
    assert CallRouter(Mode.RECORD).route("delete_all") is Route.REAL


class Calc(BaseTool):
    """Computes."""

    name: str = "calc"
    description: str = "Computes."

    def _run(self, x: int) -> int:
        return x


class Renamed(Calc):
    name: str = "calc2"


class Paying(Calc):
    def _run(self, x: int) -> int:
        return -x


class Bookkeeping:
    def _run(self, x: int) -> int:
        return -x


class Mixed(Bookkeeping, Calc):
    pass


effect("pure")(Calc)


def pay(x: int) -> int:
    """Pay."""
    return -x


async def apay(x: int) -> int:
    """Pay."""
    return -x


def pure_tool() -> StructuredTool:
    @tool
    def square(x: int) -> int:
        """Square."""
        return x * x

    return effect("pure")(square)


def test_what_is_declared_of_a_tool_is_in_no_mapping_that_a_server_could_write() -> None:
    square = pure_tool()
    assert declared_effect(square) is Effect.PURE
    assert square.metadata is None
    forged = tool(pay)
    forged.metadata = {"dreamgym_effect": "pure"}
    assert declared_effect(forged) is None
    forged.__dict__["__dreamgym_effect__"] = "pure"
    assert declared_effect(forged) is None


@each_row("copied", [copy.copy, copy.deepcopy, lambda one: one.model_copy(update={"name": "q"})])
def test_a_copy_of_a_tool_keeps_what_was_declared(copied: Any) -> None:
    assert declared_effect(copied(pure_tool())) is Effect.PURE


@each_row("update", [{"func": pay}, {"coroutine": apay}])
def test_a_copy_that_runs_something_else_does_not(update: dict[str, Any]) -> None:
    assert declared_effect(pure_tool().model_copy(update=update)) is None


def test_a_tool_that_was_given_another_body_is_no_more_what_was_declared() -> None:
    square = pure_tool()
    square.func = pay
    assert declared_effect(square) is None


def test_a_function_that_wraps_a_pure_one_is_not_pure() -> None:
    @effect("pure")
    def square(x: int) -> int:
        return x * x

    @functools.wraps(square)
    def paying(x: int) -> int:
        return pay(square(x))

    assert declared_effect(square) is Effect.PURE
    assert declared_effect(paying) is None


def test_what_is_said_of_a_cache_is_said_of_what_it_keeps() -> None:
    cached = functools.lru_cache(lambda x: x)
    effect("pure")(cached)
    assert declared_effect(cached) is Effect.PURE
    assert declared_effect(cached.__wrapped__) is Effect.PURE


def test_a_class_hands_on_what_was_declared_only_where_no_code_is_added() -> None:
    assert declared_effect(Calc()) is Effect.PURE
    assert declared_effect(Renamed()) is Effect.PURE
    assert declared_effect(Paying()) is None
    assert declared_effect(Mixed()) is None
