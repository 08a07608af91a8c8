"""Colors, and folding of text to a width.

A color marks a verdict or a level that the text also names, so nothing is lost without colors.
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
    """Color sanitized words; changes nothing if `color` is False."""

    color: bool = False

    def red(self, text: str) -> str:
        """Failure, destructive, stop."""
        return self._in("red", text)

    def green(self, text: str) -> str:
        """Success."""
        return self._in("green", text)

    def yellow(self, text: str) -> str:
        """Warning, fault, inconclusive."""
        return self._in("yellow", text)

    def dim(self, text: str) -> str:
        """Less important text."""
        return self._in("dim", text)

    def verdict(self, verdict: "Verdict", text: str) -> str:
        """Use the color of a verdict."""
        colors = {"passed": self.green, "inconclusive": self.yellow}
        return colors.get(verdict, self.red)(text)

    def _in(self, name: str, text: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.color and text else text


PLAIN = Paint()
WIDTH: ContextVar[int] = ContextVar("dreamgym_kit_width", default=80)
"""Columns of the output; a command sets those of its terminal."""
_SETTING = re.compile(r"(?:\[[^\[\]\s]+\] )?\b\w+ = (?:\[\"[^\"]*\"\]|\"[^\"]*\")(?:, name = \"[^\"]*\")?")
GLUE = "\ue000"  # a non-breaking space


def fold(text: str, *, indent: int) -> str:
    """Fold at the width, never inside a word, so that IDs, paths, commands and settings stay whole."""
    whole = _SETTING.sub(lambda match: glued(match[0]), text)
    lines = textwrap.wrap(
        whole, WIDTH.get(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(GLUE, " ") or text


def glued(text: str) -> str:
    """Make `fold` keep the text on one line."""
    return text.replace(" ", GLUE)


def labelled(label: str, text: str, *, width: int = 16) -> str:
    """Format a text after a label of `width` columns; further lines are indented below the text."""
    return fold(f"  {label:<{width - 2}}{text}", indent=width)


def screen(word: str, sentence: str, color: Callable[[str], str], rows: Iterable[tuple[str, str]]) -> str:
    """Format a colored word with its explanation, then labeled lines."""
    head = fold(f" {word}  {sentence}", indent=len(word) + 3).replace(word, color(word), 1)
    return "\n".join([head, *(labelled(label, text, width=14) for label, text in rows)]) + "\n"


def hung(head: str, text: str) -> str:
    """Format a text after a head, with hanging indentation if at least 20 columns remain."""
    return fold(f"{head}{text}", indent=len(head) if len(head) + 20 <= WIDTH.get() else 4)
