"""Assertions on an episode: what holds, what does not, and what is said then."""

import itertools
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from each_row import each_row

from dreamgym_kit.adapters.pytest_plugin.episode import DreamedEpisode, call
from dreamgym_kit.types import Answer, Call, Effect, Environment, Episode, Source, Transition, Verdict

DRAWN = itertools.count()
TOOLS = ("get_payment", "refund_payment", "delete_account")


def step(number, tool, effect=Effect.READ, content="ok", error=None, **args) -> Transition:
    answer = Answer(content=content, source=Source.RECORDED, error=error)
    call = Call(tool, args, call_id=f"c{next(DRAWN)}")
    return Transition(call, answer, effect, "t.1", number, recorded_at=time.time())


def episode(*steps: Transition, answer="Done.", **more) -> DreamedEpisode:
    messages = (
        {"role": "user", "content": "refund p1"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": f"c{next(DRAWN)}", "name": "get_payment", "args": {}}],
        },
        {"role": "assistant", "content": answer},
    )
    about = {"verdict": Verdict.INCONCLUSIVE, "reason": "nobody asked", **more}
    record = Episode("t.1", "t", 1, Environment(), transitions=steps, messages=messages, **about)
    return DreamedEpisode(record, directory=Path("run"), tools=TOOLS)


LOOKED = step(1, "get_payment", payment="p1")
REFUNDED = step(2, "refund_payment", Effect.DESTRUCTIVE, payment="p1", amount=40.0)


def said_by(assertion, *args, **kwargs) -> str:
    with pytest.raises(AssertionError) as caught:
        assertion(*args, **kwargs)
    return str(caught.value)


def test_arguments_are_compared_by_equality_and_others_do_not_matter() -> None:
    ran = episode(LOOKED, REFUNDED)
    assert ran.called("refund_payment", payment="p1")
    assert ran.called("refund_*", amount=pytest.approx(40), payment=ANY)
    assert ran.called_once("get_payment").args == {"payment": "p1"}
    said = said_by(ran.called, "refund_payment", payment="p2", note="x")
    assert said.startswith("refund_payment(payment='p2', note='x') was not called\n")
    assert "  step 2: payment is 'p1', expected 'p2'; note was not given, expected 'x'\n" in said
    assert "  1 get_payment(payment='p1') -> 'ok'  [read, recorded]\n" in said


def test_once_means_once() -> None:
    twice = episode(LOOKED, step(2, "get_payment", payment="p1"))
    assert "was called 2 times, expected once" in said_by(twice.called_once, "get_payment")
    assert "was not called" in said_by(twice.called_once, "refund_payment")


def test_not_called_names_the_call_that_was() -> None:
    ran = episode(LOOKED, REFUNDED)
    assert ran.not_called("delete_*")
    assert ran.not_called("refund_payment", payment="p2")
    said = said_by(ran.not_called, "refund_*")
    assert said.startswith(
        "refund_* was called, but should not have been: refund_payment(payment='p1', amount=40.0), step 2"
    )


@each_row("method", ["called", "called_once", "not_called", "order", "exactly", "would_write"])
def test_a_name_that_no_tool_has_never_holds(method: str) -> None:
    said = said_by(getattr(episode(LOOKED), method), "refund_paymnt")
    assert said == "the graph has no tool 'refund_paymnt'; did you mean 'refund_payment'?"


@each_row("method", ["called", "called_once", "not_called", "would_write"])
@each_row("tool", ["refund_payment", "refund_*"])
def test_an_argument_that_no_tool_takes_never_holds(method: str, tool: str) -> None:
    known = {"refund_payment": ["payment", "amount"]}
    told = DreamedEpisode(episode(LOOKED).record, directory=Path("run"), tools=TOOLS, arguments=known)
    said = said_by(getattr(told, method), tool, amonut=40)
    assert said == f"{tool} takes no argument 'amonut'; did you mean 'amount'?"


def test_a_tool_that_does_not_say_what_it_takes_may_take_anything() -> None:
    known = {"refund_payment": ["payment", "amount"]}
    told = DreamedEpisode(episode(LOOKED).record, directory=Path("run"), tools=TOOLS, arguments=known)
    assert told.not_called("delete_account", anything=1)
    assert told.not_called("*_account", anything=1)


def test_order_lets_others_stand_between_and_says_what_came_too_early() -> None:
    ran = episode(LOOKED, step(2, "get_payment", payment="p2"), step(3, "refund_payment", payment="p2"))
    assert [one.number for one in ran.order("get_payment", call("refund_payment", payment="p2"))] == [1, 3]
    assert ran.order("get_payment", "get_payment")
    said = said_by(ran.order, "refund_payment", "get_payment")
    assert said.startswith(
        "get_payment was not called after refund_payment(payment='p2') (step 3), but before, as step 2"
    )
    assert "refund_payment(payment='p9') was not called at all" in said_by(
        ran.order, call("refund_payment", payment="p9")
    )


def test_exactly_lets_nothing_else_stand() -> None:
    ran = episode(LOOKED, REFUNDED)
    assert ran.exactly("get_payment", call("refund_payment", payment="p1"))
    assert "call 1 is get_payment(payment='p1'), expected refund_payment" in said_by(
        ran.exactly, "refund_payment", "get_payment"
    )
    assert "amount is 40.0, expected 41" in said_by(
        ran.exactly, "get_payment", call("refund_payment", amount=41)
    )
    assert "and nothing more was expected" in said_by(ran.exactly, "get_payment")
    assert "there were only 2 calls" in said_by(ran.exactly, "get_payment", "refund_payment", "get_payment")


def test_effects_are_what_would_have_changed_the_world_failed_or_not() -> None:
    ran = episode(LOOKED, REFUNDED, step(3, "delete_account", Effect.DESTRUCTIVE, error="gone already"))
    assert [one.tool for one in ran.effects] == ["refund_payment", "delete_account"]
    assert ran.would_write("refund_payment", payment="p1")
    assert ran.would_write()
    assert "2 calls would have changed the environment, first refund_payment(" in said_by(
        ran.would_write_nothing
    )
    assert "get_payment would not have changed anything: step 1 changed nothing" in said_by(
        ran.would_write, "get_payment"
    )
    assert episode(LOOKED).would_write_nothing()


def test_outcome_and_last_words() -> None:
    assert episode(answer=[{"type": "text", "text": "All "}, "done."]).answer == "All done."
    assert episode(verdict=Verdict.PASSED).passed()
    assert "the verdict is failed, expected passed: too late" in said_by(
        episode(verdict=Verdict.FAILED, reason="too late").passed
    )
    assert episode().verdict == "inconclusive"


def test_data_of_an_episode_holds_no_clock_and_no_drawn_id_but_every_argument() -> None:
    first = episode(step(1, "get_payment", id="p1", call_id="mine"), started_at=1.0, elapsed_s=2.0)
    second = episode(step(1, "get_payment", id="p1", call_id="mine"), started_at=3.0, elapsed_s=4.0)
    assert first.to_json() == second.to_json()
    assert first.to_json()["transitions"][0]["call"]["args"] == {"id": "p1", "call_id": "mine"}
    assert first.to_json() != episode(step(1, "get_payment", id="p2")).to_json()


def test_what_tools_say_moves_no_cursor() -> None:
    ran = episode(step(1, "get_payment", error="\x1b[2Jboo", payment="\x1b]0;x\x07"), answer="\x1b[31mred")
    assert "\x1b" not in str(ran) + said_by(ran.called, "refund_payment")


def test_a_call_that_came_once_is_not_said_to_come_before_itself() -> None:
    said = said_by(episode(LOOKED, REFUNDED).order, "refund_payment", "refund_payment")
    assert said.splitlines()[:2] == [
        "refund_payment was not called after refund_payment(payment='p1', amount=40.0) (step 2)",
        "the episode:",
    ]
