"""Texts with holes and paths, as tool models in settings spell them; read here, never executed.

A text that is one hole, "{args.order_id}", is that value with its type. Inside a longer text a hole is a
name, with `|cents` or `|whole` for the way a number is written. Alone in a text it may also be one of few
forms: `a + b`, `a - b`, `a * b`, `old + 1`, `name + 1`, `name or null`, `float name`, `not name`, and `null`,
for which TOML has no word. Braces that are meant are doubled. A path is keys joined by dots; `<name>` is
the key that a name gives, `[field=name]` the one row of a list whose field equals a name, `[0]` a place in a
list.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = r"[^\s{}|]+"
_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_PLAIN = re.compile(rf"({_NAME})(?:\|(text|cents|whole))?")
_SUM = re.compile(rf"({_NAME}) ([+*-]) ({_NAME})")
_OR = re.compile(rf"({_NAME}) or (.+)")
_ONE = re.compile(rf"(float|not) ({_NAME})")
_INTEGER = re.compile(r"\d{1,9}")
_STEP = re.compile(r"<([^<>\s]+)>|\[([^\[\]=]+)=([^\[\]\s]+)\]|\[(\d{1,6})\]|([^.\[\]<>]+)")
_SIGNS = {"+": "plus", "-": "minus", "*": "times"}


@dataclass(frozen=True, slots=True)
class Hole:
    """One hole: what is done with which names; `text` is the literal that some kinds take."""

    kind: str  # const, name, old_plus, old_minus, old_step, next, plus, minus, times, default, float, not
    of: tuple[str, ...] = ()
    text: str = ""
    form: str = "text"  # how a name is written inside a longer text


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a path: key (constant), by (the key that `name` gives) or row (`key` equals `name`)."""

    kind: str
    key: str | int = ""
    name: str = ""


def parse_text(text: str) -> tuple[str | Hole, ...]:
    """The parts of a text: literal texts and holes.

    Raises:
        ValueError: says in words what is wrong.
    """
    parts: list[str | Hole] = []
    for match in _PARTS.finditer(text):
        part: str = match.group()
        inside: str | None = match.group(1)
        if inside is not None:
            parts.append(_hole(inside.strip()))
        elif part in ("{", "}"):
            raise ValueError(f"a lone '{part}'; double it where it is meant")
        else:
            parts.append(part[0] if part in ("{{", "}}") else part)
    if len(parts) > 1:
        for piece in parts:
            if isinstance(piece, Hole) and piece.kind != "name":
                raise ValueError("inside a longer text a hole can only be a name; calculate in a value alone")
    return tuple(parts)


def parse_path(text: str) -> tuple[PathStep, ...]:
    """The steps of a path; none for "", which is the whole answer.

    Raises:
        ValueError: it is no path.
    """
    steps: list[PathStep] = []
    place = 0
    while place < len(text):
        match = _STEP.match(text, place)
        if match is None:
            raise ValueError(f"'{text}' is no path: keys, <name> and [field=name], joined by dots")
        by, field, name, number, key = match.groups()
        if by is not None:
            steps.append(PathStep("by", name=by))
        elif field is not None:
            steps.append(PathStep("row", field, name))
        else:
            steps.append(PathStep("key", int(number) if number is not None else key))
        place = match.end()
        if place < len(text) and text[place] == ".":
            place += 1
            if place == len(text):
                raise ValueError(f"'{text}' is no path: it ends in a dot")
    return tuple(steps)


def names_in(parts: tuple[str | Hole, ...]) -> Iterator[str]:
    """The names that a text takes."""
    for part in parts:
        if isinstance(part, Hole):
            yield from part.of


def escaped(text: str) -> str:
    """A text that is meant as it stands."""
    return text.replace("{", "{{").replace("}", "}}")


def _hole(inside: str) -> Hole:
    if inside == "null":
        return Hole("const", text="null")
    if plain := _PLAIN.fullmatch(inside):
        return Hole("name", (plain[1],), form=plain[2] or "text")
    if sum_of := _SUM.fullmatch(inside):
        return _sum(sum_of[1], sum_of[2], sum_of[3])
    if match := _ONE.fullmatch(inside):
        return Hole(match[1], (match[2],))
    if either := _OR.fullmatch(inside):
        try:
            value = json.loads(either[2])
        except ValueError:
            raise ValueError(f"'{either[2]}' after 'or' is no JSON value") from None
        return Hole("default", (either[1],), json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    raise ValueError(
        f"'{{{inside}}}' is none of the forms name, a + b, a - b, a * b, name or VALUE, float name, not name"
    )


def _sum(left: str, sign: str, right: str) -> Hole:
    if left == "old":
        if sign == "*":
            raise ValueError("old can be added to and taken from, not multiplied")
        if _INTEGER.fullmatch(right):
            return Hole("old_step", text=right if sign == "+" else f"-{right}")
        return Hole("old_plus" if sign == "+" else "old_minus", (right,))
    if _INTEGER.fullmatch(right):
        if (sign, right) != ("+", "1"):
            raise ValueError(f"'{left} {sign} {right}': of numbers only + 1 can be added to a name")
        return Hole("next", (left,))
    return Hole(_SIGNS[sign], (left, right))
