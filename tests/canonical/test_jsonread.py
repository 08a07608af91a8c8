"""The reader of foreign JSON: what `json` would let through or die of is refused in one line."""

import json
from contextlib import suppress

import pytest
from each_row import each_row
from hypothesis import example, given
from hypothesis import strategies as st

from dreamgym_kit.bounded_json import MAX_DEPTH, MAX_VALUES, check_bounds, read_json, read_own_json
from dreamgym_kit.errors import NotSerializable

texts = st.text(st.characters(exclude_categories=()), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(values, st.booleans())
@example({"\ud800": ["\udc00"]}, False)
def test_every_json_value_is_read(value: object, as_bytes: bool) -> None:
    text = json.dumps(value)
    assert read_json(text.encode() if as_bytes else text) == value
    for read in (read_own_json, lambda text: read_json(text, checked=True)):  # types, and 1.0 beside 1
        assert repr(read(text.encode() if as_bytes else text)) == repr(json.loads(text))


@given(st.text(max_size=30) | st.text('{}[]",:\\ntrue0123456789.eE+-u', max_size=30))
def test_any_text_is_read_as_json_does_or_refused_in_one_line(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(NotSerializable) as caught:
            read_json(text)
        assert "\n" not in str(caught.value)
        with pytest.raises(NotSerializable):
            read_own_json(text)
        return
    with suppress(NotSerializable):  # stricter than `json`: NaN, 1e999, two equal keys
        assert read_json(text) == expected


@given(st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(NotSerializable):
        read_json(data)


@each_row(
    ("text", "why"),
    [
        ("", "Expecting value at column 1"),
        ("{oops", "Expecting property name enclosed in double quotes at column 2"),
        ('{\n"a":\n}', "Expecting value at line 3 column 1"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("1e999", "number 1e999 is not finite"),
        ('{"a":1,"a":2}', "key 'a' stands twice in one object"),
        ('{"a\\nb":1,"a\\nb":2}', "key 'a\\nb' stands twice in one object"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        ("9" * 5000, "an integer of more than 4,300 digits"),
        ("[" * 10_000, "nested deeper than 200"),
        ("[" * 10_000 + "]" * 10_000, "nested deeper than 200"),
        ('{"a":' * 201 + "1" + "}" * 201, "nested deeper than 200"),
        ("[" + "0," * (MAX_VALUES + 1) + "0]", "more than 500000 values"),
        ("[" + "{}," * MAX_VALUES + "0]", "more than 500000 values"),
        ("\ufeff1", "Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1"),
    ],
)
def test_what_is_refused_says_why(text: str | bytes, why: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        read_json(text)
    assert str(caught.value) == why


def test_the_bounds_count_marks_and_not_what_stands_in_texts() -> None:
    brackets = "[{" * MAX_DEPTH + '\\"' + "," * (MAX_VALUES + 1)
    assert read_json(json.dumps([brackets, brackets])) == [brackets, brackets]
    assert len(read_json("[" + "[]," * 1000 + "[]]")) == 1001
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    check_bounds(deepest)
    assert read_json(deepest)


@each_row("text", ['"aaaaaaaaaa"', b'"aaaaaaaaaa"', b'"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"'])
def test_what_is_too_large_is_refused_before_it_is_looked_at(text: str | bytes) -> None:
    with pytest.raises(NotSerializable, match=r"^larger than 10 bytes$"):
        read_json(text, max_bytes=10)
