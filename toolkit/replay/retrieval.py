"""How the rows that tell most are found: by which words, and how rankings become one short list of hits.

Decides the text of a row (tool, arguments, task, answer), its split into terms, and that a question is asked
by its few rarest terms: cost grows with the rows that match, and common words find everything. Rows and
questions are split by this one function; what a database makes of words is left to nobody. Stored rows are
taken out of an index by making their terms again: a change here needs a new schema of the buffer.

Decides the order, too: rankings are fused by place alone, so that a cosine and a BM25 score are never
compared; rows that say the same are said once; real rows come before all dreamt ones, which only fill up what
real ones leave open. A store gives the rankings, filtered already.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dreamgym_kit.interfaces import HybridQuery
from dreamgym_kit.serialization import JsonValue
from dreamgym_kit.types import Call, Source, Split, Transition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    return question_text(transition.call, transition.task, answer.error, answer.content)


def question_text(call: Call, task: str, *answer: JsonValue) -> str:
    """The text by which rows like a call are looked for; `answer`: its parts, where it has one."""
    parts = [call.tool, call.tool.replace("_", " "), task]
    size = sum(map(len, parts))
    for value in (dict(call.args), *answer):
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
    terms = dict.fromkeys([word.strip(_EDGE)[:MAX_TERM] for word in words])
    terms.pop("", None)
    return list(terms)


def rarest(terms: Sequence[str], rows_with: Mapping[str, int]) -> list[str]:
    """Return a query's most selective terms, rarest first; terms that no row has are left out."""
    places = [(rows, place) for place, term in enumerate(terms) if (rows := rows_with.get(term))]
    return [terms[place] for _, place in sorted(places)[:ASKED]]


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


DAMPING = 60  # Cormack, Clarke and Büttcher 2009: the usual constant


class Fused(NamedTuple):
    """A row, its fused score and its 1-based place in each ranking that had it."""

    row: int
    score: float
    places: Mapping[str, int]


def fuse(rankings: Mapping[str, Sequence[int]]) -> list[Fused]:
    """Rank rows by the sum of 1 / (60 + place); equal sums by row number.

    Args:
        rankings: rows best first, by the name of the ranking; a row is at most once in each.
    """
    places: dict[int, dict[str, int]] = {}
    for name, rows in rankings.items():
        for place, row in enumerate(rows, 1):
            if row in places:
                places[row][name] = place
            else:
                places[row] = {name: place}
    ranked = sorted(
        (-sum(1 / (DAMPING + place) for place in sorted(at.values())), row) for row, at in places.items()
    )
    return [Fused(row, -score, places[row]) for score, row in ranked]


DEPTH = 24  # rows of each ranking at first; more where many of them say the same
_spell = json.JSONEncoder(separators=(",", ":")).encode

Rank = Callable[[frozenset[Source], int], Mapping[str, Sequence[int]]]
"""Gives the best rows of these provenances by ranking name, at most so many of each."""


Same = Callable[[Sequence[int]], Iterable[int]]
"""Gives a number for each row that is equal for rows that say the same (see `sameness`), read as needed."""


def retrieve(query: HybridQuery, rank: Rank, same: Same) -> list[Fused]:
    """The best rows for a query, at most `query.k`.

    Args:
        query: what is looked for.
        rank: rows that may be found, best first.
        same: tells which rows say the same.
    """
    matches: list[Fused] = []
    seen: set[int] = set()
    real = query.sources & {Source.REAL}
    for sources in (real, query.sources - real):
        if sources and len(matches) < query.k:
            more = _distinct(query.k - len(matches), sources, rank, same, seen)
            matches += more.values()
            seen |= more.keys()
    return matches


def sameness(transition: Transition) -> int:
    """A number that is equal where tool, arguments and answer are: a second copy tells nothing new."""
    answer = transition.answer
    return number_of(_spell([transition.call.key, answer.content, answer.error]))


def number_of(text: str) -> int:
    """64 bits that equal texts have in common, and hardly any others."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def may_be_found(transition: Transition) -> bool:
    """Whether search knows a row at all: what is held out is never shown to who is measured by it."""
    return transition.split is Split.TRAIN


def fits(transition: Transition, query: HybridQuery) -> bool:
    """Whether a query asks for a row: what every store filters by, and holds its hits against."""
    return (
        transition.tenant == query.tenant
        and query.tool in (None, transition.call.tool)
        and query.environment in (None, transition.environment)
        and transition.episode != query.not_episode
        and transition.answer.source in query.sources
        and may_be_found(transition)
    )


def _distinct(k: int, sources: frozenset[Source], rank: Rank, same: Same, seen: set[int]) -> dict[int, Fused]:
    """The best rows that say something else than what was seen, and than each other, by their marks."""
    depth = max(DEPTH, 3 * k)
    while True:
        rankings = rank(sources, depth)
        first: dict[int, Fused] = {}
        fused = fuse(rankings)
        for match, mark in zip(fused, same([match.row for match in fused]), strict=True):
            if mark not in seen:
                first.setdefault(mark, match)
                if len(first) == k:
                    return first
        whole = all(len(rows) < depth for rows in rankings.values())
        if whole:
            return first
        depth *= 4


Numbers: TypeAlias = "NDArray[np.int64]"
Vector: TypeAlias = "NDArray[np.float32]"


def score_words(
    rows: Numbers, lengths: Numbers, weights: "NDArray[np.float64]", average: float
) -> "tuple[Numbers, NDArray[np.float64]]":
    """Sum BM25 over the terms of a question; a term counts once for a row, however often it stands there.

    SQLite's own `bm25()` would need an index with positions (2.2 times the size: without them it is 0 for
    every row), counts the rows of each term anew with every question (twice the time; 13 ms in place of 3 for
    common words, at 100,000 rows), and would score the word by which the rows of a tool are found, too.

    Args:
        rows: a row for each pair of a term and a row that has it, in any order.
        lengths: how many terms that row has.
        weights: the rarity of the term (`terms.rarity`).
        average: mean of terms over all rows.
    """
    import numpy as np

    parts = weights * (K1 + 1) / (1 + K1 * (1 - B + B * lengths / max(average, 1.0)))
    distinct, at = np.unique(rows, return_inverse=True)
    return distinct, np.bincount(at, weights=parts, minlength=len(distinct)).astype(np.float64)


def best(rows: Numbers, scores: "NDArray[Any]", depth: int) -> list[int]:
    """The rows with the highest scores, best first; equal to five digits: the one recorded first."""
    import numpy as np

    rounded = np.round(scores, 5)
    if len(rows) > depth:
        least = np.partition(rounded, len(rows) - depth)[len(rows) - depth]
        high = rounded >= least
        rows, rounded = rows[high], rounded[high]
    order = np.lexsort((rows, -rounded))[:depth]
    first: list[int] = rows[order].tolist()
    return first
