"""Episodes as JSON: what is written is what is read, and what was changed in between is named."""

import json
from dataclasses import replace

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.rollout.journal import episode_from_record, episode_to_record
from dreamgym_kit.types import (
    Answer,
    Call,
    Effect,
    Environment,
    Episode,
    Executed,
    Finding,
    Source,
    Spend,
    Split,
    Transition,
    UserTurn,
    Verdict,
)

STEP = Transition(
    call=Call("refund", {"id": "pay_1", "usd": 88.0}, call_id="c1", node="tools"),
    answer=Answer({"ok": False}, Source.FAULT, 0.5, [1], "timed out", "Timeout", {"x": [1]}, ("t",), "y"),
    effect=Effect.DESTRUCTIVE,
    episode="a.1",
    step=1,
    environment=Environment("desk", 7),
    task="a",
    after="abc",
    tenant="acme",
    split=Split.HELD_OUT,
    elapsed_s=0.25,
    recorded_at=1.5,
)  # fmt: skip
FULL = Episode(
    id="a.1",
    task="a",
    repeat=1,
    environment=Environment("desk", 7),
    verdict=Verdict.FAILED,
    reason="refunded twice",
    transitions=(STEP,),
    messages=(
        {"role": "assistant", "content": "ok", "tool_calls": [{"id": "c1", "name": "refund", "args": {}}]},
    ),
    reward=0.25,
    stop="violation",
    violations=("tried to mail",),
    findings=(Finding("repeated_write", "refunded twice", (1, 2), "critical"),),
    model_calls=3,
    tokens=100,
    cost_usd=0.02,
    attempt=2,
    started_at=1.0,
    elapsed_s=2.5,
    counts={"bad_arguments": 1},
    final={"done": [True, None]},
    dream_spend={"judge": Spend(1, 20, 5, 16, 0.001, 1)},
    user_turns=(
        UserTurn("interrupt", "script", 1, 1, {"really": True}, "yes"),
        UserTurn("reply", "task", 0, 0),
    ),
    executed=(Executed("refund", {"order": "o1"}, "its real body ran"),),
    traceback=("agent.py:41 in route: found.group()",),
)
LATER = ("user_turns", "executed", "traceback")  # fields that runs of earlier versions do not have
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-1e300, 1e300), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


def through_json(episode: Episode) -> Episode:
    return episode_from_record(json.loads(json.dumps(episode_to_record(episode))))


def test_every_field_comes_back() -> None:
    assert through_json(FULL) == FULL
    assert through_json(Episode("b.1", "b", 1, Environment(), Verdict.PASSED, "ok")).reward is None


@settings(max_examples=50, derandomize=True, deadline=None)
@given(content=values, final=values, text=st.text(st.characters()))
def test_any_json_value_comes_back(content: object, final: object, text: str) -> None:
    step = replace(STEP, answer=Answer(content))
    episode = replace(
        FULL, id=text, reason=text, transitions=(step,), messages=({"content": content},), final=final
    )
    assert through_json(episode) == episode


@each_row("name", LATER)
def test_a_record_from_before_a_field_was_kept_is_read(name: str) -> None:
    record = episode_to_record(replace(FULL, **{name: ()}))
    del record[name]
    assert episode_from_record(record) == replace(FULL, **{name: ()})


def test_executed_calls_say_their_arguments_and_long_ones_are_cut_at_their_end() -> None:
    call = Executed("pay", {"to": "bob", "n": 2, "note": "x" * 400})
    assert str(call).startswith("pay(to='bob', n=2, note='xxx")
    assert str(call).endswith("x... (+102 chars))")


@each_row(
    ("change", "message"),
    [
        ({"sibling": "1"}, "sibling: expected a whole number, got '1'"),
        ({"transitions": [{}]}, "transitions[0].schema: missing"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        episode_from_record(episode_to_record(FULL) | change)
    assert str(caught.value) == message


@each_row("change", [{"verdict": "success"}, {"executed": []}, {"user_turns": []}])
def test_a_record_that_was_edited_does_not_pass(change: dict[str, object]) -> None:
    with pytest.raises(NotSerializable, match=r"^digest: '[0-9a-f]{40}' is not the digest of this content"):
        episode_from_record(episode_to_record(FULL) | change)


@each_row(("stop", "now"), [("lost", "error"), ("error", "error"), ("limit", "inconclusive")])
def test_what_the_kit_failed_in_an_earlier_version_is_an_error(stop: str, now: str) -> None:
    old = replace(FULL, verdict=Verdict.INCONCLUSIVE, stop=stop)
    record = episode_to_record(old)
    assert record["verdict"] == "undetermined"
    assert episode_from_record(record) == replace(old, verdict=Verdict(now))
