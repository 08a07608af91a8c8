"""How the best rows by words and by vectors become one short list of hits.

Decides: rankings are fused by place; rows that say the same are said once; real rows come before all
dreamt ones, which only fill up what real ones leave open. A store gives the rankings, filtered already.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from dreamgym_kit.ports import HybridQuery
from dreamgym_kit.replay.fusion import Fused, fuse
from dreamgym_kit.vocabulary import Provenance, Split, Transition

DEPTH = 24  # rows of each ranking at first; more where many of them say the same
_spell = json.JSONEncoder(separators=(",", ":")).encode

Rank = Callable[[frozenset[Provenance], int], Mapping[str, Sequence[int]]]
"""Gives the best rows of these provenances by ranking name, at most so many of each."""


Same = Callable[[Sequence[int]], Sequence[int]]
"""Gives a number for each row that is equal for rows that say the same (see `sameness`)."""


def retrieve(query: HybridQuery, rank: Rank, same: Same) -> list[Fused]:
    """The best rows for a query, at most `query.k`.

    Args:
        query: what is looked for.
        rank: rows that may be found, best first.
        same: tells which rows say the same.
    """
    found: list[Fused] = []
    said: set[int] = set()
    real = query.provenances & {Provenance.REAL}
    for provenances in (real, query.provenances - real):
        if provenances and len(found) < query.k:
            more = _distinct(query.k - len(found), provenances, rank, same, said)
            found += more.values()
            said |= more.keys()
    return found


def sameness(transition: Transition) -> int:
    """64 bits that are equal where tool, arguments and answer are: a second copy tells nothing new."""
    answer = transition.answer
    text = _spell([transition.call.key, answer.content, answer.error])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def may_be_found(transition: Transition) -> bool:
    """Whether search knows a row at all: what is held out is never shown to who is measured by it."""
    return transition.split is Split.TRAIN


def fits(transition: Transition, query: HybridQuery) -> bool:
    """Whether a query asks for a row: what every store filters by, and holds its hits against."""
    return (
        transition.tenant == query.tenant
        and query.tool in (None, transition.call.tool)
        and query.world in (None, transition.world)
        and transition.episode != query.not_episode
        and transition.answer.provenance in query.provenances
        and may_be_found(transition)
    )


def _distinct(
    k: int, provenances: frozenset[Provenance], rank: Rank, same: Same, said: set[int]
) -> dict[int, Fused]:
    """The best rows that say something else than what was said, and than each other, by their marks."""
    depth = max(DEPTH, 3 * k)
    while True:
        rankings = rank(provenances, depth)
        first: dict[int, Fused] = {}
        fused = fuse(rankings)
        for one, mark in zip(fused, same([one.row for one in fused]), strict=True):
            if mark not in said:
                first.setdefault(mark, one)
        whole = all(len(rows) < depth for rows in rankings.values())
        if len(first) >= k or whole:
            return dict(islice(first.items(), k))
        depth *= 4
