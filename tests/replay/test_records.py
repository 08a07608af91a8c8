"""Transitions as JSON objects: nothing is lost, nothing unknown passes, a wrong field is named."""

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import drawn

from dreamgym_kit.errors import NotSerializable
from dreamgym_kit.replay.records import (
    dump_transition,
    load_transition,
    transition_from_record,
    transition_to_record,
)
from dreamgym_kit.types import Answer, Call, Effect, Transition

# Lone surrogates included: models and tools do send them.
texts = st.text(st.characters(exclude_categories=()), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | numbers | texts
transitions = drawn.transitions(texts, numbers, content=texts, seconds=numbers)
ROW = transition_to_record(Transition(Call("get_order", {"id": 7}), Answer("paid"), Effect.READ, "t1.1", 1))


@given(transitions)
def test_a_transition_written_and_read_is_the_same_transition(transition: Transition) -> None:
    line = dump_transition(transition)
    assert "\n" not in line
    back = load_transition(line)
    assert back == transition
    assert back.id == transition.id
    assert transition_from_record(transition_to_record(transition)) == transition


def test_what_the_agent_saw_keeps_its_key_order_and_its_floats() -> None:
    answer = Answer({"total": 1.0, "at": 1})
    line = dump_transition(Transition(Call("sum", {}), answer, Effect.PURE, "t.1", 1))
    assert '"content":{"total":1.0,"at":1}' in line


def test_fields_with_a_default_may_be_left_out_and_the_id_too() -> None:
    short = {
        "schema": 1,
        "call": {"tool": "get_order", "args": {"id": 7}},
        "answer": {"content": "paid", "provenance": "real"},
        "effect": "read",
        "episode": "t1.1",
        "step": 1,
    }
    assert transition_from_record(short).id == ROW["id"]


@each_row(
    ("change", "message"),
    [
        ({"step": 0}, "step: expected a whole number >= 1, got 0"),
        ({"elapsed_s": 10**400}, "elapsed_s: number out of range, got a very large number"),
        ({"answer": {"content": 1}}, "answer.provenance: missing"),
        ({"world": {"name": "a", "sed": 1}}, "world.sed: no such field; did you mean 'seed'?"),
        ({"schema": 0}, "schema: there is no schema 0; known: 1 to 1"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(change: dict[str, object], message: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        transition_from_record({**ROW, **change})
    assert str(caught.value) == message


def test_an_edited_row_that_kept_its_id_is_refused_and_says_what_to_do() -> None:
    edited = {**ROW, "step": 2}
    with pytest.raises(
        NotSerializable, match=r"^id: '.*' is not the id of this content \(.*\); .* remove its id$"
    ):
        transition_from_record(edited)
    del edited["id"]
    assert transition_from_record(edited).step == 2


@each_row(
    "bad",
    [
        Transition(Call("a", {"x": float("nan")}), Answer("hi"), Effect.READ, "t.1", 1),
        Transition(Call("a", {"x": object()}), Answer("hi"), Effect.READ, "t.1", 1),
        Transition(Call("a", {}), Answer("hi"), Effect.READ, "t.1", 0),
        Transition(Call("a", {}), Answer("hi", confidence=float("nan")), Effect.READ, "t.1", 1),
    ],
)
def test_what_could_not_be_read_again_is_not_written(bad: Transition) -> None:
    with pytest.raises(NotSerializable):
        dump_transition(bad)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.recursive(
        st.just({}) | scalars, lambda inner: st.dictionaries(texts | st.sampled_from(list(ROW)), inner)
    )
)
def test_json_that_is_no_transition_is_refused_in_one_line(record: object) -> None:
    with pytest.raises(NotSerializable) as refusal:
        transition_from_record(record)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300
