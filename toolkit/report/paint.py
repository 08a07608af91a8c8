"""Colour marks a verdict or a level; every colour has a word beside it, so without it nothing is lost."""

from dataclasses import dataclass

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

    def _in(self, name: str, text: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.colour and text else text


PLAIN = Paint()
