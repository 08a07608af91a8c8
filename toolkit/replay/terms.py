"""Which words a transition can be found by, and which words of a question are looked up.

Decides the text of a row (tool, arguments, task, answer), its split into terms, and that a question is
asked by its few rarest terms: cost grows with the rows that match, and common words find everything.
Rows and questions are split by this one function; what a database makes of words is left to nobody. Stored
rows are taken out of an index by making their terms again: a change here needs a new schema of the buffer.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from math import log

from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Call, Transition

MAX_TEXT = 4_000  # characters of a row that are searched: a page of a long answer finds it
MAX_TERM = 64
ASKED = 5  # rarest known terms of a question; 8 cost twice as much and found no more (seen at 100k rows)

_TERM = re.compile(r"[\w@.\-]+")  # order numbers and addresses stay one term
_EDGE = ".-@"  # "damaged." at the end of a sentence is "damaged"
_ASCII = bytes(  # the same for ASCII in one pass: lower case, a blank for what no term has
    ord(chr(code).lower()) if code < 128 and _TERM.match(chr(code)) else ord(" ") for code in range(256)
)

K1, B = 1.2, 0.75  # the usual BM25 constants (Robertson and Zaragoza 2009)


def search_text(transition: Transition) -> str:
    """The text that words and vectors of a row are made of, most telling parts first."""
    answer = transition.answer
    return _text(transition.call, transition.task, answer.error, answer.content)


def question_text(call: Call, task: str) -> str:
    """The text by which rows like a call that has no answer yet are looked for."""
    return _text(call, task)


def _text(call: Call, task: str, *said: JsonValue) -> str:
    parts = [call.tool, call.tool.replace("_", " "), task]
    size = sum(map(len, parts))
    for value in (dict(call.args), *said):
        for part in _scalars(value):
            if size > MAX_TEXT:
                return " ".join(parts)[:MAX_TEXT]
            parts.append(part)
            size += len(part) + 1
    return " ".join(parts)[:MAX_TEXT]


def terms_of(text: str) -> list[str]:
    """Split text into terms, each once, in the order met: lower case, no accents, no sentence marks.

    >>> terms_of("Order ORD-7 arrived, damaged.")
    ['order', 'ord-7', 'arrived', 'damaged']
    """
    if text.isascii():
        words = text.encode("ascii").translate(_ASCII).decode("ascii").split()
    else:
        folded = unicodedata.normalize("NFKD", text).casefold()
        words = _TERM.findall("".join(sign for sign in folded if not unicodedata.combining(sign)))
    found = dict.fromkeys([word.strip(_EDGE)[:MAX_TERM] for word in words])
    found.pop("", None)
    return list(found)


def rarest(terms: Sequence[str], rows_with: Mapping[str, int]) -> list[str]:
    """The terms of a question that tell most, rarest first; those that no row has find nothing."""
    known = [(rows, place) for place, term in enumerate(terms) if (rows := rows_with.get(term))]
    return [terms[place] for _, place in sorted(known)[:ASKED]]


def rarity(rows: int, rows_with: int) -> float:
    """BM25's weight of a term, never negative; rows that have it may have been counted at another time."""
    having = min(rows_with, rows)
    return max(log((rows - having + 0.5) / (having + 0.5)), 1e-6)


def _scalars(value: JsonValue) -> Iterator[str]:
    """Keys and values of JSON data as words, in order."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item[:MAX_TEXT]
        elif isinstance(item, dict):
            for key, inner in reversed(item.items()):
                pending += (inner, str(key))
        elif isinstance(item, list):
            pending.extend(reversed(item))
        elif item is not None and not isinstance(item, bool):
            yield str(item)
