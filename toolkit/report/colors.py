"""Colour, and the width that text is folded at.

Colour marks a verdict or a level; every colour has a word beside it, so without it nothing is lost.
"""

import re
import textwrap
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `--help` loads this module
    from dreamgym_kit.types import Verdict

_CODES = {"red": "1;31", "green": "32", "yellow": "33", "dim": "2"}


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours words that are already clean; changes nothing when `colour` is False."""

    colour: bool = False

    def red(self, text: str) -> str:
        """Failure, destructive, stop."""
        return self._in("red", text)

    def green(self, text: str) -> str:
        """Success, all well."""
        return self._in("green", text)

    def yellow(self, text: str) -> str:
        """Warning, fault, inconclusive."""
        return self._in("yellow", text)

    def dim(self, text: str) -> str:
        """What stands back."""
        return self._in("dim", text)

    def verdict(self, verdict: "Verdict", text: str) -> str:
        """In the colour of a verdict."""
        colours = {"passed": self.green, "inconclusive": self.yellow}
        return colours.get(verdict, self.red)(text)

    def _in(self, name: str, text: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.colour and text else text


PLAIN = Paint()
WIDTH: ContextVar[int] = ContextVar("dreamgym_kit_width", default=80)
"""Columns of whatever shows the text; a command sets those of its terminal."""
_SETTING = re.compile(r"(?:\[[^\[\]\s]+\] )?\b\w+ = (?:\[\"[^\"]*\"\]|\"[^\"]*\")(?:, name = \"[^\"]*\")?")
GLUE = "\ue000"  # a blank that no line is broken at


def fold(text: str, *, indent: int) -> str:
    """Fold at the width, never inside a word: ids, paths, commands and settings stay whole."""
    whole = _SETTING.sub(lambda match: glued(match[0]), text)
    lines = textwrap.wrap(
        whole, WIDTH.get(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(GLUE, " ") or text


def glued(text: str) -> str:
    """The text for `fold`, which then breaks no line in it."""
    return text.replace(" ", GLUE)


def labelled(label: str, text: str, *, width: int = 16) -> str:
    """A line with its label before it, in `width` columns; its further lines stand below the text."""
    return fold(f"  {label:<{width - 2}}{text}", indent=width)


def screen(word: str, sentence: str, colour: Callable[[str], str], rows: Iterable[tuple[str, str]]) -> str:
    """A word in its colour with the sentence that says why, then labelled lines."""
    head = fold(f" {word}  {sentence}", indent=len(word) + 3).replace(word, colour(word), 1)
    return "\n".join([head, *(labelled(label, text, width=14) for label, text in rows)]) + "\n"


def hung(head: str, text: str) -> str:
    """Text behind a head, its further lines below its first where 20 columns are left for them."""
    return fold(f"{head}{text}", indent=len(head) if len(head) + 20 <= WIDTH.get() else 4)
