"""Texts with holes: which named values stand in a message, and the message for other values.

A hole is a whole word: the 12 of "O12" or of "12.50" is not the argument 12.
"""

import re

from dreamgym_kit.dream.state.names import Names, spelled_as
from dreamgym_kit.dream.state.values import as_number
from dreamgym_kit.dream.state.volatile import SYMBOL
from dreamgym_kit.serialization import JsonValue

_OPEN, _CLOSE = "\x01", "\x02"  # around a hole; no tool writes them
_HOLE = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]+){_CLOSE}")
_DIGITS = re.compile(r"\d+(\.\d+)?")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def mask(text: str, names: Names, prefixes: tuple[str, ...] = ("args.",)) -> str:
    """The text with a hole for each value that one of the names stands for; longest values first."""
    inside = [(part, name) for part, name in names.texts if name.startswith(prefixes) and part in text]
    if not inside or len(text) > 5_000:
        return text
    made, place = [], 0
    while place < len(text):
        for part, name in inside:
            if text.startswith(part, place) and _is_word(text, place, part):
                made.append(f"{_OPEN}{name}{_CLOSE}")
                place += len(part)
                break
        else:
            symbol = SYMBOL.match(text, place)  # the words in its name are not the caller's
            made.append(symbol[0] if symbol else text[place])
            place += len(made[-1])
    return "".join(made)


def has_holes(masked: str) -> bool:
    """Whether a masked text says anything that its values do not say alone."""
    return _OPEN in masked and _HOLE.fullmatch(masked) is None


def holes(masked: str) -> list[str]:
    """The names in a masked text."""
    return [hole.rsplit("|", 1)[0] for hole in _HOLE.findall(masked)]


def fill(masked: str, names: Names) -> str | None:
    """The text for these values; None when one is not known."""
    missing = False

    def value(hole: re.Match[str]) -> str:
        nonlocal missing
        name, form = hole.group(1).rsplit("|", 1)
        if name not in names.values:
            missing = True
            return ""
        try:
            return spelled_as(names.values[name], form)
        except (TypeError, ValueError):
            missing = True
            return ""

    filled = _HOLE.sub(value, masked)
    return None if missing else filled


def readable(masked: str) -> str:
    """A masked text for a person: "{args.order_id} is already cancelled"."""
    return _HOLE.sub(lambda hole: "{" + hole.group(1).rsplit("|", 1)[0] + "}", masked)


def kind_of_text(text: JsonValue, names: Names) -> str:
    """What is left of a message without arguments, numbers and quotes: equal for the same kind."""
    bare = _HOLE.sub(lambda hole: _sort_of(hole.group(1), names), mask(str(text), names))
    bare = _QUOTED.sub("@", _DIGITS.sub("#", bare))
    return bare if len(bare) < 200 else "long text"


def _sort_of(hole: str, names: Names) -> str:
    """A number or a word: whether a number is an argument's may be chance, so it does not make a kind."""
    return "#" if as_number(names.values.get(hole.rsplit("|", 1)[0])) is not None else "@"


def _is_word(text: str, place: int, part: str) -> bool:
    end = place + len(part)
    before, after = text[place - 1 : place], text[end : end + 1]
    if part[0].isalnum() and (before.isalnum() or (before == "." and part[0].isdigit())):
        return False
    if not part[-1].isalnum():
        return True
    decimals = part[-1].isdigit() and after == "." and text[end + 1 : end + 2].isdigit()
    return not (after.isalnum() or decimals)


def hole_text(name: str, form: str = "text") -> str:
    """A hole for a name, written in one of the ways in which a value stands in a text."""
    return f"{_OPEN}{name}|{form}{_CLOSE}"


def parts_of(masked: str) -> list[str | tuple[str, str]]:
    """A masked text in parts: literal texts, and (name, form) for holes."""
    parts: list[str | tuple[str, str]] = []
    for place, part in enumerate(_HOLE.split(masked)):
        if place % 2:
            name, form = part.rsplit("|", 1)
            parts.append((name, form))
        elif part:
            parts.append(part)
    return parts
