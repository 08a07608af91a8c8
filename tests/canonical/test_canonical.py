"""One spelling for equal values: the property that ids, keys and digests rest on."""

import json
import math
import uuid

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.canonical import canonical, content_id, digest
from dreamgym_kit.errors import NotSerializable

texts = st.text(st.characters(exclude_categories=()), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(values)
def test_the_spelling_reads_back_as_the_same_value(value: object) -> None:
    assert json.loads(canonical(value)) == value


@given(values)
def test_the_spelling_is_a_fixed_point(value: object) -> None:
    assert canonical(json.loads(canonical(value))) == canonical(value)


@given(st.dictionaries(texts, values, max_size=6), st.randoms())
def test_the_order_of_keys_makes_no_difference(value: dict[str, object], chance: object) -> None:
    items = list(value.items())
    chance.shuffle(items)  # type: ignore[attr-defined]
    assert canonical(dict(items)) == canonical(value)


@given(st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300).map(lambda number: math.floor(number)))
def test_numbers_that_are_equal_are_spelled_alike(number: int) -> None:
    twin = float(number)
    assert (canonical(twin) == canonical(number)) == (twin == number)


@given(values, values)
def test_other_values_have_other_spellings(one: object, other: object) -> None:
    if one != other:
        assert canonical(one) != canonical(other)


@given(values)
def test_the_spelling_is_one_line_of_ascii(value: object) -> None:
    spelled = canonical(value)
    assert spelled.isascii()
    assert spelled.isprintable()


@each_row(
    ("value", "spelled"),
    [
        ({"b": 1.0, "a": [-0.0, True, None]}, '{"a":[0,true,null],"b":1}'),
        (1.5, "1.5"),
        (1e16, "10000000000000000"),
        ((1, 2), "[1,2]"),
        ("é\ud800\n", '"\\u00e9\\ud800\\n"'),
        ({}, "{}"),
    ],
)
def test_the_spelling_itself_is_kept_since_ids_on_disk_rest_on_it(value: object, spelled: str) -> None:
    assert canonical(value) == spelled


def test_digest_and_id_are_kept_too() -> None:
    assert digest(["a", {}]) == "41cbca84a4586f6e8fb332aef70978b289118ec36db08736d80b5d6c108e9973"
    assert uuid.UUID(content_id(["a", {}])).version == 5
    assert content_id(["a", {}]) != content_id(["a", []])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "no canonical form"),
        ([float("inf")], "no canonical form"),
        ({1: "x"}, "object key 1 is not a string"),
        ({"a": {None: 1}}, "object key None is not a string"),
        ({1, 2}, "set is not a JSON value"),
        (b"x", "bytes is not a JSON value"),
        pytest.param(10**5000, "no canonical form", id="5,000 digits"),
    ],
)
def test_what_has_no_json_form_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotSerializable, match=f"^{why}"):
        canonical(value)


def test_endless_nesting_is_refused() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    circle: list[object] = []
    circle.append(circle)
    for value in (deep, circle):
        with pytest.raises(NotSerializable, match="nested too deep"):
            canonical(value)
