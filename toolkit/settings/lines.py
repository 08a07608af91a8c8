"""Which line of a TOML file a key stands on; the parsers that there are do not say.

Walks text that `tomllib` has already accepted, so it only has to know where strings, brackets and
comments end. Keys inside an inline table or an array count to the line of the key that holds them; the
n-th of several `[[tables]]` of one name has n after its name: ("fails", "2", "error").
"""

import tomllib
from dataclasses import dataclass, field

Key = tuple[str, ...]
_QUOTES = ('"""', "'''", '"', "'")


def lines_of(text: str) -> dict[Key, int]:
    """Give the 1-based line of every key and table header of a valid TOML text."""
    return _Walk(text).all()


@dataclass(slots=True)
class _Walk:
    text: str
    at: int = 0
    table: Key = ()
    lines: dict[Key, int] = field(default_factory=dict)
    several: dict[Key, int] = field(default_factory=dict)  # [[tables]] so far

    def all(self) -> dict[Key, int]:
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\r\n":
                self.at += 1
            elif character == "#":
                self._to_line_end()
            elif character == "[":
                self._header()
            else:
                self._statement()
        return self.lines

    def _note(self, key: Key, start: int) -> None:
        line = self.text.count("\n", 0, start) + 1
        for length in range(1, len(key) + 1):
            self.lines.setdefault(key[:length], line)

    def _header(self) -> None:
        start = self.at
        while self.text[self.at] == "[":
            self.at += 1
        one_of_several = self.at - start > 1
        table = self._numbered(_parts(self._until("]")), last=not one_of_several)
        if one_of_several:
            self.several[table] = self.several.get(table, 0) + 1
            table = (*table, str(self.several[table]))
        self.table = table
        self._note(table, start)
        self._to_line_end()

    def _numbered(self, table: Key, *, last: bool) -> Key:
        """The name with numbers where it goes through one of several tables."""
        named: Key = ()
        for place, part in enumerate(table, start=1):
            named = (*named, part)
            if named in self.several and (last or place < len(table)):
                named = (*named, str(self.several[named]))
        return named

    def _statement(self) -> None:
        start = self.at
        key = (*self.table, *_parts(self._until("=")))
        self.at += 1
        self._note(key, start)
        self._value()

    def _value(self) -> None:
        depth = 0
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in "\"'":
                self._string()
                continue
            if character == "#":
                self._to_line_end()
                continue
            if character == "\n" and depth == 0:
                return
            depth += (character in "[{") - (character in "]}")
            self.at += 1

    def _until(self, stop: str) -> str:
        start = self.at
        while self.text[self.at] != stop:
            if self.text[self.at] in "\"'":
                self._string()
            else:
                self.at += 1
        return self.text[start : self.at]

    def _string(self) -> None:
        quote = next(quote for quote in _QUOTES if self.text.startswith(quote, self.at))
        self.at += len(quote)
        while not self.text.startswith(quote, self.at):
            self.at += 2 if quote[0] == '"' and self.text[self.at] == "\\" else 1
        self.at += len(quote)
        while len(quote) == 3 and self.text.startswith(quote[0], self.at):
            self.at += 1  # '"""ab"""""' ends in two quotes that belong to the text

    def _to_line_end(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end


def _parts(dotted: str) -> Key:
    """Split a dotted key as TOML does, quotes and escapes included."""
    parts: list[str] = []
    inner: object = tomllib.loads(f"{dotted.strip()} = 0")
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        parts.append(name)
    return tuple(parts)
