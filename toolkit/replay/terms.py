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

from dreamgym_kit.plain import JsonValue
from dreamgym_kit.vocabulary import Transition

MAX_TEXT = 4_000  # characters of a row that are searched: a page of a long answer finds it
MAX_TERM = 64
ASKED = 5  # rarest known terms of a question; 8 cost twice as much and found no more (seen at 100k rows)

_TERM = re.compile(r"[\w@.\-]+")  # order numbers and addresses stay one term
_EDGE = ".-@"  # "damaged." at the end of a sentence is "damaged"

K1, B = 1.2, 0.75  # the usual BM25 constants (Robertson and Zaragoza 2009)


def search_text(transition: Transition) -> str:
    """The text that words and vectors of a row are made of, most telling parts first."""
    call, answer = transition.call, transition.answer
    parts = [call.tool, call.tool.replace("_", " "), transition.task]
    size = sum(map(len, parts))
    for value in (dict(call.args), answer.error, answer.content):
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
        plain = text.lower()
    else:
        folded = unicodedata.normalize("NFKD", text).casefold()
        plain = "".join(sign for sign in folded if not unicodedata.combining(sign))
    found = (match.strip(_EDGE)[:MAX_TERM] for match in _TERM.findall(plain))
    return [term for term in dict.fromkeys(found) if term]


def rarest(terms: Sequence[str], rows_with: Mapping[str, int]) -> list[str]:
    """The terms of a question that tell most, rarest first; those that no row has find nothing."""
    known = [term for term in terms if rows_with.get(term)]
    known.sort(key=lambda term: rows_with[term])
    return known[:ASKED]


def rarity(rows: int, rows_with: int) -> float:
    """BM25's weight of a term, never negative."""
    return max(log((rows - rows_with + 0.5) / (rows_with + 0.5)), 1e-6)


def _scalars(value: JsonValue) -> Iterator[str]:
    """Keys and values of JSON data as words, in order."""
    pending = [value]
    while pending:
        match pending.pop():
            case None | True | False:
                pass
            case str(text):
                yield text[:MAX_TEXT]
            case dict(fields):
                for key, item in reversed(fields.items()):
                    pending += (item, str(key))
            case list(items):
                pending.extend(reversed(items))
            case number:
                yield str(number)
