"""Where a value may come from: all expressions over names that give it, and their values elsewhere.

A small closed vocabulary (a constant, a name, a text with holes, a sum, a default), as data; nothing here
is ever executed as code.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.texts import fill, has_holes, holes, mask, readable
from dreamgym_kit.dream.state.values import MISSING, add, as_number, is_number, is_scalar, spell
from dreamgym_kit.serialization import JsonValue

_DEFAULTS = ("[]", '""', "0", "1", "null", "false")
_HAS_DIGIT = re.compile(r"\d")


class Expression(NamedTuple):
    """One way to come by a value.

    Attributes:
        kind: const, name, float, text, old_plus, old_minus, old_step, next, plus, minus, times, default, not,
            with and without (a list and one value more or less, where it was not there or was).
        of: the names it takes.
        text: the spelled constant or default, the masked text, or the step.
    """

    kind: str
    of: tuple[str, ...] = ()
    text: str = ""

    @property
    def cost(self) -> float:
        """Simpler ways cost less; of two that explain as much, the cheaper one is believed."""
        if self.kind == "name":
            name = self.of[0]
            return 0.0 if name.startswith(("args.", "fresh.")) else 0.3 if name.startswith("answer.") else 3.0
        if self.kind == "text":
            return 1.0 if not re.search("\x01(row|view)\\.", self.text) else 3.0
        return _COST[self.kind]

    def names(self) -> frozenset[str]:
        """The names without which it has no value."""
        if self.kind == "default":
            return frozenset()
        return frozenset((*self.of, *holes(self.text))) if self.kind == "text" else frozenset(self.of)

    def __str__(self) -> str:
        match self.kind:
            case "const":
                return self.text
            case "name":
                return self.of[0]
            case "text":
                return f'"{readable(self.text)}"'
            case "old_plus" | "old_minus":
                return f"old {'+' if self.kind == 'old_plus' else '-'} {self.of[0]}"
            case "old_step":
                return f"old {'+' if not self.text.startswith('-') else '-'} {self.text.lstrip('-')}"
            case "next":
                return f"{self.of[0]} + 1"
            case "default":
                return f"{self.of[0]} or {self.text}"
            case "float" | "not":
                return f"{self.kind} {self.of[0]}"
            case "with" | "without":
                return f"{self.of[0]} {self.kind} {self.of[1]}"
        return f" {_SIGNS[self.kind]} ".join(self.of)


_COST = {
    "float": 0.5,
    "default": 0.8,
    "old_plus": 1.0,
    "old_minus": 1.0,
    "old_step": 1.5,
    "const": 2.0,
    "not": 2.2,
    "next": 2.5,
    "with": 2.4,
    "without": 2.4,
    "plus": 2.6,
    "minus": 2.6,
    "times": 2.6,
}
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}


def explanations(value: JsonValue, names: Names, old: object = MISSING) -> set[Expression]:
    """Every expression that gives this very value here."""
    spelled = spell(value)
    parts = isinstance(value, (dict, list)) and 0 < len(value) <= 25
    # a container is explained by its parts first: few examples make any whole look constant
    found = set() if parts else {Expression("const", text=spelled)}
    if len(spelled) > 4_000:
        return found
    found.update(Expression("name", (name,)) for name in names.by_spelling.get(spelled, ()))
    if isinstance(value, str):
        found.update(_texts(value, names))
    if is_number(value):
        found.update(_sums(value, names))
    if isinstance(value, list):
        found.update(_lists(value, names))
    if isinstance(value, bool):
        opposite = names.by_spelling.get(spell(not value), ())
        found.update(Expression("not", (name,)) for name in opposite if name.startswith("args."))
    if old is not MISSING:
        found.update(_changes(value, names, old))
    found.update(_defaults(value, spelled, names))
    return found


def evaluate(expression: Expression, names: Names, old: object = MISSING) -> object:
    """The value of an expression here; MISSING when a name is not known or does not fit."""
    kind, of, text = expression
    values = names.values
    if kind == "const":
        return json.loads(text)
    if kind == "text":
        filled = fill(text, names)
        return MISSING if filled is None else filled
    if kind == "default":
        given = values.get(of[0])
        return json.loads(text) if given is None else given
    if kind == "old_step":
        return add(old, int(text)) if is_number(old) else MISSING
    if any(name not in values for name in of):
        return MISSING
    return _of_names(kind, [values[name] for name in of], old)


def _of_names(kind: str, operands: list[JsonValue], old: object) -> object:
    first = operands[0]
    match kind:
        case "name":
            return first
        case "float":
            return float(first) if is_number(first) else MISSING
        case "not":
            return not first if isinstance(first, bool) else MISSING
        case "next":
            return add(first, 1) if is_number(first) else MISSING
        case "old_plus" | "old_minus":
            return MISSING if old is MISSING else add(old, first, 1 if kind == "old_plus" else -1)
        case "with" | "without":
            return _listed(kind, first, operands[1])
        case "plus" | "minus":
            return add(first, operands[1], 1 if kind == "plus" else -1)
    return first * operands[1] if is_number(first) and is_number(operands[1]) else MISSING


def _texts(value: str, names: Names) -> Iterator[Expression]:
    if len(value) < 2:
        return
    for prefixes in (("args.", "fresh."), ("args.", "fresh.", "answer.", "key."), ("args.", "view.", "row.")):
        if prefixes[-1] == "row." and not (len(value) > 8 and _HAS_DIGIT.search(value)):
            continue
        masked = mask(value, names, prefixes)
        if has_holes(masked):
            yield Expression("text", text=masked)


def _sums(value: JsonValue, names: Names) -> Iterator[Expression]:
    operands = names.numbers
    for name, operand in operands:
        if not name.startswith("args.") and _same(add(operand, 1), value):
            yield Expression("next", (name,))
        if isinstance(value, float) and float(operand) == value:
            yield Expression("float", (name,))
    arguments = [operand for operand in operands if operand[0].startswith("args.")]
    others = [operand for operand in operands if operand[0].startswith(("args.", "view.", "row."))]
    for (right, other), (left, one) in itertools.product(arguments, others):
        if left != right:
            yield from _of_two(value, left, one, right, other)


def _lists(value: list[JsonValue], names: Names) -> Iterator[Expression]:
    """A known list with or without something given."""
    for name, known in names.values.items():
        if not isinstance(known, list) or abs(len(known) - len(value)) > 1:
            continue
        for other, given in names.values.items():
            if other.startswith(("args.", "fresh.")) and is_scalar(given):
                for kind in ("with", "without"):
                    if _listed(kind, known, given) == value:
                        yield Expression(kind, (name, other))


def _listed(kind: str, known: JsonValue, given: JsonValue) -> object:
    if not isinstance(known, list):
        return MISSING
    if kind == "with":
        return known if given in known else [*known, given]
    place = known.index(given) if given in known else len(known)
    return known[:place] + known[place + 1 :]


def _of_two(
    value: JsonValue, left: str, one: JsonValue, right: str, other: JsonValue
) -> Iterator[Expression]:
    if _same(add(one, other), value):
        yield Expression("plus", (left, right))
    if _same(add(one, other, -1), value):
        yield Expression("minus", (left, right))
    if left < right and _same(one * other, value):
        yield Expression("times", (left, right))


def _changes(value: JsonValue, names: Names, old: JsonValue) -> Iterator[Expression]:
    if type(old) is not type(value) or as_number(value) is None or as_number(old) is None:
        return
    for name, operand in names.values.items():
        if not name.startswith(("args.", "answer.", "row.")) or not as_number(operand):
            continue
        if _same(add(old, operand), value):
            yield Expression("old_plus", (name,))
        if _same(add(old, operand, -1), value):
            yield Expression("old_minus", (name,))
    if is_number(old):
        for step in (1, -1):
            if _same(add(old, step), value):
                yield Expression("old_step", text=str(step))


def _defaults(value: JsonValue, spelled: str, names: Names) -> Iterator[Expression]:
    for name, given in names.values.items():
        if not name.startswith("args.") or "(" in name:
            continue
        if given is None and len(spelled) < 40:
            yield Expression("default", (name,), spelled)
        elif given is not None and type(given) is type(value) and given == value:
            for text in _DEFAULTS:
                yield Expression("default", (name,), text)


def _same(left: object, right: object) -> bool:
    return left is not MISSING and type(left) is type(right) and left == right
