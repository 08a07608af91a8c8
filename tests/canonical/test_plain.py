"""Any value becomes JSON data: never an error, never a `repr`, equal values alike."""

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from collections import OrderedDict, UserDict, deque
from types import MappingProxyType

import pydantic
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dreamgym_kit.bounded_json import check_bounds
from dreamgym_kit.canonical import canonical
from dreamgym_kit.serialization import MAX_DEPTH, MAX_ITEMS, MAX_TEXT, is_exact, to_json


class Colour(enum.Enum):
    RED = "red"
    ODD = object()


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


class Order(pydantic.BaseModel):
    number: int
    at: datetime.date


class Spiteful:
    """Fails at whatever is asked of it."""

    model_dump = property(lambda self: 1 / 0)

    def __repr__(self) -> str:
        return "secret-canary"

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret-canary")

    __hash__ = None  # type: ignore[assignment]


class Dumps(Spiteful):
    def model_dump(self) -> object:  # type: ignore[override]
        raise RuntimeError("secret-canary")


class FailingMapping(UserDict[str, object]):
    def items(self) -> object:  # type: ignore[override]
        raise RuntimeError("secret-canary")


class FailingText(str):
    def __str__(self) -> str:
        raise RuntimeError("secret-canary")


class FailingPath(pathlib.PurePosixPath):
    def __str__(self) -> str:
        raise RuntimeError("secret-canary")


class FailingDate(datetime.datetime):
    def isoformat(self, *_: object, **__: object) -> str:
        raise RuntimeError("secret-canary")


texts = st.text(st.characters(exclude_categories=()), max_size=6)
odd = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=6)
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([Colour.RED, Colour.ODD, Point, int, len, object(), Spiteful(), Dumps(), ...])
)
hashable = (
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=4) | st.uuids()
)
anything = st.recursive(
    odd,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
        | st.builds(Point, st.integers(), inner)
    ),
    max_leaves=8,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(anything)
def test_whatever_it_is_it_becomes_json_without_its_repr(value: object) -> None:
    spelled = canonical(to_json(value))
    assert "secret-canary" not in spelled
    assert " at 0x" not in spelled


@given(json_values)
def test_json_stays_as_it_is(value: object) -> None:
    assert to_json(value) == value
    assert json.dumps(to_json(value)) == json.dumps(value)


@given(anything)
def test_plain_data_is_plain_already(value: object) -> None:
    assert to_json(to_json(value)) == to_json(value)


@given(st.lists(hashable, unique_by=repr, max_size=5), st.randoms())
def test_equal_sets_give_equal_data(items: list[object], chance: object) -> None:
    shuffled = list(items)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    distinct = {(type(item), item) for item in items}
    if len(distinct) == len(set(items)):  # Python's False == 0: which of the two a set keeps is its affair
        assert canonical(to_json(set(items))) == canonical(to_json(set(shuffled)))


@each_row(
    "value",
    [Spiteful(), Dumps(), FailingMapping(a=1), FailingText("a"), FailingPath("a"), FailingDate(2026, 1, 1)],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_fails_at_whatever_is_asked_is_marked(value: object) -> None:
    spelled = json.dumps(to_json([value, {"in": value}]))
    assert "secret-canary" not in spelled


@each_row(
    ("value", "plain"),
    [
        (Order(number=7, at=datetime.date(2026, 1, 2)), {"number": 7, "at": "2026-01-02"}),
        (Point(1, Point(2)), {"x": 1, "y": {"x": 2, "y": None}}),
        (Colour.RED, "red"),
        (b"\x00\xff", {"$bytes": "AP8="}),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), "2026-01-02T03:04:00+00:00"),
        (datetime.timedelta(seconds=1.5), 1.5),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({1: "one", "1": "text"}, {"1 (int)": "one", "1": "text"}),
        ({True: 1, None: 2}, {"true": 1, "null": 2}),
        ({3, 1, 2}, [1, 2, 3]),
        (deque([1]), {"$object": "collections.deque"}),
        (10**5000, {"$cut": "integer too large"}),
        (len, {"$object": "builtins.builtin_function_or_method"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_has_its_form(value: object, plain: object) -> None:
    assert to_json(value) == plain


def test_what_is_too_large_is_cut_with_a_mark() -> None:
    cut, other = to_json("x" * (MAX_TEXT + 5)), to_json("x" * (MAX_TEXT + 4) + "y")
    assert f"... (cut: {MAX_TEXT + 5} characters, sha256 " in cut
    assert cut != other
    assert to_json(list(range(MAX_ITEMS + 1)))[-1] == {"$cut": f"{MAX_ITEMS + 1} items"}
    assert to_json(dict.fromkeys(map(str, range(MAX_ITEMS + 1))))["$cut"] == f"{MAX_ITEMS + 1} keys"
    assert to_json(bytes(MAX_TEXT + 1))["$cut"] == f"{MAX_TEXT + 1} bytes"
    assert to_json(set(range(MAX_ITEMS + 1)))[-1] == {"$cut": f"{MAX_ITEMS + 1} items"}


def test_the_bounds_hold_for_the_whole_value() -> None:
    shared: object = "bottom"
    for _ in range(60):
        shared = [shared, shared]  # 2**60 items, if each were walked
    wide = [["x" * 1000] * 1000 for _ in range(1000)]
    for value in (
        shared,
        wide,
        [[10**4000] * 1000] * 1000,
        {str(key): bytes(9) * 10**5 for key in range(99)},
    ):
        spelled = json.dumps(to_json(value))
        assert len(spelled) < 8 * 2**20
        check_bounds(spelled)
        assert "cut" in spelled


def test_a_small_object_is_copied_and_its_bounds_hold() -> None:
    given = {"a": 1, "b": "text", "c": None}
    plain = to_json(given)
    assert plain == given
    assert plain is not given
    assert to_json({"a": 10**5000}) == {"a": {"$cut": "integer too large"}}
    assert to_json({1: "a", "1": "b"}) == {"1 (int)": "a", "1": "b"}
    assert len(to_json({"a": "x" * (MAX_TEXT + 1)})["a"]) < MAX_TEXT + 100


def test_depth_and_circles_end_in_a_mark() -> None:
    deep: object = "bottom"
    for _ in range(10_000):
        deep = [deep]
    assert f"nested deeper than {MAX_DEPTH}" in json.dumps(to_json(deep))
    circle: dict[str, object] = {}
    circle["again"] = [circle]
    assert to_json(circle) == {"again": [{"$cut": "refers to itself"}]}


def test_the_same_value_twice_side_by_side_is_no_circle() -> None:
    shared = [1]
    assert to_json([shared, shared]) == [[1], [1]]


def test_what_was_cut_or_has_no_json_form_is_not_exact() -> None:
    assert is_exact(to_json({"a": [1, {"b": b"x"}]}))
    assert not is_exact(to_json({"a": [1, {"b": object()}]}))
    assert not is_exact(to_json([10**5000]))
