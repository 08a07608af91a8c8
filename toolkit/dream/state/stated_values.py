"""Values that somebody stated (in settings, or as a draft), made from names: texts with holes, compiled.

The other way to come by a value beside `templates`, which learns it from examples. Both use `expressions`.
"""

from collections.abc import Iterator, Mapping

from dreamgym_kit.dream.state.expressions import Expression, evaluate
from dreamgym_kit.dream.state.names import Names
from dreamgym_kit.dream.state.operations import OperationStep
from dreamgym_kit.dream.state.texts import hole_text, parts_of
from dreamgym_kit.dream.state.values import MISSING, spell
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.settings.templates import Hole, parse_path, parse_text


def compiled(value: JsonValue) -> "Stated":
    """A value with its holes as expressions. The text was checked when it was read."""
    if isinstance(value, Mapping):
        return Stated(record={key: compiled(item) for key, item in value.items()})
    if isinstance(value, list):
        return Stated(items=[compiled(item) for item in value])
    if isinstance(value, str):
        return Stated(leaf=_of_text(value))
    return Stated(leaf=Expression("const", text=spell(value)))


def steps_of(path: str) -> tuple[OperationStep, ...]:
    """A path as the steps that operations go."""
    return tuple(OperationStep(step.kind, step.key, step.name) for step in parse_path(path))


class Stated:
    """A leaf, an object or a list of stated values."""

    __slots__ = ("_items", "_leaf", "_record")

    def __init__(
        self,
        *,
        leaf: Expression | None = None,
        record: Mapping[str, "Stated"] | None = None,
        items: "list[Stated] | None" = None,
    ) -> None:
        self._leaf, self._record, self._items = leaf, record, items

    def value(self, names: Names, old: object = MISSING) -> object:
        """The value here; MISSING where a name that it needs is not known."""
        if self._leaf is not None:
            return evaluate(self._leaf, names, old)
        if self._record is not None:
            made = {key: item.value(names, old) for key, item in self._record.items()}
            return MISSING if MISSING in made.values() else made
        listed = [item.value(names, old) for item in self._items or ()]
        return MISSING if any(item is MISSING for item in listed) else listed

    def names(self) -> Iterator[str]:
        """The names that it takes."""
        if self._leaf is not None:
            yield from self._leaf.of
            if self._leaf.kind == "text":
                yield from (part[0] for part in parts_of(self._leaf.text) if not isinstance(part, str))
        for inner in (*(self._record or {}).values(), *(self._items or ())):
            yield from inner.names()


def _of_text(text: str) -> Expression:
    parts = parse_text(text)
    if len(parts) == 1 and isinstance(parts[0], Hole):
        hole = parts[0]
        if hole.kind == "name" and hole.form != "text":
            return Expression("text", text=hole_text(hole.of[0], hole.form))
        return Expression(hole.kind, hole.of, hole.text)
    if any(isinstance(part, Hole) for part in parts):
        masked = (part if isinstance(part, str) else hole_text(part.of[0], part.form) for part in parts)
        return Expression("text", text="".join(masked))
    return Expression("const", text=spell("".join(str(part) for part in parts)))
