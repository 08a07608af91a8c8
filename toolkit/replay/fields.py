"""The fields of one JSON object from a file, each read once and named by its path when it is wrong.

Decides the words of such a message ("world.seed: expected a whole number, got 'seven'"); which fields
there are and what they mean is said where they are read (records of the buffer, tasks, episodes, manifest).
"""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite
from typing import TypeVar

from dreamgym_kit.errors import NotJson
from dreamgym_kit.plain import JsonValue

T = TypeVar("T")
Name = TypeVar("Name", bound=StrEnum)


class Required:
    """Marks a field without a default."""


REQUIRED = Required()


class Fields:
    """One object whose fields are known by name.

    Args:
        value: what the reader gave; anything but an object is refused.
        where: path of the object, "" for the outermost.
        known: every name that it may have.
        what: what the outermost object is, for the message that it is none.
    """

    def __init__(self, value: object, where: str, known: Collection[str], *, what: str = "this") -> None:
        if not isinstance(value, dict):
            raise NotJson(f"{where or what}: expected an object, got {shown(value)}")
        self._value = value
        self._where = where
        self._known = known

    def unknown(self) -> list[str]:
        """One sentence for each name that is not known, with the nearest known one."""
        names = [name for name in self._value if name not in self._known]
        return [f"{self.path(name)}: {_nearest('no such field', str(name), self._known)}" for name in names]

    def refuse_unknown(self) -> None:
        """Raise `NotJson` for the first name that is not known."""
        problems = self.unknown()
        if problems:
            raise NotJson(problems[0])

    def take(self, name: str, read: Callable[[object, str], T], default: T | Required = REQUIRED) -> T:
        """Give field `name` as `read` gives it, or its default where it is missing."""
        if name in self._value:
            return read(self._value[name], f"{self._where}.{name}" if self._where else name)
        if isinstance(default, Required):
            raise NotJson(f"{self.path(name)}: missing")
        return default

    def path(self, name: object) -> str:
        """The path of a field, as messages name it."""
        short = name if isinstance(name, str) and name.isidentifier() and len(name) <= 60 else shown(name)
        return f"{self._where}.{short}" if self._where else str(short)


def text(value: object, where: str) -> str:
    """Read any text."""
    if not isinstance(value, str):
        raise NotJson(f"{where}: expected text, got {shown(value)}")
    return value


def filled_text(value: object, where: str) -> str:
    """Read a text that says something."""
    if not text(value, where).strip():
        raise NotJson(f"{where}: is empty")
    return str(value)


def text_or_none(value: object, where: str) -> str | None:
    """Read a text, or null."""
    return None if value is None else text(value, where)


def texts(value: object, where: str) -> tuple[str, ...]:
    """Read a list of texts."""
    return tuple(text(item, f"{where}[{place}]") for place, item in enumerate(items(value, where)))


def items(value: object, where: str) -> list[JsonValue]:
    """Read a list of anything."""
    if not isinstance(value, list):
        raise NotJson(f"{where}: expected a list, got {shown(value)}")
    return value


def mapping(value: object, where: str) -> Mapping[str, JsonValue]:
    """Read an object of anything."""
    if not isinstance(value, dict):
        raise NotJson(f"{where}: expected an object, got {shown(value)}")
    return value


def whole(value: object, where: str) -> int:
    """Read a whole number; true and false are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotJson(f"{where}: expected a whole number, got {shown(value)}")
    return value


def truth(value: object, where: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise NotJson(f"{where}: expected true or false, got {shown(value)}")
    return value


def number(value: object, where: str) -> float:
    """Read a finite number; true and false are none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            if isfinite(value):
                return value
        except OverflowError:  # an integer beyond every float
            pass
    raise NotJson(f"{where}: expected a finite number, got {shown(value)}")


def number_or_none(value: object, where: str) -> float | None:
    """Read a finite number, or null."""
    return None if value is None else number(value, where)


def anything(value: object, _where: str) -> JsonValue:
    """Read any JSON value."""
    return value


def name_of(kind: type[Name]) -> Callable[[object, str], Name]:
    """Give a reader for the names of an enum."""

    def read(value: object, where: str) -> Name:
        name = text(value, where)
        try:
            return kind(name)
        except ValueError:
            raise NotJson(f"{where}: {_nearest(shown(name), name, list(kind))}") from None

    return read


def shown(value: object) -> str:
    """A value as a short word for a message; never a whole payload."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return ascii(value[:40])
        case float():
            return f"{value:g}"
        case int():
            return str(value) if value.bit_length() < 64 else "a very large number"
        case dict():
            return "an object"
        case list():
            return "a list"
    return type(value).__name__


def _nearest(found: str, name: str, known: Collection[str]) -> str:
    near = get_close_matches(name[:60], known, n=1)
    return f"{found}; did you mean '{near[0]}'?" if near else f"{found}; known: {', '.join(known)}"
