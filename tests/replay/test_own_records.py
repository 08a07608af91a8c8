"""The quick reader of our own records takes nothing that the slow one refuses, and reads the same."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.errors import NotJson
from dreamgym_kit.replay import records
from dreamgym_kit.replay.own_records import read_own
from dreamgym_kit.replay.records import transition_to_record
from dreamgym_kit.vocabulary import Answer, Call, Effect, Provenance, Transition, World

ANSWER = Answer(
    *(
        {"n": [1]},
        Provenance.REASONED,
        0.5,
        {"a": 1},
        "late",
        "ToolException",
        {"x": 1},
        ("id",),
        "seen once",
    ),
)
ROW = transition_to_record(
    Transition(Call("get", {"id": 7}, "c1", "tools"), ANSWER, Effect.READ, "t.1", 1, World("shop", 3))
)
PATHS = [(name,) for name in ROW] + [
    (name, inner) for name in ("world", "call", "answer") for inner in ROW[name]
]
WRONG = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2,
        1.5,
        float("nan"),
        float("inf"),
        2.0,
        "",
        "real",
        "read",
        [],
        [1],
        ["a"],
        {},
        {"a": 1},
    ]
)


def slow(record: object) -> Transition | str:
    try:
        return records._read_transition(record)
    except NotJson as error:
        return str(error)


def test_our_own_records_go_the_quick_way() -> None:
    found = read_own(ROW)
    assert found == slow(ROW)
    assert found is not None


@given(st.lists(st.tuples(st.sampled_from(PATHS), WRONG | st.just("leave out")), min_size=1, max_size=2))
def test_whatever_is_changed_the_quick_way_says_the_same_or_nothing(
    changes: list[tuple[tuple[str, ...], object]],
) -> None:
    record = copy.deepcopy(ROW)
    for (*above, name), value in changes:
        inside = record.get(above[0]) if above else record
        if not isinstance(inside, dict):
            continue
        if value == "leave out":
            inside.pop(name, None)
        else:
            inside[name] = value
    quick = read_own(record)
    assert quick is None or quick == slow(record)


@pytest.mark.parametrize("record", [None, [], "text", {}, {**ROW, "more": 1}, dict(reversed(ROW.items()))])
def test_another_form_is_left_to_the_slow_way(record: object) -> None:
    assert read_own(record) is None
