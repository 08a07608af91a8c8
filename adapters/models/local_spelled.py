"""Special tokens that data spells: a tool's answer with `<|im_end|>` in it must not end the tool's turn.

Chat templates put what users, tools and models said between special tokens, as text; a tokenizer then finds
special tokens wherever their letters stand. So before a template sees data, each special token spelled in it
is cut behind its first letter by a mark, a character that the data lacks; behind the template the text is
tokenised in pieces, from mark to mark, and no piece spells a special token that the template did not write.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dreamgym_kit.errors import EndpointError

_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # noncharacters: no text that is exchanged has them
MARK = _MARKS[0]  # unless data has it


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a template wrote."""

    text: str
    mark: str = ""  # stands in the text where data would spell a special token; "": nowhere


class SpelledTokens:
    """Finds the special tokens of one tokenizer in data.

    Args:
        tokens: as they are spelled.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        longest_first = sorted({one for one in tokens if len(one) > 1}, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def may_stand_in(self, texts: Iterable[str]) -> bool:
        """Whether one of the texts, or a JSON text that is written with escapes, might spell one; quick."""
        joined = "\n".join(texts)
        return self._any is not None and ("\\u" in joined or self._any.search(joined) is not None)

    def mark_for(self, data: Any) -> str:
        """The mark that this data needs; "" where it spells no special token.

        Raises:
            EndpointError: the data uses up every mark there is, as no text does by chance.
        """
        if self._any is None or not any(map(self._any.search, _texts(data))):
            return ""
        for mark in _MARKS:
            if not any(mark in text for text in _texts(data)):
                return mark
        raise EndpointError(
            "rejected", "the messages spell special tokens between noncharacters (U+FDD0 ...)"
        )

    def marked(self, data: Any, mark: str) -> Any:
        """The data, each special token in it cut by the mark."""
        return _mapped(data, lambda text: mark.join(self._pieces(text))) if mark else data

    def _pieces(self, text: str) -> Iterator[str]:
        """The text, cut so that no piece spells a special token, overlapping ones neither."""
        begin = 0
        while self._any is not None and (found := self._any.search(text, begin)) is not None:
            yield text[begin : found.start() + 1]
            begin = found.start() + 1
        yield text[begin:]


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from _texts(value)


def _mapped(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {_mapped(key, change): _mapped(value, change) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_mapped(value, change) for value in data]
    return data
