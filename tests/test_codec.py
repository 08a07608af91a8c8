"""A dataclass is the schema of its records: what hints and metadata say is what files hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from each_row import each_row

from dreamgym_kit.codec import ALWAYS, IF_SET, NEVER, Codec, Count, FilledText, Number, Share
from dreamgym_kit.errors import NotSerializable


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"

    @property
    def on_disk(self) -> str:
        return "rot" if self is Color.RED else self.value

    @classmethod
    def _missing_(cls, value: object) -> "Color | None":
        return Color.RED if value == "rot" else None


@dataclass(frozen=True, slots=True)
class Part:
    name: FilledText
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    color: Color = Color.BLUE
    kind: str = field(default="plain", metadata=ALWAYS)
    parts: tuple[Part, ...] = ()
    by_place: Mapping[str, Part] = field(default_factory=dict)
    notes: tuple[Mapping[str, Any], ...] | None = field(default=None, metadata=IF_SET)
    share: Share = 0.5
    price: Number | None = None
    counts: Mapping[str, Count] = field(default_factory=dict)
    memo: int = field(default=0, metadata=NEVER)
    _cache: int = field(default=0, init=False, repr=False, compare=False)

    @property
    def label(self) -> str:
        return f"{self.name}/{len(self.parts)}"


PLAIN = Codec(Box)
BOXES = Codec(Box, schema=2, computed="label", renamed={"title": "name"})
FULL = Box("b", Color.RED, "odd", (Part("p", 2.5),), {"left": Part("q")}, ({"a": 1},), 0.25, 3, {"x": 1})


def said(codec: Codec[Box], record: object) -> str:
    with pytest.raises(NotSerializable) as caught:
        codec.read(record)
    return str(caught.value)


@pytest.mark.parametrize("box", [FULL, Box("b")])
@pytest.mark.parametrize("codec", [PLAIN, BOXES])
def test_a_record_comes_back_as_it_was(codec: Codec[Box], box: Box) -> None:
    assert codec.read(codec.write(box)) == box


def test_a_record_holds_what_hints_and_metadata_say() -> None:
    assert list(PLAIN.write(Box("b"))) == [
        *("name", "color", "kind", "parts", "by_place", "share", "price", "counts")
    ]
    written = BOXES.write(FULL)
    assert (written["schema"], written["label"], written["color"]) == (2, "b/1", "rot")
    assert written["notes"] == [{"a": 1}]


def test_a_whole_price_stays_whole_and_fields_with_a_default_may_be_missing() -> None:
    read = PLAIN.read({"name": "b", "kind": "x", "price": 3})
    assert (type(read.price), read.share) == (int, 0.5)


def test_an_older_schema_and_an_old_name_are_read() -> None:
    assert BOXES.read({"schema": 1, "title": "b", "kind": "plain"}) == Box("b")


@each_row(
    ("change", "message"),
    [
        ({"memo": 1}, "memo: no such field; known: name, color"),
        ({"_cache": 1}, "_cache: no such field"),
        ({"colour": "red"}, "colour: no such field; did you mean 'color'?"),
        ({"color": "blu"}, "color: 'blu'; did you mean 'blue'?"),
        ({"parts": [{"name": "p"}, {"name": 3}]}, "parts[1].name: expected text, got 3"),
        ({"parts": [{"name": " "}]}, "parts[0].name: is empty"),
        ({"parts": [{"weight": 1}]}, "parts[0].name: missing"),
        ({"parts": [{"name": "p", "wight": 1}]}, "parts[0].wight: no such field; did you mean 'weight'?"),
        ({"by_place": {"left": {"name": None}}}, "by_place.left.name: expected text, got nothing"),
        ({"by_place": [1]}, "by_place: expected an object, got a list"),
        ({"counts": {"x": 1, "y": -1}}, "counts.y: expected a whole number >= 0, got -1"),
        ({"share": 1.5}, "share: expected a number <= 1.0, got 1.5"),
        ({"price": "3"}, "price: expected a number, got '3'"),
        ({"color": "x' - at `$.parts[99]`"}, 'color: "x\' - at `$.parts[99]`"; known: red, blue'),
        ({"color": "\ud800"}, "color: '\\ud800'; known: red, blue"),
        ({"parts": "\ud800"}, "parts: expected "),
        ({"counts": {"\ud800": "\ud800"}}, "counts.'\\ud800': expected "),
        ({"parts": {1}}, "parts: expected a list, got set"),
        ({"by_place": {"a\nb": {"size": 1}}}, "by_place.'a\\nb'.size: no such field"),
        ({"notes": [3]}, "notes[0]: expected an object, got 3"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(change: dict[str, object], message: str) -> None:
    assert said(PLAIN, {**PLAIN.write(FULL), **change}).startswith(message)


@each_row("box", [Box("b", share=1.5), Box("b", counts={"x": 1.5}), Box(3)])
def test_what_could_not_be_read_again_is_not_written(box: Box) -> None:
    with pytest.raises(NotSerializable):
        PLAIN.write(box)


def test_a_name_is_written_for_its_enum() -> None:
    assert PLAIN.read(PLAIN.write(Box("b", "blue"))) == Box("b", Color.BLUE)


def test_every_problem_is_named_at_once() -> None:
    record = {"name": 1, "parts": [{}], "share": 2, "shade": 1}
    assert [problem.partition(":")[0] for problem in PLAIN.problems(record)] == [
        *("shade", "name", "kind", "parts[0].name", "share")
    ]


def test_a_newer_schema_is_said_before_its_fields() -> None:
    assert (
        said(BOXES, {"schema": 3, "mood": 1})
        == "schema: 3 is newer than 2, the newest here; update dreamgym-kit"
    )
    assert said(BOXES, {"name": "b"}) == "schema: missing"
    assert said(BOXES, {"schema": True}) == "schema: expected a whole number, got true"


def test_what_is_computed_is_compared_also_inside() -> None:
    record = BOXES.write(FULL)
    assert said(BOXES, {**record, "label": "c/1"}).startswith(
        "label: 'c/1' is not the label of this content (b/1)"
    )
    del record["label"]
    assert BOXES.read(record) == FULL

    @dataclass(frozen=True, slots=True)
    class Shelf:
        boxes: tuple[Box, ...]

    shelves = Codec(Shelf, nested=(BOXES,))
    inside = shelves.write(Shelf((FULL,)))
    inside["boxes"][0]["name"] = "other"
    with pytest.raises(NotSerializable, match=r"^boxes\[0\]\.label: "):
        shelves.read(inside)
    assert shelves.read(inside, compare=False).boxes[0].name == "other"


@each_row("value", [None, [], "x", 3])
def test_what_is_not_an_object_is_refused(value: object) -> None:
    assert said(PLAIN, value).startswith("this: expected an object, got ")
